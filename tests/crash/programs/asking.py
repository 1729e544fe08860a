"""Workers that ask an agent which is a program."""

from __future__ import annotations

from bartack import Context, worker
from bartack.errors import ReplyInvalidError


@worker
async def thinks(ctx: Context) -> str:
    """One prompt, and another one."""
    first = await ctx.think("Summarise it")
    number = await ctx.think("How many?", type=int)
    return f"{first} {number}"


@worker
async def commands(ctx: Context) -> dict[str, object]:
    """A command whose answer names a file."""
    inputs: dict[str, object] = {
        "goal": "x",
        "task_files": [],
        "clarifications": [],
        "conflict_resolutions": [],
        "iteration": {"round": 1, "cause": "start", "findings": []},
    }
    result = await ctx.command("implement", inputs, task_id="T-1", expected_outputs=[{"path": "week.txt"}])
    return {
        "event": result.event.event,
        "artifacts": [artifact.path for artifact in result.artifacts],
        "harvested": result.harvested,
        "attempts": result.attempts,
    }


@worker
async def counts(ctx: Context) -> list[object]:
    """Each call of a tool waits for a message in the middle: whoever kills something has the time to."""
    count = 0
    heard: list[object] = []

    async def more(by: int = 1) -> int:
        nonlocal count
        await ctx.shell("/bin/sh", "-c", f"echo more {count} >> effects.txt")
        heard.append(await ctx.mailbox.go.receive(600))
        count += by
        return count

    reply = await ctx.think("Count.", tools=[more])
    return [reply, count, heard]


@worker
async def looks(ctx: Context) -> str:
    """A tool that fails, and one that does not."""

    async def fail(text: str) -> None:
        raise ValueError(text)

    async def shout(text: str) -> str:
        return text.upper()

    return await ctx.think("Look.", tools=[fail, shout])


@worker
async def rates(ctx: Context) -> list[object]:
    """A reply of a type, and one that may be left out."""
    rating = await ctx.think("Rate it.", type=dict[str, int])
    maybe = await ctx.think_reply("Rate that.", type=int, may_decline=True)
    return [rating, maybe.value, (await ctx.budget()).spent_usd]


@worker
async def unrated(ctx: Context) -> list[object]:
    """A reply that never fits."""
    try:
        return [await ctx.think("Rate it.", type=int)]
    except ReplyInvalidError as error:
        return [error.reply, (await ctx.budget()).spent_usd]


@worker
async def crowds(ctx: Context) -> list[str]:
    """Many prompts at once, and one whose tool asks another."""

    async def ask() -> str:
        return await ctx.think("Inner.")

    return await ctx.gather(ctx.think("Outer.", tools=[ask]), ctx.think("Second."), ctx.think("Third."))
