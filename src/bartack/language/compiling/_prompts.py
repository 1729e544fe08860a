"""The do-blocks of a prompt as an agent sees them: the line each stands in, and the line before."""

from __future__ import annotations

import re
from typing import Final

from bartack.core.text import cut
from bartack.language.syntax import _tree as tree

LONGEST_DESCRIPTION: Final = 200

_MARKUP: Final = re.compile(r"^\s*(?:#+|>|[-*+]|\d+[.)])\s+|[`*_]{1,3}(?=\S)|(?<=\S)[`*_]{1,3}", re.MULTILINE)


def tool_descriptions(prompt: tree.Prompt) -> dict[int, str]:
    """The descriptions of a prompt's do-blocks, by their numbers."""
    text = ""
    places: dict[int, int] = {}
    for part in prompt.parts:
        match part:
            case tree.Text() | tree.Escape():
                text += part.value
            case tree.Variable():
                text += f"${part.name}"
            case tree.DoBlock():
                places[part.number] = len(text)
            case _:
                text += "…"
    return {number: _description(text, place) for number, place in places.items()}


def _description(text: str, place: int) -> str:
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    line = text[start : len(text) if end < 0 else end]
    before = text[text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
    words = " ".join(_MARKUP.sub("", f"{before}\n{line}").split())
    return cut(words, LONGEST_DESCRIPTION)
