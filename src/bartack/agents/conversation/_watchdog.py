"""The time limits of one call, in seconds that count: those in which the agent could have done something.

``Watchdog`` knows when each limit passes; what follows from it is decided in ``_conversation.py``. ``agents/process/_vitals.py``
measures whether the processes of a silent agent are active.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from bartack.agents._record import Link
from bartack.agents.contract import AgentRequest
from bartack.agents.conversation._actions import State
from bartack.agents.conversation._limits import Limits
from bartack.agents.process._vitals import Activity
from bartack.core.clock import Clock

LATE_S: Final = 5.0
"""A tick that comes later than this is not the agent's fault: the machine slept, or the hub was stopped."""
LOOK_S: Final = 30.0
"""How often the activity of a silent agent's processes is measured."""


class Expired(NamedTuple):
    """A limit that has passed.

    Attributes:
        limit: ``retry``: the wait before the next attempt is over; ``grace``: a cancel was not answered; ``deadline`` and
            ``wall``: the whole call took too long; ``attempt``: this attempt has failed.
        code: With ``attempt``: how it failed.
        problem: The same in words.
    """

    limit: Literal["retry", "grace", "deadline", "wall", "attempt"]
    code: str = ""
    problem: str = ""


class _Suspicion(NamedTuple):
    due: float
    grace_s: float
    case: str
    detail: str


