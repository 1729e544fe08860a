"""Words of a command after the quotes are gone: plain text in which a few characters stand for active syntax.

The marks are code points that Unicode keeps free of meaning, so no text has them; one that does is not read at all. A word without
marks is exactly what the program would get.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

UNKNOWN: Final = "\ufdd0"
"""The value of a variable or the output of a command, inside quotes: exactly one part of a word."""
SPLIT: Final = "\ufdd1"
"""The same without quotes: it can vanish, and it can become several words."""
STAR: Final = "\ufdd2"
ANY: Final = "\ufdd3"
BRACKET: Final = "\ufdd4"
TILDE: Final = "\ufdd5"
OPEN: Final = "\ufdd6"
COMMA: Final = "\ufdd7"
CLOSE: Final = "\ufdd8"
HOME: Final = "\ufdd9"
WORKDIR: Final = "\ufdda"
PROCESS: Final = "\ufddb"
"""The file name of a process substitution."""
FOUND: Final = "\ufddc"
"""A path that ``find`` passes to its command."""

BLANK: Final = "\ufddd"
"""``$IFS`` without quotes, which separates words."""

MARKS: Final = re.compile("[\ufdd0-\ufdef]")
GLOBS: Final = re.compile(f"[{STAR}{ANY}{BRACKET}]")
UNKNOWNS: Final = re.compile(f"[{UNKNOWN}{SPLIT}{PROCESS}{FOUND}]")
MOST_BRACES: Final = 256
_UNCLOSED: Final = re.compile(f"{BRACKET}(?=[^\\]{UNKNOWN}{SPLIT}]*\\Z)")
"""A bracket that nothing closes is plain text, above all the command ``[``."""

_SHOWN: Final = {
    ord(UNKNOWN): "…",
    ord(SPLIT): "…",
    ord(STAR): "*",
    ord(ANY): "?",
    ord(BRACKET): "[",
    ord(TILDE): "~",
    ord(OPEN): "{",
    ord(COMMA): ",",
    ord(CLOSE): "}",
    ord(HOME): "~",
    ord(WORKDIR): ".",
    ord(PROCESS): "<(…)",
    ord(FOUND): "{}",
    ord(BLANK): " ",
}


class NotParsedError(Exception):
    """A command cannot be read: what it would do is not known."""


def show(word: str) -> str:
    """A word for people and for patterns of rules."""
    return word.translate(_SHOWN) if not word.isascii() else word


def is_unknown(word: str) -> bool:
    """Whether a part of a word is not known before the command runs."""
    return not word.isascii() and UNKNOWNS.search(word) is not None


def expand_braces(word: str) -> list[str]:
    """All words that ``a{b,c}`` or ``a${IFS}b`` stands for. Braces without a comma are plain text; a sequence is unknown.

    Raises:
        NotParsedError: They are more than can be looked at.
    """
    if BLANK in word:
        return [made for part in word.split(BLANK) if part for made in expand_braces(part)]
    if OPEN not in word:
        return [_plain(word)]
    return [_plain(one) for one in _expand(word, [MOST_BRACES])]


def _plain(word: str) -> str:
    word = word.replace(OPEN, "{").replace(CLOSE, "}").replace(COMMA, ",")
    return _UNCLOSED.sub("[", word) if BRACKET in word else word


def _expand(word: str, left: list[int]) -> Iterator[str]:
    left[0] -= 1
    if left[0] < 0:
        raise NotParsedError("too many words in braces")
    found = _first_group(word)
    if found is None:
        yield word
        return
    start, end, cuts = found
    inner = word[start + 1 : end]
    if len(cuts) == 2 and ".." in inner:
        yield from _expand(word[:start] + SPLIT + word[end + 1 :], left)
        return
    for begin, stop in pairwise(cuts):
        yield from _expand(word[:start] + word[begin + 1 : stop] + word[end + 1 :], left)


def _first_group(word: str) -> tuple[int, int, list[int]] | None:
    """The first braces that stand for several words: where they begin and end, and where they are cut."""
    stack: list[list[int]] = []
    best: tuple[int, int, list[int]] | None = None
    for index, char in enumerate(word):
        if char == OPEN:
            stack.append([index])
        elif char == COMMA and stack:
            stack[-1].append(index)
        elif char == CLOSE and stack:
            cuts = [*stack.pop(), index]
            if len(cuts) > 2 or ".." in word[cuts[0] : index]:
                if best is None or cuts[0] < best[0]:
                    best = (cuts[0], index, cuts)
                if not stack:
                    return best
    return best
