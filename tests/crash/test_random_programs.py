"""Programs made by chance, with everything that can be nested nested, are killed at chance places and resumed.

What two workers do at the same moment may come in another order after a crash, so results may differ; but no replay may differ
from what was recorded, no step may have two outcomes, and nothing that was finished may be asked for again.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from random import Random
from typing import cast

import pytest

from bartack import Context, Retry, ShellResult, step, worker
from bartack.errors import BartackError
from bartack.journal import Entry
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.steps import ToolSpec
from bartack.runtime.protocol.values import Buffer
from bartack.runtime.scheduler.operations import Tool
from bartack.runtime.state import entries as e
from bartack.testing import ScriptedAgent, TestRun

Code = list[object]
"""An instruction and its operands, some of which are instructions."""

SOAK = "SOAK" in os.environ
PROGRAMS = int(os.environ.get("TEST_PROGRAMS", "120" if SOAK else "40"))
KILLS = 20 if SOAK else 10
"""``make soak`` makes three times as many programs and kills each of them twice as often."""


@step
def body(number: int) -> int:
    return number + 1


@step(retry=Retry(attempts=3, on=(OSError,), base=3.0, jitter="none"))
def flaky(number: int) -> int:
    raise OSError(f"number {number}")


@worker
async def actor(ctx: Context, code: list[object]) -> list[object]:
    trace: list[object] = []
    await _Interpreter(ctx, trace).run(code)
    return trace


class _Interpreter:
    def __init__(self, ctx: Context, trace: list[object]) -> None:
        self.ctx = ctx
        self.trace = trace

    async def run(self, code: Code) -> None:
        name, *operands = code
        await getattr(self, f"do_{name}")(*operands)
        self.trace.append(name)

    async def do_seq(self, *codes: Code) -> None:
        for code in codes:
            await self.run(code)

    async def do_try(self, code: Code, finally_: Code) -> None:
        try:
            await self.run(code)
        except (BartackError, OSError) as problem:
            self.trace.append(type(problem).__name__)
        finally:
            await self.run(finally_)

    async def do_gather(self, *codes: Code) -> None:
        await self.ctx.gather(*(self.run(code) for code in codes))

    async def do_group(self, *codes: Code) -> None:
        async with self.ctx.task_group() as group:
            for code in codes[1:]:
                group.start(self.run(code))
            await self.run(codes[0])

    async def do_timeout(self, seconds: float, code: Code) -> None:
        async with self.ctx.timeout(seconds):
            await self.run(code)

    async def do_sleep(self, seconds: float) -> None:
        await self.ctx.sleep(seconds)

    async def do_send(self, box: str, value: int) -> None:
        await self.ctx.mailbox[box].send(value)

    async def do_later(self, box: str, seconds: float) -> None:
        await self.ctx.mailbox[box].send("later", not_before=seconds)

    async def do_receive(self, box: str, seconds: float) -> None:
        self.trace.append(await self.ctx.mailbox[box].receive(seconds))

    async def do_hold(self, box: str, seconds: float, code: Code) -> None:
        async with self.ctx.mailbox[box].delivery(seconds) as delivery:
            self.trace.append(delivery.value)
            await self.run(code)

    async def do_call(self, box: str, seconds: float) -> None:
        self.trace.append(await self.ctx.mailbox[box].call("ping", seconds))

    async def do_serve(self, box: str, seconds: float) -> None:
        async with self.ctx.mailbox[box].delivery(seconds) as delivery:
            await delivery.reply("pong")

    async def do_shell(self, word: str) -> None:
        self.trace.append(str(await self.ctx.shell(word)))

    async def do_think(self) -> None:
        self.trace.append(await self.ctx.think("?"))

    async def do_tools(self, *codes: Code) -> None:
        tools = [Tool(ToolSpec(f"do_{n}"), partial(self._run_tool, code)) for n, code in enumerate(codes, 1)]
        self.trace.append(await self.ctx.think(f"tools {len(codes)}", tools=tools))

    async def _run_tool(self, code: Code, arguments: Buffer) -> bytes:
        await self.run(code)
        return b"null"

    async def do_body(self, number: int) -> None:
        self.trace.append(await body(number))

    async def do_flaky(self, number: int) -> None:
        self.trace.append(await flaky(number))

    async def do_note(self) -> None:
        self.trace.append((await self.ctx.random(1, 6), str(await self.ctx.now())))

    async def do_print(self, number: int) -> None:
        self.ctx.print("printed", number)

    async def do_delegate(self, on_failure: str, *codes: Code) -> None:
        calls = [actor(code) for code in codes]
        if on_failure == "collect":
            self.trace.append([one.ok for one in await self.ctx.delegate(calls, on_failure="collect")])
        else:
            self.trace.append(await self.ctx.delegate(calls))

    async def do_spawn(self, code: Code, then: Code) -> None:
        child = await self.ctx.spawn(actor(code))
        await self.run(then)
        self.trace.append(await child)

    async def do_stop(self, code: Code, then: Code) -> None:
        child = await self.ctx.spawn(actor(code))
        await self.run(then)
        await child.cancel("enough")


class Writer:
    """Writes programs by chance."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._moments = 0

    def write(self) -> Code:
        return ["seq", *(self._safe(3) for _ in range(self._random.randint(2, 4)))]

    def _safe(self, depth: int) -> Code:
        """An instruction that never fails."""
        return ["try", self._any(depth), self._leaf_without_failure()]

    def _any(self, depth: int) -> Code:
        if depth == 0:
            return self._leaf()
        kind = self._random.choice(
            [
                "leaf",
                "leaf",
                "seq",
                "gather",
                "group",
                "timeout",
                "try",
                "delegate",
                "spawn",
                "stop",
                "hold",
                "tools",
            ]
        )
        return cast("Code", getattr(self, f"_{kind}")(depth - 1)) if kind != "leaf" else self._leaf()

    def _many(self, depth: int) -> list[Code]:
        return [self._any(depth) for _ in range(self._random.randint(2, 3))]

    def _seq(self, depth: int) -> Code:
        return ["seq", *self._many(depth)]

    def _gather(self, depth: int) -> Code:
        return ["gather", *self._many(depth)]

    def _group(self, depth: int) -> Code:
        return ["group", *self._many(depth)]

    def _timeout(self, depth: int) -> Code:
        return ["timeout", self._seconds(30), self._any(depth)]

    def _try(self, depth: int) -> Code:
        return self._safe(depth)

    def _delegate(self, depth: int) -> Code:
        if self._random.random() < 0.5:
            return ["delegate", "collect", *self._many(depth)]
        return ["delegate", "fail", *(self._safe(depth) for _ in range(2))]

    def _spawn(self, depth: int) -> Code:
        return ["spawn", self._safe(depth), self._safe(depth)]

    def _stop(self, depth: int) -> Code:
        return ["stop", self._safe(depth), ["sleep", self._seconds(5)]]

    def _tools(self, depth: int) -> Code:
        return ["tools", *self._many(depth)]

    def _hold(self, depth: int) -> Code:
        return ["hold", self._box(), self._seconds(10), self._any(depth)]

    def _leaf(self) -> Code:
        draw = self._random
        risky: list[Code] = [
            ["receive", self._box(), self._seconds(20)],
            ["call", self._box(), self._seconds(10)],
            ["serve", self._box(), self._seconds(10)],
            ["shell", "broken"],
            ["flaky", draw.randint(0, 9)],
        ]
        return draw.choice(risky) if draw.random() < 0.5 else self._leaf_without_failure()

    def _leaf_without_failure(self) -> Code:
        draw = self._random
        safe: list[Code] = [
            ["sleep", self._seconds(10)],
            ["send", self._box(), draw.randint(0, 9)],
            ["later", self._box(), self._seconds(10)],
            ["shell", "echo"],
            ["think"],
            ["body", draw.randint(0, 9)],
            ["note"],
            ["print", draw.randint(0, 9)],
        ]
        return draw.choice(safe)

    def _box(self) -> str:
        return self._random.choice("abc")

    def _seconds(self, most: int) -> float:
        """No two waits of a program end at the same moment."""
        self._moments += 1
        return self._random.randint(1, most) + self._moments / 1000


