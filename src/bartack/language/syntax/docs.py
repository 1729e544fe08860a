"""Doc comments: the text above a declaration, and the tags in it."""

from __future__ import annotations

import re
from typing import NamedTuple

from bartack.language.syntax import _tree as tree


class Tag(NamedTuple):
    """A tag of a doc comment, such as `@arg path where to look`: its word, its name, its text, and its comment line."""

    word: str
    name: str
    text: str
    comment: tree.Comment


class Doc(NamedTuple):
    """What a doc comment says."""

    text: str
    tags: tuple[Tag, ...]

    @property
    def summary(self) -> str:
        """The first sentence."""
        paragraph = self.text.split("\n\n", 1)[0].replace("\n", " ")
        ended = re.match(r".*?[.!?](?=\s|\Z)", paragraph)
        return ended[0] if ended else paragraph

    @property
    def arguments(self) -> dict[str, str]:
        """The texts of `@arg`, by parameter."""
        return {tag.name: tag.text for tag in self.tags if tag.word == "arg"}

    def tag(self, word: str) -> str:
        """The name after the first tag with this word, or nothing."""
        return next((tag.name for tag in self.tags if tag.word == word), "")


_TAG = re.compile(r"@(arg|color|model)[ \t]+(\S+)[ \t]*(.*)\Z")


def read_doc(comments: tuple[tree.Comment, ...]) -> Doc:
    """Read the comment lines directly above a declaration."""
    lines: list[str] = []
    tags: list[Tag] = []
    for comment in comments:
        line = comment.text.removeprefix("#").strip()
        matched = _TAG.match(line)
        if matched:
            tags.append(Tag(matched[1], matched[2], matched[3], comment))
        elif not tags:
            lines.append(line)
        elif line:
            last = tags.pop()
            tags.append(last._replace(text=f"{last.text} {line}".strip()))
    return Doc("\n".join(lines).strip(), tuple(tags))
