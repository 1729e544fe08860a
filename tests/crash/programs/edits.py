"""A program whose steps change files of the workspace, by commands and by bodies; their effects show which were executed."""

from pathlib import Path

from bartack import Context, step, worker


@step
def note(number: int) -> None:
    with Path("notes.txt").open("a") as notes:
        notes.write(f"{number}\n")


@worker
async def main(ctx: Context, effects: str, steps: int = 6) -> int:
    large = await ctx.shell("python3", "-c", "print('x' * 100_000)")
    await ctx.shell("sh", "-c", "echo 'no settings at all [' > bartack.toml")
    for number in range(steps):
        await ctx.shell("sh", "-c", f"echo {number} >> log.txt; echo {number} >> {effects}; sleep 0.02")
        await note(number)
    return len(str(large).strip())
