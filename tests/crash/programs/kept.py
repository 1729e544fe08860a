"""A program for runs in a database: steps with effects in a file that all machines see, and a large value."""

from bartack import Context, worker


@worker
async def main(ctx: Context, effects: str, steps: int = 6) -> int:
    large = await ctx.shell("python3", "-c", "print('x' * 100_000)")
    for number in range(steps):
        await ctx.shell("sh", "-c", f"echo {number} >> {effects}; sleep 0.02")
    return len(str(large).strip())
