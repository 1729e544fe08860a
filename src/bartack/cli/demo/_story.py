"""The demo's story and its proof: workers that are killed one after the other, and what is true in the end.

The proof does not believe the workers. It compares three records that were kept apart: the acknowledgements that this process
read through a pipe while the workers lived, the journal on the disk, and the effects in a file beside it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

import msgspec

from bartack.cli.demo._worker import (
    MOMENTS,
    STEP_FINISHED,
    Acknowledged,
    Finished,
    Moment,
    Orders,
    Started,
    key_of,
    read_effects,
    result_of,
)
from bartack.journal import Entry, open_reader, verify_journal

_decode = msgspec.json.Decoder(Started | Acknowledged).decode


class Ack(NamedTuple):
    """An acknowledgement, as it was read: by which process, and how long after the demo began."""

    pid: int
    after_s: float
    said: Acknowledged


class Death(NamedTuple):
    """A kill that is planned."""

    step: int
    moment: Moment


class Life(NamedTuple):
    """What was seen of one worker process. ``code`` is its exit code, or minus the signal that ended it."""

    pid: int
    found: int
    cut_bytes: int
    acks: list[Ack]
    death: Death | None
    code: int

    @property
    def as_planned(self) -> bool:
        """Whether it ended as the plan said."""
        return self.code == (0 if self.death is None else -signal.SIGKILL)


class Check(NamedTuple):
    """One thing that has to be true in the end."""

    name: str
    ok: bool
    sentence: str


def plan(steps: int) -> list[Death]:
    """One kill at each awkward moment, spread over the steps."""
    parts = len(MOMENTS) + 1
    return [Death(steps * (i + 1) // parts, moment) for i, moment in enumerate(MOMENTS)]


def iter_lives(directory: str, steps: int, *, as_json: bool) -> Iterator[Life]:
    """Start workers, one after the other, until one of them finishes the steps or ends in a way that was not planned."""
    began = time.monotonic()
    for death in (*plan(steps), None):
        orders = Orders(directory, steps, as_json=as_json)
        if death is not None:
            orders = msgspec.structs.replace(orders, die_at_step=death.step, moment=death.moment)
        life = _live(orders, death, lambda: time.monotonic() - began)
        yield life
        if not life.as_planned:
            return


def _live(orders: Orders, death: Death | None, elapsed: Callable[[], float]) -> Life:
    started = Started(0, 0, 0)
    acks: list[Ack] = []
    with _worker(orders) as child:
        assert child.stdout is not None
        for line in child.stdout:
            said = _decode(line)
            if isinstance(said, Started):
                started = said
            else:
                acks.append(Ack(child.pid, elapsed(), said))
    return Life(child.pid, started.found, started.cut_bytes, acks, death, child.returncode)


@contextmanager
def _worker(orders: Orders) -> Generator[subprocess.Popen[bytes]]:
    """A worker process that does not outlive this one's interest in it."""
    # -P: nothing in the current directory is imported by accident.
    command = [sys.executable, "-P", "-m", "bartack.cli.demo._worker", msgspec.json.encode(orders).decode()]
    held = HeldSignals()
    try:
        with subprocess.Popen(  # bartack: allow[unsupervised_process] the block ends it  # noqa: S603 - our own module
            command, stdout=subprocess.PIPE
        ) as child:
            try:
                held.release()
                yield child
            except BaseException:
                child.kill()
                raise
    finally:
        held.release()


class HeldSignals:
    """Holds back the signals that end this process, from its making to ``release``, which lets in what has come meanwhile.

    A signal between the start of a process and the knowledge of its id would leave it alone in the world. Handlers are
    replaced, not signals blocked: a new process would inherit that, and another thread would let them in.
    """

    def __init__(self) -> None:
        self._came: list[int] = []
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def release(self) -> None:
        """Let the signals in again; harmless if that has happened already."""
        while self._before:
            signal.signal(*self._before.popitem())
        while self._came:
            signal.raise_signal(self._came.pop())

    def _note(self, number: int, _: FrameType | None) -> None:
        self._came.append(number)


def prove(lives: list[Life], directory: str, steps: int) -> list[Check]:
    """Compare acknowledgements, journal and effects, and say what holds."""
    entries = _step_entries(directory)
    return [
        _check_kills(lives),
        _check_complete(entries, steps),
        _check_nothing_lost([ack for life in lives for ack in life.acks], entries),
        _check_nothing_twice(directory, steps),
        _check_result(entries, steps),
        _check_journal(directory),
    ]


def _step_entries(directory: str) -> list[tuple[Entry, Finished]]:
    with open_reader(directory) as reader:
        return [(entry, entry.decode(Finished)) for entry in reader.read() if entry.kind == STEP_FINISHED]


def _check_kills(lives: list[Life]) -> Check:
    killed = sum(life.code == -signal.SIGKILL for life in lives)
    ok = all(life.as_planned for life in lives) and len(lives) == len(MOMENTS) + 1
    return Check(
        "killed",
        ok,
        f"{killed} processes were ended by SIGKILL, the last one of {len(lives)} came to its end",
    )


def _check_complete(entries: list[tuple[Entry, Finished]], steps: int) -> Check:
    ok = [finished.step for _, finished in entries] == list(range(1, steps + 1))
    return Check("complete", ok, f"the journal has {len(entries)} of {steps} steps, each once and in order")


def _check_nothing_lost(acks: list[Ack], entries: list[tuple[Entry, Finished]]) -> Check:
    there = {(entry.seq, finished.step, finished.result) for entry, finished in entries}
    kept = sum((ack.said.seq, ack.said.step, ack.said.result) in there for ack in acks)
    ok = kept == len(acks) == len({ack.said.step for ack in acks})
    return Check(
        "nothing lost",
        ok,
        f"{kept} of {len(acks)} acknowledgements are in the journal, where they were given",
    )


def _check_nothing_twice(directory: str, steps: int) -> Check:
    found = [line.split()[:2] for line in read_effects(directory)]
    ok = found == [[str(step), key_of(step)] for step in range(1, steps + 1)]
    return Check("nothing twice", ok, f"{len(found)} effects for {steps} steps, each once and in order")


def _check_result(entries: list[tuple[Entry, Finished]], steps: int) -> Check:
    expected = ""
    for step in range(1, steps + 1):
        expected = result_of(step, expected)
    found = entries[-1][1].result if entries else ""
    return Check(
        "same result", found == expected, f"the result is {found}, without any kill it is {expected}"
    )


def _check_journal(directory: str) -> Check:
    report = verify_journal(directory)
    ok = report.ok and report.damage is None
    return Check(
        "journal whole", ok, f"{report.entries} entries by {report.owners} owners, every checksum right"
    )
