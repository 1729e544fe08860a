"""Workers of runs that are kept in a database. Runs that are measured together leave files."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bartack import Context, step, worker


@step
def note() -> str:
    """A step that costs nothing by itself."""
    return "noted"


@step
def note_time() -> float:
    """When it was executed, in seconds of the clock."""
    return time.time()


@worker
async def alone(ctx: Context, count: int) -> float:
    """Steps per second, one after the other."""
    await note()
    began = time.perf_counter()
    for _ in range(count):
        await note()
    return count / (time.perf_counter() - began)


@worker
async def together(ctx: Context, count: int, mark: str) -> None:
    """Steps that begin when the pipe ``go`` ends; leaves when the first one began and the last one ended."""
    await note()
    place = Path(mark)
    place.with_suffix(".ready").touch()
    (place.parent / "go").read_bytes()
    began = time.perf_counter()
    for _ in range(count):
        await note()
    place.with_suffix(".half").write_text(f"{began} {time.perf_counter()}", encoding="utf-8")
    place.with_suffix(".half").rename(place.with_suffix(".span"))


@worker
async def first(ctx: Context) -> float:
    """When the first step was executed."""
    return await note_time()


@worker
async def paced(ctx: Context, count: int) -> None:
    """Steps with pauses between them that are not of one length."""
    for number in range(count):
        await note()
        await ctx.sleep(0.15 + 0.037 * (number % 7))


@step
def leave_moment(file: str) -> None:
    """Append which process executed it, and when."""
    with Path(file).open("a", encoding="utf-8") as moments:
        moments.write(f"{os.getpid()} {time.time()}\n")


@worker
async def long_lived(ctx: Context, before: int, file: str) -> None:
    """Steps that cost nothing, and then one that leaves the moment of it, again and again."""
    for _ in range(before):
        await ctx.now()
    while True:
        await leave_moment(file)
        await ctx.sleep(0.1)
