"""A team that does a bit of everything, with effects that can be counted afterwards.

Every effect appends one line to a file: the key of its step and a name. A finished step must be there once; one that was under way
when something was killed may be there once more for each kill.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bartack import Context, step, worker
from bartack.runtime import step_info


@dataclass
class Piece:
    """What the cutter sends; one without a name is the last."""

    number: int
    name: str = ""


def note(line: str) -> None:
    """Append one line; a line this short is written whole."""
    fd = os.open("effects.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


@step
def stitch(name: str, count: int) -> str:
    """An effect in the worker's own process."""
    note(f"{step_info().key} {name}{count}")
    return f"{name}{count}"


async def run_command(ctx: Context, name: str) -> str:
    """An effect in a command."""
    script = 'printf "%s %s\\n" "$BARTACK_STEP" "$1" >> effects.txt; printf %s "$1"'
    return str(await ctx.shell("/bin/sh", "-c", script, "sh", name))


@worker
async def cutter(ctx: Context, pieces: int) -> list[str]:
    """Sends pieces one by one and waits for each to come back."""
    back: list[str] = []
    for number in range(pieces):
        await ctx.mailbox.pieces.send(Piece(number, await run_command(ctx, f"cut{number}")))
        answer = await ctx.mailbox.stitched.receive(600, type=str)
        back.append(answer)
    await ctx.mailbox.pieces.send(Piece(pieces))
    return back


@worker
async def stitcher(ctx: Context) -> int:
    """Stitches what it receives and sends it back."""
    count = 0
    while (piece := await ctx.mailbox.pieces.receive(600, type=Piece)).name:
        done = await stitch(piece.name, piece.number)
        await ctx.mailbox.stitched.send(done)
        count += 1
    return count


@worker
async def presser(ctx: Context, name: str) -> str:
    """Waits a little and does one thing."""
    await ctx.sleep(0.01)
    return await run_command(ctx, f"press-{name}")


@worker
async def foreman(ctx: Context) -> list[str]:
    """Delegates further, and works on two things at a time."""
    pressed = await ctx.delegate([presser("a"), presser("b")])
    first, second = await ctx.gather(stitch("left", 1), stitch("right", 2))
    return [*pressed, first, second]


@worker
async def main(ctx: Context, rounds: int = 4) -> dict[str, object]:
    """The whole team, a question, and a file."""
    back, count, pressed = await ctx.delegate((cutter(rounds), stitcher(), foreman()))
    answer = await ctx.ask("Ship it?", type=bool)
    ctx.print(f"shipped {count}")
    await ctx.write("result.txt", ",".join(back))
    return {
        "back": back,
        "count": count,
        "pressed": pressed,
        "answer": answer,
        "file": Path("result.txt").name,
    }
