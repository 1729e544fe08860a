"""Lines of the program that a run executes, from the copy in its directory. Nothing outside of that copy is read."""

from __future__ import annotations

import os
from typing import Final

from bartack.runtime.protocol.frames import Site, StackLine
from bartack.web.models._steps import SourcePlace
from bartack.web.reading._files import read_regular
from bartack.web.reading._view import RunView

AROUND: Final = 4
"""Lines before and after a place that are shown with it."""
MOST_BYTES: Final = 2 * 1024 * 1024
"""Longer files are not read."""
MOST_CHARS: Final = 400
"""Characters of a line that are shown."""


class Sources:
    """The files of one run's program. Each is read once."""

    def __init__(self, view: RunView) -> None:
        self._place = str(view.run.program)
        created = view.spans.state.run
        self._root = "" if created is None else created.root
        self._files: dict[str, list[str]] = {}

    def at(self, site: Site, *, as_recorded: bool = True) -> SourcePlace:
        """A place where a step was asked for; ``as_recorded``: the program is still the one that asked."""
        around = self._around(site.file, site.line) if as_recorded else []
        return SourcePlace(file=site.file, line=site.line, around=around)

    def frame(self, frame: StackLine) -> SourcePlace:
        """A line of a traceback. Of files outside of the program only what was recorded is shown."""
        inside = self._inside(frame.file)
        around = self._around(inside, frame.line) if inside else []
        if not around and frame.text:
            around = [(frame.line, frame.text[:MOST_CHARS])]
        return SourcePlace(
            file=inside or frame.file,
            line=frame.line,
            column=frame.column,
            width=frame.width,
            function=frame.function,
            around=around,
        )

    def _inside(self, file: str) -> str:
        """The path of a file inside the program; empty if it is not a file of it."""
        for place in (self._place, self._root):
            if place and file.startswith(place + os.sep):
                return file.removeprefix(place + os.sep)
        return ""

    def _around(self, file: str, line: int) -> list[tuple[int, str]]:
        lines = self._lines(file)
        first = max(line - AROUND, 1)
        if line > len(lines):
            return []
        return [
            (number, lines[number - 1][:MOST_CHARS])
            for number in range(first, min(line + AROUND, len(lines)) + 1)
        ]

    def _lines(self, file: str) -> list[str]:
        known = self._files.get(file)
        if known is None:
            content, size = read_regular(self._place, file, MOST_BYTES) or (b"", 0)
            text = content.decode("utf-8-sig", "replace") if size <= MOST_BYTES else ""
            known = self._files[file] = text.splitlines()
        return known
