"""A program with one long command that changes files at once. When it is executed again, it finds what it did."""

from bartack import Context, worker


@worker
async def main(ctx: Context) -> str:
    return str(
        await ctx.shell("sh", "-c", "if test -e begun; then echo again; else touch begun; sleep 60; fi")
    )
