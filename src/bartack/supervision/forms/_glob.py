"""Names of files that a word stands for.

A word comes as pieces of text that are exact or not. Where a star, a question mark or a bracket stands in a piece that is not
exact, the word stands for every name in the directory that fits, sorted. Hidden names only fit after a dot that was written.
``**`` as a whole name stands for any number of directories; it does not follow links to directories, so it always ends.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from bartack.core.state_dir import StateDir

_ACTIVE: Final = frozenset("*?[")

Piece = tuple[str, bool]
"""Text, and whether it is exact."""


class _Name(NamedTuple):
    """One name of a path: its text, and the pattern it has to fit, if it is more than its text."""

    text: str
    pattern: str = ""


def expand(pieces: Iterable[Piece], run_dir: str = "") -> list[str]:
    """The paths that a word stands for; the word itself if it stands for none.

    The directory that holds the run in ``run_dir`` is left out, unless the word names it.
    """
    known = list(pieces)
    text = "".join(piece for piece, _ in known)
    if all(exact or _ACTIVE.isdisjoint(piece) for piece, exact in known):
        return [text]
    found = sorted(set(_walk("", _names(known))))
    if run_dir and found:
        found = StateDir(run_dir, os.getcwd()).without(text, found)
    return found or [text]


def _names(pieces: Iterable[Piece]) -> list[_Name]:
    """A word by the names between its slashes."""
    names: list[_Name] = []
    text = pattern = ""
    active = False
    for piece, exact in pieces:
        for index, part in enumerate(piece.split("/")):
            if index:
                names.append(_Name(text, pattern if active else ""))
                text = pattern = ""
                active = False
            text += part
            pattern += _quote(part) if exact else part
            active = active or (not exact and not _ACTIVE.isdisjoint(part))
    return [*names, _Name(text, pattern if active else "")]


def _quote(text: str) -> str:
    return re.sub(r"[*?[]", r"[\g<0>]", text)


def _walk(start: str, names: list[_Name]) -> Iterator[str]:
    """The paths that begin with ``start`` and continue with ``names``."""
    for index, name in enumerate(names):
        last = index == len(names) - 1
        if name.pattern:
            following = names[index + 1 :]
            found = _fitting(start, name.pattern, directories=not last)
            for path in found:
                if last:
                    yield path
                else:
                    yield from _walk(f"{path}/", following)
            if name.pattern == "**" and not last:
                yield from _walk(start, following)
            return
        start += name.text if last else f"{name.text}/"
    if os.path.lexists(start):
        yield start


def _fitting(folder: str, pattern: str, *, directories: bool) -> Iterator[str]:
    if pattern == "**":
        yield from _below(folder, directories=directories)
        return
    fits = re.compile(fnmatch.translate(pattern)).match
    hidden = pattern.startswith(".")
    for entry in _entries(folder):
        if fits(entry.name) and (hidden or entry.name[0] != ".") and (not directories or _is_dir(entry)):
            yield folder + entry.name


def _below(folder: str, *, directories: bool) -> Iterator[str]:
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        for entry in _entries(place):
            if entry.name[0] == ".":
                continue
            inside = entry.is_dir(follow_symlinks=False)
            if inside or not directories:
                yield place + entry.name
            if inside:
                waiting.append(f"{place}{entry.name}/")


def _entries(folder: str) -> list[os.DirEntry[str]]:
    # What cannot be listed has nothing in it that fits.
    with suppress(OSError), os.scandir(folder or ".") as found:
        return list(found)
    return []


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
