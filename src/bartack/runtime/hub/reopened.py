"""What opening the journal of a run found to be wrong with it, in words for people and as data for scripts."""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.journal import Loss, Recovery
from bartack.runtime.state.run_state import State

SHOWN: Final = 8
"""At most this many steps are named."""


class Reopened:
    """How a journal was opened that an earlier owner left.

    Args:
        recovery: The unfinished line that was cut off, if there was one.
        loss: The acknowledged entries that are missing, if that was accepted.
        state: What the entries that are left add up to.
    """

    def __init__(self, recovery: Recovery | None, loss: Loss | None, state: State) -> None:
        self._recovery = recovery
        self._loss = loss
        self.again = [] if loss is None else _open_steps(state)
        """The steps that began before the missing entries and have no outcome in the journal."""

    def notes(self) -> list[str]:
        """What a person has to know; empty if all was well."""
        notes: list[str] = []
        if self._loss is not None:
            notes += self._loss_notes(self._loss)
        elif self._recovery is not None:
            cut = self._recovery
            notes.append(
                f"the journal ended with an unfinished line: {cut.size_bytes} bytes from entry {cut.seq} on, never "
                f"acknowledged, were cut off and kept as {cut.kept_as}"
            )
        return notes

    def _loss_notes(self, loss: Loss) -> list[str]:
        named = ", ".join(self.again[:SHOWN])
        more = len(self.again) - SHOWN
        first = (
            f"executing again: {named}{f' and {more} more' if more > 0 else ''}, and "
            if named
            else "executing again "
        )
        return [
            f"entries {loss.held + 1} to {loss.acknowledged} of the journal are missing, and resuming without them was accepted; "
            f"the journal as it was found is kept as {loss.kept_as}",
            f"{first}every step that began after entry {loss.held}, also those that had finished",
        ]

    def events(self) -> list[dict[str, object]]:
        """The same for scripts."""
        events: list[dict[str, object]] = []
        if self._loss is not None:
            events.append({"event": "journal.lost", **msgspec.to_builtins(self._loss), "again": self.again})
        if self._recovery is not None:
            events.append({"event": "journal.recovered", **msgspec.to_builtins(self._recovery)})
        return events


def _open_steps(state: State) -> list[str]:
    steps = sorted(
        (step for worker in state.workers.values() for step in worker.open.values()),
        key=lambda step: step.seq,
    )
    return [f"{step.p}:{step.n} ({f'{step.step} {step.about}'.strip()})" for step in steps]
