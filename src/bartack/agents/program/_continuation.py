"""What a program gets that resumes a conversation after a crash: the same text for every kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

CONTINUE: Final = (
    "The process that ran this session ended before your work was reported. The outcome of the last tool calls may be "
    "unknown: check what took effect before repeating anything. Then continue with the original task and finish it."
)
OUTCOME: Final = 4096
"""Characters of the outcome of one tool call."""


def continuation_text(outcomes: Iterable[tuple[str, str]]) -> str:
    """How to continue. ``outcomes`` are those of our tools whose replies are perhaps lost, each with its tool."""
    listed = "\n".join(f"- {tool}: {outcome[:OUTCOME]}" for tool, outcome in outcomes)
    if not listed:
        return CONTINUE
    return (
        f"{CONTINUE}\n\nThese tool calls have finished, and must not be repeated. Their outcomes:\n{listed}"
    )
