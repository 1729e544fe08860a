"""Which files of a workspace may hold the plan that an instruction means. No agent is asked, and no clock.

Points are whole numbers, so the same tree gives the same candidates, and the same key, everywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from bartack.pipeline.snapshot.sections import find_headings, split_lines

STRATEGY: Final = "heuristic:v2"
EXTENSIONS: Final = frozenset({b".md", b".rst", b".txt"})
READ: Final = 64 * 1024
HEADINGS: Final = 3
WORDS: Final = (("plan", 25), ("spec", 20), ("proposal", 15))
FOLDERS: Final = frozenset({"docs", "plans", "specs"})
_WORD: Final = re.compile("plan|spec|proposal", re.IGNORECASE)


class Candidate(msgspec.Struct, frozen=True):
    """A file that may hold a plan: how likely, and why."""

    path: str
    score: float
    reason: str
    headings: list[str]


def discover(
    root: str, paths: Iterable[bytes], *, prefer: Collection[str] = (), most: int = 20
) -> list[Candidate]:
    """The likeliest files, the best first.

    Args:
        root: The workspace.
        paths: Its files, as a snapshot lists them.
        prefer: Files that the settings name as likely.
        most: How many to name.
    """
    rated: list[tuple[int, bytes, Candidate]] = []
    for path in paths:
        name = path.rpartition(b"/")[2]
        hidden = any(part.startswith(b".") for part in path.split(b"/"))
        if hidden or os.path.splitext(name)[1].lower() not in EXTENSIONS:
            continue
        try:
            text = path.decode()
            points, candidate = _rate(text, _read_headings(os.path.join(os.fsencode(root), path)), prefer)
        except (UnicodeDecodeError, OSError):
            continue
        rated.append((-points, path, candidate))
    rated.sort(key=lambda item: item[:2])
    return [candidate for _, _, candidate in rated[:most]]


def _read_headings(path: bytes) -> list[str]:
    with open(path, "rb") as file:
        text = file.read(READ)
    return [heading.title for heading in find_headings(split_lines(text))][:HEADINGS]


def _rate(path: str, headings: list[str], prefer: Collection[str]) -> tuple[int, Candidate]:
    folders, _, name = path.rpartition("/")
    parts = folders.split("/") if folders else []
    points, reasons = 50, ["base"]
    for word, worth in WORDS:
        if word in name.lower():
            points += worth
            reasons.append(f"name contains {word}")
            break
    if not FOLDERS.isdisjoint(parts):
        points += 5
        reasons.append("in a folder for documents")
    if parts:
        points -= 4 * len(parts)
        reasons.append(f"{len(parts)} deep")
    matching = [heading for heading in headings if _WORD.search(heading)]
    if matching:
        points += 5 * len(matching)
        reasons.append(f"{len(matching)} matching heading{'s' if len(matching) > 1 else ''}")
    if path in prefer:
        points += 20
        reasons.append("preferred")
    points = min(max(points, 0), 100)
    reasons.append(f"score={points / 100:.2f}")
    return points, Candidate(path, points / 100, "; ".join(reasons), headings)
