"""Where each key of a TOML file stands: the standard library reads the values and forgets the lines.

Knows just enough of TOML to follow a text that has been read without an error: tables, arrays of tables, dotted keys, inline
tables and arrays. It never judges a text; where one leads it astray, it keeps what it has found so far.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from contextlib import suppress
from typing import Final, NamedTuple

from bartack.core.flaws import KeyPath, dotted


class TextPlace(NamedTuple):
    """A place in a text: line and column, both from 1."""

    line: int
    column: int


class Places:
    """The places of the keys of a file, and of the elements of its arrays.

    Args:
        source: The file's text.
    """

    def __init__(self, source: str = "") -> None:
        self._found: dict[str, TextPlace] = {}
        scan = _Scan(source)
        with suppress(IndexError, ValueError):  # a text that leads astray: what was found so far is right
            scan.run()
        for path, place in scan.found.items():
            self._found.setdefault(dotted(path), place)

    def get(self, setting: str) -> TextPlace | None:
        """The place of a setting, as ``dotted`` writes it; ``None`` if the file does not have it."""
        return self._found.get(setting)

    def nearest(self, setting: str) -> TextPlace | None:
        """The place of a setting, else of what it belongs to; ``None`` if the file has neither."""
        while setting and setting not in self._found:
            setting = setting[: max(setting.rfind("."), setting.rfind("["), 0)]
        return self._found.get(setting)


_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_TEXT: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL
)
_SCALAR: Final = re.compile(r"[^,\]}\n#]*")


class _Scan:
    """One walk through a text."""

    def __init__(self, text: str) -> None:
        self.found: dict[KeyPath, TextPlace] = {}
        self._text = text
        self._at = 0
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._sizes: dict[KeyPath, int] = {}
        """How many tables each array of tables has so far."""

    def run(self) -> None:
        table: KeyPath = ()
        while self._skip(_BLANK) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> KeyPath:
        start = self._at
        several = self._text.startswith("[[", start)
        self._at += 2 if several else 1
        *above, last = self._key()
        self._at = self._text.index("]", self._at) + (2 if several else 1)
        path: KeyPath = ()
        for part in above:
            path = self._last_of((*path, part))
            self._keep(path, start)
        path = (*path, last)
        if several:
            self._keep(path, start)
            self._sizes[path] = self._sizes.get(path, 0) + 1
        path = self._last_of(path)
        self._keep(path, start)
        return path

    def _last_of(self, path: KeyPath) -> KeyPath:
        return (*path, self._sizes[path] - 1) if path in self._sizes else path

    def _pair(self, table: KeyPath) -> None:
        start = self._at
        path = table
        for part in self._key():
            path = (*path, part)
            self._keep(path, start)
        self._at = self._text.index("=", self._at) + 1
        self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            parts.append(self._name())
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return parts
            self._at += 1

    def _name(self) -> str:
        if self._text[self._at] not in "\"'":
            return self._take(_BARE)
        written = self._take(_TEXT)
        return str(tomllib.loads(f"name = {written}")["name"])

    def _value(self, path: KeyPath) -> None:
        self._skip(_SPACE)
        match self._text[self._at]:
            case "[":
                self._array(path)
            case "{":
                self._inline(path)
            case "'" | '"':
                self._take(_TEXT)
            case _:
                self._take(_SCALAR)

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while self._skip_commas() != "]":
            self._keep((*path, index), self._at)
            self._value((*path, index))
            index += 1
        self._at += 1

    def _inline(self, path: KeyPath) -> None:
        self._at += 1
        while self._skip_commas() != "}":
            self._pair(path)
        self._at += 1

    def _skip_commas(self) -> str:
        """The next character of an array or inline table that means something."""
        self._skip(_BLANK)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_BLANK)
        return self._text[self._at]

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None or not found[0]:
            raise IndexError(self._at)  # it leads nowhere; see ``Places``
        self._at = found.end()
        return found[0]

    def _keep(self, path: KeyPath, at: int) -> None:
        if path not in self.found:
            line = bisect_right(self._starts, at)
            self.found[path] = TextPlace(line, at - self._starts[line - 1] + 1)
