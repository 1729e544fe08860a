"""Lines of a program that are not messages, for every kind of agent that reads JSON: each is a notice, too many end the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bartack.agents.contract import CallNotice
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._json_lines import JsonRead
from bartack.agents.protocol.codes import OWN_CODES
from bartack.agents.protocol.lines import BadLine

MOST_BAD_LINES: Final = 100
"""More lines than this that are not messages end the call."""
EXCERPT: Final = 200


class BadLines:
    """The bad lines of one process after the other.

    Args:
        talk: The conversation.
        clean: Takes secrets out of what people see.
    """

    def __init__(self, talk: Conversation[JsonRead], clean: Callable[[bytes], bytes]) -> None:
        self.count = 0
        self._talk = talk
        self._clean = clean

    @property
    def notes(self) -> list[str]:
        """How many there were, for the notes of an attempt."""
        return [f"{self.count} of its lines were not messages"] if self.count else []

    def renew(self) -> None:
        """A new process."""
        self.count = 0

    def take(self, read: BadLine) -> None:
        """A line is not an object. A last one without a newline is what the end of the process has left of it."""
        if read.case == "line_too_long":
            self.end(read.case, f"it wrote a line that cannot be used: {read.detail or read.case}")
        elif read.case != "torn":
            self.add(read.case, self._clean(read.excerpt).decode("utf-8", "replace"))

    def add(self, case: str, text: str) -> None:
        """A line is not a message, or is one that was not expected."""
        self.count += 1
        last = text[:EXCERPT]
        if self.count <= MOST_BAD_LINES:
            self.notice(last, case)
            return
        problem = f"more than {MOST_BAD_LINES} of its lines are not messages; the last one: {last}"
        self.end("protocol_violation", problem)

    def end(self, code: str, problem: str) -> None:
        """It does not speak the protocol: what speaks another one now will not speak this one later."""
        self._talk.end_attempt(code, problem, kind=OWN_CODES[code]._replace(again="no", restart=True))

    def notice(self, text: str, case: str) -> None:
        """Report something that a person may want to know."""
        actions = self._talk.actions
        actions.report(CallNotice(**actions.stamp(), level="warn", text=text, case=case))
