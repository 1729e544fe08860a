"""Reads redirections and here-documents: the part of a command that is not a word of it, and may stand lines below.

It is the middle of the reader, between words (``_words.py``) and commands (``_reader.py``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from bartack.agents.guard._syntax import Nested, Node, Redirect
from bartack.agents.guard._text import MARKS
from bartack.agents.guard._words import WordReader, not_parsed

BLANKS: Final = re.compile(r"(?:[ \t]+|\\\n|#[^\n]*)*")
BETWEEN: Final = re.compile(r"(?:[ \t]+|\\\n)*")
_REDIRECT: Final = re.compile(r"(?:\d+|\{[A-Za-z_]\w*\})?(<<<|<<-?|<>|<&|>&|>>|>\||<|>)|(&>>|&>)")


class _Pending(NamedTuple):
    """A here-document whose text is still to come."""

    owner: Node
    redirect: Redirect
    delimiter: str
    is_quoted: bool
    strips_tabs: bool


class RedirectReader(WordReader):
    """Reads redirections, and skips what is between commands."""

    def __init__(self, text: str, depth: int = 0) -> None:
        super().__init__(text, depth)
        self._pending: list[_Pending] = []

    def skip(self, what: re.Pattern[str]) -> None:
        """Skip blanks and comments, and ends of lines where the pattern has them; here-documents begin after those."""
        while True:
            found = (BLANKS if self._pending else what).match(self.text, self.pos)
            self.pos = found.end() if found else self.pos
            if not self._pending or what is BLANKS or not self.text.startswith("\n", self.pos):
                return
            self.pos += 1
            self.here_documents()

    def expect(self, what: re.Pattern[str]) -> str:
        """Take something that has to be here."""
        found = what.match(self.text, self.pos)
        if found is None:
            not_parsed("a part of a command is missing")
        self.pos = found.end()
        return found[0]

    def taken(self) -> list[Nested]:
        """What was found inside the words since the last time."""
        nested, self.nested = self.nested, []
        return nested

    def end_of(self, what: re.Pattern[str], start: int | None = None) -> int:
        """Where something that may be here ends."""
        begin = self.pos if start is None else start
        found = what.match(self.text, begin)
        return found.end() if found else begin

    def redirect(self, owner: Node) -> bool:
        """Take the redirection that is here; whether there is one."""
        found = _REDIRECT.match(self.text, self.pos)
        if found is None or self.text.startswith(("<(", ">("), self.pos):
            return False
        operator = found[1] or found[2]
        self.pos = self.end_of(BETWEEN, found.end())
        start = self.pos
        target = self.word()
        if self.pos == start:
            not_parsed("a redirection without a target")
        redirect = Redirect(operator.rstrip("-"), target)
        owner.redirects.append(redirect)
        if operator == "<<<":
            redirect.body = f"{target}\n"
            redirect.is_certain = MARKS.search(target) is None
        elif operator in {"<<", "<<-"}:
            if MARKS.search(target):
                not_parsed("the end of a here-document is not plain text")
            self._pending.append(_Pending(owner, redirect, target, self.quoted, operator == "<<-"))
        return True

    def here_documents(self) -> None:
        """Read the texts of the here-documents of the line that has just ended."""
        pending, self._pending = self._pending, []
        for one in pending:
            body = self._lines_until(one)
            if not one.is_quoted and ("$" in body or "`" in body or "\\" in body):
                reader = self.below(body)
                body = reader.double_quoted("")
                one.owner.nested += reader.nested
                one.redirect.is_certain = MARKS.search(body) is None
            one.redirect.body = body

    def _lines_until(self, one: _Pending) -> str:
        text, size = self.text, len(self.text)
        lines: list[str] = []
        while self.pos < size:
            end = text.find("\n", self.pos)
            end = size if end < 0 else end
            line = text[self.pos : end]
            self.pos = min(end + 1, size)
            if one.strips_tabs:
                line = line.lstrip("\t")
            if line == one.delimiter:
                break
            lines.append(line)
        return "\n".join([*lines, ""])
