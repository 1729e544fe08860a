"""What a command wrote for a terminal, as text in colours: sequences of colour become classes, all others stay visible escapes."""

from __future__ import annotations

import re
from typing import Final

_COLOUR: Final = re.compile("\x1b\\[([0-9;]{0,30})m")
_NAMES: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_BRIGHT: Final = 90
_DIM: Final = 30


def ansi_spans(text: str) -> list[tuple[str, str]]:
    """The parts of a text, each with its classes, which are words of ours."""
    found: list[tuple[str, str]] = []
    bold, colour, end = False, "", 0
    for sequence in _COLOUR.finditer(text):
        _add(found, text[end : sequence.start()], bold=bold, colour=colour)
        end = sequence.end()
        for code in sequence[1].split(";"):
            bold, colour = _apply(int(code or 0), bold=bold, colour=colour)
    _add(found, text[end:], bold=bold, colour=colour)
    return found


def _add(found: list[tuple[str, str]], text: str, *, bold: bool, colour: str) -> None:
    classes = " ".join(name for name in ("t-bold" if bold else "", colour) if name)
    if text:
        found.append((classes, text))


def _apply(code: int, *, bold: bool, colour: str) -> tuple[bool, str]:
    if code == 0:
        return False, ""
    if code in {1, 22}:
        return code == 1, colour
    if code == 39:
        return bold, ""
    for first in (_DIM, _BRIGHT):
        if first <= code < first + len(_NAMES):
            return bold, f"t-{_NAMES[code - first]}"
    return bold, colour
