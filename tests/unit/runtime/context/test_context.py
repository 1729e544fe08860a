"""The members of ctx: what each asks of the hub, and what it gives back."""

from __future__ import annotations

import datetime
import errno
import json
import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.fake_hub import FakeHub, Program

from bartack.errors import (
    BartackError,
    BudgetExceededError,
    DeliveryOptionError,
    FileAccessError,
    MailboxConfigError,
    MailboxNameError,
    MessageTooLargeError,
    MessageValueError,
    ReplyInvalidError,
    SessionFailedError,
    TypeMismatchError,
    WorkerError,
)
from bartack.runtime.context.context import Context
from bartack.runtime.context.decorators import worker
from bartack.runtime.context.definitions import WorkerCall
from bartack.runtime.context.mailbox import Mailbox
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import source_places as _source_places
from bartack.runtime.scheduler.results import Budget, Outcome, Reply, ShellBytes, ShellResult

Call = Callable[[Any], object]
"""A call of a member of ctx, which may be one that no type checker would let pass."""

FIXED = datetime.datetime(2026, 3, 1, 9, 30, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Finding:
    file: str
    risk: int


@worker
async def scout(ctx: Context, file: str) -> Finding:
    return Finding(file, len(file))


@worker
async def counter(ctx: Context, *, upto: int = 3) -> list[int]:
    return list(range(upto))


def asked(hub: FakeHub, place: int = 0) -> dict[str, object]:
    """What the hub was asked in a step."""
    return msgspec.json.decode(hub.said(f.Step)[place].a, type=dict[str, object])


def payload(hub: FakeHub, place: int = 0) -> object:
    """The payload of a step."""
    v = hub.said(f.Step)[place].v
    return None if v is None else msgspec.json.decode(v)


def ask(hub: FakeHub, program: Program, answer: object = None) -> object:
    """Run a program of one step, answered so; and once more from its history."""
    hub.start(program)
    hub.answer(answer)
    result = hub.result()
    again = hub.run(program)
    assert (again, type(again)) == (result, type(result))
    return result


def shell_outcome(**fields: object) -> dict[str, object]:
    return {"argv": ["x"], "status": 0, **fields}


# Commands.


def test_a_command_is_a_list_of_exact_words(hub: FakeHub) -> None:
    async def program(ctx: Context) -> ShellResult:
        return await ctx.shell("cp", Path("a b"), 3, 0.5, "$HOME; *")

    result = ask(hub, program, shell_outcome(stdout="one\ntwo\n\n", stderr="careful"))

    assert asked(hub) == {"pipeline": [["cp", "a b", "3", "0.5", "$HOME; *"]]}
    assert isinstance(result, ShellResult)
    assert (str(result), result.lines(), result.stderr) == ("one\ntwo", ["one", "two", ""], "careful")
    assert result.ok
    assert result


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=5))
def test_any_words_arrive_unchanged(words: list[str]) -> None:
    hub = FakeHub()

    async def program(ctx: Context) -> None:
        await ctx.shell(*words)

    hub.start(program)
    hub.settle()
    hub.close()

    assert asked(hub)["pipeline"] == [words]


def test_every_option_of_a_command_reaches_the_hub(hub: FakeHub) -> None:
    async def program(ctx: Context) -> ShellResult:
        return await ctx.shell(
            "make",
            cwd=Path("sub"),
            env={"A": "1"},
            stdin="text",
            timeout_s=datetime.timedelta(minutes=1),
            check=False,
            once=True,
        )

    result = ask(hub, program, shell_outcome(status=2))

    assert asked(hub) == {
        "pipeline": [["make"]],
        "cwd": "sub",
        "env": {"A": "1"},
        "timeout_s": 60.0,
        "check": False,
        "once": True,
    }
    assert payload(hub) == "dGV4dA=="
    assert not result


