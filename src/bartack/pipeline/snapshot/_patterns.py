"""Patterns of paths, as ``.gitignore`` files write them: which files a snapshot leaves out, which ones an agent may change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

_SPECIAL: Final = re.compile(rb"/\*\*/|\*\*/|/\*\*|\*+|\?|\[(?:!|\^)?\]?[^\]/]*\]|\\.|.", re.DOTALL)

_Rules = list[tuple[bool, re.Pattern[bytes]]]


class Patterns:
    """Some patterns; the last one that fits decides, and ``!`` takes a path out again."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules, self._any = _compile(tuple(lines))
        self._plain = not any(negated for negated, _ in self._rules)

    def __bool__(self) -> bool:
        return self._any is not None

    def match(self, path: bytes) -> bool:
        """Whether a path, or a directory that it is in, fits."""
        if self._any is None or self._any.match(path) is None:
            return False
        if self._plain:
            return True
        verdict = False
        for negated, rule in self._rules:
            if rule.match(path):
                verdict = not negated
        return verdict

    def match_directory(self, path: bytes) -> bool:
        """Whether everything in a directory fits, so that it need not be read."""
        return self._plain and self.match(path + b"/")


@lru_cache(maxsize=256)
def _compile(lines: tuple[str, ...]) -> tuple[_Rules, re.Pattern[bytes] | None]:
    """The rules of some lines, each for itself and all in one. Every snapshot asks for the same ones."""
    rules = [rule for line in lines if (rule := _rule(line)) is not None]
    joined = b"|".join(text for _, text in rules)
    compiled = [(negated, re.compile(text, re.DOTALL)) for negated, text in rules]
    return compiled, re.compile(joined, re.DOTALL) if rules else None


def _rule(line: str) -> tuple[bool, bytes] | None:
    """Whether a line negates, and the regular expression of what it means; ``None`` if it means nothing."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    pattern = text[negated:].encode("utf-8", "surrogateescape")
    only_directories = pattern.endswith(b"/")
    pattern = pattern.rstrip(b"/") if only_directories else pattern
    anchored = b"/" in pattern.strip(b"/") or pattern.startswith(b"/")
    body = _translate(pattern.lstrip(b"/"))
    if not body:
        return None
    start = b"" if anchored else b"(?:.*/)?"
    return negated, b"(?:%b%b%b)" % (start, body, b"/" if only_directories else b"(?:/|\\Z)")


def _translate(pattern: bytes) -> bytes:
    parts: list[bytes] = []
    place = 0
    for found in _SPECIAL.finditer(pattern):
        token = found.group()
        at_start, at_end = found.start() == 0, found.end() == len(pattern)
        if token == b"/**/":
            parts.append(b"/(?:.*/)?")
        elif token == b"**/" and (at_start or pattern[found.start() - 1 : found.start()] == b"/"):
            parts.append(b"(?:.*/)?")
        elif token == b"/**" and at_end:
            parts.append(b"/.*")
        elif token == b"/**":
            parts.append(b"/[^/]*")
        elif token == b"**/":
            parts.append(b"[^/]*/")
        elif token.startswith(b"*"):
            parts.append(b".*" if len(token) > 1 and at_start and at_end else b"[^/]*")
        elif token == b"?":
            parts.append(b"[^/]")
        else:
            parts.append(_translate_one(token))
        place = found.end()
    return b"".join(parts) if place == len(pattern) else b""


def _translate_one(token: bytes) -> bytes:
    if token.startswith(b"[") and len(token) > 1:
        inside = token[1:-1].replace(b"\\", b"\\\\").replace(b"[", b"\\[")
        if inside.startswith((b"!", b"^")):
            inside = b"^/" + inside[1:].replace(b"^", b"\\^", 1)
        try:
            re.compile(b"[%b]" % inside)
        except re.error:
            return re.escape(token)
        return b"[%b]" % inside
    if token.startswith(b"\\") and len(token) == 2:
        return re.escape(token[1:])
    return re.escape(token)


def fits(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path fits one of some patterns."""
    return Patterns(patterns).match(path.encode("utf-8", "surrogateescape"))
