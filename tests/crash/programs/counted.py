"""Steps that leave a line each, so that one that is executed twice is seen; then a wait that only a message ends."""

from __future__ import annotations

from bartack import Context, step, worker


@step
def effect(number: int) -> int:
    with open("effects.txt", "a", encoding="utf-8") as file:
        file.write(f"{number}\n")
    return number


@step
def large(size: int) -> str:
    return "x" * size


@worker
async def counted(ctx: Context, count: int, size: int = 10) -> int:
    for number in range(count):
        await effect(number)
    text = await large(size)
    await ctx.mailbox.go.receive(600)
    return len(text)
