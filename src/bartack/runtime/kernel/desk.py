"""The base class of desks: the turn, the timers, the limits, and what every step needs."""

from __future__ import annotations

import sys
from typing import NamedTuple, TypeVar

import msgspec

from bartack.config.sections import Bounds, QuestionsConfig, WorkersConfig
from bartack.config.timeouts import Timeouts
from bartack.core import typed
from bartack.core.redact import Redactor, SecretRule
from bartack.errors import BartackError, FrameError, SessionFailedError
from bartack.messaging import LetterPolicy
from bartack.runtime.kernel.outcome import step_failed, step_finished
from bartack.runtime.kernel.timers import Timers
from bartack.runtime.kernel.turn import Peer, Turn
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.entries import StepStarted
from bartack.runtime.state.units import NONE, Caps, Units
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, WorkerState

A = TypeVar("A")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run, as far as they concern its decisions."""

    no_input: bool = False
    max_usd: float | None = None
    reserve_usd: float = 2.0
    min_reserve_usd: float = 0.05
    caps: Caps = Caps()
    """What the run may use beside money."""
    agent: str = ""
    letters: LetterPolicy = LetterPolicy()
    mailboxes: dict[str, Bounds] = {}
    questions: QuestionsConfig = QuestionsConfig()
    prompt_limits: dict[str, float] = {}
    """How long a prompt may take, by agent, where the settings of one say."""
    workers: WorkersConfig = WorkersConfig()
    workers_room: int = sys.maxsize
    """How many workers at a time the limit of open files lets the hub have."""
    secrets: SecretRule = SecretRule()
    """Which variables are secrets, where an output is kept without them."""
    environ: dict[str, str] = {}
    """The environment that commands inherit: the values of its secrets are hidden in such an output."""

    def redactor(self) -> Redactor:
        """Takes these secrets out of texts for people."""
        return Redactor(self.environ, self.secrets)


class Shared(NamedTuple):
    """What all desks of one hub use."""

    turn: Turn
    timers: Timers
    timeouts: Timeouts
    settings: Settings


class Desk:
    """One part of the hub's decisions: it handles some kinds of steps and requests, and keeps what only it needs to know.

    A desk writes entries and asks for actions by ``self.turn``, and reads ``self.state``, which only entries change.
    """

    def __init__(self, shared: Shared) -> None:
        self.turn, self.timers, self.timeouts, self.settings = shared
        self.state = shared.turn.state
        self._clock = shared.turn.clock
        emitter = shared.turn.emitter
        self.run_events = None if emitter is None else emitter.run
        """Emits telemetry of the run, if it is enabled."""

    # The life of a run. ``core.py`` writes down the order in which desks learn it; see ``Desks``.

    def resumed(self) -> None:
        """The hub starts: continue what was open when the previous one died."""

    def session_failed(self, error: SessionFailedError) -> None:
        """The session failed: stop what is under way, except clean-up."""

    def worker_aborted(self, worker: WorkerState) -> None:
        """An entry has marked steps of a worker to be cancelled, by a link or by another worker: cancel them."""

    def worker_ended(self, worker: WorkerState) -> None:
        """A worker has ended for good: return what it held, stop what was done for it."""

    def process_ended(self, worker: WorkerState) -> None:
        """The process of a worker has ended, or is about to and no longer counts; the worker itself may be restarted."""

    def peer_gone(self, peer: Peer) -> None:
        """A process outside closed its connection."""

    # What every desk needs.

    def now_us(self) -> int:
        """The clock on the wall."""
        return self._clock.now_us()

    def finish_step(self, worker: WorkerState, step: f.Step, value: object) -> None:
        """The outcome of a step that was done at once."""
        self.finish_step_raw(worker, step, self.turn.pack(value))

    def finish_step_raw(self, worker: WorkerState, step: f.Step, value: Value) -> None:
        """The outcome of a step that was done at once, encoded already."""
        data = step_finished(step, about=step.about)
        self.turn.finish(worker, data, value)

    def fail_step(self, worker: WorkerState, step: f.Step, error: BartackError) -> None:
        """A step failed at once."""
        self.turn.fail(
            worker,
            step_failed(step, error, worker.path, about=step.about),
        )

    def open_step(
        self,
        step: f.Step,
        *,
        asked: Value = NO_VALUE,
        timeout_s: float | None = None,
        once: bool = False,
        due: int = 0,
        question: str = "",
        reserved_usd: float = 0.0,
        reserved: Units = NONE,
        attempt: int = 1,
        changes: bool = True,
        sync: bool = False,
    ) -> OpenStep:
        """A step is under way."""
        data = StepStarted(
            p=step.p,
            n=step.n,
            step=step.step,
            fp=step.fp,
            about=step.about,
            attempt=attempt,
            once=once,
            timeout_s=timeout_s,
            due=due,
            question=question,
            reserved_usd=reserved_usd,
            reserved=reserved or None,
            cleanup=step.cleanup,
            site=step.site,
            changes=changes,
        )
        return self.turn.open_step(data, asked, sync=sync)

    def is_open(self, worker: WorkerState, step: OpenStep) -> bool:
        """Whether a step is still to have its outcome: an abort by the failure of the session is none."""
        alive = self.state.failure is None or step.cleanup
        return alive and worker.open.get((step.p, step.n)) is step

    def is_unseen(self, worker: WorkerState) -> bool:
        """Whether the session failed and a worker knows it: its program will not see an outcome that arrives now."""
        peer = self.turn.peer_of(worker.path)
        return self.state.failure is not None and (peer is None or peer.knows_failure)

    def left_s(self, step: OpenStep) -> float | None:
        """Seconds that are left of a step's time: only the time counts in which a hub was alive."""
        return None if step.timeout_s is None else max(step.timeout_s - self.waited_s(step), 0.0)

    def waited_s(self, step: OpenStep) -> float:
        """Seconds since a step began in which a hub was alive, without those in which its agent waited for people or limits."""
        now, dead_us = self.now_us(), self.state.dead_us
        dead_since = dead_us - step.dead_us
        waits_us = step.waits_for_people_us(now, dead_us) + step.waits_for_limits_us(now, dead_us)
        return max(now - step.at - dead_since - waits_us, 0) / 1e6

    def limit(self, kind: str, explicit: float | None) -> tuple[float, str]:
        """How long a wait may take, and where that comes from: the call itself, or else the settings."""
        return self.timeouts.explain(kind) if explicit is None else (explicit, "explicit")

    def decode(self, raw: msgspec.Raw, type_: type[A]) -> A:
        """The arguments of a request."""
        try:
            return typed.decode(raw, type=type_)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FrameError(str(error)) from None


