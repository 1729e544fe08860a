"""The transcripts of agents that answer prompts from a script without a process: the same lines as those of programs.

The caller of the agent reports what happens during a call. A scripted agent that executes commands is a program (``program.py``),
whose lines are made like those of any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from bartack.agents._transcript import AgentTranscript
from bartack.agents.contract import (
    AgentEvent,
    CallFinished,
    CallNotice,
    CallRateLimit,
    CallRetry,
    CallStarted,
    CallText,
    CallTool,
    CallUsage,
)
from bartack.agents.conversation._actions import Stamp
from bartack.agents.protocol.ids import moment
from bartack.agents.protocol.messages import Usage
from bartack.agents.usage import total_usage
from bartack.core.clock import Clock
from bartack.core.redact import Redactor, SecretRule
from bartack.errors import AgentError

SCRIPTED: Final = "scripted"
"""What stands in the place of a program's version."""
LONGEST_ERROR: Final = 2048
"""Characters of why an attempt came to nothing."""

_MEMBERS: Final = ("input", "output", "cache_read", "cache_write")
"""What a script calls the kinds of tokens; whatever else it names counts as input."""


def scripted_usage(tokens: Mapping[str, int], turns: int, usd: float) -> Usage:
    """What a reply of a script has used."""
    known = {name: tokens[name] for name in _MEMBERS if name in tokens}
    rest = sum(count for name, count in tokens.items() if name not in _MEMBERS)
    if rest:
        known["input"] = known.get("input", 0) + rest
    return Usage(
        input_tokens=known.get("input"),
        output_tokens=known.get("output"),
        cache_read_tokens=known.get("cache_read"),
        cache_write_tokens=known.get("cache_write"),
        turns=turns,
        cost_usd=usd,
    )


class ScriptedTranscripts:
    """The transcripts of the scripted agents of a run.

    Args:
        folder: The directory of the run's agents.
        environ: The variables whose secrets are taken out of lines.
        secrets: Which of them are secrets.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str], secrets: SecretRule) -> None:
        self._folder = folder
        self._redact = Redactor(environ, secrets).hide_lines
        self._files: dict[str, AgentTranscript] = {}

    def of(self, agent: str) -> AgentTranscript:
        """The transcript of an agent."""
        found = self._files.get(agent)
        if found is None:
            found = self._files[agent] = AgentTranscript(self._folder / agent, self._redact)
        return found

    def close(self) -> None:
        """Close the files."""
        for transcript in self._files.values():
            transcript.close()


class ScriptedTalk:
    """The lines of one call.

    Args:
        transcript: The transcript of its agent.
        key: The key of its step.
        clock: What time it is.
        publish: Is given each event, too.
    """

    def __init__(
        self, transcript: AgentTranscript, key: str, clock: Clock, publish: Callable[[AgentEvent], None]
    ) -> None:
        self._transcript = transcript
        self._key = key
        self._clock = clock
        self._publish = publish
        self._n = 0
        self._attempt = 0
        self._began_ns = clock.monotonic_ns()
        self._tool: tuple[str, int] = ("", 0)
        """The id of the tool that runs, and since when."""
        self._used: list[Usage] = []

    def started(self, attempt: int) -> None:
        """The agent is asked, perhaps not for the first time."""
        self._attempt = max(attempt, self._attempt + 1)
        self._add(
            CallStarted(**self._stamp(), pid=0, conversation="", attempt=self._attempt, version=SCRIPTED)
        )

    def said(self, text: str, used: Usage) -> None:
        """The agent replied."""
        if text:
            self._add(CallText(**self._stamp(), text=text))
        self._used.append(used)

    def notice(self, text: str) -> None:
        """Something happened that a person may want to read."""
        self._add(CallNotice(**self._stamp(), level="warn", text=text))

    def tool_called(self, call_id: str, tool: str, arguments: str) -> None:
        """The agent calls a tool."""
        self._tool = call_id, self._clock.monotonic_ns()
        self._add(CallTool(**self._stamp(), id=call_id, tool=tool, phase="started", input=arguments))

    def tool_ended(self, *, failed: bool) -> None:
        """The tool that it called has ended."""
        call_id, since_ns = self._tool
        phase: Literal["finished", "failed"] = "failed" if failed else "finished"
        took_s = self._seconds_since(since_ns)
        self._add(CallTool(**self._stamp(), id=call_id, tool="", phase=phase, duration_s=took_s))

    def retried(self, code: str, error: str) -> None:
        """What it replied cannot be used, and it is asked once more."""
        self._add(
            CallRetry(
                **self._stamp(), code=code, error=error[:LONGEST_ERROR], attempt=self._attempt, delay_s=0.0
            )
        )

    def limited(self, until_us: int, error: str) -> None:
        """The agent cannot be asked again before a moment."""
        self._add(
            CallRateLimit(**self._stamp(), status="rate_limited", resets_at=moment(until_us), error=error)
        )

    def finished(self, outcome: object) -> None:
        """The call is over, with a reply or with an error."""
        if self._used:
            self._add(CallUsage(**self._stamp(), usage=total_usage(self._used)))
        reason = outcome.reason or type(outcome).__name__ if isinstance(outcome, AgentError) else "completed"
        took_s = self._seconds_since(self._began_ns)
        self._add(CallFinished(**self._stamp(), reason=reason, duration_s=took_s))

    def _seconds_since(self, since_ns: int) -> float:
        return round(max(self._clock.monotonic_ns() - since_ns, 0) / 1e9, 6)

    def _stamp(self) -> Stamp:
        self._n += 1
        return {"key": self._key, "at": moment(self._clock.now_us()), "n": self._n}

    def _add(self, event: AgentEvent) -> None:
        self._transcript.add(event)
        self._publish(event)
