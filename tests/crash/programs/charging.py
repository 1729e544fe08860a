"""A program for runs in a database: a step that must be executed only once, between two that can be repeated."""

import subprocess

from bartack import Context, step, worker


@step(once=True)
def charge(effects: str, proceed: str) -> str:
    """Note that it was executed, and wait until it may continue."""
    with open(effects, "a", encoding="utf-8") as file:
        file.write("charged\n")
    subprocess.run(["sh", "-c", f"until test -e {proceed}; do sleep 0.02; done"], check=True, timeout=60)
    return "paid"


@worker
async def main(ctx: Context, effects: str, proceed: str) -> str:
    await ctx.shell("sh", "-c", f"echo before >> {effects}")
    paid = await charge(effects, proceed)
    await ctx.shell("sh", "-c", f"echo after >> {effects}")
    return paid