class Desks(Desk):
    """All desks of one hub, as one: what is reported to it is reported to each, in the order in which they were registered.

    It is made before them, so that a desk can be given it in its constructor: the end of a worker, for example, concerns desks that
    need the one which decides it.
    """

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._desks: tuple[Desk, ...] = ()

    def register(self, *desks: Desk) -> None:
        """Report to these from now on."""
        self._desks += desks

    def resumed(self) -> None:
        """See ``Desk.resumed``."""
        for desk in self._desks:
            desk.resumed()

    def session_failed(self, error: SessionFailedError) -> None:
        """See ``Desk.session_failed``."""
        for desk in self._desks:
            desk.session_failed(error)

    def worker_aborted(self, worker: WorkerState) -> None:
        """See ``Desk.worker_aborted``."""
        for desk in self._desks:
            desk.worker_aborted(worker)

    def worker_ended(self, worker: WorkerState) -> None:
        """See ``Desk.worker_ended``."""
        for desk in self._desks:
            desk.worker_ended(worker)

    def process_ended(self, worker: WorkerState) -> None:
        """See ``Desk.process_ended``."""
        for desk in self._desks:
            desk.process_ended(worker)

    def peer_gone(self, peer: Peer) -> None:
        """See ``Desk.peer_gone``."""
        for desk in self._desks:
            desk.peer_gone(peer)
