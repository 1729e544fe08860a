"""Whether a program survives being killed anywhere, and whether today's code still replays the journal of yesterday's run."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from bartack.agents import ScriptedAgent
from bartack.core import typed
from bartack.errors import ReplayMismatchError, RunNotFoundError
from bartack.journal import Entry
from bartack.runtime import Run
from bartack.runtime.context.definitions import WorkerCall
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.program.rehearsal import rehearse
from bartack.runtime.program.replay import ReplayReport
from bartack.runtime.protocol.frames import Begin, Done, Frame, Note, Out, Returned, Step
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.entries import (
    MessagesDrained,
    MessageSent,
    MessageTaken,
    OutputWritten,
    StepFailed,
    StepFinished,
    ToolFailed,
    ToolFinished,
    decode_entry,
)
from bartack.testing.runs._run import ShellScript, TestRun, Unknown

R = TypeVar("R")

At = Literal["steps", "entries"]
Place = tuple[str, int]
"""A step: its path and number."""

_STEPS = (Step, Begin, Done, Note, Out, Returned)


def assert_survives_crashes(
    call: WorkerCall[R],
    *,
    at: At = "steps",
    processes: bool = False,
    agent: ScriptedAgent | None = None,
    answers: Mapping[str, object] | None = None,
    shell: ShellScript | None = None,
    seed: int = 0,
    unknown: Unknown | None = None,
) -> int:
    """Run a program once, then once more for every place where everything can be killed, and compare.

    Args:
        call: The worker with its arguments.
        at: ``steps``: it is killed after the outcome of each step; ``entries``: after each line of the journal.
        processes: Use real processes and SIGKILL. Then nothing can be scripted, and it takes its time.
        agent: See ``run_worker``.
        answers: See ``run_worker``.
        shell: See ``run_worker``.
        seed: See ``run_worker``.
        unknown: What to do with a ``once`` step that was under way; without it, such a step fails the run.

    Returns:
        How often it was killed.

    Raises:
        AssertionError: A killed and resumed run had another result or printed something else, or a step that was finished was
            executed again.
    """
    call.encode()
    if processes:
        if agent is not None or answers is not None or shell is not None:
            raise ValueError("with processes=True nothing can be scripted")
        return _Processes(call).check()

    def make(dies_after: int | None = None) -> TestRun[R]:
        return TestRun(call, agent=agent, answers=answers, shell=shell, seed=seed, dies_after=dies_after)

    with make() as whole:
        whole.finish()
        cuts = _cuts(whole, at)
    if whole.error is not None:
        raise AssertionError(f"the run fails without any crash: {whole.error.kind}: {whole.error.message}")
    for cut in cuts:
        _check_cut(make(cut), whole, unknown)
    return len(cuts)


def _cuts(whole: TestRun[R], at: At) -> list[int]:
    """After how many lines to kill: never before the run is there, and never after its end."""
    entries, lines = whole.journal, whole.lines
    cuts = range(2, len(lines))
    if at == "entries":
        return list(cuts)
    return [cut for cut in cuts if _finished(entries[lines[cut - 2] : lines[cut - 1]])]


def _check_cut(run: TestRun[R], whole: TestRun[R], unknown: Unknown | None) -> None:
    try:
        try:
            run.start()
            run.finish()
        except KilledError:
            place = f"killed after {_describe(run.journal[-1])}"
        else:
            place = "not killed: it wrote fewer entries"
        finished, said = _finished(run.journal), len(run.outside.frames)
        if run.status == "running":
            run.resume(unknown)
            run.finish()
        _compare(run, whole, place)
        again = [step for frame in run.outside.frames[said:] if (step := _step_of(frame)) in finished]
        assert not again, f"{place}: the finished step {again[0][0]}:{again[0][1]} was executed again"
    finally:
        run.close()


def _compare(run: TestRun[R], whole: TestRun[R], place: str) -> None:
    error = run.error
    if error is not None:
        raise AssertionError(f"{place}: the resumed run failed: {error.kind}: {error.message}")
    assert run.result == whole.result, f"{place}: {run.result!r} instead of {whole.result!r}"
    assert run.output == whole.output, f"{place}: it printed {run.output!r} instead of {whole.output!r}"


def _finished(entries: list[Entry]) -> set[Place]:
    """The steps whose outcomes these entries are."""
    found: set[Place] = set()
    for entry in entries:
        data = decode_entry(entry.kind, entry.raw)
        match data:
            case StepFailed(late=True):
                pass
            case StepFinished() | StepFailed() | OutputWritten() if not data.cleanup:
                found.add((data.p, data.n))
            case ToolFinished() | ToolFailed():
                found.add((f"{data.p}/do:{data.n}.{data.call}", 0))
            case MessageTaken() | MessagesDrained():
                found.add((data.p, data.n))
            case MessageSent() if data.n and not data.reply_to:
                found.add((data.p, data.n))
            case _:
                pass
    return found


def _step_of(frame: Frame) -> Place | None:
    return (frame.p, frame.n) if isinstance(frame, _STEPS) else None


def _describe(entry: Entry) -> str:
    fields = entry.data
    where = f" of {fields['p']}:{fields['n']}" if "p" in fields and "n" in fields else ""
    return f"entry {entry.seq} ({entry.kind}{where})"


class _Processes:
    """The same with a real hub that is killed."""

    def __init__(self, call: WorkerCall[R]) -> None:
        self._call = call

    def check(self) -> int:
        with tempfile.TemporaryDirectory(prefix="bartack-") as workspace:
            whole = self._start(workspace)
            whole.wait()  # bartack: allow[wait_without_deadline] as long as the program takes
            result, printed = whole.result_bytes(), _printed(whole)
            steps = len(_finished(_entries(whole)))
            for count in range(1, steps):
                run = self._start(workspace)
                self._kill_after(run, count)
                place = f"killed after {count} steps"
                assert run.result_bytes() == result, f"{place}: {run.result_bytes()!r} instead of {result!r}"
                assert _printed(run) == printed, f"{place}: it printed {_printed(run)!r}"
        return max(steps - 1, 0)

    def _start(self, workspace: str) -> Run:
        return Run.start(self._call, workspace=workspace, no_input=True)

    def _kill_after(self, run: Run, count: int) -> None:
        """Kill the hub when this number of steps is finished, and let the run come to its end."""
        finished: set[Place] = set()
        with RunDir(run.dir).open_reader() as reader:
            for entry in reader.follow():
                finished |= _finished([entry])
                if len(finished) >= count or entry.kind == "run.ended":
                    break
        _kill_hub(run)
        if run.state().status == "interrupted":
            run.resume()
        run.wait()  # bartack: allow[wait_without_deadline] as long as the program takes


class _Mirror(msgspec.Struct):
    pid: int = 0


def _kill_hub(run: Run) -> None:
    pid = typed.decode(RunDir(run.dir).summary() or b"{}", type=_Mirror).pid
    with RunDir(run.dir).watch() as watch:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while run.state().status in {"running", "waiting"}:
            watch.wait(0.01)


def _entries(run: Run) -> list[Entry]:
    with RunDir(run.dir).open_reader() as reader:
        return list(reader.read())


def _printed(run: Run) -> list[bytes]:
    outputs = [(entry, decode_entry(entry.kind, entry.raw)) for entry in _entries(run)]
    return [
        bytes(entry.value or b"")
        for entry, data in outputs
        if isinstance(data, OutputWritten) and data.channel == "print"
    ]


def assert_replays(
    run_dir: str | os.PathLike[str], program: str | os.PathLike[str] | None = None
) -> ReplayReport:
    """Replay a recorded run against today's code, executing nothing; every worker of it, also if it has ended.

    Args:
        run_dir: The directory of the run, a copy of it, or a bundle of it (``bartack bundle RUN --prompts``).
        program: The file with the program; by default the one at the place that it had, from the current directory, or else the
            file that the run was started from.

    Returns:
        How many workers and steps were replayed.

    Raises:
        ReplayMismatchError: The program asks for another step than the journal has, or cannot be run at all.
        RunNotFoundError: There is no run in this place.
        RecordingError: The recording cannot be replayed.
        ProgramImportError: The program cannot be imported.
    """
    place = Path(run_dir)
    if not place.is_file() and not RunDir(place).exists():
        raise RunNotFoundError(os.fspath(run_dir))
    found = rehearse(place, Path.cwd(), Path(program) if program is not None else None, trusted=True)
    for difference in found.differences:
        asked = difference.asked or difference.message
        raise ReplayMismatchError(
            difference.worker, difference.step, difference.recorded, asked, difference.where
        )
    return ReplayReport(found.workers, found.steps, [])