class CarelessWriter(Writer):
    """Writes programs that fail when a command does, in whatever branch and worker it is."""

    def write(self) -> Code:
        return ["seq", *(self._any(3) for _ in range(3))]

    def _leaf(self) -> Code:
        return ["shell", "broken"] if self._random.random() < 0.25 else self._leaf_without_failure()

    def _safe(self, depth: int) -> Code:
        return self._any(depth)

    def _timeout(self, depth: int) -> Code:
        return self._seq(depth)

    def _group(self, depth: int) -> Code:
        # What goes on beside a branch in the block of a group cannot be told from what handles its failure.
        return self._gather(depth)

    def _delegate(self, depth: int) -> Code:
        return ["delegate", "fail", *self._many(depth)]

    def _hold(self, depth: int) -> Code:
        return ["seq", ["send", "held", 1], ["hold", "held", 5.0, self._any(depth)]]


def shell(words: list[str]) -> ShellResult:
    return ShellResult(words, 1) if words[0] == "broken" else ShellResult.success("said")


def make_agent() -> ScriptedAgent:
    """Calls every tool there is, in order, and the first one once more."""
    rules: list[dict[str, object]] = [
        {"pattern": f"tools {n}", "call": [{"tool": f"do_{i}"} for i in [*range(1, n + 1), 1]]}
        for n in (2, 3)
    ]
    return ScriptedAgent(
        prompts=[{**rule, "text": "hm", "times": 0, "delay_s": 0.5} for rule in [*rules, {}]]
    )


