"""How a tool refuses: a text for the model that says what is wrong and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bartack.errors import BartackError


class ToolError(Exception):
    """A tool cannot do what it was asked; the text is for the model."""


def explain(error: BartackError) -> str:
    """An error of Bartack as the text of a tool: its code, what happened, and what to do."""
    remedy = error.advise()
    return f"{error.code} {type(error).__name__}: {error.message}" + (f"\n{remedy}" if remedy else "")
