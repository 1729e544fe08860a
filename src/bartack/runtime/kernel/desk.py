"""What the desks of the hub share: the ledger, the clockwork, the limits, and a few things every step needs."""

from __future__ import annotations

import sys
from typing import TypeVar

import msgspec

from bartack.config.sections import Bounds, QuestionsConfig, WorkersConfig
from bartack.config.timeouts import Timeouts
from bartack.core import SecretRule
from bartack.errors import BartackError, FrameError
from bartack.messaging import LetterPolicy
from bartack.runtime.kernel.run_events import RunHerald
from bartack.runtime.kernel.timers import Clockwork
from bartack.runtime.kernel.turn import Ledger, Peer, describe
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.entries import StepFailed, StepFinished, StepStarted
from bartack.runtime.state.units import NONE, Caps, Units
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, Worker

A = TypeVar("A")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was told about itself."""

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


class Office:
    """Shared by all desks."""

    def __init__(self, ledger: Ledger, clockwork: Clockwork, timeouts: Timeouts, settings: Settings) -> None:
        self.ledger = ledger
        self.state = ledger.state
        self.clockwork = clockwork
        self.timeouts = timeouts
        self.settings = settings

    @property
    def herald(self) -> RunHerald | None:
        """Tells telemetry of the run, if there is any."""
        return None if self.ledger.herald is None else self.ledger.herald.run

    def now_us(self) -> int:
        """The clock on the wall."""
        return self.ledger.clock.now_us()

    def finish(self, worker: Worker, step: f.Step, value: object) -> None:
        """The outcome of a step that was done at once."""
        self.finish_raw(worker, step, self.ledger.pack(value))

    def finish_raw(self, worker: Worker, step: f.Step, value: Value) -> None:
        """The outcome of a step that was done at once, encoded already."""
        data = StepFinished(
            p=step.p, n=step.n, step=step.step, fp=step.fp, about=step.about, cleanup=step.cleanup
        )
        self.ledger.finish(worker, data, value)

    def fail(self, worker: Worker, step: f.Step, error: BartackError) -> None:
        """A step failed at once."""
        self.ledger.fail(
            worker,
            StepFailed(
                p=step.p,
                n=step.n,
                step=step.step,
                fp=step.fp,
                about=step.about,
                error=describe(error, worker.path),
                cleanup=step.cleanup,
            ),
        )

    def open(
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
        ride: bool = True,
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
        )
        return self.ledger.open_step(data, asked, ride=ride)

    def await_step(self, peer: Peer, step: f.Step) -> None:
        """The peer waits for the outcome of this step."""
        peer.awaited[step.p, step.n] = step.i

    def is_open(self, worker: Worker, step: OpenStep) -> bool:
        """Whether a step is still to have its outcome: an abort by the failure of the session is none."""
        alive = self.state.failure is None or step.cleanup
        return alive and worker.open.get((step.p, step.n)) is step

    def is_unseen(self, worker: Worker) -> bool:
        """Whether the session failed and a worker knows it: its program will not see an outcome that arrives now."""
        peer = self.ledger.by_worker.get(worker.path)
        return self.state.failure is not None and (peer is None or peer.told_failure)

    def left_s(self, step: OpenStep) -> float | None:
        """Seconds that are left of a step's time: only the time counts in which a hub was alive."""
        return None if step.timeout_s is None else max(step.timeout_s - self.waited_s(step), 0.0)

    def waited_s(self, step: OpenStep) -> float:
        """Seconds since a step began in which a hub was alive."""
        dead_since = self.state.dead_us - step.dead_us
        return max(self.now_us() - step.at - dead_since, 0) / 1e6

    def decode(self, raw: msgspec.Raw, type_: type[A]) -> A:
        """The arguments of a request."""
        try:
            return msgspec.json.decode(raw, type=type_)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FrameError(str(error)) from None