def test_commands_can_be_connected(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return str(await ctx.pipe(["git", "log"], ["head", "-3"], stdin=b"\x00"))

    assert ask(hub, program, shell_outcome(stdout="a\n")) == "a"
    assert asked(hub)["pipeline"] == [["git", "log"], ["head", "-3"]]
    assert hub.said(f.Step)[0].about == "git log | head -3"


@pytest.mark.requirement("fleet-copies-unneeded")
def test_that_a_command_changes_nothing_can_be_added_to_a_program_later(hub: FakeHub) -> None:
    async def before(ctx: Context) -> None:
        await ctx.shell("git", "status")
        await ctx.pipe(["git", "log"], ["head"], text=False)

    async def after(ctx: Context) -> None:
        await ctx.shell("git", "status", changes=False)
        await ctx.pipe(["git", "log"], ["head"], text=False, changes=False)
        await ctx.shell("git", "diff", changes=False)

    hub.start(before)
    for _ in range(2):
        hub.answer(shell_outcome())
    hub.start(after)
    hub.answer(shell_outcome())

    assert hub.result() is None
    assert len(hub.said(f.Step)) == 3, "the first two are in the history"
    assert asked(hub) == {"pipeline": [["git", "status"]]}
    assert asked(hub, 2) == {"pipeline": [["git", "diff"]], "changes": False}


def test_output_that_is_no_text(hub: FakeHub) -> None:
    async def as_bytes(ctx: Context) -> ShellBytes:
        return await ctx.shell("x", text=False)

    async def as_text(ctx: Context) -> str:
        return (await ctx.shell("x")).stdout

    raw = ask(hub, as_bytes, shell_outcome(stdout64="AP8=", stderr="plain"))

    assert isinstance(raw, ShellBytes)
    assert (raw.stdout, raw.stderr, raw.ok, bool(raw)) == (b"\x00\xff", b"plain", True, True)
    hub.journal.clear()
    assert ask(hub, as_text, shell_outcome(stdout64="AP8=")) == "\x00�"


NONSENSE: list[tuple[Call, str]] = [
    (lambda ctx: ctx.shell(), "needs the name of a program"),
    (lambda ctx: ctx.shell("ls", None), "not NoneType"),
    (lambda ctx: ctx.shell("ls", True), "not bool"),
    (lambda ctx: ctx.shell(["ls"]), "not list"),
    (lambda ctx: ctx.pipe(), "the command is missing"),
    (lambda ctx: ctx.pipe("ls -l"), "not the text 'ls -l'"),
    (lambda ctx: ctx.pipe([]), "needs the name of a program"),
    (lambda ctx: ctx.shell("ls", cwdd="x"), "unexpected keyword argument 'cwdd'"),
    (lambda ctx: ctx.think("x", tols=()), "unexpected keyword argument 'tols'"),
    (lambda ctx: ctx.delegate(5), "a worker with its arguments, or a list"),
    (lambda ctx: ctx.delegate([5]), "5 is not a worker"),
    (lambda ctx: ctx.delegate([], limits=1), "unexpected keyword argument 'limits'"),
    (lambda ctx: ctx.trap("yes"), "True or False, not 'yes'"),
]


@pytest.mark.parametrize(("call", "problem"), NONSENSE)
def test_calls_that_make_no_sense_are_refused_at_their_line(hub: FakeHub, call: Call, problem: str) -> None:
    async def program(ctx: Context) -> None:
        call(ctx)

    with pytest.raises(TypeError, match=problem):
        hub.run(program)
    assert hub.heard == []


OUT_OF_RANGE: list[Call] = [
    lambda ctx: ctx.sleep(-1),
    lambda ctx: ctx.sleep(float("nan")),
    lambda ctx: ctx.sleep(float("inf")),
    lambda ctx: ctx.timeout(1e300),
    lambda ctx: ctx.shell("ls", timeout_s=-1),
    lambda ctx: ctx.mailbox.q.receive(-1),
    lambda ctx: ctx.timeout(-0.5),
    lambda ctx: ctx.sleep_until(FIXED.replace(tzinfo=None)),
    lambda ctx: ctx.mailbox.q.send(1, not_before=FIXED.replace(tzinfo=None)),
    lambda ctx: ctx.random(5, 4),
    lambda ctx: ctx.mailbox.q.drain(-1),
]


@pytest.mark.parametrize("call", OUT_OF_RANGE)
def test_times_and_ranges_that_make_no_sense_are_refused(hub: FakeHub, call: Call) -> None:
    async def program(ctx: Context) -> None:
        call(ctx)

    with pytest.raises(
        ValueError, match=r"must not be negative|must be at most|has no time zone|no integer is between"
    ):
        hub.run(program)


# Agents and people.


def reply(**fields: object) -> dict[str, object]:
    return {"key": "ik:1", "agent": "claude", **fields}


def test_a_prompt_without_a_type_gives_text(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await ctx.think("Say hello.")

    assert ask(hub, program, reply(text="hello")) == "hello"
    assert asked(hub) == {"prompt": "Say hello.", "name": "main"}


def test_a_prompt_with_a_type_gives_a_value_of_it(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[Finding]:
        return await ctx.think(
            "Look.", type=list[Finding], agent="codex", max_usd=1.5, timeout_s=9, once=True
        )

    result = ask(hub, program, reply(value=[{"file": "a", "risk": 3}]))

    assert result == [Finding("a", 3)]
    request = asked(hub)
    assert request["agent"] == "codex"
    assert (request["max_usd"], request["timeout_s"], request["once"]) == (1.5, 9.0, True)
    assert cast("dict[str, object]", request["schema"])["type"] == "array"


def test_a_reply_that_does_not_fit_is_invalid(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int:
        return await ctx.think("How many?", type=int)

    hub.start(program)
    hub.answer(reply(value="many"))

    with pytest.raises(ReplyInvalidError, match="expected int, found str"):
        hub.result()


def test_a_declined_prompt_is_none(hub: FakeHub) -> None:
    async def program(ctx: Context) -> int | None:
        return await ctx.think("How many?", type=int, may_decline=True)

    assert ask(hub, program, reply(declined=True)) is None
    assert asked(hub)["may_decline"] is True


def test_a_reply_can_be_continued(hub: FakeHub) -> None:
    async def program(ctx: Context) -> Reply[bool]:
        first = await ctx.think_reply("One?")
        return await ctx.think_reply("Sure?", type=bool, continues=first)

    hub.start(program)
    hub.answer(reply(text="1", conversation="c-1", usd=0.25, tokens=10, turns=2))
    hub.answer(reply(value=True, text="true", conversation="c-1"))

    result = cast("Reply[object]", hub.result())
    assert (result.value, result.text, result.key, result.agent) == (True, "true", "ik:1", "claude")
    assert asked(hub, 1)["continues"] == "c-1"


def test_the_agent_of_the_worker_is_asked_but_not_part_of_the_fingerprint(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await ctx.think("x")

    hub.agent = "claude"
    hub.start(program)
    hub.settle()
    hub.agent = "codex"
    hub.open.clear()
    hub.start(program)
    hub.settle()

    first, second = hub.said(f.Step)
    assert [asked(hub, 0)["agent"], asked(hub, 1)["agent"]] == ["claude", "codex"]
    assert first.fp == second.fp


@pytest.mark.parametrize(
    ("kind", "name", "answer", "result"),
    [
        (str, "str", "yes", "yes"),
        (bool, "bool", True, True),
        (int, "int", 3, 3),
        (list[int], "json", [1], [1]),
    ],
    ids=str,
)
def test_a_question_says_what_it_wants(
    hub: FakeHub, kind: type[object], name: str, answer: object, result: object
) -> None:
    async def program(ctx: Context) -> object:
        return await ctx.ask("Which?", type=kind)

    assert ask(hub, program, answer) == result
    assert asked(hub).get("type", "str") == name
    assert asked(hub)["question"] == "Which?"


def test_a_question_can_have_options_a_default_and_a_deadline(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await ctx.ask("Which?", options=["a", "b"], default="a", timeout_s=60)

    assert ask(hub, program, "b") == "b"
    assert asked(hub) == {"question": "Which?", "options": ["a", "b"], "default": "a", "timeout_s": 60.0}


# Workers.


def test_delegating_gives_the_results_in_order(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[Finding]:
        return await ctx.delegate([scout("a"), scout("bb")], timeout_s=5, limit=1)

    result = ask(hub, program, [{"file": "a", "risk": 1}, {"file": "bb", "risk": 2}])

    assert result == [Finding("a", 1), Finding("bb", 2)]
    assert asked(hub) == {"workers": [f"{__name__}:scout"] * 2, "timeout_s": 5.0, "limit": 1}
    assert payload(hub) == [{"args": ["a"]}, {"args": ["bb"]}]


def test_a_tuple_of_workers_gives_a_tuple(hub: FakeHub) -> None:
    async def program(ctx: Context) -> tuple[Finding, list[int]]:
        return await ctx.delegate((scout("a"), counter(upto=2)))

    result = ask(hub, program, [{"file": "a", "risk": 1}, [0, 1]])

    assert result == (Finding("a", 1), [0, 1])
    assert payload(hub) == [{"args": ["a"]}, {"args": [], "kwargs": {"upto": 2}}]


def test_awaiting_a_worker_is_a_delegate_of_one(hub: FakeHub) -> None:
    async def program(ctx: Context) -> Finding:
        return await scout("a")

    assert ask(hub, program, [{"file": "a", "risk": 1}]) == Finding("a", 1)
    assert hub.said(f.Step)[0].step == "delegate"


def test_collected_failures_are_values(hub: FakeHub) -> None:
    failure = {
        "type": "builtins:ValueError",
        "message": "broken",
        "args": ["broken"],
        "worker": "main/1.2:scout",
    }

    async def program(ctx: Context) -> list[Outcome[Finding]]:
        return await ctx.delegate([scout("a"), scout("b")], on_failure="collect")

    hub.start(program)
    hub.answer([{"ok": True, "value": {"file": "a", "risk": 1}}, {"ok": False, "error": failure}])

    good, bad = cast("list[Outcome[Finding]]", hub.result())
    assert (good.ok, good.unwrap()) == (True, Finding("a", 1))
    assert bad.error is not None
    assert (bad.ok, bad.error.kind, bad.error.message, bad.error.worker) == (
        False,
        "ValueError",
        "broken",
        "main/1.2:scout",
    )
    with pytest.raises(ValueError, match="broken"):
        bad.unwrap()


def test_arguments_of_the_wrong_type_are_refused_by_the_delegating_worker(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.delegate([cast("Callable[..., WorkerCall[Finding]]", scout)(5)])

    with pytest.raises(TypeMismatchError, match="expected str, found int"):
        hub.run(program)


def test_the_hub_learns_where_in_the_program_workers_agents_and_people_are_asked(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.gather(
            ctx.delegate(scout("a")),
            ctx.spawn(scout("b")),
            ctx.think("why?"),
            ctx.ask("which?"),
            ctx.shell("ls"),
        )

    hub.start(program)
    hub.settle()

    first = program.__code__.co_firstlineno + 2
    sites = {frame.step: frame.site for frame in hub.said(f.Step)}
    assert sites == {
        "delegate": f.Site(__file__, first),
        "spawn": f.Site(__file__, first + 1),
        "think": f.Site(__file__, first + 2),
        "ask": f.Site(__file__, first + 3),
        "shell": None,
    }


def test_a_place_in_the_program_of_a_run_is_named_from_its_root(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(ctx: Context) -> None:
        await ctx.ask("which?")

    for kept, file in ((Path(__file__).parent, Path(__file__).name), (Path("/elsewhere"), None)):
        monkeypatch.setattr(_source_places._sources, "kept", f"{kept}/")
        hub.start(program)
        hub.settle()

        site = hub.said(f.Step)[-1].site
        assert (site and site.file) == file


def test_a_spawned_worker_is_joined_and_cancelled_by_its_path(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        handle = await ctx.spawn(scout("a"))
        found = await handle
        await handle.cancel("enough")
        return [handle.path, found, repr(handle)]

    hub.start(program)
    hub.answer("main/1:scout", step="spawn")
    hub.answer({"file": "a", "risk": 1}, step="join")
    hub.answer(step="stop")

    assert hub.result() == ["main/1:scout", Finding("a", 1), "<handle of main/1:scout>"]
    assert [asked(hub, place) for place in (1, 2)] == [
        {"path": "main/1:scout"},
        {"path": "main/1:scout", "reason": "enough"},
    ]


@pytest.mark.parametrize(
    ("joined", "ok", "value"),
    [
        ({"file": "a", "risk": 1}, True, Finding("a", 1)),
        ({"ok": False, "error": {"type": "builtins:ValueError", "message": "x"}}, False, None),
    ],
    ids=["result", "failure"],
)
def test_a_collected_child_gives_an_outcome(
    hub: FakeHub, joined: dict[str, object], ok: bool, value: object
) -> None:
    async def program(ctx: Context) -> Outcome[Finding]:
        return await (await ctx.spawn(scout("a"), on_failure="collect"))

    hub.start(program)
    hub.answer("main/1:scout", step="spawn")
    hub.answer(joined, step="join")

    outcome = cast("Outcome[Finding]", hub.result())
    assert (outcome.ok, outcome.value) == (ok, value)


def test_the_failure_of_a_worker_is_raised_with_its_cause(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await scout("a")

    hub.start(program)
    hub.refuse(WorkerError("main/1.1:scout", "ValueError", "broken"))

    with pytest.raises(WorkerError, match="scout failed"):
        hub.result()


# Mailboxes.


def test_a_message_is_sent_with_everything_that_goes_with_it(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await ctx.mailbox["to-do"].send(
            Finding("a", 1), key="k", metadata={"by": "me"}, not_before=FIXED
        )

    assert ask(hub, program, "m-1") == "m-1"
    moment = int(FIXED.timestamp() * 1e6)
    assert asked(hub) == {"mailbox": "to-do", "key": "k", "metadata": {"by": "me"}, "not_before": moment}
    assert payload(hub) == {"file": "a", "risk": 1}


def test_a_delay_counts_from_when_the_message_is_sent_and_replays(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        return await ctx.mailbox.q.send(1, not_before=60)

    before = datetime.datetime.now(datetime.UTC).timestamp()
    assert ask(hub, program, "m-1") == "m-1"
    assert before + 59 < cast("int", asked(hub)["not_before"]) / 1e6 < before + 120


def test_a_message_can_be_asked_to_be_of_a_type(hub: FakeHub) -> None:
    async def program(ctx: Context) -> Finding:
        return await ctx.mailbox.findings.receive(900, type=Finding)

    assert ask(hub, program, {"file": "a", "risk": 1}) == Finding("a", 1)
    assert asked(hub) == {"mailbox": "findings", "timeout_s": 900.0}


def test_a_message_of_another_type_is_taken_and_refused(hub: FakeHub) -> None:
    async def program(ctx: Context) -> str:
        with pytest.raises(TypeMismatchError):
            await ctx.mailbox.q.receive(0, type=Finding)
        return "taken"

    assert ask(hub, program, "a text") == "taken"


def test_a_delivery_is_acknowledged_when_its_block_is_left(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        async with ctx.mailbox.q.delivery(5) as d:
            await d.reply("fine")
            return [d.value, d.id, d.sender, d.attempt, d.topic, d.metadata]

    hub.start(program)
    held = {"id": "m-1", "value": {"a": 1}, "sender": "main/2:a", "attempt": 2, "metadata": {"x": 1}}
    hub.answer(held, step="receive")
    hub.answer(step="reply")
    hub.answer(step="ack")

    assert hub.result() == [{"a": 1}, "m-1", "main/2:a", 2, "", {"x": 1}]
    assert asked(hub, 0) == {"mailbox": "q", "timeout_s": 5.0, "hold": True}
    assert (asked(hub, 1), payload(hub, 1)) == ({"mailbox": "q", "id": "m-1"}, "fine")
    assert asked(hub, 2) == {"mailbox": "q", "id": "m-1"}


def test_a_delivery_goes_back_when_its_block_is_left_by_an_exception(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        async with ctx.mailbox.q.delivery():
            raise ValueError("cannot")

    hub.start(program)
    hub.answer({"id": "m-1", "value": 1}, step="receive")
    hub.answer(step="nack")

    with pytest.raises(ValueError, match="cannot"):
        hub.result()
    assert asked(hub, 1) == {"mailbox": "q", "id": "m-1", "ok": False, "reason": "ValueError"}


def test_the_other_operations_of_a_mailbox(hub: FakeHub) -> None:
    stats = {
        "queued": 1,
        "scheduled": 0,
        "waiting": 0,
        "sent": 3,
        "delivered": 2,
        "dropped": 0,
        "size_bytes": 9,
        "oldest_age_s": None,
    }

    async def program(ctx: Context) -> list[object]:
        mailbox = ctx.mailbox.q
        found = [
            await mailbox.call("ping", 3),
            await mailbox.withdraw("m-1"),
            await mailbox.drain(2),
            (await mailbox.stats()).sent,
        ]
        await mailbox.close()
        await ctx.mailbox.declare("q", capacity=5, overflow="reject")
        return found

    hub.start(program)
    for answer in ("pong", True, [1, 2], stats, None, None):
        hub.answer(answer)

    assert hub.result() == ["pong", True, [1, 2], 3]
    assert [(step.step, step.about) for step in hub.said(f.Step)] == [
        (name, "q") for name in ("call", "withdraw", "drain", "stats", "close", "declare")
    ]


ODD: list[tuple[Call, type[BartackError]]] = [
    (lambda ctx: ctx.mailbox.declare("q", capacity=0), MailboxConfigError),
    (lambda ctx: ctx.mailbox.declare("q", max_bytes=1 << 70), MailboxConfigError),
    (lambda ctx: ctx.mailbox.declare("q", overflow="explode"), MailboxConfigError),
    (lambda ctx: ctx.mailbox.q.send_supervised(1, key="\ud800"), DeliveryOptionError),
    (lambda ctx: ctx.send_supervised("@\ud800", 1), MailboxNameError),
    (lambda ctx: ctx.broadcast("abc", 1), DeliveryOptionError),
    (lambda ctx: ctx.broadcast([("id", "box")], 1), DeliveryOptionError),
    (lambda ctx: ctx.broadcast([(1, "box", {})], 1), DeliveryOptionError),
]


@pytest.mark.parametrize(("call", "error"), ODD)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    hub: FakeHub, call: Call, error: type[BartackError]
) -> None:
    async def program(ctx: Context) -> None:
        with pytest.raises(error):
            call(ctx)

    hub.run(program)
    assert hub.said(f.Step) == []


def test_a_broadcast_with_too_much_beside_its_recipients_is_an_error_of_its_step(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        with pytest.raises(MessageTooLargeError):
            await ctx.broadcast([(f"b{n}", f"b{n}", {"x": "x" * 4000}) for n in range(200)], 1)

    hub.run(program)


def test_a_mailbox_is_made_by_its_first_mention(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        assert ctx.mailbox.results is ctx.mailbox["results"]
        assert ctx.session.mailbox is ctx.mailbox
        assert isinstance(ctx.mailbox.get("other"), Mailbox)
        for name in ("", "a b", "$system", "x" * 65):
            with pytest.raises(MailboxNameError):
                ctx.mailbox.get(name)
        assert not hasattr(ctx.mailbox, "_private")
        return [*ctx.mailbox.names(), ctx.inbox.name, repr(ctx.inbox)]

    assert hub.run(program) == ["other", "results", "@main", "<mailbox @main>"]


# Time, chance, money.


def test_sleeping_asks_for_a_timer(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.sleep(datetime.timedelta(minutes=2))
        await ctx.sleep_until(FIXED)

    hub.start(program)
    hub.answer()
    hub.answer()

    assert [asked(hub, 0), asked(hub, 1)] == [{"seconds": 120.0}, {"until": int(FIXED.timestamp() * 1e6)}]


def test_time_and_chance_come_back_on_replay(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        return [await ctx.now(), await ctx.random(), await ctx.random(1, 1), await ctx.uuid()]

    result = cast("list[object]", hub.run(program))

    assert [type(value) for value in result] == [datetime.datetime, float, int, uuid.UUID]
    assert cast("datetime.datetime", result[0]).utcoffset() == datetime.timedelta(0)
    assert 0 <= cast("float", result[1]) < 1
    assert hub.run(program) == result


def test_the_deadline_and_the_budget_are_asked_of_the_hub(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        return [await ctx.deadline(), await ctx.deadline(), await ctx.budget()]

    hub.start(program)
    hub.answer(2.5)
    hub.answer(None)
    hub.answer({"limit_usd": 10.0, "spent_usd": 4.0, "reserved_usd": 1.0})

    left, none, budget = cast("list[object]", hub.result())
    assert (left, none) == (2.5, None)
    assert isinstance(budget, Budget)
    assert budget == Budget(10.0, 4.0, 1.0)
    assert budget.left_usd == 5.0


def test_failing_the_session_never_returns(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.fail("it is over", files=["a"], odd={1})

    hub.start(program)
    hub.settle()
    assert asked(hub) == {"message": "it is over", "data": {"files": ["a"], "odd": "{1}"}}
    hub.fail_session("it is over")

    with pytest.raises(SessionFailedError, match="it is over"):
        hub.result()


def test_an_error_of_the_hub_is_raised_with_its_facts(hub: FakeHub) -> None:
    async def program(ctx: Context) -> float:
        try:
            await ctx.think("x")
        except BudgetExceededError as error:
            return error.limit_usd
        return 0.0

    hub.start(program)
    hub.refuse(BudgetExceededError(5.0, 4.5))

    assert hub.result() == 5.0


# Files and environment.


def test_files_are_read_below_the_workspace(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.txt").write_text("naïve\n")
    (tmp_path / "sub/b.txt").write_bytes(b"\xff")

    async def program(ctx: Context) -> list[object]:
        return [
            await ctx.read("sub/a.txt"),
            await ctx.read_bytes(Path("sub/b.txt")),
            await ctx.exists("sub"),
            await ctx.exists("nowhere"),
            await ctx.list("**/*.txt"),
        ]

    result = hub.run(program)
    (tmp_path / "sub/a.txt").write_text("changed")

    assert result == ["naïve\n", b"\xff", True, False, ["sub/a.txt", "sub/b.txt"]]
    assert hub.run(program) == result


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere.txt", os.strerror(errno.ENOENT)),
        (".", os.strerror(errno.EISDIR)),
        ("bad.txt", "not UTF-8"),
        ("a\0b", "a NUL character"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(hub: FakeHub, tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")

    async def program(ctx: Context) -> list[str]:
        with pytest.raises(FileAccessError) as caught:
            await ctx.read(path)
        return [caught.value.path, caught.value.reason]

    result = cast("list[str]", hub.run(program))

    assert result[0] == path
    assert reason in result[1]
    assert hub.run(program) == result


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name of a file is text")
def test_a_file_whose_name_is_no_text_is_named_when_files_are_listed(hub: FakeHub, tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/odd\xff.txt", os.O_CREAT))

    async def program(ctx: Context) -> list[str]:
        with pytest.raises(FileAccessError) as caught:
            await ctx.list("*.txt")
        return [caught.value.path, caught.value.reason]

    assert hub.run(program) == ["odd\N{REPLACEMENT CHARACTER}.txt", "its name is not UTF-8"]


def test_a_long_file_goes_beside_the_frame(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("x" * 200_000)

    async def program(ctx: Context) -> int:
        return len(await ctx.read("long.txt"))

    assert hub.run(program) == 200_000
    assert hub.journal[0].ref is not None
    assert hub.run(program) == 200_000


def test_writing_makes_directories_and_keeps_the_mode(hub: FakeHub, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o755)

    async def program(ctx: Context) -> None:
        await ctx.write("deep/er/a.txt", "text")
        await ctx.write("b.bin", b"\x00")
        await ctx.write("c.json", {"b": 1, "a": [Finding("x", 2)]})
        await ctx.write("run.sh", "new")

    hub.run(program)

    assert (tmp_path / "deep/er/a.txt").read_text() == "text"
    assert (tmp_path / "b.bin").read_bytes() == b"\x00"
    assert (tmp_path / "c.json").read_text() == json.dumps(
        {"b": 1, "a": [{"file": "x", "risk": 2}]}, indent=2
    ) + "\n"
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("new", 0o755)
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "b.bin").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_replayed_write_does_not_happen(hub: FakeHub, tmp_path: Path) -> None:
    async def program(ctx: Context) -> None:
        await ctx.write("a.txt", "text")

    hub.run(program)
    (tmp_path / "a.txt").unlink()
    hub.run(program)

    assert not (tmp_path / "a.txt").exists()


def test_other_content_is_another_step(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.write("a.txt", "1")
        await ctx.write("a.txt", "2")
        await ctx.write("a.txt", "1")

    hub.run(program)

    prints = [past.fp for past in hub.journal]
    assert prints[0] == prints[2] != prints[1]


def test_an_append_says_where_it_begins(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("one\n")

    async def program(ctx: Context) -> None:
        await ctx.append("log.txt", "two\n")
        await ctx.append("fresh/log.txt", "first\n")

    hub.run(program)

    assert (tmp_path / "log.txt").read_text() == "one\ntwo\n"
    assert (tmp_path / "fresh/log.txt").read_text() == "first\n"
    intents = [msgspec.json.decode(begin.a) for begin in hub.said(f.Begin)]
    assert intents == [{"path": "log.txt", "offset": 4}, {"path": "fresh/log.txt", "offset": 0}]


def test_an_append_that_was_begun_before_is_finished_and_not_repeated(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("one\ntw")

    async def program(ctx: Context) -> None:
        await ctx.append("log.txt", "two\n")

    hub.start(program)
    hub.hand_over()
    begin = f.decode_to_hub(hub.to_hub.popleft())
    assert isinstance(begin, f.Begin)
    hub.say(f.Answer(i=begin.i, v=msgspec.Raw(b'{"path":"log.txt","offset":4}')))
    hub.settle()

    assert hub.result() is None
    assert (tmp_path / "log.txt").read_text() == "one\ntwo\n"


def test_a_write_that_is_refused_by_the_system_is_the_outcome(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    async def program(ctx: Context) -> list[str]:
        seen: list[str] = []
        for write in (ctx.write("file/a.txt", "1"), ctx.append("file/a.txt", "1")):
            with pytest.raises(FileAccessError) as caught:
                await write
            seen.append(caught.value.path)
        return seen

    assert hub.run(program) == ["file/a.txt"] * 2
    assert hub.run(program) == ["file/a.txt"] * 2


def test_a_value_that_cannot_be_written_is_refused(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.write("a.json", {"when": {1}})

    with pytest.raises(MessageValueError, match=r"\$\.when: set"):
        hub.run(program)


def test_the_environment_is_read_once(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODE", "fast")
    monkeypatch.delenv("NOTHING", raising=False)

    async def program(ctx: Context) -> list[object]:
        return [await ctx.env("MODE"), await ctx.env("NOTHING"), await ctx.env("NOTHING", "default")]

    assert hub.run(program) == ["fast", None, "default"]
    monkeypatch.setenv("MODE", "slow")
    assert hub.run(program) == ["fast", None, "default"]


def test_a_secret_is_not_recorded_and_read_again(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "first-secret")

    async def program(ctx: Context) -> object:
        return await ctx.env("API_KEY")

    assert hub.run(program) == "first-secret"
    assert b"first-secret" not in msgspec.json.encode(hub.journal)
    monkeypatch.setenv("API_KEY", "second-secret")
    assert hub.run(program) == "second-secret"


# Words and constants.


def test_output_is_told_and_not_awaited(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        ctx.print("a", 1, None)
        ctx.log("b")

    hub.run(program)

    assert [(out.n, out.channel, out.text) for out in hub.said(f.Out)] == [
        (1, "print", "a 1 None"),
        (2, "log", "b"),
    ]


def test_the_constants_of_a_session(hub: FakeHub, tmp_path: Path) -> None:
    async def program(ctx: Context) -> list[object]:
        return [ctx.session.id, ctx.session.dir, ctx.session.timestamp, ctx.path]

    run = "run-20260131-235959-0f3a91c7"
    assert hub.run(program) == [
        run,
        tmp_path / ".bartack/runs" / run / "work",
        datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        "main",
    ]


def test_ctx_is_no_value(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await ctx.mailbox.q.send({"ctx": ctx})

    with pytest.raises(MessageValueError, match=r"\$\.ctx: Context"):
        hub.run(program)
