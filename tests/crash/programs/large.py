"""A program for runs in a database with an object store: a large value, and effects that all machines see."""

from pathlib import Path

from bartack import Context, step, worker


@step
def make_large(effects: str) -> str:
    with Path(f"{effects}.large").open("a", encoding="ascii") as file:
        file.write("made\n")
    return "x" * 3_000_000


@worker
async def main(ctx: Context, effects: str, steps: int) -> int:
    large = await make_large(effects)
    for number in range(steps):
        await ctx.shell("sh", "-c", f"echo {number} >> {effects}; sleep 0.02")
    return len(large)
