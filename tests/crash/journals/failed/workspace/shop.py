"""The program of the recorded runs: one step of each kind, and a gate at which a run can be stopped or broken."""

from __future__ import annotations

import select
from pathlib import Path

from bartack import Context, step, worker


def _note(effect: str) -> None:
    with Path("effects.txt").open("a") as file:
        file.write(f"{effect}\n")


@step
def paint(colour: str) -> str:
    _note(f"paint {colour}")
    return f"painted {colour}"


@step(once=True)
def pay(amount: int) -> str:
    _note(f"pay {amount}")
    return f"paid {amount}"


@step
def gate() -> str:
    while Path("hold").exists():
        Path("waiting").touch()
        select.select([], [], [], 0.005)
    if Path("broken").exists():
        raise ValueError("the gate is broken")
    return "passed"


@worker
async def painter(ctx: Context, colour: str) -> str:
    done = await paint(colour)
    await ctx.mailbox["done"].send(done, key=colour)
    return done


@worker
async def clerk(ctx: Context, count: int) -> list[str]:
    seen: list[str] = []
    for _ in range(count):
        async with ctx.mailbox["done"].delivery(60.0) as delivery:
            seen.append(str(delivery.value))
    async with ctx.mailbox["questions"].delivery(60.0) as question:
        await question.reply(len(seen))
    return sorted(seen)


@worker
async def failer(ctx: Context) -> str:
    raise ValueError("as planned")


@worker
async def main(ctx: Context) -> dict[str, object]:
    die = await ctx.random(1, 6)
    clock = await ctx.now()
    home = str(await ctx.shell("printf", "%s", "home"))
    clerk_ = await ctx.spawn(clerk(2))
    async with ctx.monitor(clerk_.path) as watch:
        painted = await ctx.delegate([painter("red"), painter("blue")])
        counted = await ctx.mailbox["questions"].call("how many?", timeout_s=60.0)
        seen = await clerk_
        down = await watch.down(60.0)
    receipt = await pay(7)
    reply = await ctx.think("Name a colour.")
    letter = await ctx.send_supervised("letters", {"receipt": receipt}, ack="accepted")
    await ctx.sleep(0.01)
    collected = await ctx.delegate([failer()], on_failure="collect")
    async with ctx.timeout(600.0):
        passed = await gate()
    ctx.print(f"{passed} with {len(painted)} colours")
    await pay(9)
    return {
        "home": home,
        "painted": painted,
        "seen": seen,
        "counted": counted,
        "down": down["reason"],
        "reply": reply,
        "letter": type(letter).__name__,
        "failed": [not one.ok for one in collected],
        "die": 1 <= die <= 6,
        "clock": clock is not None,
    }
