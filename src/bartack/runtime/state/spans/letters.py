"""Dead letters over time: a copy of each for each time that it changed. A part of ``spans.py``; there are few of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from bartack.messaging import DeadLetter
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.runtime.state.spans.observed import Current

_Change = e.MessageMoved | e.LetterAdded | e.LetterMoved | e.MessageTaken | e.MessagesDrained | e.MessageHeld
"""Entries that may change a dead letter."""


class LetterColumns:
    """All dead letters of a run, by the ids of their messages."""

    def __init__(self, current: Current, state: State) -> None:
        self._current = current
        self._state = state
        self._copies: dict[str, list[tuple[int, DeadLetter]]] = {}

    def look(self, data: _Change) -> None:
        """An entry may have changed a letter."""
        letters = self._state.deliveries.letters
        if not letters:
            return
        for message in _messages(data):
            letter = letters.get(message)
            if letter is not None:
                self._keep(letter)

    def at(self, seq: int) -> list[DeadLetter]:
        """The letters that there were after an entry, as they were then, in the order in which they came up."""
        return [copies[place - 1][1] for copies in self._copies.values() if (place := _place(copies, seq))]

    def _keep(self, letter: DeadLetter) -> None:
        copies = self._copies.setdefault(letter.message_id, [])
        # Whatever happens to a letter is added to its history, which is a new list then.
        if not copies or copies[-1][1].history is not letter.history:
            copies.append((self._current.seq, msgspec.structs.replace(letter)))


def _place(copies: list[tuple[int, DeadLetter]], seq: int) -> int:
    return bisect_right(copies, seq, key=lambda kept: kept[0])


def _messages(data: _Change) -> Iterable[str]:
    if isinstance(data, e.LetterAdded | e.LetterMoved):
        return (data.message,)
    return data.ids if isinstance(data, e.MessagesDrained) else (data.id,)
