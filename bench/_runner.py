"""A process of its own for each contestant, so that threads, imports or garbage of one do not slow down another.

The process stays for all rounds of a race: imports are paid before the first. What a contestant prints goes to stderr, because
stdout belongs to the result.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final

PATIENCE_S: Final = 300.0
"""The time limit of one measurement; then its process is terminated."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One measurement: its value in the unit of the race, and facts about how it came to be."""

    value: float
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A measurement that did not come to an end."""

    reason: str


Measure = Callable[[str, int], Sample]
"""Does ``size`` pieces of work in a directory and measures them. A function of a module, so that it can be sent."""

Prepare = Callable[[str, int], None]


class Runner:
    """The process of one contestant.

    Args:
        measure: Takes one measurement, in a directory that is empty at first.
        prepare: Fills a directory once; all measurements then share it.
        directory: Where the contestant's files go.
        patience_s: When to stop waiting for a measurement.
    """

    def __init__(
        self, measure: Measure, prepare: Prepare | None, directory: str, *, patience_s: float = PATIENCE_S
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._patience_s = patience_s
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, measure, prepare, directory))
        self._process.start()
        theirs.close()

    def run(self, size: int) -> Sample | Failure:
        """Measure ``size`` pieces of work."""
        try:
            self._connection.send(size)
            if not self._connection.poll(self._patience_s):
                self._process.kill()
                return Failure(reason=f"no result within {self._patience_s:g} s")
            answer: Sample | Failure = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            return Failure(reason=f"its process ended with code {self._process.exitcode}")
        return answer

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(connection: Connection, measure: Measure, prepare: Prepare | None, directory: str) -> None:
    os.dup2(2, 1)
    prepared: set[int] = set()
    while True:
        try:
            size: int = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(_attempt(measure, prepare, directory, size, prepared))


def _attempt(
    measure: Measure, prepare: Prepare | None, directory: str, size: int, prepared: set[int]
) -> Sample | Failure:
    try:
        if prepare is None:
            return _measure_fresh(measure, directory, size)
        place = os.path.join(directory, str(size))
        if size not in prepared:
            os.makedirs(place)
            prepare(place, size)
            prepared.add(size)
        return measure(place, size)
    except Exception as error:  # noqa: BLE001 - the boundary of a contestant: whatever went wrong is shown in the table
        return Failure(reason=f"{type(error).__name__}: {error}")


def _measure_fresh(measure: Measure, directory: str, size: int) -> Sample:
    place = tempfile.mkdtemp(dir=directory)
    try:
        return measure(place, size)
    finally:
        shutil.rmtree(place, ignore_errors=True)
