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


async def rate(count: int) -> float:
    """Steps per second, one after the other."""
    await note()
    began = time.perf_counter()
    for _ in range(count):
        await note()
    return count / (time.perf_counter() - began)


@worker
async def alone(ctx: Context, count: int) -> float:
    """See ``rate``."""
    return await rate(count)


def leave(mark: str, value: float) -> None:
    """Leave a value for the benchmark, all of it at once."""
    place = Path(mark)
    place.with_suffix(".half").write_text(str(value), encoding="utf-8")
    place.with_suffix(".half").rename(place)


@step
def touch_nothing() -> str:
    """A step that may change files, and does not."""
    return "left alone"


@step
def edit(names: list[str], number: int) -> None:
    """Write files of the workspace anew."""
    for name in names:
        Path(name).write_text(f"VALUE = {number}\n" * 20, encoding="utf-8")


@worker
async def alone_on_node(ctx: Context, count: int, mark: str) -> None:
    """See ``rate``, which it leaves."""
    leave(mark, await rate(count))


@worker
async def copied(ctx: Context, count: int, edits: list[str], mark: str) -> None:
    """Steps with a copy of the workspace, each of which may edit files; leaves how many milliseconds one takes."""
    await edit(edits, 0)
    began = time.perf_counter()
    for number in range(count):
        await (edit(edits, number + 1) if edits else touch_nothing())
    leave(mark, (time.perf_counter() - began) / count * 1e3)


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
    """Append which process executed it, when, and in which workspace."""
    with Path(file).open("a", encoding="utf-8") as moments:
        moments.write(f"{os.getpid()} {time.time()} {Path.cwd()}\n")


@step(changes=False)
def count(file: str, number: int) -> None:
    """Append a number to a file that all machines see."""
    with Path(file).open("a", encoding="utf-8") as numbers:
        numbers.write(f"{number}\n")


@step
def count_and_edit(file: str, number: int, edited: str) -> None:
    """The same, and write the number into a file of the workspace."""
    with Path(file).open("a", encoding="utf-8") as numbers:
        numbers.write(f"{number}\n")
    Path(edited).write_text(f"EDITED = {number}\n", encoding="utf-8")


@worker
async def long_lived(ctx: Context, edits: list[str], before: int, counts: str, file: str) -> None:
    """Steps that are counted, some of which edit a file, and then one that leaves the moment of it, again and again."""
    every = before // len(edits)
    for number in range(before):
        if number % every:
            await count(counts, number)
        else:
            await count_and_edit(counts, number, edits[number // every])
    while True:
        await leave_moment(file)
        await ctx.sleep(0.1)
