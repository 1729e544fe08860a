"""Steps that wait until a test releases them: how a test makes something happen while a reply is under way."""

from __future__ import annotations

import threading
from typing import Final, Self

from bartack.testing.model._director import Place

LONGEST_HOLD_S: Final = 600.0
"""A request that no test releases is answered after this time."""


class Hold:
    """A step that stops before it is answered, or after a number of events. A context manager, which releases it.

    Attributes:
        script: The script.
        step: The number of the step.
        after: How many events are sent before it stops.
    """

    def __init__(self, script: str, step: int, after: int = 0) -> None:
        self.script = script
        self.step = step
        self.after = after
        self._reached = threading.Event()
        self._released = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def wait(self, timeout_s: float = 30.0) -> None:
        """Wait until a request has reached it.

        Raises:
            TimeoutError: No request has.
        """
        if not self._reached.wait(timeout_s):
            raise TimeoutError(
                f"no request reached step {self.step} of {self.script!r} within {timeout_s:g} s"
            )

    def release(self) -> None:
        """Continue the requests that wait here; later ones do not stop."""
        self._released.set()


class Holds:
    """The holds of one server."""

    def __init__(self) -> None:
        self._holds: list[Hold] = []
        self._lock = threading.Lock()

    def add(self, hold: Hold) -> Hold:
        """Stop requests at a place from now on."""
        with self._lock:
            self._holds.append(hold)
        return hold

    def pass_by(self, place: Place | None, events: int) -> None:
        """Wait if a request that has sent this number of events is to stop here."""
        with self._lock:
            found = [
                hold
                for hold in self._holds
                if (hold.script, hold.step, hold.after) == (*(place or ("", -1)), events)
            ]
        for hold in found:
            hold._reached.set()  # noqa: SLF001 - both are one mechanism
            hold._released.wait(LONGEST_HOLD_S)  # noqa: SLF001 - both are one mechanism

    def release_all(self) -> None:
        """Continue everything that waits."""
        with self._lock:
            for hold in self._holds:
                hold.release()
