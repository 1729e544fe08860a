"""What Codex reports during a turn: messages and tools for the transcript, signs of life for the watchdog, tokens for the cost.

The end of the turn is decided in ``_dialect.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from bartack.agents.codex._outcomes import HOPELESS, classify_repeat
from bartack.agents.codex._requests import ServerRequests
from bartack.agents.codex._thread import CodexThread
from bartack.agents.codex._tokens import TokenCount
from bartack.agents.contract import CallNotice, CallRetry, CallText, CallTool
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program._json_lines import Json, JsonRead, count_of, member, object_of, text_of
from bartack.agents.program_config import Price
from bartack.agents.protocol.ids import moment

INPUT: Final = 4096
"""Characters of what a tool was used with, in the transcript."""
TEXT: Final = 4096

OWN_TOOLS: Final = {
    "commandExecution": "Bash",
    "fileChange": "Edit",
    "mcpToolCall": "",
    "webSearch": "WebSearch",
    "collabAgentToolCall": "Agent",
    "imageView": "Read",
}
"""Items that are tools of Codex's own, and their names in the common vocabulary."""

NOTICES: Final = frozenset({"warning", "configWarning", "deprecationNotice", "guardianWarning"})


class TurnEvents:
    """The notifications of one attempt.

    Args:
        talk: The call.
        requests: Learns which files a change is about.
        thread: Learns which results of tools Codex has.
        prices: Those of the settings.
        fail: Ends the attempt.
    """

    def __init__(
        self,
        talk: Conversation[JsonRead],
        requests: ServerRequests,
        thread: CodexThread,
        prices: Mapping[str, Price] | None,
        fail: Callable[[AgentFailure], None],
    ) -> None:
        self.text = ""
        """The last message of the model."""
        self.quota_until = ""
        """When an exhausted quota is renewed, as far as Codex has said."""
        self.tokens = TokenCount(prices=prices)
        self._talk = talk
        self._requests = requests
        self._thread = thread
        self._fail = fail
        self._prices = prices
        self._turns: set[str] = set()
        """Turns that began in this process: those of subagents are paid as well."""
        self._said_last = False

    def begin_attempt(self, model: str) -> None:
        """Nothing of the last attempt counts any longer."""
        self.text = ""
        self.tokens = TokenCount(model, self._prices)
        self._turns.clear()
        self._said_last = False

    def take(self, method: str, params: Json) -> None:
        """Something happened, other than the end of the turn."""
        match method:
            case "turn/started":
                self._turns.add(text_of(params, "turn", "id"))
                self._talk.watchdog.progress()
            case "item/started":
                self._began(object_of(params, "item"))
            case "item/completed":
                self._completed(object_of(params, "item"), params)
            case "thread/tokenUsage/updated":
                self._used(params)
            case "account/rateLimits/updated":
                self._limited(object_of(params, "rateLimits"))
            case "error":
                self._failed(params)
            case _ if method in NOTICES:
                self._notice(params)
            case _ if method.startswith("item/"):
                self._talk.watchdog.progress()  # a part of a text or of an output
            case _:
                pass

    def _began(self, item: Json) -> None:
        talk, kind = self._talk, text_of(item, "type")
        talk.watchdog.progress()
        if kind == "fileChange":
            self._requests.note_changes(item)
        if kind in OWN_TOOLS:
            self._said_last = False
            talk.watchdog.own_tool_began(text_of(item, "id"))
            given = msgspec.json.encode(_input(item)).decode()[:INPUT]
            name = OWN_TOOLS[kind] or text_of(item, "tool") or kind
            talk.actions.report(
                CallTool(
                    **talk.actions.stamp(), id=text_of(item, "id"), tool=name, phase="started", input=given
                )
            )
        elif kind == "dynamicToolCall":
            self._said_last = False

    def _completed(self, item: Json, params: Json) -> None:
        talk, kind = self._talk, text_of(item, "type")
        talk.watchdog.progress()
        if kind == "agentMessage":
            self._said(text_of(item, "text"), text_of(params, "threadId"))
        elif kind == "dynamicToolCall":
            self._thread.delivered.append(text_of(item, "id"))
        elif kind in OWN_TOOLS:
            talk.watchdog.own_tool_ended(text_of(item, "id"))
            good = text_of(item, "status") in {"completed", ""}
            talk.actions.report(
                CallTool(
                    **talk.actions.stamp(),
                    id=text_of(item, "id"),
                    tool=OWN_TOOLS[kind] or text_of(item, "tool") or kind,
                    phase="finished" if good else "failed",
                    duration_s=count_of(item, "durationMs") / 1000,
                )
            )

    def _said(self, text: str, thread: str) -> None:
        ours = thread == self._thread.id
        if ours:
            self.text = text
            self._said_last = True
        stamp = self._talk.actions.stamp()
        self._talk.actions.report(CallText(**stamp, text=text[:TEXT], parent="" if ours else thread))

    def _used(self, params: Json) -> None:
        if text_of(params, "turnId") not in self._turns:
            return  # what a resumed thread had used before
        usage = self.tokens.add(params)
        self._talk.usd_estimated = self._talk.usd_estimated or usage.cost_usd is not None
        # A reply that is a message and nothing else is the last one: it is paid, and nothing follows it.
        final = self._said_last and text_of(params, "threadId") == self._thread.id
        self._talk.note_usage(usage, final=final)

    def _limited(self, limits: Json) -> None:
        windows = [object_of(limits, name) for name in ("primary", "secondary")]
        full = [count_of(window, "resetsAt") for window in windows if count_of(window, "usedPercent") >= 100]
        self.quota_until = moment(max(full) * 1_000_000) if any(full) else ""

    def _failed(self, params: Json) -> None:
        """An error that ends the turn comes with its end; one that is repeated is a sign of life, and no progress."""
        talk, error = self._talk, object_of(params, "error")
        if member(params, "willRetry") is not True:
            return
        failure = classify_repeat(error)
        if talk.state == "running" and failure.code in HOPELESS:
            self._fail(failure)
            return
        talk.watchdog.repeats(failure.code, failure.message)
        text = f"{text_of(error, 'message')}: {failure.message}"[:2048]
        number = talk.attempts.number
        stamp = talk.actions.stamp()
        event = CallRetry(**stamp, code=failure.code, error=text, attempt=number, delay_s=0.0, own=True)
        talk.actions.report(event)

    def _notice(self, params: Json) -> None:
        text = text_of(params, "message") or text_of(params, "summary")
        if text:
            actions = self._talk.actions
            actions.report(CallNotice(**actions.stamp(), level="info", text=text[:TEXT]))


def _input(item: Json) -> Json:
    names = ("command", "cwd", "changes", "arguments", "query", "prompt", "path")
    return {name: item[name] for name in names if item.get(name) is not None}