def make_run(code: Code, dies_after: int | None = None) -> TestRun[list[object]]:
    return TestRun(actor(code), agent=make_agent(), shell=shell, dies_after=dies_after)


def outcomes(entries: list[Entry]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for entry in entries:
        match e.decode_entry(entry.kind, entry.raw):
            case e.StepFinished() | e.StepFailed() | e.OutputWritten() as data if not data.cleanup:
                found[data.p, data.n] += 1
            case e.ToolFinished() | e.ToolFailed() as data:
                found[f"{data.p}/do:{data.n}.{data.call}", 0] += 1
            case e.MessageTaken() | e.MessagesDrained() as data:
                found[data.p, data.n] += 1
            case e.MessageSent() as data if data.n and not data.reply_to:
                found[data.p, data.n] += 1
            case _:
                pass
    return found


def asked(frames: list[f.Frame]) -> set[tuple[str, int]]:
    kinds = (f.Step, f.Begin, f.Done, f.Note, f.Out, f.Returned)
    return {(frame.p, frame.n) for frame in frames if isinstance(frame, kinds) and not _leaves_scope(frame)}


def _leaves_scope(frame: f.Frame) -> bool:
    """A deadline may pass while its block is being left."""
    return isinstance(frame, f.Note | f.Begin) and frame.step == "timeout"


def play_killed(code: Code, cut: int) -> None:
    """Run a program that is killed behind so many lines, and resume it."""
    run = make_run(code, cut)
    finished: Counter[tuple[str, int]] = Counter()
    said = 0
    try:
        try:
            run.start()
            run.finish()
        except KilledError:
            finished, said = outcomes(run.journal), len(run.outside.frames)
            run.resume()
            run.finish()
        assert run.error is None, run.error
        assert [place for place, count in outcomes(run.journal).items() if count > 1] == []
        again = asked(run.outside.frames[said:]) & set(finished)
        assert not again, f"asked again: {sorted(again)}"
    finally:
        run.close()


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_program_made_by_chance_survives_being_killed_anywhere(seed: int) -> None:
    code = Writer(seed).write()
    with make_run(code) as whole:
        whole.finish()
        lines = len(whole.lines)
    assert whole.error is None, whole.error
    draw = Random(seed)

    for _ in range(KILLS):
        cut = draw.randint(2, lines - 1)
        play_killed(code, cut)


def play_with_a_killed_worker(code: Code, draw: Random, turns: int) -> None:
    """Kill the process of some worker at some moment; all others go on."""
    run = make_run(code)
    try:
        run.start()
        for _ in range(draw.randint(0, turns)):
            if not run._turn() and not run._run.pass_time():
                break
        alive = sorted(run._run._processes)
        if alive and run.status == "running":
            run.crash(draw.choice(alive))
        run.finish()
        assert run.error is None, run.error
        assert [place for place, count in outcomes(run.journal).items() if count > 1] == []
    finally:
        run.close()


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_program_made_by_chance_survives_the_death_of_any_worker_at_any_moment(seed: int) -> None:
    code = Writer(seed).write()
    draw = Random(seed)

    for _ in range(KILLS):
        play_with_a_killed_worker(code, draw, 300)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_program_made_by_chance_goes_on_when_what_made_it_fail_is_mended(seed: int) -> None:
    code = CarelessWriter(seed).write()
    broken = [True]

    def mendable(words: list[str]) -> ShellResult:
        return shell(words) if broken[0] else ShellResult.success("said")

    run = TestRun(actor(code), agent=make_agent(), shell=mendable)
    try:
        run.start()
        run.finish()
        broken[0] = False
        for _ in range(6):
            if run.error is None:
                break
            # A second failure that was recorded beside the first one shows only when that is mended.
            assert run.error.kind == "ShellError", run.error
            run.resume()
            run.finish()
        assert run.error is None, run.error
        sent = Counter((message.sender, message.id) for message in run.messages)
        assert set(sent.values()) <= {1}
    finally:
        run.close()