class Stopwatch:
    """Counts seconds, except while it is paused."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paused_at: float | None = None
        self.paused_s = 0.0
        """How long it was paused, without the pause that lasts."""

    @property
    def is_paused(self) -> bool:
        """Whether it is paused now."""
        return self._paused_at is not None

    def real_s(self) -> float:
        """Seconds of the monotonic clock."""
        return self._clock.monotonic_ns() / 1e9

    def now(self) -> float:
        """Seconds that count."""
        return (self.real_s() if self._paused_at is None else self._paused_at) - self.paused_s

    def pause(self) -> None:
        """Stop counting."""
        if self._paused_at is None:
            self._paused_at = self.real_s()

    def resume(self) -> None:
        """Count again."""
        if self._paused_at is not None:
            self.paused_s += self.real_s() - self._paused_at
            self._paused_at = None


_Due = tuple[float, Callable[[], Expired | None]]


# Long because every limit of a call is known here and nowhere else; each method notes one fact.
class Watchdog:
    """Watches one call.

    It is notified of everything that restarts a limit, and returns with ``tick`` at most one limit that has passed. No limit
    passes while ``watch`` is paused. If ``tick`` comes late because the machine slept, the limits of the agent start anew.

    Args:
        limits: How long the agent may take for what.
        request: What the agent is asked, with its deadline.
        clock: What time it is.
        look: Measures what the tree of a process has done since the last call. Without it, a silent agent counts as idle.
    """

    def __init__(
        self,
        limits: Limits,
        request: AgentRequest,
        clock: Clock,
        look: Callable[[int], Activity] | None,
    ) -> None:
        self.watch = Stopwatch(clock)
        now = self.watch.now()
        self._config = limits
        self._request = request
        self._look = look
        self._link: Link | None = None
        self._expected: float | None = None
        self._began = now
        self._deadline = now + request.timeout_s
        self.excused_s = 0.0
        """How much of the waiting for limits of a provider does not count."""
        self._start_by: float | None = None
        """The process has to write its first message; ``None`` once it has."""
        self._last_line = self._last_progress = self._last_look = now
        self._last_active = float("-inf")
        """When the processes were last found active."""
        self._suspicion: _Suspicion | None = None
        """A line may have been the answer: until when another one is waited for."""
        self._grace_by = self._retry_at = now
        self._held: set[str] = set()
        """What the agent waits for that is not its fault."""
        self._own_tools: set[str] = set()
        """Tools of its own that run."""
        self._repeats: tuple[float, str, str] | None = None
        """Since when it does nothing but repeat its requests, and why."""
        self._reminder: tuple[float, Callable[[], None]] | None = None

    @property
    def deadline_in_s(self) -> float:
        """Seconds left until the deadline."""
        return self._deadline - self.watch.now()

    @property
    def took_s(self) -> float:
        """Seconds since the call began, without pauses that are over."""
        return self.watch.real_s() - self._began - self.watch.paused_s

    # What happened.

    def begin(self) -> None:
        """The call begins."""
        self._began = self.watch.now()
        self._deadline = self._began + self._request.timeout_s

    def attached(self, link: Link) -> None:
        """A process is there."""
        self._link = link
        self._start_by = None if link.has_written else self.watch.now() + self._config.start_s

    def attempt_began(self) -> None:
        """An attempt begins; what the agent did before does not count."""
        self._suspicion = None
        self._repeats = None
        self._reminder = None
        self._own_tools.clear()
        self._last_line = self._last_progress = self._last_look = self.watch.now()

    def line_came(self) -> None:
        """The process wrote a line of any kind."""
        self._catch_up()
        self._last_line = self.watch.now()

    def message_came(self) -> None:
        """The process wrote a message."""
        self._start_by = None

    def progress(self) -> None:
        """The agent does something for this call."""
        self._repeats = None
        self._last_progress = self.watch.now()

    def hold(self, what: str) -> None:
        """The agent waits for a tool of ours, or for a person: no limit passes meanwhile."""
        self._held.add(what)
        self.watch.pause()

    def release(self, what: str) -> None:
        """It waits for that no longer: it was waiting, not silent."""
        self._held.discard(what)
        if not self._held:
            self.watch.resume()
        self._last_progress = self._last_line = self.watch.now()

    def end_hold(self) -> None:
        """Whatever it waited for, the limits count again."""
        self._held.clear()
        self.watch.resume()

    def own_tool_began(self, call_id: str) -> None:
        """The agent uses a tool of its own."""
        self._own_tools.add(call_id)

    def own_tool_ended(self, call_id: str) -> None:
        """It has ended."""
        self._own_tools.discard(call_id)

    def repeats(self, code: str, problem: str) -> None:
        """The agent repeats a request of its own: a sign of life, and no progress."""
        since = self.watch.now() if self._repeats is None else self._repeats[0]
        self._repeats = (since, code, problem)

    def remind(self, after_s: float, call: Callable[[], None]) -> None:
        """Call back during this attempt, once; the last reminder counts."""
        self._reminder = (self.watch.now() + after_s, call)

    def suspect(self, grace_s: float, case: str, detail: str) -> None:
        """A line that cannot be used may have been the answer; the first suspicion counts."""
        if self._suspicion is None:
            self._suspicion = _Suspicion(self.watch.now() + grace_s, grace_s, case, detail)

    def trust(self) -> None:
        """There is nothing suspicious any longer."""
        self._suspicion = None

    def cancel_sent(self) -> None:
        """The agent has to answer a cancel."""
        self._grace_by = self.watch.now() + self._config.cancel_grace_s

    def retry_in(self, wait_s: float, *, excused: bool = False) -> None:
        """The next attempt begins after a while; ``excused``: no limit of the call counts that."""
        self._retry_at = self.watch.now() + wait_s
        if excused:
            self._deadline += wait_s
            self.excused_s += wait_s

    # Limits.

    def next_due(self, state: State) -> float | None:
        """When the next limit passes, in seconds of the monotonic clock."""
        if self.watch.is_paused:
            return None
        dues = [due for due, _ in self._limits(state)]
        return min(dues) + self.watch.paused_s if dues else None

    def expect(self, state: State) -> None:
        """The caller now waits for the next limit."""
        self._expected = self.next_due(state)

    def tick(self, state: State) -> Expired | None:
        """Time has passed: the earliest limit that has passed with it."""
        if self.watch.is_paused:
            return None
        self._catch_up()
        now = self.watch.now()
        due, expire = min(self._limits(state), key=lambda limit: limit[0], default=(float("inf"), None))
        return expire() if expire is not None and due <= now else None

    def is_active(self) -> bool:
        """Whether the agent's processes did anything since the last look.

        An agent that sends heartbeats uses a little for them, and reports its progress itself.
        """
        if self._look is None or self._link is None:
            return False
        activity = self._look(self._link.pid)
        return activity == "much" or (activity == "some" and not self._link.beats)

    def _limits(self, state: State) -> list[_Due]:
        match state:
            case "running":
                return [*self._call_limits(), *self._attempt_limits()]
            case "cancelling":
                return [(self._grace_by, lambda: Expired("grace"))]
            case "waiting":
                return [(self._retry_at, lambda: Expired("retry")), *self._call_limits()]
            case "starting":
                return self._call_limits()
            case _:
                return []

    def _call_limits(self) -> list[_Due]:
        limits: list[_Due] = [(self._deadline, lambda: Expired("deadline"))]
        wall_s = self._request.budget.wall_s
        if wall_s is not None:
            problem = f"it took {wall_s:g} s, all that was reserved"
            limits.append((self._began + self.excused_s + wall_s, lambda: Expired("wall", problem=problem)))
        return limits

    def _attempt_limits(self) -> list[_Due]:
        config = self._config
        limits: list[_Due] = []
        if self._start_by is not None:
            limits.append((self._start_by, self._check_start))
        if self._link is not None and self._link.beats and config.heartbeat_s:
            silence = config.heartbeat_s * config.missed_heartbeats
            lost = Expired("attempt", "heartbeat_lost", f"no output for {silence:g} s")
            limits.append((self._last_line + silence, lambda: lost))
        repeats = self._repeats if config.retry_s else None
        stall_s = config.tool_s if self._own_tools and config.tool_s else config.stall_s
        if (
            stall_s and repeats is None
        ):  # an agent that repeats its requests is given up for the reason of its repeats
            stalled = Expired("attempt", "stalled", f"it made no progress for {stall_s:g} s")
            limits.append((self._last_progress + stall_s, lambda: stalled))
            if self._look is not None:
                limits.append((self._last_look + min(LOOK_S, stall_s / 4), self._look_again))
        if repeats is not None:
            since, code, problem = repeats
            limits.append((since + config.retry_s, lambda: Expired("attempt", code, problem)))
        if self._reminder is not None:
            limits.append((self._reminder[0], self._call_back))
        if self._suspicion is not None:
            due, _, case, detail = self._suspicion
            unusable = f"a line that may have been the answer cannot be used: {detail}"
            limits.append((due, lambda: Expired("attempt", case, unusable)))
        return limits

    def _call_back(self) -> None:
        reminder, self._reminder = self._reminder, None
        if reminder is not None:
            reminder[1]()

    def _look_again(self) -> None:
        """An agent that is active is not stalled, although it is silent."""
        self._last_look = self.watch.now()
        if self.is_active():
            self._last_progress = self._last_active = self._last_look

    def _check_start(self) -> Expired | None:
        idle_s = self.watch.now() - self._last_active
        if self._look is not None and idle_s <= LOOK_S + 1.0:
            # It is active, and the protocol does not require an introduction.
            self._start_by = self.watch.now() + LOOK_S
            return None
        return Expired("attempt", "start_timeout", f"it wrote nothing within {self._config.start_s:g} s")

    def _catch_up(self) -> None:
        """If we are late ourselves, the limits of the agent start anew and the deadline moves."""
        expected, self._expected = self._expected, None
        late_s = 0.0 if expected is None else self.watch.real_s() - expected
        if late_s <= LATE_S:
            return
        now = self.watch.now()
        self._deadline += late_s
        self._grace_by += late_s
        self._last_line = self._last_progress = self._last_look = now
        if self._start_by is not None:
            self._start_by = now + self._config.start_s
        if self._suspicion is not None:
            self._suspicion = self._suspicion._replace(due=now + self._suspicion.grace_s)
