"""A program with everything that waits while its database is away: a command and a prompt before a gate, and messages meanwhile."""

from bartack import Context, worker

COMMAND = 'echo "$BARTACK_RUN command" >> "$0/begun"; cat "$0/gate"; printf through'
STOP, LAST = -1, -2


@worker
async def commander(ctx: Context, place: str) -> str:
    """Executes a command that ends when the gate opens, and then stops the messages."""
    text = str(await ctx.shell("sh", "-c", COMMAND, place))
    await ctx.mailbox.ticks.send(STOP)
    return text


@worker
async def prompter(ctx: Context) -> str:
    """Has a prompt in flight until the gate opens."""
    return await ctx.think("Wait at the gate.", agent="gated")


@worker
async def sender(ctx: Context) -> int:
    """Sends numbers, each when it is asked for; returns how many."""
    number = 0
    while await ctx.mailbox.more.receive(600, type=bool):
        await ctx.sleep(0.3)
        await ctx.mailbox.ticks.send(number)
        number += 1
    await ctx.mailbox.ticks.send(LAST)
    return number


@worker
async def receiver(ctx: Context) -> list[int]:
    """Asks for numbers until the messages are stopped; returns them."""
    found: list[int] = []
    is_over = False
    await ctx.mailbox.more.send(True)
    while (tick := await ctx.mailbox.ticks.receive(600, type=int)) != LAST:
        if tick == STOP:
            is_over = True
        else:
            found.append(tick)
            await ctx.mailbox.more.send(not is_over)
    return found


@worker
async def main(ctx: Context, place: str) -> dict[str, object]:
    """All of them at a time."""
    text, reply, sent, received = await ctx.delegate((commander(place), prompter(), sender(), receiver()))
    return {"text": text, "reply": reply, "sent": sent, "received": received}
