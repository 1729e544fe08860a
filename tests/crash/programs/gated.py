"""A program whose steps end when a file is there: commands, bodies and workers that only wait."""

import select
from pathlib import Path

from bartack import Context, step, worker


@step
def gated(effects: str, gate: str) -> None:
    with Path(effects).open("a", encoding="utf-8") as file:
        file.write("begun\n")
    while not Path(gate).exists():
        select.select([], [], [], 0.02)


@step
def noted(effects: str) -> None:
    with Path(effects).open("a", encoding="utf-8") as file:
        file.write("after\n")


@worker
async def main(ctx: Context, how: str, effects: str, gate: str) -> None:
    await ctx.gather(ctx.mailbox.inbox.receive(), work(ctx, how, effects, gate))


async def work(ctx: Context, how: str, effects: str, gate: str) -> None:
    if how == "body":
        await gated(effects, gate)
        await noted(effects)
    elif how == "waits":
        await ctx.write(effects, "begun\n")
        await ctx.sleep(3600)
    else:
        script = f"echo begun >> {effects}; until [ -e {gate} ]; do sleep 0.02; done"
        await ctx.shell("sh", "-c", script, once=how == "once")
        await ctx.shell("sh", "-c", f"echo after >> {effects}")
    await ctx.mailbox.inbox.send("done")
