"""The attempts at one command: how many there were, why there is another, and what all of them used.

Nothing here knows how an agent is reached or what time it is; ``_conversation.py`` decides with it.
"""

from __future__ import annotations

from collections.abc import Callable

from bartack.agents.contract import AgentRequest
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.conversation._limits import Limits
from bartack.agents.protocol.codes import OWN_CODES, Code, make_error
from bartack.agents.protocol.ids import parse_moment
from bartack.agents.protocol.messages import Cause, Usage
from bartack.agents.usage import total_usage
from bartack.errors import AgentError


class Attempts:
    """Counts the attempts of one call.

    ``limits.retries`` attempts may fail. One that is excused (``excuse``) does not count: the agent was asked to fix its reply, or
    said when it can be asked again. Usage is the total of each attempt as the agent reports it; ``usage`` adds them up.

    Args:
        agent: The agent's name, for errors.
        request: What it is asked, with the attempts that earlier hubs made.
        limits: How often it is asked, and how long to wait in between.
        uniform: Where the randomness of waits comes from.
    """

    def __init__(
        self,
        agent: str,
        request: AgentRequest,
        limits: Limits,
        uniform: Callable[[float, float], float],
    ) -> None:
        self.failed: list[str] = []
        """Each failed attempt: its number and its code."""
        self.cause: Cause = "first" if request.attempt == 1 else "resend"
        self.why: tuple[str, str] = ("", "")
        """The code and the message of the failure that the next attempt follows."""
        if request.rejected and request.attempt == 1:
            self.cause = "rejected"
            self.why = (request.rejected, request.rejected_because or "the answer was refused")
        self._agent = agent
        self._request = request
        self._limits = limits
        self._uniform = uniform
        self._begun = 0
        self._excused = 0
        self._tried_once: set[str] = set()
        self._current = Usage()
        self._before: list[Usage] = []
        self._rate_limits = 0
        """How often the agent was rate limited without saying for how long."""

    @property
    def made(self) -> int:
        """How many attempts were made in this step, those of dead hubs included."""
        return self._request.attempt - 1 + max(self._begun, 1)

    @property
    def number(self) -> int:
        """The number of the attempt that is under way, counted over all steps with the same key."""
        return self._request.attempts_before + self.made

    @property
    def most(self) -> int:
        """The number of the last attempt that would be made."""
        earlier = self._request.attempts_before + self._request.attempt - 1
        return self._limits.retries + self._excused + earlier

    def begin(self) -> None:
        """An attempt begins."""
        self._begun += 1
        self._current = Usage()

    def used_before(self, usage: Usage) -> None:
        """Attempts of dead hubs used this much."""
        self._before.append(usage)

    def used(self, usage: Usage) -> None:
        """The attempt has used this much so far."""
        self._current = usage

    def usage(self, last: Usage | None = None) -> Usage:
        """What all attempts used; ``last`` is the total of the one that is under way, if its answer has one."""
        return total_usage([*self._before, last or self._current])

    def fail(self, code: str, problem: str) -> None:
        """The attempt that is under way has failed."""
        self.failed.append(f"{self.number} {code}")
        self.why = (code, problem)
        self._before.append(self._current)
        self._current = Usage()

    def excuse(self) -> None:
        """The failed attempt does not count."""
        self._excused += 1

    def may_repeat(self, code: str, kind: Code) -> bool:
        """Whether there is another attempt after one that ended with a code; asked once for each failed attempt."""
        if kind.again == "no" or self._begun - self._excused >= self._limits.retries:
            return False
        if kind.again == "once":
            if code in self._tried_once:
                return False
            self._tried_once.add(code)
        return True

    def backoff_s(self, least_s: float) -> float:
        """How long to wait before the next attempt: random, longer each time, and at least what the agent asks for."""
        limits = self._limits
        growth = limits.backoff_factor ** min(self._begun - self._excused - 1, 60)
        bound = min(limits.backoff_max_s, limits.backoff_initial_s * growth)
        return max(self._uniform(0.0, bound), least_s)

    def rate_limit_s(self, failure: AgentFailure, now_us: int) -> float | None:
        """How long to wait for the end of a rate limit; ``None`` if the failure is not one that is waited for."""
        if failure.code not in {"rate_limited", "quota_exhausted"} or failure.retryable is False:
            return None
        if failure.until:
            return max(((parse_moment(failure.until) or 0) - now_us) / 1e6, 0.0)
        if failure.code != "rate_limited" or not self._limits.rate_limit_s:
            return None
        growth = 2.0 ** min(self._rate_limits, 60)
        self._rate_limits += 1
        return max(min(self._limits.rate_limit_s * growth, self._limits.rate_limit_max_s), failure.after_s)

    def error(
        self,
        code: str,
        problem: str,
        kind: Code | None = None,
        *,
        until: str = "",
        stderr_tail: tuple[str, ...] = (),
    ) -> AgentError:
        """The error of a call that ends with a code."""
        kind = kind or OWN_CODES[code]
        failed = tuple(self.failed)
        return make_error(
            code, kind, self._agent, problem, until=until, stderr_tail=stderr_tail, attempts=failed
        )
