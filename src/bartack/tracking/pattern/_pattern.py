"""What makes two pieces of code the same pattern: a normal form, and an id made from it.

The normal form leaves out what does not change the meaning: comments, blank lines, spaces. It is made from tokens, never by
regular expressions over the source: a ``#`` inside a string is not a comment. The path of a file is not part of an id.
"""

from __future__ import annotations

import hashlib
import io
import re
import tokenize
from collections.abc import Container, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

ID_SCHEME: Final = "p1"
SEPARATOR: Final = "\x1f"
_LONGEST: Final = 1024 * 1024
_SLUG_LONGEST: Final = 32
_ALIASES: Final = {
    "c++": "cpp", "c#": "csharp", "f#": "fsharp", "js": "javascript", "ts": "typescript", "py": "python",
}  # fmt: skip
_INDENTED: Final = {
    "python", "yaml", "haml", "pug", "sass", "stylus", "coffeescript", "nim", "haskell", "fsharp", "make",
}  # fmt: skip
# Blanks and line ends inside string literals, while the lines around them are put in order.
_HIDDEN: Final = {" ": "\ue000", "\t": "\ue001", "\n": "\ue002", "\f": "\ue003", "\v": "\ue004"}
_HIDE: Final = str.maketrans(_HIDDEN)
_SHOW: Final = str.maketrans({hidden: plain for plain, hidden in _HIDDEN.items()})
_BLANKS: Final = re.compile(r"[ \t\f\v]+")


class NormalForm(NamedTuple):
    """The normal form of some code, and how it was made: ``python``, ``lexer`` or ``text``."""

    normaliser: str
    text: str


def pattern_id(code: str, language: str = "", pattern_type: str = "code") -> str:
    """The id of a piece of code: the same for code that differs in comments and layout only."""
    return id_of(normalise(code, language), language, pattern_type)


def id_of(normal: NormalForm, language: str, pattern_type: str) -> str:
    """The id of a normal form."""
    words = (ID_SCHEME, language_slug(language), type_slug(pattern_type), normal.normaliser, normal.text)
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{words[1]}-{words[2]}-{digest[:24]}"


def language_slug(language: str) -> str:
    """The name of a language as it stands in an id."""
    return _slug(language) or "unknown"


def type_slug(pattern_type: str) -> str:
    """The name of a kind of pattern as it stands in an id."""
    return _slug(pattern_type) or "code"


def _slug(name: str) -> str:
    lower = name.strip().lower()
    return re.sub(r"[^a-z0-9]", "_", _ALIASES.get(lower, lower))[:_SLUG_LONGEST]


def normalise(code: str, language: str = "") -> NormalForm:
    """The normal form of some code: by its tokens if they can be read, else by its lines."""
    slug = language_slug(language)
    ended = code if code.endswith(("\n", "\r")) else f"{code}\n"
    if len(code.encode("utf-8", "surrogatepass")) <= _LONGEST:
        if slug == "python" and (parts := python_parts(ended)) is not None:
            return NormalForm("python", SEPARATOR.join(parts))
        if (text := _by_lexer(_unix(ended), slug)) is not None:
            return NormalForm("lexer", text)
    return NormalForm("text", _by_lines(_unix(ended)))


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _by_lines(text: str) -> str:
    return "\n".join(line.rstrip(" \t\f\v") for line in text.split("\n")).rstrip("\n")


def python_parts(code: str) -> list[str] | None:
    """The parts of Python source that matter; ``None`` if it does not tokenise."""
    text = _unix(code)
    try:
        return list(
            _parts(tokenize.generate_tokens(io.StringIO(text).readline), io.StringIO(text).readlines())
        )
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        return None


# f- and t-strings are one token on some versions of Python and many on others.
_OPENING: Final = {
    kind for name in ("FSTRING_START", "TSTRING_START") if (kind := getattr(tokenize, name, None))
}
_CLOSING: Final = {kind for name in ("FSTRING_END", "TSTRING_END") if (kind := getattr(tokenize, name, None))}
_LEFT_OUT: Final = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
_MARKS: Final = {tokenize.NEWLINE: "\n", tokenize.INDENT: "\x02", tokenize.DEDENT: "\x03"}


def _parts(tokens: Iterator[tokenize.TokenInfo], lines: list[str]) -> Iterator[str]:
    depth, start = 0, (0, 0)
    for token in tokens:
        if token.type == tokenize.ERRORTOKEN:
            raise ValueError("no token")
        if token.type in _OPENING:
            start = start if depth else token.start
            depth += 1
        elif token.type in _CLOSING:
            depth -= 1
            if not depth:
                yield _slice(lines, start, token.end)
        elif not depth and token.type not in _LEFT_OUT:
            yield _MARKS.get(token.type, token.string)


def _slice(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    (first, left), (last, right) = start, end
    if first == last:
        return lines[first - 1][left:right]
    return "".join([lines[first - 1][left:], *lines[first : last - 1], lines[last - 1][:right]])


def find_lexer(slug: str) -> Lexer | None:
    """The lexer of a language; ``None`` if there is none of that name."""
    from pygments.lexers import get_lexer_by_name  # noqa: PLC0415  # pyright: ignore[reportUnknownVariableType] - slow to load; its options have no types
    from pygments.util import ClassNotFound  # noqa: PLC0415 - as above

    for name in (slug, slug.replace("_", "-")):
        try:
            return get_lexer_by_name(name, stripnl=False, ensurenl=False)
        except ClassNotFound:
            continue
    return None


def _by_lexer(text: str, slug: str) -> str | None:
    lexer = find_lexer(slug)
    if lexer is None or any(mark in text for mark in _HIDDEN.values()):
        return None
    from pygments.token import Error  # noqa: PLC0415 - loaded by now

    pieces: list[str] = []
    for kind, value in lexer.get_tokens(text):
        if kind is Error:
            return None
        pieces.append(_piece(kind, value))
    return _in_order("".join(pieces), keep_indent=slug in _INDENTED).translate(_SHOW)


def _piece(kind: _TokenType, value: str) -> str:
    from pygments.token import Comment, String  # noqa: PLC0415 - loaded by now

    if is_kind(kind, String):
        return value.translate(_HIDE)
    if is_kind(kind, Comment) and not any(
        map(partial(is_kind, kind), (Comment.Preproc, Comment.PreprocFile))
    ):
        return " \n" if value.endswith("\n") else " "
    return value


def is_kind(kind: object, parent: Container[object]) -> bool:
    """Whether a token is of a kind or of one below it."""
    return kind in parent


def _in_order(text: str, *, keep_indent: bool) -> str:
    lines: list[str] = []
    for line in text.split("\n"):
        body = line.lstrip(" \t\f\v")
        indent = line[: len(line) - len(body)] if keep_indent else ""
        body = _BLANKS.sub(" ", body).rstrip(" ")
        if body:
            lines.append(indent + body)
    return "\n".join(lines)
