"""What type checkers must know of a program. Nothing here is executed: ``make check`` reads it.

Each suppressed line is one that must be refused; a checker that lets it pass complains about the suppression.
"""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass
from typing import assert_type

from bartack import Context, Outcome, Retry, Session, ShellResult, step, worker
from bartack.messaging import BroadcastResult, SendOutcome, broadcast_supervised, send_supervised
from bartack.messaging.strategy import quorum
from bartack.runtime import Budget, Handle, Reply, WorkerCall


@dataclass(frozen=True)
class Finding:
    """Something found."""

    file: str
    risk: int


@step
def count(path: str, *, deep: bool = False) -> int:
    """A sync step."""
    return len(path) + deep


@step(retry=Retry(attempts=3, on=(OSError,)), timeout_s=datetime.timedelta(seconds=5))
async def fetch(url: str) -> bytes:
    """An async step."""
    return url.encode()


@step(changes=False)
def look_up(name: str) -> str:
    """A step that writes nothing."""
    return name


@worker
async def scout(ctx: Context, path: str, limit: int = 3) -> list[Finding]:
    """A worker."""
    return [Finding(path, limit)]


@worker(name="clerk-2", agent="claude", timeout_s=60)
async def clerk(ctx: Context, *names: str) -> bool:
    """A worker with options."""
    return bool(names)


async def own(ctx: Context) -> str:
    """A coroutine of the program's own."""
    await ctx.sleep(1)
    return "done"


def plain(x: int) -> str:
    """A plain function."""
    return str(x)


async def workers(ctx: Context) -> None:
    """Descriptions, delegates, handles."""
    assert_type(scout("a"), WorkerCall[list[Finding]])
    assert_type(await scout("a", limit=5), list[Finding])
    assert_type(await ctx.delegate([clerk("a"), clerk("b")]), list[bool])
    assert_type(await ctx.delegate((scout("a"), clerk())), tuple[list[Finding], bool])
    assert_type(await ctx.delegate((clerk(), clerk(), scout("a"))), tuple[bool, bool, list[Finding]])
    assert_type(await ctx.delegate([clerk()], on_failure="collect", limit=2), list[Outcome[bool]])
    assert_type(await ctx.delegate(clerk()), bool)
    assert_type(await ctx.delegate(clerk(), on_failure="collect"), Outcome[bool])
    handle = await ctx.spawn(clerk("a"))
    assert_type(handle, Handle[bool])
    assert_type(await handle, bool)
    assert_type(await (await ctx.spawn(clerk("a"), on_failure="collect")), Outcome[bool])
    outcome = (await ctx.delegate([scout("a")], on_failure="collect"))[0]
    assert_type(outcome.unwrap(), list[Finding])


async def steps(ctx: Context) -> None:
    """Steps of one's own."""
    assert_type(await count("a", deep=True), int)
    assert_type(await fetch("a"), bytes)
    assert_type(await look_up("a"), str)
    assert_type(await ctx.step(plain, 5, once=True), str)
    assert_type(count.function("a"), object)


async def agents_and_people(ctx: Context) -> None:
    """Prompts and questions."""
    assert_type(await ctx.think("Say something."), str)
    assert_type(await ctx.think("How many?", type=int), int)
    assert_type(await ctx.think("Which?", type=list[Finding], max_usd=1.0), list[Finding])
    assert_type(await ctx.think("How many?", type=int, may_decline=True), int | None)
    reply = await ctx.think_reply("Ready?", type=bool)
    assert_type(reply, Reply[bool])
    assert_type(await ctx.think("Sure?", type=bool, continues=reply), bool)
    assert_type(await ctx.ask("Name?"), str)
    assert_type(await ctx.ask("Go on?", type=bool, default=True), bool)


async def the_world(ctx: Context) -> None:
    """Commands, files, time, chance, money."""
    assert_type(await ctx.shell("git", "log", "-n", 3, check=False, changes=False), ShellResult)
    assert_type((await ctx.shell("cat", text=False)).stdout, bytes)
    assert_type(await ctx.pipe(["git", "log"], ["head", "-3"]), ShellResult)
    assert_type(await ctx.read("a"), str)
    assert_type(await ctx.list("*"), list[str])
    assert_type(await ctx.env("A"), str | None)
    assert_type(await ctx.now(), datetime.datetime)
    assert_type(await ctx.random(), float)
    assert_type(await ctx.random(1, 6), int)
    assert_type(await ctx.uuid(), uuid.UUID)
    assert_type(await ctx.deadline(), float | None)
    assert_type(await ctx.budget(), Budget)


async def branches_and_messages(ctx: Context) -> None:
    """Branches, groups, mailboxes."""
    assert_type(await ctx.gather(own(ctx), own(ctx)), list[str])
    assert_type(await ctx.gather(count("a"), count("b"), on_failure="collect"), list[Outcome[int]])
    async with ctx.task_group() as group, ctx.timeout(5):
        branch = group.start(own(ctx))
        assert_type(await branch, str)
    assert_type(await ctx.mailbox.findings.send(Finding("a", 1)), str)
    assert_type(await ctx.mailbox["findings"].receive(5), object)
    assert_type(await ctx.mailbox.findings.receive(type=Finding), Finding)
    async with ctx.inbox.delivery() as delivery:
        assert_type(delivery.value, object)


async def deliveries(ctx: Context, session: Session) -> None:
    """Messages that are seen to, inside and outside."""
    handle = await ctx.spawn(scout("a"))
    assert_type(await ctx.send_supervised(handle, 1, ack="processed", retries=2), SendOutcome)
    assert_type(await ctx.mailbox.box.send_supervised(1, deadline=5), SendOutcome)
    assert_type(await send_supervised(ctx, "box", 1), SendOutcome)
    assert_type(send_supervised(session, "box", 1), SendOutcome)
    assert_type(await ctx.broadcast([handle, "box", ("me", ctx.inbox, {})], 1, quorum(2)), BroadcastResult)
    assert_type(broadcast_supervised(session, ["a", "b"], 1, on_error="log"), BroadcastResult)
    assert_type(await ctx.publish("a.b", 1), BroadcastResult)
    assert_type(await ctx.register("clerk"), int)
    assert_type((await ctx.send_supervised("box", 1)).unwrap(), str)


async def refused(ctx: Context) -> None:
    """What no checker may let pass."""
    scout(5)  # type: ignore[arg-type]  # - a path is a text
    scout("a", depth=1)  # type: ignore[call-arg]  # - there is no such parameter
    await count(5)  # type: ignore[arg-type]  # - a path is a text
    await fetch()  # type: ignore[call-arg]  # - a url is needed
    await ctx.shell("ls", None)  # type: ignore[call-overload]  # - not a word
    await ctx.shell("ls", cwdd="x")  # type: ignore[call-overload]  # - there is no such option
    await ctx.delegate([5])  # type: ignore[arg-type]  # - not a worker with its arguments
    await ctx.send_supervised("box", 1, ack="seen")  # type: ignore[arg-type]  # - there is no such level
    await ctx.write("a")  # type: ignore[call-arg]  # - what?


@worker  # type: ignore[arg-type]  # - a worker takes ctx first
async def no_context(path: str) -> None:
    """No worker."""
