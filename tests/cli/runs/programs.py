"""Programs for the tests of ``run`` and ``resume``."""

from __future__ import annotations

HELLO = """
from bartack import Context, worker

@worker
async def main(ctx: Context, name: str = "you", times: int = 1) -> dict:
    ctx.log("begin")
    for _ in range(times):
        ctx.print(f"hello {name}")
    return {"name": name}

@worker
async def text(ctx: Context) -> str:
    return "just text"

@worker
async def nothing(ctx: Context) -> None:
    ctx.print("done")
"""

GATED = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> object:
    ctx.print("before")
    await ctx.mailbox.out.send({"ready": True})
    value = await ctx.mailbox.gate.receive(timeout_s=600)
    ctx.print("behind")
    return value
"""

ASKING = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    sure = await ctx.ask("Publish?", type=bool)
    return "published" if sure else "kept"

@worker
async def lenient(ctx: Context) -> bool:
    return await ctx.ask("Publish?", type=bool, default=False)

@worker
async def later(ctx: Context) -> bool:
    await ctx.mailbox.gate.receive(timeout_s=600)
    return await ctx.ask("Publish?", type=bool)

@worker
async def twice(ctx: Context) -> list:
    return [await ctx.ask("How many?", type=int), await ctx.ask("Colour?", options=["red", "green"])]
"""

BROKEN = """
from bartack import Context, worker

@worker
async def divide(ctx: Context) -> int:
    await ctx.shell("true")
    return 1 // 0

@worker
async def main(ctx: Context) -> int:
    ctx.print("once")
    (result,) = await ctx.delegate([divide()])
    return result
"""

INSIDE = """
import sys
from bartack import Context, worker

@worker
async def main(ctx: Context) -> list:
    ends = []
    for words in (["answer", ctx.session.id, "q1", "yes"], ["cancel", ctx.session.id]):
        done = await ctx.shell(sys.executable, "-m", "bartack", *words, check=False)
        ends.append([done.status, "BT328" in done.stderr])
    return ends
"""

TIDY = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> None:
    try:
        await ctx.shell("false")
    finally:
        await ctx.shell("true")
"""
