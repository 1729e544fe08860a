"""What the stream of a conversation says about its past: after a crash, or before another attempt. Without I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from bartack.agents.acp._messages import PROMPT, UPDATE
from bartack.agents.acp._session import SessionAbilities
from bartack.agents.acp._turn import PromptTurn
from bartack.agents.program._json_lines import Json, JsonLine, object_of, text_of
from bartack.agents.program._stream import SENT, STARTED
from bartack.agents.protocol.messages import Usage
from bartack.agents.usage import total_usage

TOOL: Final = "bartack.tool"
"""The mark of a tool of ours that has ended, written before the agent gets the reply."""

WORK: Final = frozenset(
    {"agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"}
)
"""Updates that only a model has a reason for."""


class ToolEnd(NamedTuple):
    """A tool of ours that has ended."""

    id: str
    tool: str
    text: str


class History:
    """The past of one conversation.

    Attributes:
        was_asked: A prompt was sent.
        was_begun: The agent has shown that it works on one, so it has the prompt; one that was killed before may have lost it.
        cost_usd: What the session had cost at last, as the agent counts it.
        delivered: The calls of our tools whose replies the model shows that it has: it has continued after them.
        undelivered: Those whose replies may be lost. An agent that reports the end of a call may die before it has written that
            into its session, so the report alone does not prove it.
        asked_for: What the newest prompt was marked with.
        answer: The whole answer to the newest prompt, if it came: the message.
        turn: What happened since the newest prompt.
        lacks_title: The cost of a prompt may lack that of a title. Claude Code asks a model for one beside the first prompt of each
            process, and the cost that it reports at the end of a turn has that in it only if the title came before.
    """

    def __init__(self, lines: Iterable[JsonLine] = ()) -> None:
        self.was_asked = False
        self.was_begun = False
        self.cost_usd = 0.0
        self.asked_for: Json = {}
        self.answer: JsonLine | None = None
        self.turn = PromptTurn()
        self.lacks_title = False
        self.value: object = msgspec.UNSET
        """What was given with the tool ``answer`` since the newest prompt."""
        self._spent: list[tuple[str, Usage]] = []
        """What each prompt before the newest one has used, with the step that it was sent for."""
        self._ended: dict[str, ToolEnd] = {}
        self._shown: set[str] = set()
        self._listed: list[str] = []
        """The calls that had ended before the newest prompt, which lists the outcomes of those that may be lost."""
        self._prompt: object = None
        """The id of the newest prompt."""
        self._is_claude = False
        self._is_titled = False
        for line in lines:
            self._take(line.value)

    @property
    def delivered(self) -> list[str]:
        """See the class."""
        return [call_id for call_id in self._ended if call_id in self._shown]

    @property
    def undelivered(self) -> list[ToolEnd]:
        """See the class."""
        return [end for call_id, end in self._ended.items() if call_id not in self._shown]

    @property
    def is_open(self) -> bool:
        """Whether the newest prompt has no answer: what it has used is not known."""
        return self.was_asked and self.answer is None

    def spent(self, step: str, *, with_newest: bool = True) -> Usage:
        """What the prompts of a step have used, as far as the agent has said."""
        newest = (
            [(text_of(self.asked_for, "step"), self._newest_usage())]
            if with_newest and self.was_asked
            else []
        )
        return total_usage([usage for one, usage in [*self._spent, *newest] if one == step])

    def _newest_usage(self) -> Usage:
        said = {} if self.answer is None else object_of(self.answer.value, "result", "usage")
        return self.turn.usage(said)

    def _take(self, value: Json) -> None:
        match text_of(value, "type"):
            case "bartack.line" if text_of(value, "dir") == "in":
                self._came(object_of(value, "line"))
            case "bartack.line":
                self._went(object_of(value, "line"))
            case kind if kind == TOOL:
                self._ended_tool(
                    ToolEnd(text_of(value, "id"), text_of(value, "tool"), text_of(value, "text"))
                )
            case kind if kind == SENT:
                self._asked(value)
            case kind if kind == STARTED:
                self._is_titled = False
            case kind if not kind.startswith("bartack."):  # as the agent wrote it
                self._came(value)
            case _:
                return

    def _ended_tool(self, end: ToolEnd) -> None:
        self.was_begun = True
        if end.tool:
            self._ended[end.id] = end
        else:
            self.value = msgspec.json.decode(end.text)

    def _asked(self, mark: Json) -> None:
        if self.was_asked:
            self._spent.append((text_of(self.asked_for, "step"), self._newest_usage()))
        self.was_asked = True
        self.asked_for = mark
        self.answer = None
        self.turn = PromptTurn(self.cost_usd)
        self.value = msgspec.UNSET
        self._listed = [*self._ended]
        self._prompt = None

    def _went(self, message: Json) -> None:
        if message.get("method") == PROMPT:
            self._prompt = message.get("id")

    def _came(self, message: Json) -> None:
        if message.get("method") == UPDATE:
            self._update(object_of(message, "params", "update"))
        elif "agentCapabilities" in object_of(message, "result"):
            self._is_claude = SessionAbilities(object_of(message, "result")).is_claude
        elif self._prompt is not None and "method" not in message and message.get("id") == self._prompt:
            self.answer = JsonLine(message, b"")
            self._prompt = None
            self.lacks_title = self.lacks_title or (self._is_claude and not self._is_titled)
            self._shown.update(self._listed, self.turn.tools_ended)

    def _update(self, update: Json) -> None:
        asked = self._prompt is not None
        replies, ended = self.turn.replies, len(self.turn.tools_ended)
        self.was_begun = self.was_begun or (asked and text_of(update, "sessionUpdate") in WORK)
        match text_of(update, "sessionUpdate"):
            case "agent_message_chunk" if asked:
                self.turn.say(update)
            case "agent_thought_chunk" if asked:
                self.turn.think(update)
            case "tool_call" | "tool_call_update" if asked:
                self.turn.tool(update)
            case "usage_update":
                self.turn.spend(update)
                self.cost_usd = self.cost_usd if self.turn.cost_seen is None else self.turn.cost_seen
            case "session_info_update" if asked:
                self._is_titled = self._is_titled or bool(text_of(update, "title"))
            case _:
                return
        if self.turn.replies > replies:  # the model has continued
            self._shown.update(self._listed, self.turn.tools_ended[:ended])
