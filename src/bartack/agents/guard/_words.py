"""Reads the words of a shell text: quotes, escapes, variables, substitutions, patterns.

It is the lower half of the reader; ``_reader.py`` reads commands out of these words. Each character is looked at once, nesting
has a limit, and a text that is not understood raises ``NotParsedError``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Final, NoReturn

from bartack.agents.guard._syntax import Nested, Script
from bartack.agents.guard._text import (
    ANY,
    BLANK,
    BRACKET,
    CLOSE,
    COMMA,
    HOME,
    MARKS,
    OPEN,
    PROCESS,
    SPLIT,
    STAR,
    TILDE,
    UNKNOWN,
    WORKDIR,
    NotParsedError,
)

DEEPEST: Final = 24
"""Text inside text inside text: deeper than this is not read."""
LONGEST_ARITHMETIC: Final = 4096

PLAIN: Final = re.compile(r"""[^ \t\n;&|<>()$`"'\\*?\[{},~]+""")
QUOTED: Final = re.compile(r'[^"$`\\]+')
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-]")
_KNOWN: Final = {"HOME": HOME, "PWD": WORKDIR}
_BRACED: Final = re.compile(r"\$\{(HOME|PWD)\}")
_PARAMETER: Final = re.compile(r"""[^}"'`$\\]+""")
_ANSI: Final = re.compile(r"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL)
_TICKS: Final = re.compile(r"[^`\\]*(?:\\.[^`\\]*)*", re.DOTALL)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_LETTERS: Final = dict(zip("ntabeEfrv", "\n\t\a\b\x1b\x1b\f\r\v", strict=True))
_ACTIVE: Final = {"*": STAR, "?": ANY, "[": BRACKET, "{": OPEN, ",": COMMA, "}": CLOSE}
_ENDS: Final = frozenset(" \t\n;&|<>()")
_BEFORE_LIST: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=\Z")


def not_parsed(problem: str) -> NoReturn:
    """Give up."""
    raise NotParsedError(problem)


class WordReader(ABC):
    """A place in a text, and the words from there.

    Attributes:
        text: The text.
        pos: The next character.
        nested: What was found inside words since the reader of commands last took it.
        quoted: Whether any part of the last word was quoted.
    """

    def __init__(self, text: str, depth: int = 0) -> None:
        if MARKS.search(text) or "\0" in text:
            not_parsed("a character that no command has")
        self.text = text
        self.pos = 0
        self.depth = depth
        self.nested: list[Nested] = []
        self.quoted = False

    def word(self) -> str:
        """The word that begins here; it can be empty."""
        text, size = self.text, len(self.text)
        parts: list[str] = []
        self.quoted = False
        if text.startswith("~", self.pos):
            parts.append(TILDE)
            self.pos += 1
        while self.pos < size:
            found = PLAIN.match(text, self.pos)
            if found is not None:
                parts.append(found[0])
                self.pos = found.end()
                if self.pos >= size:
                    break
            char = text[self.pos]
            if char in _ENDS:
                if not self._continues(char, parts):
                    break
            else:
                self._special(char, parts)
        return "".join(parts)

    def _continues(self, char: str, parts: list[str]) -> bool:
        """Take what looks like the end of a word and is not: ``<( )``, the list of an array, an extended pattern."""
        if char in "<>" and self.text.startswith("(", self.pos + 1):
            self.pos += 2
            self._take_script(f"{char}(")
            parts.append(PROCESS)
            return True
        if char != "(" or not parts:
            return False
        if len(parts) == 1 and _BEFORE_LIST.fullmatch(parts[0]):
            self._skip_list()
            parts.append(UNKNOWN)
            return True
        if parts[-1][-1:] and parts[-1][-1] in f"@!+{STAR}{ANY}":
            self._skip_list()
            parts.append(STAR)
            return True
        return False

    def _special(self, char: str, parts: list[str]) -> None:
        if char == "'":
            self.quoted = True
            parts.append(self._until("'"))
        elif char == '"':
            self.quoted = True
            self.pos += 1
            parts.append(self.double_quoted('"'))
        elif char == "\\":
            self._escaped(parts)
        elif char == "$":
            parts.append(self._dollar(SPLIT))
        elif char == "`":
            self._backticks(in_quotes=False)
            parts.append(SPLIT)
        elif char == "~":
            self.pos += 1
            before = parts[-1][-1:] if parts else ""
            parts.append(TILDE if before in {"=", ":"} else "~")
        else:
            self.pos += 1
            parts.append(_ACTIVE[char])

    def _escaped(self, parts: list[str]) -> None:
        following = self.text[self.pos + 1 : self.pos + 2]
        self.pos += 2
        if following == "\n":
            return
        self.quoted = True
        parts.append(following or "\\")

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.pos + 1)
        if end < 0:
            not_parsed("a quote is not closed")
        inner = self.text[self.pos + 1 : end]
        self.pos = end + 1
        return inner

    def double_quoted(self, closer: str) -> str:
        """What is between double quotes, or, without a closer, a here-document up to its end."""
        text, size = self.text, len(self.text)
        parts: list[str] = []
        while self.pos < size:
            found = QUOTED.match(text, self.pos)
            if found is not None:
                parts.append(found[0])
                self.pos = found.end()
                continue
            char = text[self.pos]
            if char == '"':
                self.pos += 1
                if closer:
                    return "".join(parts)
                parts.append(char)
            elif char == "\\":
                parts.append(self._escaped_in_quotes(closer))
            elif char == "$":
                parts.append(self._dollar(UNKNOWN))
            else:
                self._backticks(in_quotes=True)
                parts.append(UNKNOWN)
        if closer:
            not_parsed("a quote is not closed")
        return "".join(parts)

    def _escaped_in_quotes(self, closer: str) -> str:
        following = self.text[self.pos + 1 : self.pos + 2]
        self.pos += 2
        if following == "\n":
            return ""
        if following and following in f"$`\\{closer}":
            return following
        return f"\\{following}"

    def _dollar(self, unknown: str) -> str:
        """What ``$`` begins. ``unknown`` is the mark of a value, which depends on the quotes around it."""
        following = self.text[self.pos + 1 : self.pos + 2]
        if following == "(":
            return self._parenthesis(unknown)
        if following == "{":
            return self._parameter(unknown)
        if unknown == SPLIT and following in {"'", '"'}:
            self.quoted = True
            self.pos += 1
            return self._ansi() if following == "'" else self._translated()
        if following == "[":
            return self._old_arithmetic(unknown)
        return self._variable(unknown)

    def _translated(self) -> str:
        """``$"…"``, which a program translates: the text is the same."""
        self.pos += 1
        return self.double_quoted('"')

    def _old_arithmetic(self, unknown: str) -> str:
        end = self.text.find("]", self.pos)
        if end < 0:
            not_parsed("an arithmetic expression is not closed")
        self.pos += 2
        self._skip_expression(end)
        self.pos = end + 1
        return unknown

    def _variable(self, unknown: str) -> str:
        found = _NAME.match(self.text, self.pos + 1)
        if found is None:
            self.pos += 1
            return "$"
        self.pos = found.end()
        if found[0] == "IFS" and unknown == SPLIT:
            return BLANK
        return _KNOWN.get(found[0], unknown if found[0] != "@" else SPLIT)

    def _parenthesis(self, unknown: str) -> str:
        if self.text.startswith("((", self.pos + 1):
            end = self.end_of_arithmetic(self.pos + 3)
            if end:
                self.pos += 3
                self._skip_expression(end - 2)
                self.pos = end
                return unknown
        self.pos += 2
        self._take_script("$(")
        return unknown

    def end_of_arithmetic(self, start: int) -> int:
        """Where an expression after ``((`` ends; 0 if what begins there is not an expression."""
        depth, limit = 0, min(len(self.text), start + LONGEST_ARITHMETIC)
        for index in range(start, limit):
            char = self.text[index]
            if char == "(":
                depth += 1
            elif char == ")":
                if depth == 0:
                    return index + 2 if self.text.startswith("))", index) else 0
                depth -= 1
        return 0

    def _skip_expression(self, end: int) -> None:
        """Take the substitutions out of an expression, which are executed like any others."""
        inner = self.text[self.pos : end]
        if "$" in inner or "`" in inner:
            self.nested += self._inside(inner)

    def _inside(self, text: str) -> list[Nested]:
        """What is substituted in a text that is read like a here-document."""
        reader = self.below(text)
        reader.double_quoted("")
        return reader.nested

    def _parameter(self, unknown: str) -> str:
        """``${…}``: everything in it that is executed, up to the brace that closes it."""
        if unknown == SPLIT and self.text.startswith("${IFS}", self.pos):
            self.pos += len("${IFS}")
            return BLANK
        known = _BRACED.match(self.text, self.pos)
        if known is not None:
            self.pos = known.end()
            return _KNOWN[known[1]]
        self._enter()
        self.pos += 2
        text, size, in_quotes = self.text, len(self.text), unknown == UNKNOWN
        while self.pos < size:
            found = _PARAMETER.match(text, self.pos)
            if found is not None:
                self.pos = found.end()
                continue
            char = text[self.pos]
            if char == "}":
                self.pos += 1
                self.depth -= 1
                return unknown
            self._part_of_parameter(char, in_quotes=in_quotes)
        not_parsed("a brace is not closed")

    def _part_of_parameter(self, char: str, *, in_quotes: bool) -> None:
        if char == "$":
            self._dollar(UNKNOWN if in_quotes else SPLIT)
        elif char == "`":
            self._backticks(in_quotes=in_quotes)
        elif char == '"':
            self.pos += 1
            self.double_quoted('"')
        elif char == "'" and not in_quotes:
            self._until("'")
        else:
            self.pos += 2 if char == "\\" else 1

    def _ansi(self) -> str:
        """``$'…'``, whose escapes are those of C."""
        found = _ANSI.match(self.text, self.pos + 1)
        end = found.end() if found else self.pos + 1
        if not self.text.startswith("'", end):
            not_parsed("a quote is not closed")
        inner = self.text[self.pos + 1 : end]
        self.pos = end + 1
        decoded = _ESCAPE.sub(_unescape, inner) if "\\" in inner else inner
        if MARKS.search(decoded):
            not_parsed("a character that no command has")
        return decoded.partition("\0")[0]

    def _backticks(self, *, in_quotes: bool) -> None:
        found = _TICKS.match(self.text, self.pos + 1)
        tick = found.end() if found else len(self.text)
        if not self.text.startswith("`", tick):
            not_parsed("a backtick is not closed")
        inner = self.text[self.pos + 1 : tick]
        self.pos = tick + 1
        if "\\" in inner:
            inner = re.sub(r"\\([$`\\\"])" if in_quotes else r"\\([$`\\])", r"\1", inner)
        self.nested.append(Nested("$(", self.below(inner).whole()))

    def _take_script(self, kind: str) -> None:
        self._enter()
        outer, self.nested = self.nested, []
        script = self.script_until(")")
        self.nested = [*outer, Nested(kind, script), *self.nested]
        self.depth -= 1

    def _skip_list(self) -> None:
        """The words between parentheses, of which only the substitutions count."""
        self._enter()
        self.pos += 1
        text, size = self.text, len(self.text)
        while self.pos < size:
            char = text[self.pos]
            if char == ")":
                self.pos += 1
                self.depth -= 1
                self.quoted = True
                return
            if char in _ENDS:
                self.pos += 1
            else:
                self.word()
        not_parsed("a parenthesis is not closed")

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            not_parsed("it is nested too deeply")

    @abstractmethod
    def below(self, text: str) -> WordReader:
        """A reader of a text inside this one."""

    @abstractmethod
    def whole(self) -> Script:
        """Everything, as a script."""

    @abstractmethod
    def script_until(self, closer: str) -> Script:
        """A script up to a closing parenthesis, which is taken, too."""


def _unescape(found: re.Match[str]) -> str:
    for group in (1, 2, 3):
        if found[group]:
            number = int(found[group], 16)
            return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    if found[4]:
        return chr(int(found[4], 8) & 0xFF)
    if found[5]:
        return chr(ord(found[5]) & 0x1F)
    return _LETTERS.get(found[6], found[6] if found[6] in "\\'\"?" else f"\\{found[6]}")
