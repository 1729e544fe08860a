"""Topics, and the patterns by which mailboxes subscribe to them."""

from __future__ import annotations

import re
from typing import Final

from bartack.errors import TopicNameError

MAX_WORDS: Final = 8
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_topic(topic: object) -> str:
    """Raise unless something can be published to this topic; returns it.

    Raises:
        TopicNameError: It is none.
    """
    for word in _words(topic):
        if not _WORD.fullmatch(word):
            raise TopicNameError(str(topic), f"{word!r} is not a word of letters, digits, '_' and '-'")
    return str(topic)


def check_pattern(pattern: object) -> str:
    """Raise unless a mailbox can subscribe to this pattern; returns it.

    Raises:
        TopicNameError: It is none.
    """
    words = _words(pattern)
    for place, word in enumerate(words, 1):
        last = place == len(words)
        if word != "*" and not (word == "**" and last) and not _WORD.fullmatch(word):
            raise TopicNameError(str(pattern), f"{word!r} is neither a word, nor '*', nor a '**' at the end")
    return str(pattern)


def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern covers a topic: ``*`` is one word, ``**`` at the end any number of them."""
    if "*" not in pattern:
        return pattern == topic
    wanted, words = pattern.split("."), topic.split(".")
    if wanted[-1] == "**":
        wanted.pop()
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(
        want in {"*", word} for want, word in zip(wanted, words, strict=True)
    )


def _words(name: object) -> list[str]:
    if not isinstance(name, str):
        raise TopicNameError(repr(name), "it is not text")
    words = name.split(".")
    if len(words) > MAX_WORDS:
        raise TopicNameError(name, f"it has {len(words)} words, more than {MAX_WORDS}")
    return words
