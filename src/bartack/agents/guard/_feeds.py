"""What a shell reads from its stdin: the text itself where a command of the pipe has it in its words, or that it is unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from bartack.agents.guard._options import FETCHERS
from bartack.agents.guard._syntax import Node, Script, SimpleCommand, Step, walk
from bartack.agents.guard._text import MARKS, PROCESS

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPE: Final = re.compile(r"\\(?:0?([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_DIRECTIVE: Final = re.compile(r"%[-+ #0-9.*]*([A-Za-z%])")
MOST_TEXT: Final = 64 * 1024


class Feed(NamedTuple):
    """What is fed to a command.

    Attributes:
        texts: Everything that it may be, if that is known.
        is_network: Whether it comes from the network.
    """

    texts: tuple[str, ...] | None = None
    is_network: bool = False


def fetches(script: Script) -> bool:
    """Whether a command of a script gets something from the network."""
    return any(word.rsplit("/", 1)[-1] in FETCHERS for command in walk(script) for word in command.words[:4])


def feed_of(node: Node, upstream: Sequence[Node]) -> Feed | None:
    """What a command reads; ``None``: nothing but what the agent's shell itself gets."""
    for redirect in reversed(node.redirects):
        if redirect.body is not None:
            known = redirect.is_certain and not MARKS.search(redirect.body)
            return Feed((redirect.body,) if known else None, _is_fetching(node))
        if redirect.operator == "<":
            is_network = PROCESS in redirect.target and _is_fetching(node)
            return Feed(None, is_network)
    if not upstream:
        return None
    if any(fetches([_step(one)]) for one in upstream):
        return Feed(None, is_network=True)
    return Feed(_printed(upstream[-1], upstream[:-1]))


def _step(node: Node) -> Step:
    return Step(";", node)


def _is_fetching(node: Node) -> bool:
    return any(fetches(nested.script) for nested in node.nested)


def _printed(node: Node, upstream: Sequence[Node]) -> tuple[str, ...] | None:
    """What a command prints, if its words have it."""
    if not isinstance(node, SimpleCommand) or not node.words:
        return None
    name, *words = node.words
    if any(MARKS.search(word) for word in words):
        return None
    name = name.rsplit("/", 1)[-1]
    if name == "echo":
        return _echoed(words)
    if name == "printf" and words:
        return _formatted(words)
    if name == "cat" and not words:
        feed = feed_of(node, upstream)
        return feed.texts if feed else None
    return None


def _echoed(words: list[str]) -> tuple[str, ...]:
    while words and re.fullmatch(r"-[neE]+", words[0]):
        words = words[1:]
    text = " ".join(words)
    return (text, _unescaped(text)) if "\\" in text else (text,)


def _formatted(words: list[str]) -> tuple[str, ...] | None:
    words = words[1:] if words[0] == "--" else words
    if not words or words[0] == "-v":
        return None
    template, values = _unescaped(words[0]), words[1:]
    parts: list[str] = []
    while True:
        before = len(values)
        parts.append(_DIRECTIVE.sub(lambda found: _next(found, values), template))
        if not values or len(values) == before or sum(map(len, parts)) > MOST_TEXT:
            break
    return ("".join(parts),)


def _next(found: re.Match[str], values: list[str]) -> str:
    if found[1] == "%":
        return "%"
    value = values.pop(0) if values else ""
    return _unescaped(value) if found[1] == "b" else value


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 8) & 0xFF)
    if found[2]:
        return chr(int(found[2], 16))
    return _ESCAPES.get(found[3], f"\\{found[3]}")
