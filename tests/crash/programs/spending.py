"""A program whose agent costs money."""

from bartack import Context, worker


@worker
async def main(ctx: Context) -> str:
    return str(await ctx.think("What does it cost?"))
