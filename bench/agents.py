"""What Bartack adds to a real agent, and what its guard and the reading of a result after a crash take.

Run with ``python -m bench.agents [--json] [--quick] [--rounds N] [--check]``. ``make realcli`` installs the agents.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final, Literal

from bartack.agents.claude._past import SKIPPED, Past
from bartack.agents.claude._spent import StreamUsage
from bartack.agents.guard.guard import Guard
from bartack.agents.guard.policy import GuardPolicy
from bartack.agents.program._stream import SENT, STARTED, Stream
from bartack.agents.tool_use import ToolUse
from bench._claude import ClaudeStage
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._rpc import AcpStage, CodexStage
from bench._runner import Sample
from bench._stage import Stage

MEBI: Final = 1024 * 1024


STAGES: Final[dict[str, type[Stage]]] = {"claude": ClaudeStage, "codex": CodexStage, "acp": AcpStage}


def added(
    directory: str, size: int, *, script: str, what: Literal["whole_ms", "tool_ms"], kind: str = "claude"
) -> Sample:
    """Milliseconds that a turn through a run takes longer than the same lines from a bare script; sides take turns."""
    with ExitStack() as stack:
        stage = STAGES[kind](directory, stack)
        stage.bare(script, 1)
        pairs = [(stage.through_a_run(script, 2), stage.bare(script, 2)) for _ in range(size)]
    return Sample(value=median(getattr(ours, what) - getattr(floor, what) for ours, floor in pairs))


def added_by_a_hook(directory: str, size: int) -> Sample:
    """Milliseconds that the guard as a command hook adds to a tool call; sides take turns."""
    with ExitStack() as stack:
        plain = ClaudeStage(os.path.join(directory, "plain"), stack)
        hooked = ClaudeStage(os.path.join(directory, "hooked"), stack, has_hook=True)
        plain.bare("read", 1)
        pairs = [(hooked.bare("read", 2), plain.bare("read", 2)) for _ in range(size)]
    return Sample(value=median(one.tool_ms - floor.tool_ms for one, floor in pairs))


def hub_memory(directory: str, size: int, *, each: bool) -> Sample:
    """Megabytes that a hub takes with ``size`` calls under way, more than an idle one; or that each call adds to the first."""
    with ExitStack() as stack:
        stage = ClaudeStage(directory, stack)
        if each:
            return Sample(value=(stage.hub_mb(size) - stage.hub_mb(1)) / (size - 1))
        return Sample(value=stage.hub_mb(size) - stage.hub_mb(0))


def _fill_stream(directory: str, size: int) -> None:
    with Stream.open("bench", Path(directory, "call"), "claude") as stream, open(stream.path, "ab") as file:
        stream.mark(STARTED, attempt=1)
        stream.mark(SENT, attempt=1)
        result = b'{"type":"user","message":{"content":[{"type":"tool_result","content":"%s"}]}}\n' % (
            b"x" * 9_000
        )
        said = b'{"type":"assistant","message":{"id":"m%d","usage":{"output_tokens":9},"content":[{"text":"%s"}]}}\n'
        for number in range(size * MEBI // 10_000):
            file.write(said % (number, b"y" * 800) + result)
        file.write(b'{"type":"result","subtype":"success"}\n')


def harvest(directory: str, size: int) -> Sample:
    """Milliseconds to find the result in a stream."""
    with Stream.open("bench", Path(directory, "call"), "claude") as stream:
        began = perf_counter()
        past = Past(stream.read_lines(SKIPPED), partial(StreamUsage, {}, None))
        took = perf_counter() - began
    assert past.answer is not None
    return Sample(value=took * 1e3)


def harvest_memory(directory: str, size: int) -> Sample:
    """The memory that reading a whole stream takes at most, in MB."""
    with Stream.open("bench", Path(directory, "call"), "claude") as stream:
        tracemalloc.start()
        past = Past(stream.read_lines(SKIPPED), partial(StreamUsage, {}, None))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert past.answer is not None
    return Sample(value=most / MEBI)


def read_file(directory: str, size: int) -> Sample:
    """Milliseconds to read the file."""
    began = perf_counter()
    with open(Path(directory, "call", "stream.ndjson"), "rb") as file:
        while file.read(MEBI):
            pass
    return Sample(value=(perf_counter() - began) * 1e3)


def judge(directory: str, size: int) -> Sample:
    """Milliseconds for the verdict on a command of 10 kB."""
    guard = Guard(GuardPolicy(), directory)
    command = " && ".join(f"make target-{number} FLAG={number}" for number in range(330))
    use = ToolUse.of_command(command[:10_000])
    times: list[float] = []
    for _ in range(size):
        began = perf_counter()
        guard.judge(use)
        times.append(perf_counter() - began)
    return Sample(value=median(times) * 1e3)


CLAUDE: Final = ("claude-agent-sdk",)
CODEX: Final = ("openai-codex-cli-bin",)


def _added_race(
    key: str,
    title: str,
    script: str,
    what: Literal["whole_ms", "tool_ms"],
    kind: str = "claude",
    *,
    beside: tuple[Contestant, ...] = (),
) -> Race:
    measure = partial(added, script=script, what=what, kind=kind)
    needs = CODEX if kind == "codex" else CLAUDE
    ours = Contestant(key=OURS, label="bartack", measure=measure, size=2, every=8, needs=needs)
    return Race(key=key, title=title, unit="ms", better="lower", contestants=(ours, *beside))


def _memory_race(key: str, title: str, *, each: bool) -> Race:
    measure = partial(hub_memory, each=each)
    ours = Contestant(
        key=OURS, label="bartack", measure=measure, size=8, quick_size=8, every=16, needs=CLAUDE
    )
    return Race(key=key, title=title, unit="MB", better="lower", contestants=(ours,))


TOOL: Final = "a tool of ours with one synced step, over one that returns at once"
BENCH: Final = Bench(
    name="agents",
    title="Real agents",
    races=(
        _added_race("turn", "Bartack around one turn of Claude Code, over a bare script", "say", "whole_ms"),
        _added_race(
            "decision",
            "the decision of a tool call, over one that always allows",
            "read",
            "tool_ms",
            beside=(
                Contestant(
                    key="hook",
                    label="guard as a command hook",
                    measure=added_by_a_hook,
                    size=2,
                    every=8,
                    needs=CLAUDE,
                ),
            ),
        ),
        _added_race("tool", f"{TOOL}, called by Claude Code", "tool", "tool_ms"),
        _added_race("tool_codex", f"{TOOL}, called by Codex", "tool", "tool_ms", "codex"),
        _added_race("tool_acp", f"{TOOL}, called over the bridge", "tool", "tool_ms", "acp"),
        _memory_race("hub_call", "memory of a hub for each further call under way", each=True),
        _memory_race("hub_calls", "memory of a hub with 8 calls under way, over an idle one", each=False),
        Race(
            key="harvest",
            title="find the result in a stream of 100 MB",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(
                    key=OURS, label="bartack", measure=harvest, size=100, quick_size=100, prepare=_fill_stream
                ),
                Contestant(
                    key="read",
                    label="read the file",
                    measure=read_file,
                    size=100,
                    quick_size=100,
                    prepare=_fill_stream,
                ),
            ),
        ),
        Race(
            key="harvest_mb",
            title="memory to find it",
            unit="MB",
            better="lower",
            contestants=(
                Contestant(
                    key=OURS,
                    label="bartack",
                    measure=harvest_memory,
                    size=100,
                    quick_size=100,
                    prepare=_fill_stream,
                    every=8,
                ),
            ),
        ),
        Race(
            key="guard",
            title="the verdict on a command of 10 kB",
            unit="ms",
            better="lower",
            contestants=(Contestant(key=OURS, label="bartack", measure=judge, size=20),),
        ),
    ),
    goals=(
        Goal(race="turn", title="around a turn", bound="at most", target=50.0, stretch=30.0),
        Goal(race="decision", title="decision of a tool call", bound="at most", target=2.0, stretch=1.0),
        Goal(race="tool", title="tool, Claude Code", bound="at most", target=5.0, stretch=3.0),
        Goal(race="tool_codex", title="tool, Codex", bound="at most", target=5.0, stretch=3.0),
        Goal(race="tool_acp", title="tool, over the bridge", bound="at most", target=8.0, stretch=5.0),
        Goal(race="hub_call", title="memory of a call under way", bound="at most", target=3.0, stretch=1.0),
        Goal(race="hub_calls", title="memory of 8 calls", bound="at most", target=20.0, stretch=10.0),
        Goal(
            race="harvest",
            title="harvest over reading",
            bound="at most",
            target=2.0,
            stretch=1.0,
            against="read",
        ),
        Goal(race="harvest_mb", title="memory of a harvest", bound="at most", target=32.0, stretch=16.0),
        Goal(race="guard", title="guard on 10 kB", bound="at most", target=2.0, stretch=1.0),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
