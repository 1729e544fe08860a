"""A program with everything that a run starts: a worker, a command, and an agent that is a program. It waits with all of them."""

from bartack import Context, worker


@worker
async def main(ctx: Context) -> None:
    await ctx.gather(ctx.shell("/bin/sh", "-c", "sleep 601; :"), ctx.think("Wait."))
