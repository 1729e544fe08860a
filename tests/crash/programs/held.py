"""A team whose waits are all shorter than it is made to stand still."""

from __future__ import annotations

import asyncio

from bartack import Context, step, worker

LIMIT_S = 6.0
TICKS = "while [ ! -e enough ]; do echo tick >> ticks; sleep 0.02; done; echo done"


@step(timeout_s=LIMIT_S)
async def sleep_a_while() -> str:
    await asyncio.sleep(1.5)
    return "slept"


@worker
async def waiting(ctx: Context) -> object:
    return await ctx.mailbox.go.receive(LIMIT_S)


@worker
async def commanding(ctx: Context) -> str:
    return (await ctx.shell("sh", "-c", TICKS, timeout_s=LIMIT_S)).stdout


@worker
async def stepping(ctx: Context) -> str:
    return await sleep_a_while()


@worker
async def main(ctx: Context) -> list[object]:
    return await ctx.delegate([waiting(), commanding(), stepping()])
