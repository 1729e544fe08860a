"""Steps whose outcomes arrive after the session has failed."""

from __future__ import annotations

import asyncio
import contextlib
import select
from pathlib import Path

from bartack import Context, step, worker


def _note(name: str) -> None:
    with Path("effects.txt").open("a") as file:
        file.write(f"{name}\n")


def _touch(name: str) -> None:
    Path(name).touch()


def _is_there(name: str) -> bool:
    return Path(name).exists()


def _wait(name: str) -> None:
    while not _is_there(name):
        select.select([], [], [], 0.005)


@step(once=True)
def pay(name: str) -> str:
    _touch(f"in-{name}")
    _wait("go")
    _note(name)
    return f"receipt of {name}"


@step
def book(name: str) -> str:
    _touch(f"in-{name}")
    _wait("go")
    _note(name)
    return f"seat of {name}"


@step(once=True)
async def wire(name: str) -> str:
    _touch(f"in-{name}")
    while not _is_there("go"):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.005)
    _note(name)
    return f"wire of {name}"


@worker
async def alone(ctx: Context) -> str:
    return await pay("alone")


@worker
async def beside(ctx: Context) -> list[str]:
    return list(await ctx.gather(pay("beside"), book("thread"), wire("async")))


@step
def provoke() -> str:
    if _is_there("fixed"):
        return "fixed"
    for name in ("alone", "beside", "thread", "async"):
        _wait(f"in-{name}")
    raise ValueError("not yet")


@worker
async def failing(ctx: Context) -> str:
    return await provoke()


@worker
async def main(ctx: Context) -> list[object]:
    return list(await ctx.delegate([alone(), beside(), failing()]))


@worker
async def told(ctx: Context) -> list[object]:
    """As ``main``, without a worker that fails: a person fails it."""
    return list(await ctx.delegate([alone(), beside()]))
