"""The name that was probably meant: the nearest one within distance 2, or the word of ours for one of another language."""

from __future__ import annotations

from collections.abc import Iterable

_FARTHEST = 2

OTHER_WORDS = {
    "True": "true",
    "False": "false",
    "None": "null",
    "nil": "null",
    "undefined": "null",
    "this": "self",
    "let": "var",
    "const": "var",
    "function": "fun",
    "func": "fun",
    "def": "fun",
    "elif": "else if",
    "raise": "throw",
    "and": "&&",
    "or": "||",
    "not": "!",
}
"""Words of other languages, and ours for the same."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name with the fewest changed, added or dropped letters; None when none is near.

    Short names must agree better: half of the letters is the most that may differ.
    """
    limit = min(_FARTHEST, len(name) // 2)
    best: str | None = None
    for other in known:
        if abs(len(other) - len(name)) > limit or other == name:
            continue
        found = _distance(name, other, limit)
        if found is not None:
            if found == 1:
                return other
            best = best or other
    return best


def _distance(left: str, right: str, limit: int) -> int | None:
    """How many letters differ, when they are at most `limit`."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
        if min(row) > limit:
            return None
    return row[-1] if row[-1] <= limit else None
