"""What Claude Code does, as events of the transcript: what it says, and the tools of its own that it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from bartack.agents.claude._own_tools import PREFIX
from bartack.agents.contract import CallNotice, CallRetry, CallText, CallTool
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.program._json_lines import Json, JsonRead, objects_of, text_of

INPUT: Final = 4096
"""Characters of the input of a tool."""
TEXT: Final = 4096
"""Characters of what it says, in one event."""


class Reporter:
    """Reports for one conversation.

    Args:
        talk: The conversation.
        clean: Takes secrets out of what people read.
    """

    def __init__(self, talk: Conversation[JsonRead], clean: Callable[[bytes], bytes]) -> None:
        self._talk = talk
        self._clean = clean
        self._tools: dict[str, float] = {}
        """Tools of its own that run, and since when."""

    def begin_attempt(self) -> None:
        """Tools of an earlier attempt do not run any longer."""
        self._tools.clear()

    def reply(self, line: Json) -> None:
        """A part of a reply of a model: text, or the use of a tool."""
        parent = text_of(line, "parent_tool_use_id")
        for block in objects_of(line, "message", "content"):
            match text_of(block, "type"):
                case "text":
                    text = self._readable(text_of(block, "text"), TEXT)
                    self._talk.actions.report(
                        CallText(**self._talk.actions.stamp(), text=text, parent=parent)
                    )
                case "tool_use":
                    self._tool_began(block)
                case _:
                    pass

    def results(self, line: Json) -> None:
        """The program has the results of tools."""
        for block in objects_of(line, "message", "content"):
            call_id = text_of(block, "tool_use_id")
            since = self._tools.pop(call_id, None)
            if since is None:
                continue
            self._talk.watchdog.own_tool_ended(call_id)
            phase: Literal["failed", "finished"] = "failed" if block.get("is_error") is True else "finished"
            took_s = round(self._talk.watchdog.watch.real_s() - since, 3)
            stamp = self._talk.actions.stamp()
            event = CallTool(**stamp, id=call_id, tool="", phase=phase, duration_s=max(took_s, 0.0))
            self._talk.actions.report(event)

    def notice(self, level: Literal["info", "warn"], text: str, case: str) -> None:
        """Something that a person may want to read."""
        stamp = self._talk.actions.stamp()
        text = self._readable(text, TEXT)
        self._talk.actions.report(CallNotice(**stamp, level=level, text=text, case=case))

    def repeats(self, code: str, problem: str, delay_s: float) -> None:
        """The program repeats a request of its own."""
        stamp, number = self._talk.actions.stamp(), self._talk.attempts.number
        event = CallRetry(**stamp, code=code, error=problem, attempt=number, delay_s=delay_s, own=True)
        self._talk.actions.report(event)

    def _tool_began(self, block: Json) -> None:
        call_id, tool = text_of(block, "id"), text_of(block, "name")
        if tool.startswith(PREFIX) or call_id in self._tools:
            return  # a tool of the step is reported when it is called
        self._tools[call_id] = self._talk.watchdog.watch.real_s()
        self._talk.watchdog.own_tool_began(call_id)
        given = self._readable(msgspec.json.encode(block.get("input")).decode(), INPUT)
        stamp = self._talk.actions.stamp()
        self._talk.actions.report(CallTool(**stamp, id=call_id, tool=tool, phase="started", input=given))

    def _readable(self, text: str, most: int) -> str:
        return self._clean(text.encode("utf-8", "replace")).decode("utf-8", "replace")[:most]
