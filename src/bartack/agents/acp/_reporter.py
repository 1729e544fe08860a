"""What an agent reports during a prompt, as events of its transcript. Parts of a text are put together first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from bartack.agents.acp._tools import Phase, ToolReport
from bartack.agents.acp._turn import parent_of
from bartack.agents.contract import CallNotice, CallText, CallTool
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._json_lines import Json, JsonRead, objects_of, text_of

MOST_TEXT: Final = 16 * 1024
"""Characters of one event."""
MOST_INPUT: Final = 4096
"""Bytes of what a tool is used with."""


class UpdateReporter:
    """Reports for one call."""

    def __init__(self, talk: Conversation[JsonRead], redact: Callable[[bytes], bytes]) -> None:
        self._talk = talk
        self._redact = redact
        self._parts: list[str] = []
        self._size = 0
        self._parent = ""
        self._began: dict[str, float] = {}

    def text(self, text: str, update: Json) -> None:
        """The agent says something; it is reported when the text ends or gets long."""
        parent = parent_of(update)
        if parent != self._parent or self._size + len(text) > MOST_TEXT:
            self.flush()
        self._parent = parent
        self._parts.append(text)
        self._size += len(text)

    def flush(self) -> None:
        """The text has ended."""
        text, self._parts, self._size = "".join(self._parts)[:MOST_TEXT], [], 0
        if text.strip():
            actions = self._talk.actions
            actions.report(CallText(**actions.stamp(), text=text, parent=self._parent))

    def tool(self, report: ToolReport, phase: Phase | None, *, own: bool) -> None:
        """A tool call began or ended. Tools of ours are reported by their own calls."""
        self.flush()
        watchdog = self._talk.watchdog
        now = watchdog.watch.real_s()
        if phase == "started":
            self._began[report.id] = now
            watchdog.own_tool_began(report.id)
        elif phase is not None:
            watchdog.own_tool_ended(report.id)
        if phase is None or own:
            return
        took_s = 0.0 if phase == "started" else round(now - self._began.pop(report.id, now), 6)
        actions = self._talk.actions
        actions.report(
            CallTool(
                **actions.stamp(),
                id=report.id,
                tool=report.tool,
                phase=phase,
                input=self._shown(report.input),
                duration_s=took_s,
            )
        )

    def plan(self, update: Json) -> None:
        """The agent has a plan."""
        self.flush()
        entries = [text_of(entry, "content") for entry in objects_of(update, "entries")]
        text = "\n".join(f"- {entry}" for entry in entries if entry)[:MOST_TEXT]
        if text:
            actions = self._talk.actions
            actions.report(CallNotice(**actions.stamp(), level="info", text=text, case="plan"))

    def _shown(self, given: Mapping[str, object]) -> str:
        if not given:
            return ""
        return self._redact(msgspec.json.encode(given))[:MOST_INPUT].decode("utf-8", "ignore")
