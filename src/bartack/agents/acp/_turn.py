"""One prompt of a session: what its updates say, put together. It decides nothing and reports nothing; see ``_dialect.py``."""

from __future__ import annotations

import math
from typing import Final

from bartack.agents.acp._tools import Phase, ToolReport, ToolReports
from bartack.agents.program._json_lines import Json, count_of, member, text_of
from bartack.agents.protocol.messages import Usage

MOST_TEXT: Final = 8 * 1024 * 1024
"""Characters of a reply; the rest is left out."""


class PromptTurn:
    """What happened since a prompt was sent.

    A reply of the model begins with the first thing that it says or calls after a tool has ended; ``replies`` counts them.

    Args:
        cost_before: What the session had cost before the prompt, as the agent counts it.
        reports: The tool calls of the session.
    """

    def __init__(self, cost_before: float = 0.0, reports: ToolReports | None = None) -> None:
        self.replies = 0
        self.cost_seen: float | None = None
        """What the session has cost by now."""
        self.tools_ended: list[str] = []
        self._cost_before = cost_before
        self._reports = reports or ToolReports()
        self._listens = True
        """What comes next belongs to a new reply."""
        self._said: list[str] = []
        self._size = 0
        self._before = ""
        """The last text before the last tool call."""
        self._message = ""

    @property
    def text(self) -> str:
        """What it has said since the last tool call, or before that if it has said nothing since."""
        return "".join(self._said) or self._before

    @property
    def cost_usd(self) -> float | None:
        """What the prompt has cost so far; ``None`` if the agent does not say."""
        if self.cost_seen is None:
            return None
        since = self.cost_seen - self._cost_before
        return since if since >= 0 else self.cost_seen

    def usage(self, said: Json | None = None) -> Usage:
        """What the prompt has used so far; ``said`` is the account that comes with its end."""
        turns = max(self.replies, 1)
        if not said:
            return Usage(turns=turns, cost_usd=self.cost_usd)
        return Usage(
            input_tokens=count_of(said, "inputTokens"),
            output_tokens=count_of(said, "outputTokens"),
            cache_read_tokens=count_of(said, "cachedReadTokens"),
            cache_write_tokens=count_of(said, "cachedWriteTokens"),
            turns=turns,
            cost_usd=self.cost_usd,
        )

    def say(self, update: Json) -> str:
        """Take a part of a message; returns it. A subagent's text is not part of the reply."""
        text = text_of(update, "content", "text") if text_of(update, "content", "type") == "text" else ""
        if parent_of(update):
            return text
        self._reply_begins()
        message = text_of(update, "messageId")
        if self._said and message and self._message and message != self._message:
            self._said.append("\n\n")
        self._message = message or self._message
        left = MOST_TEXT - self._size
        self._size += len(text)
        if left > 0 and text:
            self._said.append(text[:left])
        return text

    def think(self, update: Json) -> None:
        """It thinks, which is part of a reply of the model and not of its text."""
        if not parent_of(update):
            self._reply_begins()

    def tool(self, update: Json) -> tuple[ToolReport, Phase | None]:
        """Take a report of a tool call."""
        report, phase = self._reports.take(update)
        if parent_of(update):
            return report, phase
        if phase == "started":
            self._reply_begins()
        if phase is not None:
            self._before, self._said = "".join(self._said) or self._before, []
        if phase in {"finished", "failed"}:
            self._listens = True
            self.tools_ended.append(report.id)
        return report, phase

    def spend(self, update: Json) -> bool:
        """Take a report of what the session costs; returns whether it has said something new."""
        amount = member(update, "cost", "amount")
        currency = text_of(update, "cost", "currency")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or currency not in {"", "USD"}:
            return False
        if not math.isfinite(amount) or not 0 <= amount <= 1e6:
            return False
        changed = amount != self.cost_seen
        self.cost_seen = float(amount)
        return changed

    def _reply_begins(self) -> None:
        if self._listens:
            self._listens = False
            self.replies += 1


def parent_of(update: Json) -> str:
    """The tool call of the subagent that an update is about; empty if it is about the agent itself."""
    return text_of(update, "_meta", "claudeCode", "parentToolUseId")
