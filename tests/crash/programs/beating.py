"""A program for runs in a database, with one long step that shows that it is at work."""

from bartack import Context, worker


@worker
async def main(ctx: Context, effects: str, gate: str) -> str:
    await ctx.shell("sh", "-c", f"echo first >> {effects}")
    beats = f"until test -e {gate}; do echo $PPID $(date +%s%N) >> {effects}.beats; sleep 0.02; done"
    await ctx.shell("sh", "-c", beats)
    return "through"
