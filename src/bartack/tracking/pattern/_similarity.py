"""How alike two pieces of code are, and what that makes of their version."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from bartack.tracking.pattern._pattern import SEPARATOR, NormalForm, normalise

_ITEMS_MOST: Final = 4000
_WORD: Final = re.compile(r"\w+|[^\w\s]")
FIRST_VERSION: Final = "1.0.0"
PATCH_FROM: Final = 0.90
MINOR_FROM: Final = 0.70
MAJOR_FROM: Final = 0.50


class Version(NamedTuple):
    """Three numbers, compared in their order."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def similarity(old: str, new: str, language: str = "") -> float:
    """From 0 for nothing in common to 1 for the same, by the parts of the normal forms."""
    return similarity_of(normalise(old, language), normalise(new, language))


def similarity_of(old: NormalForm, new: NormalForm) -> float:
    """``similarity`` of two normal forms."""
    left, right = _items(old), _items(new)
    total = len(left) + len(right)
    if not total:
        return 1.0
    if max(len(left), len(right)) > _ITEMS_MOST:
        # Matching blocks take a time that grows with the square; counting what both have does not.
        return 2 * (Counter(left) & Counter(right)).total() / total
    return SequenceMatcher(None, left, right, autojunk=False).ratio()


def _items(normal: NormalForm) -> list[str]:
    if normal.normaliser == "python":
        return normal.text.split(SEPARATOR) if normal.text else []
    return _WORD.findall(normal.text)


def parse_version(text: str) -> Version:
    """A version from its text; one that is none counts as the first."""
    numbers = text.split(".")
    if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers):
        return Version(1, 0, 0)
    return Version(*map(int, numbers))


def next_version(version: str, similarity: float | None) -> str:
    """The version that follows ``version`` after a change that leaves so much alike; unknown counts as a minor change."""
    major, minor, patch = parse_version(version)
    if similarity is None or MINOR_FROM <= similarity < PATCH_FROM:
        return str(Version(major, minor + 1, 0))
    if similarity >= PATCH_FROM:
        return str(Version(major, minor, patch + 1))
    return str(Version(major + 1, 0, 0))


def free_version(wanted: str, newest: str | None) -> str:
    """``wanted``, or the one after ``newest`` if that is not older: a pattern has each of its versions once."""
    if newest is None or parse_version(wanted) > parse_version(newest):
        return wanted
    major, minor, patch = parse_version(newest)
    return str(Version(major, minor, patch + 1))
