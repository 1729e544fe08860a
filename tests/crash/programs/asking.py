"""Workers that ask an agent which is a program."""

from __future__ import annotations

from bartack import Context, worker


@worker
async def thinks(ctx: Context) -> str:
    """One prompt, and another one."""
    first = await ctx.think("Summarise it")
    number = await ctx.think("How many?", type=int)
    return f"{first} {number}"


@worker
async def commands(ctx: Context) -> dict[str, object]:
    """A command whose answer names a file."""
    inputs: dict[str, object] = {"goal": "x", "iteration": {"round": 1, "cause": "start", "findings": []}}
    result = await ctx.command("implement", inputs, task_id="T-1", expected_outputs=[{"path": "week.txt"}])
    return {
        "event": result.event.event,
        "artifacts": [artifact.path for artifact in result.artifacts],
        "harvested": result.harvested,
        "attempts": result.attempts,
    }
