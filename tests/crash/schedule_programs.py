"""Programs made by chance for ``schedules.py``: every effect has a tag, by which a model counts it.

What a program does in a handler has a tag that begins with ``c:``. It may be clean-up, and is not counted. An effect that fails
when it is executed for the first time has a tag that begins with ``f:``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, Literal, cast

from bartack import Context, Retry, step, worker
from bartack.errors import BartackError, DeadlineExceededError

Code = list[object]
"""An instruction and its operands, some of which are instructions."""

LONG_S: Final = 50_000.0
"""Longer than anything takes, and shorter than the limit of a delegate."""


def _played(tag: str) -> str:
    raise AssertionError(f"the model plays {tag}")


async def _played_async(tag: str) -> str:
    raise AssertionError(f"the model plays {tag}")


plain: Final = step(_played)
once: Final = step(once=True)(_played)
retried: Final = step(retry=Retry(attempts=2, base=1.0, jitter="none"))(_played)
plain_async: Final = step(_played_async)
once_async: Final = step(once=True)(_played_async)

BODIES: Final[dict[str, Callable[[str], Awaitable[str]]]] = {
    "plain": plain,
    "once": once,
    "retried": retried,
    "plain_async": plain_async,
    "once_async": once_async,
}


@worker
async def player(ctx: Context, code: list[object]) -> list[object]:
    trace: list[object] = []
    await _Player(ctx, trace).run(code)
    return trace


class _Player:
    """Does what a program says, and notes what it has seen: pairs of a tag and a value."""

    def __init__(self, ctx: Context, trace: list[object]) -> None:
        self.ctx = ctx
        self.trace = trace

    async def run(self, code: Code) -> None:
        name, *operands = code
        await getattr(self, f"do_{name}")(*operands)

    async def do_seq(self, *codes: Code) -> None:
        for code in codes:
            await self.run(code)

    async def do_gather(self, *codes: Code) -> None:
        await self.ctx.gather(*(self.run(code) for code in codes))

    async def do_tidy(self, code: Code, tag: str) -> None:
        try:
            await self.run(code)
        except (BartackError, ValueError):
            self.ctx.print(tag)
            await self.ctx.shell(tag)
            raise

    async def do_timeout(self, seconds: float, code: Code) -> None:
        with contextlib.suppress(DeadlineExceededError):
            async with self.ctx.timeout(seconds):
                await self.run(code)

    async def do_body(self, kind: str, tag: str) -> None:
        self.trace.append([tag, await BODIES[kind](tag)])

    async def do_shell(self, tag: str, once: bool) -> None:
        self.trace.append([tag, str(await self.ctx.shell(tag, once=once))])

    async def do_think(self, tag: str) -> None:
        self.trace.append([tag, await self.ctx.think(tag)])

    async def do_ask(self, tag: str) -> None:
        self.trace.append([tag, await self.ctx.ask(tag)])

    async def do_note(self) -> None:
        await self.ctx.random(1, 6)

    async def do_print(self, tag: str) -> None:
        self.ctx.print(tag)

    async def do_sleep(self, seconds: float) -> None:
        await self.ctx.sleep(seconds)

    async def do_send(self, tag: str) -> None:
        await self.ctx.mailbox["box"].send(tag)

    async def do_supervised(self, tag: str, ack: Literal["accepted", "delivered", "processed"]) -> None:
        await self.ctx.send_supervised("box", tag, ack=ack, timeout_s=LONG_S)

    async def do_receive(self, count: int) -> None:
        for _ in range(count):
            tag = await self.ctx.mailbox["box"].receive(LONG_S)
            self.trace.append([tag, "received"])

    async def do_process(self, count: int) -> None:
        for _ in range(count):
            async with self.ctx.mailbox["box"].delivery(LONG_S) as delivery:
                self.trace.append([delivery.value, "received"])

    async def do_delegate(self, *codes: Code) -> None:
        for trace in await self.ctx.delegate([player(code) for code in codes]):
            self.trace += trace

    async def do_collect(self, *codes: Code) -> None:
        for one in await self.ctx.delegate([player(code) for code in codes], on_failure="collect"):
            self.trace += one.value or [] if one.ok else []

    async def do_stop(self, code: Code, then: Code) -> None:
        child = await self.ctx.spawn(player(code), on_failure="collect")
        await self.run(then)
        await child.cancel("enough")
        await child

    async def do_link(self, first: Code, second: Code) -> None:
        one = await self.ctx.spawn(player(first), on_failure="collect")
        other = await self.ctx.spawn(player(["linked", one.path, second]), on_failure="collect")
        await one
        await other

    async def do_linked(self, path: str, code: Code) -> None:
        await self.ctx.link(path)
        await self.run(code)


class Writer:
    """Writes a program by chance.

    Attributes:
        required: The tags that a program that has come to its end has seen, each exactly once.
        once: The tags of what is to be done once.
    """

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._tags = 0
        self._sent = 0
        self._may_be_cut = 0
        self._is_last = False
        self._receives = draw.choice(["receive", "process"])
        self.required: set[str] = set()
        self.once: set[str] = set()

    def write(self) -> Code:
        """A first worker and what it delegates to; the last one receives every message."""
        codes = [self._any(2) for _ in range(self._draw.randint(1, 3))]
        if self._sent:
            codes.append([self._receives, self._sent])
        self._is_last = True
        return ["seq", [self._draw.choice(["delegate", "delegate", "gather"]), *codes], self._leaf()]

    def _any(self, depth: int) -> Code:
        kinds: Sequence[Callable[[int], Code]] = (
            self._seq,
            self._seq,
            self._gather,
            self._gather,
            self._tidy,
            self._timeout,
            self._delegate,
            self._cut_workers,
        )
        if depth == 0 or self._draw.random() < 0.3:
            return self._leaf()
        return self._draw.choice(kinds)(depth - 1)

    def _seq(self, depth: int) -> Code:
        return ["seq", *(self._any(depth) for _ in range(self._draw.randint(2, 3)))]

    def _gather(self, depth: int) -> Code:
        return ["gather", *(self._any(depth) for _ in range(self._draw.randint(2, 3)))]

    def _tidy(self, depth: int) -> Code:
        return ["tidy", self._any(depth), f"c:{self._number()}"]

    def _delegate(self, depth: int) -> Code:
        return ["delegate", *(self._any(depth) for _ in range(2))]

    def _timeout(self, depth: int) -> Code:
        return ["timeout", self._draw.choice([0.5, 3.0]), self._cut(depth)]

    def _cut_workers(self, depth: int) -> Code:
        kind = self._draw.choice(["collect", "stop", "link"])
        return cast("Code", [kind, self._cut(depth), self._cut(depth)])

    def _cut(self, depth: int) -> Code:
        """Something that may be given up before its end."""
        self._may_be_cut += 1
        code = self._any(depth)
        self._may_be_cut -= 1
        return code

    def _leaf(self) -> Code:
        draw = self._draw.random()
        if draw < 0.5:
            kind = self._draw.choice(list(BODIES))
            return ["body", kind, self._tag(once="once" in kind)]
        if draw < 0.62:
            is_once = self._draw.random() < 0.4
            return ["shell", self._tag(once=is_once), is_once]
        if draw < 0.74:
            return ["think", self._tag(may_fail=False)]
        if draw < 0.82:
            return ["ask", self._tag(may_fail=False)]
        if draw < 0.92 and not self._may_be_cut and not self._is_last:
            return self._send()
        return self._draw.choice([["note"], ["print", "printed"], ["sleep", 2.0]])

    def _send(self) -> Code:
        self._sent += 1
        tag = self._tag(may_fail=False)
        if self._draw.random() < 0.4:
            return ["send", tag]
        acks = ["accepted", "delivered", *(["processed"] if self._receives == "process" else [])]
        return ["supervised", tag, self._draw.choice(acks)]

    def _tag(self, *, once: bool = False, may_fail: bool = True) -> str:
        fails = may_fail and self._draw.random() < 0.15
        tag = f"{'f' if fails else 't'}:{self._number()}"
        if not self._may_be_cut:
            self.required.add(tag)
        if once:
            self.once.add(tag)
        return tag

    def _number(self) -> int:
        self._tags += 1
        return self._tags
