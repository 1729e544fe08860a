"""The demo of the journal: workers that are killed one after the other, and the proof that nothing was lost or done twice.

The proof does not trust the workers. It compares three independent records: the acknowledgements that this process read through
a pipe while the workers ran, the journal on the disk, and the effects in a file beside it.
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

from bartack.cli.demo._proof import Check
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
from bartack.core import typed
from bartack.journal import Entry
from bartack.journal.file import open_reader, verify_journal

_decode = typed.decoder(Started | Acknowledged).decode


class Ack(NamedTuple):
    """An acknowledgement, with the process that sent it and its time after the start of the demo."""

    pid: int
    after_s: float
    message: Acknowledged


class Death(NamedTuple):
    """A planned kill."""

    step: int
    moment: Moment


class Life(NamedTuple):
    """The observed life of one worker process. ``code`` is its exit code, or minus the signal that killed it."""

    pid: int
    found: int
    cut_bytes: int
    acks: list[Ack]
    death: Death | None
    code: int

    @property
    def as_planned(self) -> bool:
        """Whether it ended as planned."""
        return self.code == (0 if self.death is None else -signal.SIGKILL)


def plan(steps: int) -> list[Death]:
    """Plan one kill for each critical moment, spread over the steps."""
    parts = len(MOMENTS) + 1
    return [Death(steps * (i + 1) // parts, moment) for i, moment in enumerate(MOMENTS)]


def iter_lives(directory: str, steps: int, *, as_json: bool) -> Iterator[Life]:
    """Start workers, one after the other, until one of them finishes the steps or does not end as planned."""
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
            message = _decode(line)
            if isinstance(message, Started):
                started = message
            else:
                acks.append(Ack(child.pid, elapsed(), message))
    return Life(child.pid, started.found, started.cut_bytes, acks, death, child.returncode)


@contextmanager
def _worker(orders: Orders) -> Generator[subprocess.Popen[bytes]]:
    """A worker process that is killed if this block is left early."""
    # -P: modules in the current directory are not imported by accident.
    command = [sys.executable, "-P", "-m", "bartack.cli.demo._worker", msgspec.json.encode(orders).decode()]
    held = HeldSignals()
    try:
        with subprocess.Popen(  # bartack: allow[unsupervised_process] the block terminates it  # noqa: S603 - our own module
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
    """Defers the signals that terminate this process until ``release``, which raises the deferred ones.

    A signal between the start of a child process and the return of its id would orphan the child. The handlers are replaced
    instead of blocking the signals, because a child would inherit the block and another thread would receive the signals.
    """

    def __init__(self) -> None:
        self._deferred: list[int] = []
        self._before = {
            number: signal.signal(number, self._defer) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def release(self) -> None:
        """Restore the handlers and raise the deferred signals; a second call does nothing."""
        while self._before:
            signal.signal(*self._before.popitem())
        while self._deferred:
            signal.raise_signal(self._deferred.pop())

    def _defer(self, number: int, _: FrameType | None) -> None:
        self._deferred.append(number)


def prove(lives: list[Life], directory: str, steps: int) -> list[Check]:
    """Compare acknowledgements, journal and effects, and return the parts of the proof."""
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
        f"{killed} processes were killed by SIGKILL; the last one of {len(lives)} finished",
    )


def _check_complete(entries: list[tuple[Entry, Finished]], steps: int) -> Check:
    ok = [finished.step for _, finished in entries] == list(range(1, steps + 1))
    return Check("complete", ok, f"the journal has {len(entries)} of {steps} steps, each once and in order")


def _check_nothing_lost(acks: list[Ack], entries: list[tuple[Entry, Finished]]) -> Check:
    there = {(entry.seq, finished.step, finished.result) for entry, finished in entries}
    kept = sum((ack.message.seq, ack.message.step, ack.message.result) in there for ack in acks)
    ok = kept == len(acks) == len({ack.message.step for ack in acks})
    return Check(
        "nothing lost",
        ok,
        f"{kept} of {len(acks)} acknowledgements are in the journal, at the reported place",
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
    return Check("same result", found == expected, f"the result is {found}; without kills it is {expected}")


def _check_journal(directory: str) -> Check:
    report = verify_journal(directory)
    ok = report.ok and report.damage is None
    return Check(
        "journal intact", ok, f"{report.entries} entries by {report.owners} owners, every checksum right"
    )
