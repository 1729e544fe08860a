"""One turn of Claude Code: what is known of it, and when it is over.

A ``result`` line ends a turn. The call ends with it when the program is idle, which it says just after the line or just before it,
and no subagent works on in the background. A later result replaces an earlier one.
"""

from __future__ import annotations

from typing import Final

from bartack.agents.claude._outcome import Judgement, TurnFacts, judge
from bartack.agents.program._json_lines import Json, count_of, object_of, text_of
from bartack.agents.protocol.ids import moment

ENDED: Final = frozenset({"completed", "failed", "killed", "stopped", "cancelled"})
"""What is said of a background task that is over."""
MICROSECONDS: Final = 1_000_000


class Turn:
    """See the module. One for each prompt that is sent."""

    def __init__(self) -> None:
        self.result: Json | None = None
        self._idle = False
        self._agents: set[str] = set()
        """Subagents that work."""
        self._rate_limited = False
        self._refused = False
        self._until = ""

    def take(self, line: Json) -> None:
        """Take a line of the program."""
        match text_of(line, "type"):
            case "system":
                self._system(line)
            case "assistant":
                if not line.get("is_api_error_message"):
                    self._rate_limited = False
            case "rate_limit_event":
                self._limit(object_of(line, "rate_limit_info"))
            case "result":
                self.result = line
            case _:
                return

    @property
    def works_in_background(self) -> bool:
        """Whether a subagent has not ended."""
        return bool(self._agents)

    @property
    def is_over(self) -> bool:
        """Whether nothing else comes after its result."""
        return self.result is not None and self._idle and not self._agents

    def judge(self) -> Judgement:
        """What it comes to; it has a result."""
        facts = TurnFacts(self._rate_limited, self._refused, self._until)
        return judge(self.result or {}, facts)

    def _system(self, line: Json) -> None:
        match text_of(line, "subtype"):
            case "session_state_changed":
                self._idle = text_of(line, "state") == "idle"
            case "api_retry":
                self._rate_limited = text_of(line, "error") == "rate_limit"
            case "model_refusal_no_fallback":
                self._refused = True
            case "task_started":
                if "agent" in text_of(line, "task_type"):
                    self._agents.add(text_of(line, "task_id"))
            case "task_notification":
                self._ended(line, text_of(line, "status"))
            case "task_updated":
                self._ended(line, text_of(line, "patch", "status"))
            case _:
                return

    def _ended(self, line: Json, status: str) -> None:
        task = text_of(line, "task_id")
        if status in ENDED and task in self._agents:
            self._agents.discard(task)
            self._idle = False  # the model gets what the subagent has found, and another result follows

    def _limit(self, info: Json) -> None:
        resets_s = count_of(info, "resetsAt")
        if text_of(info, "status") == "rejected":
            self._until = moment(resets_s * MICROSECONDS) if resets_s else ""
