"""Real power cuts, as far as one machine can have them: a file system in a file is copied while runs work on it.

Each copy is the disk as a power cut would leave it at that moment (``loop_image.py``). It is mounted in the place of the
original, and the run is resumed there. Only part of ``make soak``: mounting needs root and a loop device.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.crash.loop_image import NoLoopDeviceError, copy_image, make_image, mounted

from bartack.supervision.process.tree import descendants

pytestmark = pytest.mark.skipif(
    "BARTACK_CHAOS_SOAK" not in os.environ, reason="real power cuts are part of make soak"
)

PATIENCE_S: Final = 120.0
STEPS: Final = 40
LONG: Final = 70_000
"""Arguments of this length are a blob."""

MARKING: Final = """
import os

from shared.marks import leave_mark

from bartack import Context, step, worker


@step
def mark(number: int) -> int:
    leave_mark(os.environ["MARKS"], number)
    return number


@worker
async def main(ctx: Context, text: str, steps: int) -> int:
    for number in range(steps):
        await mark(number)
    return len(text)
"""

MARKS: Final = """
import os


def leave_mark(path: str, number: int) -> None:
    with open(path, "a") as file:
        file.write(f"{number}\\n")
"""


class Event(msgspec.Struct):
    """A line of ``--json``, as far as it is looked at."""

    event: str
    run: str = ""
    value: object = None


class PowerCuts:
    """A workspace on a disk of its own, and copies of that disk.

    Attributes:
        workspace: Where programs are; the same path on every copy.
        marks: What steps leave outside of the disk.
    """

    def __init__(self, folder: Path) -> None:
        self.disk = folder / "disk"
        self.workspace = self.disk / "project"
        self.marks = folder / "marks"
        self.marks.touch()
        self._image = folder / "image"
        self._copies = 0

    def prepare(self) -> None:
        """Make the disk, with a program on it. What a person wrote long ago is durable."""
        make_image(self._image)
        with self.mounted():
            (self.workspace / "shared").mkdir(parents=True)
            (self.workspace / "marking.py").write_text(MARKING)
            (self.workspace / "shared" / "__init__.py").touch()
            (self.workspace / "shared" / "marks.py").write_text(MARKS)

    @contextmanager
    def mounted(self, image: Path | None = None) -> Generator[None]:
        with mounted(image or self._image, self.disk):
            yield

    def cut(self, stopped: Iterable[int] = ()) -> Path:
        """The disk as a power cut would leave it now; these processes stand still meanwhile."""
        self._copies += 1
        copy = self._image.with_name(f"copy-{self._copies}")
        stopped = list(stopped)
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        try:
            copy_image(self._image, copy)
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)
        return copy

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "bartack", *words],
            cwd=self.workspace,
            env={**os.environ, "MARKS": str(self.marks)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )

    def call(self, *words: str) -> str:
        process = self.start(*words)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, f"{words}: {process.returncode}\n{out.decode()}"
        return out.decode()

    def left(self) -> list[int]:
        return [int(line) for line in self.marks.read_text().split()]

    def check_resume(self, image: Path, run: str, finished: Sequence[object]) -> None:
        """The run is resumed to its end on what was left of the disk, and no finished step of it is executed again."""
        before = len(self.left())
        with self.mounted(image):
            out = self.call("resume", run, "--json")
        result = msgspec.json.decode(out.splitlines()[-1], type=Event)
        assert result.value == LONG
        again = [number for number in self.left()[before:] if number in finished]
        assert not again, f"executed again: {again}"


@pytest.fixture
def cuts(tmp_path: Path) -> PowerCuts:
    made = PowerCuts(tmp_path)
    try:
        made.prepare()
    except NoLoopDeviceError as problem:
        pytest.skip(f"NO REAL POWER CUT WAS TRIED: {problem}")
    return made


def arguments() -> str:
    return msgspec.json.encode({"text": "x" * LONG, "steps": STEPS}).decode()


def events_of(process: subprocess.Popen[bytes]) -> Iterator[Event]:
    assert process.stdout is not None
    for line in process.stdout:
        yield msgspec.json.decode(line, type=Event)


def everything_of(process: subprocess.Popen[bytes]) -> list[int]:
    return [process.pid, *(facts.id.pid for facts in descendants(process.pid))]


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it with everything below it, so that its disk can be taken away."""
    below = everything_of(process)
    for number in below:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)


def work_and_cut(
    cuts: PowerCuts, process: subprocess.Popen[bytes], moments: Sequence[int]
) -> tuple[str, list[tuple[Path, list[object]]]]:
    """Cut the power when so many steps are finished; returns the run, and the disks with the steps that were."""
    run = ""
    finished: list[object] = []
    found: list[tuple[Path, list[object]]] = []
    wanted = list(moments)
    try:
        for event in events_of(process):
            run = run or event.run
            if event.event == "step.finished":
                finished.append(event.value)
            if event.event != "run" and len(finished) >= wanted[0]:
                found.append((cuts.cut(everything_of(process)), list(finished)))
                if not wanted[1:]:
                    break
                wanted = wanted[1:]
    finally:
        end(process)
    return run, found


@pytest.mark.requirement("run-survives-power-cut")
def test_a_run_is_resumed_after_a_power_cut_in_its_first_moments(cuts: PowerCuts) -> None:
    with cuts.mounted():
        process = cuts.start("run", "--json", "--set", "budget.usd=3", "marking.py", "--input", arguments())
        run, found = work_and_cut(cuts, process, (0, 1, 2, 5, 10, 30))

    assert len(found) == 6
    for image, finished in found:
        cuts.check_resume(image, run, finished)


@pytest.mark.requirement("run-survives-power-cut", "update-is-durable-first")
def test_an_updated_program_is_there_after_a_power_cut(cuts: PowerCuts) -> None:
    with cuts.mounted():
        process = cuts.start("run", "--json", "marking.py", "--input", arguments())
        run, _ = work_and_cut(cuts, process, (3,))
        source = cuts.workspace / "marking.py"
        source.write_text(MARKING + "# edited\n")
        edited = cuts.start("resume", run, "--update", "--json", "--set", "budget.usd=3")
        _, found = work_and_cut(cuts, edited, (0, 1, 5))
    for image, finished in found:
        with cuts.mounted(image):
            kept = cuts.workspace / ".bartack" / "runs" / run
            assert (kept / "program" / "marking.py").read_text().endswith("# edited\n")
            assert msgspec.json.decode((kept / "sets.json").read_bytes()) == ["budget.usd=3"]
        cuts.check_resume(image, run, finished)


@pytest.mark.requirement("run-survives-power-cut", "fork-is-durable-first")
def test_a_fork_is_there_after_a_power_cut(cuts: PowerCuts) -> None:
    with cuts.mounted():
        process = cuts.start("run", "--json", "marking.py", "--input", arguments())
        run, _ = work_and_cut(cuts, process, (5,))
        fork = cuts.call("fork", run, "--at", "3").strip()
        image = cuts.cut()

    cuts.check_resume(image, fork, [0, 1, 2])


def test_a_copy_of_a_disk_has_nothing_that_was_not_synced(cuts: PowerCuts) -> None:
    """Without this the tests above would prove nothing."""
    with cuts.mounted():
        shutil.copy(cuts.workspace / "marking.py", cuts.workspace / "copied.py")
        image = cuts.cut()
    with cuts.mounted(image):
        copied = cuts.workspace / "copied.py"
        assert not copied.exists() or not copied.read_bytes()
