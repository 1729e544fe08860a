"""What the live view costs: a frame, and the steps of a run that is shown.

Run with ``python -m bench.live [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

import msgspec

from bartack.agents import Usage
from bartack.agents.contract import CallText, CallUsage
from bartack.cli.app._edge import guarded_streams
from bartack.cli.live._live import LiveView
from bartack.config.load import Config
from bartack.runtime import Run
from bartack.runtime.hub.launch import drive
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Value
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample
from bench._runs import drive_here, make_run

WORKERS: Final = 64
COLUMNS: Final = 120
ROWS: Final = 40
AT: Final = "2026-01-01T00:00:00.000Z"


@contextlib.contextmanager
def terminal() -> Iterator[None]:
    """Let stdout and stderr be a terminal that a thread reads, as the program of a terminal does."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    before = sys.stdout, sys.stderr, os.environ.get("TERM")
    reader = threading.Thread(target=_drain, args=(ours,))
    reader.start()
    os.environ["TERM"] = "xterm-256color"
    try:
        with os.fdopen(theirs, "w", encoding="utf-8", buffering=1) as stream:
            sys.stdout = sys.stderr = stream
            with guarded_streams():
                yield
    finally:
        sys.stdout, sys.stderr, kind = before
        if kind is None:
            del os.environ["TERM"]
        else:
            os.environ["TERM"] = kind
        reader.join()
        os.close(ours)


def _drain(fd: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(fd, 65536):
            pass


# A frame.


class Team:
    """The state of a run with many workers, half of which have agents that say something all the time."""

    def __init__(self, directory: str) -> None:
        self.run = RunDir(Path(directory) / "run-20260101-000000-00000000")
        self.run.make()
        self.state = State()
        self._seq = 0
        self._said = 0
        self._add(
            e.RunCreated(
                run=self.run.id, worker="t:main", name="main", program="t.py", workspace="/", root="/", seed=1
            )
        )
        self._add(e.WorkerSpawned(path="main", worker="t:main"), b'{"args":[]}')
        self._add(e.HubStarted(hub=1))
        self._add(e.StepStarted(p="main", n=1, step="delegate", fp="f", about="builders"))
        for place in range(1, WORKERS + 1):
            path = f"main/1.{place}:builder"
            self._add(
                e.WorkerSpawned(path=path, worker="t:builder", p="main", n=1), b'{"args":["b%d"]}' % place
            )
            kind = "think" if place % 2 else "receive"
            started = e.StepStarted(p=path, n=1, step=kind, fp="f", about="findings")
            self._add(started, b'{"prompt":"Look around","name":"x","agent":"ann"}')
        (self.run.agents / "ann").mkdir(parents=True)
        self._transcript = (self.run.agents / "ann/transcript.ndjson").open("ab", buffering=0)

    def change(self) -> None:
        """Every agent says something, and a message is sent."""
        self._said += 1
        for place in range(1, WORKERS + 1, 2):
            key = step_key(self.run.id, f"main/1.{place}:builder", 1, 0)
            text = CallText(
                key=key, at=AT, n=self._said, text=f"looking at part {self._said} of the work, then on"
            )
            used = CallUsage(
                key=key, at=AT, n=self._said, usage=Usage(turns=self._said, cost_usd=self._said / 100)
            )
            self._transcript.write(msgspec.json.encode(text) + b"\n" + msgspec.json.encode(used) + b"\n")
        name = f"m-{self._said}"
        self._add(
            e.MessageSent(
                mailbox="findings", id=name, size=1, sender="main", p="main", n=1 + self._said, fp="f"
            ),
            b"1",
        )

    def _add(self, data: e.EntryData, value: bytes | None = None) -> None:
        self._seq += 1
        kept = Value() if value is None else Value(msgspec.Raw(value))
        apply(self.state, data, self._seq, self._seq * 1000, kept)


def frames(directory: str, size: int) -> Sample:
    """Milliseconds of a frame in which all agents have said something, the median."""
    team = Team(directory)
    times: list[float] = []
    with terminal():
        view = LiveView(team.run, began="started", patient=True, asks=False)
        for _ in range(size):
            team.change()
            began = perf_counter()
            view._frame(team.state, began)  # noqa: SLF001 - a frame, whatever the clock says
            times.append(perf_counter() - began)
        view.close()
    return Sample(value=median(times) * 1e3, facts={"workers": str(WORKERS), "columns": str(COLUMNS)})


# Steps of a run that is shown.


def shown(run: Run) -> None:
    """Be the hub of a run, with the live view on a terminal."""
    with terminal():
        view = LiveView(RunDir(run.dir), began="started", patient=True, asks=False)
        drive(RunDir(run.dir), msgspec.convert({}, type=Config), view)
        view.close()


def not_shown(run: Run) -> None:
    """Be the hub of a run without a view."""
    drive_here(run)


def steps(directory: str, size: int, *, be_hub: Callable[[Run], None]) -> Sample:
    """Steps per second of one worker."""
    run = make_run(directory, "sequential", size)
    be_hub(run)
    return Sample(value=size / run.result(float))


def steps_of_many(directory: str, size: int, *, be_hub: Callable[[Run], None]) -> Sample:
    """Steps per second of many workers, each in a process of its own."""
    each = max(size // WORKERS, 1)
    run = make_run(directory, "processes", WORKERS, each)
    be_hub(run)
    return Sample(value=WORKERS * each / run.result(float))


def with_view(directory: str, size: int) -> Sample:
    """See ``steps``."""
    return steps(directory, size, be_hub=shown)


def without_view(directory: str, size: int) -> Sample:
    """See ``steps``."""
    return steps(directory, size, be_hub=not_shown)


def many_with_view(directory: str, size: int) -> Sample:
    """See ``steps_of_many``."""
    return steps_of_many(directory, size, be_hub=shown)


def many_without_view(directory: str, size: int) -> Sample:
    """See ``steps_of_many``."""
    return steps_of_many(directory, size, be_hub=not_shown)


BENCH: Final = Bench(
    name="live",
    title="The live view",
    races=(
        Race(
            key="frame",
            title=f"a frame with {WORKERS} workers",
            unit="ms",
            better="lower",
            contestants=(Contestant(key=OURS, label="bartack", measure=frames, size=200),),
        ),
        Race(
            key="steps",
            title="one worker, one step after the other, synced",
            unit="steps/s",
            better="higher",
            contestants=(
                Contestant(key=OURS, label="with the live view", measure=with_view, size=4000),
                Contestant(key="without", label="without a view", measure=without_view, size=4000),
            ),
        ),
        Race(
            key="processes",
            title=f"{WORKERS} workers, each a process, synced",
            unit="steps/s",
            better="higher",
            contestants=(
                Contestant(
                    key=OURS, label="with the live view", measure=many_with_view, size=WORKERS * 150, every=2
                ),
                Contestant(
                    key="without",
                    label="without a view",
                    measure=many_without_view,
                    size=WORKERS * 150,
                    every=2,
                ),
            ),
        ),
    ),
    goals=(
        Goal(race="frame", title="a frame", bound="at most", target=2.0, stretch=1.0),
        Goal(
            race="steps",
            title="steps with the view",
            bound="at least",
            target=0.97,
            stretch=0.99,
            against="without",
        ),
        Goal(
            race="processes",
            title="steps of 64 workers with the view",
            bound="at least",
            target=0.97,
            stretch=0.99,
            against="without",
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
