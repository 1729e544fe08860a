"""What is known of the thread of a conversation, over all its processes: its ids, and calls of tools of ours."""

from __future__ import annotations

from typing import NamedTuple

from bartack.agents.program._continuation import continuation_text


class SentResult(NamedTuple):
    """A tool of ours whose result was sent."""

    name: str
    text: str


class CodexThread:
    """See the module.

    Args:
        thread: Its id; empty before it has begun.
        parent: The thread that it continues; empty if there is none.
    """

    def __init__(self, thread: str = "", parent: str = "") -> None:
        self.id = thread
        self.parent = parent
        self.finished: dict[str, SentResult] = {}
        """Tools of ours that have ended, by call."""
        self.delivered: list[str] = []
        """Those of them whose results Codex has shown to have."""

    def begin_anew(self) -> None:
        """The thread is lost."""
        self.id = ""
        self.finished.clear()
        self.delivered.clear()

    def continuation(self) -> str:
        """How to continue, with the outcomes of tool calls that the model might not have got."""
        lost = [tool for call_id, tool in self.finished.items() if call_id not in self.delivered]
        return continuation_text(lost)
