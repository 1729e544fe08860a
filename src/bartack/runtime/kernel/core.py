"""The core of the hub: frames and events in, entries and actions out. It neither waits nor touches a socket, a file or a process.

One turn: hand in what arrived (``frame``, ``lost``, ``shell_ended``, ``process_gone``, ``tick`` …), commit the journal if the
ledger ``must_sync``, then perform what its ``committed`` returns. Read ``turn.py`` for how a turn is written, ``workers.py``
for workers and failure, ``kernel/mail/enqueue.py`` for messages, ``effects.py`` for commands, prompts and timers,
``questions.py`` for questions, ``foreign.py`` for processes outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bartack.config.timeouts import Timeouts
from bartack.core import Clock
from bartack.errors import (
    AgentError,
    BartackError,
    InternalError,
    JournalClosedError,
    JournalPoisonedError,
    OutcomeUnknownError,
    ReplayMismatchError,
    ResumeRefusedError,
    RunDiskError,
    SessionFailedError,
    StepCancelledError,
    SupervisorExhaustedError,
    UnknownRequestError,
)
from bartack.journal import Journal
from bartack.runtime.kernel.actions import CloseConnection, EndHub, ReadScoreboard, Show, Transition
from bartack.runtime.kernel.desk import Desk, Settings, Shared
from bartack.runtime.kernel.effects import EffectDesk, ShellEnd
from bartack.runtime.kernel.foreign import ForeignDesk
from bartack.runtime.kernel.links import LinkDesk
from bartack.runtime.kernel.mail.mailroom import Mailroom
from bartack.runtime.kernel.mail_events import EventEmitter
from bartack.runtime.kernel.monitors import MonitorDesk
from bartack.runtime.kernel.outcome import StepRef, describe, step_failed, step_finished
from bartack.runtime.kernel.questions import QuestionDesk
from bartack.runtime.kernel.timers import Timers
from bartack.runtime.kernel.tools import TalkFails, TalkWaits, ToolCall
from bartack.runtime.kernel.turn import Peer, Turn
from bartack.runtime.kernel.workers import NOTHING_KNOWN, ProcessEnd, Workers
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.steps import CLEANUP, in_words
from bartack.runtime.state import entries as e
from bartack.runtime.state.blame import TIDYING
from bartack.runtime.state.entries import SUPERVISOR
from bartack.runtime.state.links import Abort
from bartack.runtime.state.run_state import State
from bartack.runtime.state.status import moving
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, UnknownDecision, Value, Worker
from bartack.telemetry import NO_TELEMETRY, Telemetry

Handler = Callable[[Peer, Worker, f.Step], None]

HEARTBEAT_LIMIT_US: Final = 30_000_000
"""Whoever runs a run leaves a sign of life more often than this."""

CLOCK_SET_US: Final = 500_000
"""A clock on the wall that is off by this much was set, or stood still with the machine; less is its usual correction."""

_OF_A_BRANCH: Final = (f.Done, f.Step, f.Note, f.Begin, f.Out, f.Cancel, f.Returned)
"""Frames that are about one branch of a worker. (The first that fits ends the look, so the most frequent come first.)"""
_OF_A_STEP: Final = (f.Done, f.Step, f.Begin)
_WITH_ERROR: Final = (f.Done, f.Failed)


class Core(Desk):
    """Decides everything a run does."""

    def __init__(
        self,
        state: State,
        journal: Journal,
        clock: Clock,
        timeouts: Timeouts,
        settings: Settings | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        turn = Turn(state, journal, clock)
        if telemetry is not NO_TELEMETRY:
            turn.emitter = EventEmitter(telemetry, state, clock)
        shared = Shared(turn, Timers(clock), timeouts, settings or Settings())
        super().__init__(shared)
        self._alive_until = 0
        """Until when the hub before this one is known to have lived: microseconds since 1970, UTC."""
        self._wall_offset_us = self._read_wall_offset_us()
        """How far the clock on the wall is ahead of the one that only goes forward."""
        self.workers = Workers(shared)
        self.effects = EffectDesk(shared, self.workers.restart)
        self.mail = Mailroom(shared)
        self.letters = self.mail.letters
        self.delivery = self.mail.delivery
        self._mail_handlers = self.mail.handlers()
        self.monitors = MonitorDesk(shared, self.mail.enqueue)
        self.links = LinkDesk(shared, self.mail.enqueue, self._abort)
        self.questions = QuestionDesk(shared)
        self.foreign = ForeignDesk(shared, self.workers, self.mail, self.questions)
        self.workers.aborting = self._abort_all
        self.workers.forgotten = self._process_ended
        self.workers.died = self.effects.forget_process
        self.workers.gave_up = self._drop
        self.workers.abort = self._abort
        self._handlers = self._table()
        self._hear: dict[type[f.ToHub], Callable[..., None]] = {
            f.Done: self.effects.done,
            f.Step: self._step,
            f.Note: self.effects.note,
            f.Begin: self.effects.begin,
            f.Returned: self.effects.tools.returned,
            f.Out: self.effects.out,
            f.Cancel: self._cancel,
            f.Result: self.workers.result,
            f.Failed: self.workers.failed,
            f.Slow: self.workers.slow,
            f.Ask: self._hang,
            f.Hello: self._hang,
        }

    def _table(self) -> Mapping[str, Handler]:
        """Who does which kind of step."""
        return {
            "shell": self.effects.shell,
            "think": self.effects.think,
            "budget": self.effects.budget,
            "sleep": self.effects.sleep,
            "left": self.effects.left,
            "ask": self.questions.ask,
            "delegate": self.workers.delegate,
            "spawn": self.workers.spawn,
            "join": self.workers.join,
            "stop": self.workers.stop,
            "restart": self.workers.begin_anew,
            **{kind: handler.start for kind, handler in self._mail_handlers.items()},
            "monitor": self.monitors.monitor,
            "demonitor": self.monitors.demonitor,
            "down": self.monitors.down,
            "link": self.links.link,
            "unlink": self.links.unlink,
            "trap": self.links.trap,
            "fail": self._fail,
        }

    @property
    def default_agent(self) -> str:
        """The agent that is asked when none is named."""
        return self.settings.agent

    # Life of the hub.

    def start(self, dead_us: int = 0, unknown: UnknownDecision | None = None) -> None:
        """The run begins or goes on: failed workers are set back to their failing step, and everybody starts.

        Args:
            dead_us: How long nobody ran it, by the clock on the wall: less than nothing if that was set back meanwhile.
            unknown: What to do with a step whose outcome is not known.
        """
        self._alive_until = max(self.state.last_at, self.now_us() - dead_us)
        self._wall_offset_us = self._read_wall_offset_us()
        failed = [w for w in self.state.workers.values() if w.status == "failed" and not w.error_is_final]
        adopted = sum(len(worker.adopted) for worker in self.state.workers.values())
        started = e.HubStarted(hub=self.state.hub + 1, dead_us=dead_us, adopted=adopted)
        items: list[tuple[e.EntryData, Value]] = [(moving(self.state, started), NO_VALUE)]
        for worker in failed:
            items += _rewind(worker, unknown)
        self.turn.record(*items)
        self.turn.after_commit(Transition())
        if adopted:
            self.turn.after_commit(Show("note", "", _adoption(adopted)))
        self._check_pause()
        for desk in self.mail.desks():
            desk.resumed()
        self.monitors.arm_all()
        self.links.arm_all()
        self.workers.start_all()

    def stop(self, reason: str) -> None:
        """The hub stops in order; the run stays resumable."""
        if self.state.ended is None:
            self.turn.record((moving(self.state, e.HubStopped(reason=reason)), NO_VALUE))
            self.turn.after_commit(Transition())

    @property
    def unsettled(self) -> bool:
        """Whether this turn has left anything to write, to do or to make durable."""
        return self.turn.must_sync or bool(self.turn.at_once or self.effects.begun)

    def settle(self) -> None:
        """The turn is over: write what only had to be written if nothing more came of it."""
        if self.state.prompts_over:
            self.monitors.look()
        if self.effects.begun:
            self.effects.settle()

    def check_clock(self) -> None:
        """Note that the clock on the wall was set, or that the machine was asleep: that is not time that anybody waited.

        Called before anything of a turn is written, so that no entry is dated by a clock that is not accounted for.
        """
        offset_us = self._read_wall_offset_us()
        by_us = offset_us - self._wall_offset_us
        if not -CLOCK_SET_US < by_us < CLOCK_SET_US:
            self._wall_offset_us = offset_us
            self.turn.record((e.ClockSet(by_us=by_us), NO_VALUE), sync=False)

    def _read_wall_offset_us(self) -> int:
        clock = self.turn.clock
        return clock.now_us() - clock.monotonic_ns() // 1000

    def tick(self) -> None:
        """Time has passed."""
        self.timers.tick()
        if self.turn.emitter is not None:
            self.turn.emitter.run.look(self.now_us())

    # What arrives.

    def connect(self, number: int, hello: f.Hello, peer: Peer | None = None) -> Peer | None:
        """Somebody said hello: a worker, or a foreign process whose rights the driver has looked up."""
        if hello.role == "worker":
            return self.workers.hello(number, hello)
        return self.foreign.join(peer) if peer is not None else None

    def frame(self, number: int, frame: f.ToHub) -> None:
        """A peer said something. What is wrong with it concerns that peer, or fails the session; it never ends the hub."""
        peer = self.turn.peers.get(number)
        if peer is None:
            return
        try:
            self._take(peer, frame)
        except (JournalPoisonedError, JournalClosedError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary between one process and the hub: it is reported as its failure
            self._refuse(peer, frame, error)

    def _refuse(self, peer: Peer, frame: f.ToHub, error: Exception) -> None:
        """A peer said something that no handler can take, most likely because its memory is spoilt."""
        known = (
            error if isinstance(error, BartackError) else InternalError(f"{type(error).__name__}: {error}")
        )
        worker = peer.worker
        if worker is not None:
            self.workers.fail_session(worker, describe(known, worker.path), None)
        elif isinstance(frame, f.Ask):
            self.turn.send(peer, f.Refusal(i=frame.i, e=describe(known)))

    def _take(self, peer: Peer, frame: f.ToHub) -> None:
        worker = peer.worker
        if worker is None:
            if isinstance(frame, f.Ask):
                self.foreign.ask(peer, frame)
            return
        if peer.replaying and not isinstance(frame, f.Slow):
            peer.replaying = False
            self.workers.absent.pop(worker.path, None)
            if worker.history:
                self._check_pause()
        if isinstance(frame, _OF_A_BRANCH):
            if frame.p != worker.path and self.state.worker_of(frame.p) is not worker:
                # Whoever speaks for somebody else has lost his way.
                self.turn.after_commit(CloseConnection(peer.number))
                return
            if peer.told and isinstance(frame, _OF_A_STEP) and (frame.p, frame.n) in peer.told:
                return  # it was told the outcome while it said this
        if worker.returning and isinstance(frame, _OF_A_STEP) and frame.step not in TIDYING:
            self.mail.held.return_caught(worker, frame.p)
        if isinstance(frame, _WITH_ERROR) and frame.e is not None and frame.e.code == RunDiskError.code:
            # No outcome of the step: it is executed when there is room again.
            self._interrupt(worker, frame.e.message)
        else:
            self._hear[type(frame)](peer, worker, frame)

    def lost(self, number: int) -> None:
        """The connection of a peer is gone. A worker's end is told by its process, not by its socket."""
        peer = self.turn.peers.get(number)
        if peer is None:
            return
        peer.awaited.clear()
        if peer.worker is None:
            del self.turn.peers[number]
            for desk in self.mail.desks():
                desk.peer_gone(peer)
            self.monitors.look()
        else:
            self._process_ended(peer.worker.path)
            self.workers.expect_end(peer.worker, peer.incarnation)

    def process_gone(
        self,
        path: str,
        incarnation: int,
        reason: str,
        *,
        counted: bool = True,
        busy: Sequence[f.Begin] = (),
        end: ProcessEnd = NOTHING_KNOWN,
    ) -> None:
        """The process of a worker is gone, with its whole tree; ``busy``: the bodies it was in and had not told of."""
        self.effects.settle()  # a body may begin and take its process along in the same turn
        if busy and path in self.state.workers and self.workers.is_crash(path, incarnation):
            for begin in busy:
                self.effects.was_busy(self.state.workers[path], begin)
        self.workers.process_gone(path, incarnation, reason, counted=counted, end=end)
        self._check_pause()

    def trace_of_worker(self, path: str) -> str:
        """Where in its trace a worker is; empty if nobody traces the run."""
        emitter = self.turn.emitter
        return "" if emitter is None else emitter.run.trace_of_worker(self.state.workers[path])

    def left_behind(self, path: str, leftovers: list[str], survivors: list[str]) -> None:
        """A process of a worker, or one of its commands, ended and left others behind: ended by now, or not to be ended."""
        if leftovers:
            text = f"left {', '.join(leftovers)} running, which was ended"
            self.turn.after_commit(Show("note", path, text))
        if survivors:
            self.turn.after_commit(Show("note", path, f"{', '.join(survivors)} cannot be ended"))
        if self.turn.emitter is not None:
            self.turn.emitter.run.left_behind(path, leftovers, survivors)

    def parent_died(self, parent: str, deaths: int, limit: tuple[int, float], *, restarted: bool) -> None:
        """A parent program died, for the so many-th time lately, and is started again unless that is too often."""
        emitter = self.turn.emitter
        if restarted:
            if emitter is not None:
                emitter.run.restarted(parent, deaths, "lost", deaths + 1, 0)
            return
        if emitter is not None:
            emitter.run.escalated(parent, deaths, "lost")
        error = SupervisorExhaustedError(SUPERVISOR, parent, "lost", *limit)
        self.workers.fail_session(None, describe(error), None)

    def shell_ended(self, token: int, end: ShellEnd) -> None:
        """Commands are over."""
        self.effects.shell_ended(token, end)

    def shell_lost(self, token: int) -> None:
        """Commands died with the program that kept them: they are run again, under the same key."""
        self.effects.shell_lost(token)

    def shell_too_large(self, token: int) -> None:
        """Commands write more than anybody could read."""
        self.effects.shell_too_large(token)

    def prompt_ended(self, token: int, outcome: s.ThinkOutcome | AgentError) -> None:
        """An agent replied, or could not."""
        self.effects.prompt_ended(token, outcome)

    def prompt_waits(self, token: int, wait: TalkWaits) -> None:
        """An agent may not be asked before a moment on the wall."""
        self.effects.prompt_waits(token, wait)

    def attempt_failed(self, token: int, failed: TalkFails) -> None:
        """An attempt of an agent came to nothing."""
        self.effects.attempt_failed(token, failed)

    def tool_called(self, token: int, call: ToolCall) -> None:
        """The agent of a prompt calls a tool; ``AnswerCall`` tells what became of it."""
        self.effects.tool_called(token, call)

    # Inside.

    def _interrupt(self, worker: Worker, problem: str) -> None:
        """The disk takes no more: the hub ends, and the run stays resumable."""
        self.turn.after_commit(Show("note", worker.path, problem))
        self.stop("disk")
        self.turn.after_commit(EndHub("disk"))

    def _step(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        peer.awaited[step.p, step.n] = step.i
        known = worker.open.get((step.p, step.n))
        try:
            if self._is_refused(peer, worker, step, known):
                return
            if known is not None:
                self._again(peer, worker, step, known)
            elif step.cancelled or (worker.abort_next is not None and self._is_aborted(worker, step)):
                abort = worker.abort_next or Abort("cancelled")
                self.fail_step(worker, step, abort.error())
            elif worker.doubted.get((step.p, step.n)) == step.fp:
                self.fail_step(worker, step, OutcomeUnknownError(f"{step.p}:{step.n}", step.about))
            else:
                self._handler(step.step)(peer, worker, step)
        except BartackError as error:
            self.fail_step(worker, step, error)

    def _is_aborted(self, worker: Worker, step: f.Step) -> bool:
        """Whether this is the step that an abort waits for. Who is on its way out because of a link may tidy up first."""
        return not (worker.leaving and step.step in CLEANUP)

    def _handler(self, kind: str) -> Handler:
        handler = self._handlers.get(kind)
        if handler is None:
            raise UnknownRequestError(kind)
        return handler

    def _is_refused(self, peer: Peer, worker: Worker, step: f.Step, known: OpenStep | None) -> bool:
        """After a failure only clean-up works. A refusal is not an outcome: nothing is written.

        A step that its worker asked for before it had learned of the failure is not clean-up, whatever its kind: it does not begin.
        Its worker learns of the failure instead of an outcome, as soon as it is told.
        """
        if self.state.failure is None:
            return False
        if step.cleanup and step.step in CLEANUP and (known is None or known.cleanup):
            return False
        if known is not None and known.step == "delegate":
            # It learns of the failure like every worker that delegates: when nothing of its workers is left.
            self.workers.settle_failure()
            return True
        if peer.knows_failure:
            del peer.awaited[step.p, step.n]
            self.turn.send(peer, f.Refusal(i=step.i, e=self.workers.failure_for(worker.path)))
        return True

    def _again(self, peer: Peer, worker: Worker, step: f.Step, known: OpenStep) -> None:
        """A restarted worker asks for a step that is under way already, or was when the hub before this one died."""
        if (known.step, known.fp) != (step.step, step.fp):
            recorded, asked = in_words(known.step, known.about), in_words(step.step, step.about)
            mismatch = ReplayMismatchError(worker.path, f"{step.p}:{step.n}", recorded, asked)
            self.workers.fail_session(worker, describe(mismatch, worker.path), None)
        elif known.abort is not None or step.cancelled:
            self._give_up(worker, known, (known.abort or Abort("cancelled")).error())
        elif not self.effects.attach(worker, known):
            self._take_up(peer, worker, step, known)

    def _take_up(self, peer: Peer, worker: Worker, step: f.Step, known: OpenStep) -> None:
        unsent = self._is_unsent(known)
        match known.step:
            case "shell" | "think" if known.once and not unsent:
                self.turn.fail_open(worker, known, OutcomeUnknownError(f"{known.p}:{known.n}", known.about))
            case "shell":
                self.effects.shell(peer, worker, step, known.attempt + 1)
            case "think":
                self.effects.think(peer, worker, step, known.attempt + (0 if known.between or unsent else 1))
            case "sleep":
                self.effects.watch_sleep(worker, step, known)
            case "ask":
                self.questions.watch(worker, known)
            case kind if kind in self._mail_handlers:
                self._mail_handlers[kind].resume(peer, worker, step, known)
            case "delegate":
                self.workers.resume_delegate(worker, known)
            case _:
                self._handler(step.step)(peer, worker, step)

    def _is_unsent(self, known: OpenStep) -> bool:
        """Whether the hub before this one died while it waited for the moment at which an agent may be asked."""
        return known.step == "think" and known.due > self._alive_until + HEARTBEAT_LIMIT_US

    def _hang(self, peer: Peer, worker: Worker, frame: f.Ask | f.Hello) -> None:
        """Nothing that a worker says."""
        self.turn.with_next_commit(CloseConnection(peer.number))

    def _cancel(self, peer: Peer, worker: Worker, frame: f.Cancel) -> None:
        self.effects.settle()  # a body may begin and be given up in the same turn
        opened = worker.open.get((frame.p, frame.n))
        reason = frame.reason or "cancelled"
        if self.state.failure is not None and (opened is None or not opened.cleanup):
            if opened is not None and frame.unbegun and (frame.p, frame.n) in peer.begun:
                self.effects.not_begun(worker, opened, self.workers.failure_for(worker.path))
            return  # the failure ends every wait, and is no outcome
        if opened is not None:
            self._give_up(worker, opened, StepCancelledError(reason))

    def _give_up(self, worker: Worker, opened: OpenStep, error: BartackError) -> None:
        if opened.step == "delegate":
            self.workers.give_up(worker, opened, error)
        elif opened.step in self._mail_handlers:
            self._mail_handlers[opened.step].cancel(worker, opened, error)
        else:
            self.effects.cancel(worker, opened, error)

    def _abort(self, worker: Worker) -> None:
        """A worker is interrupted, wherever the state says so."""
        for opened in worker.waits():
            # What ends with one step may have aborted this worker again, and the other steps with it.
            if opened.abort is not None and self.is_open(worker, opened):
                self._give_up(worker, opened, opened.abort.error())
        if worker.abort_next is not None:
            self.turn.after_commit(ReadScoreboard(worker.path))  # it may be in a body, and is to leave that

    def _drop(self, worker: Worker) -> None:
        """A worker has ended for good."""
        self.effects.drop(worker)
        for desk in self.mail.desks():
            desk.worker_ended(worker)
        self.monitors.ended(worker, self.workers.alive.get(worker.path, 0))
        self.monitors.look()
        self.links.ended(worker)

    def _abort_all(self) -> None:
        """The session failed: nothing that is under way goes on, except clean-up."""
        failure = self.state.failure
        assert failure is not None
        name = failure.error.type.rpartition(":")[2]
        error = SessionFailedError(failure.worker, name, failure.error.message)
        for desk in self.mail.desks():
            desk.session_failed(error)
        self.effects.abort_all()

    def _fail(self, peer: Peer, worker: Worker, step: f.Step) -> None:
        """A worker fails the session on purpose. The step is never answered; the worker learns it like everybody."""
        args = self.decode(step.a, s.FailArgs)
        error = f.ErrorData(
            type="bartack.errors:SessionFailedError",
            message=args.message,
            code=SessionFailedError.code,
            facts={"worker": worker.path, "error": "failed on purpose", "problem": args.message, **args.data},
            worker=worker.path,
        )
        del peer.awaited[step.p, step.n]
        if args.final:
            self.workers.cancel_run(args.message, aborted=True)
        else:
            self.workers.fail_session(None, error, None)

    def _check_pause(self) -> None:
        """Deadlines stand still while anybody replays."""
        if any(worker.history for worker in self.workers.absent.values()):
            self.timers.pause()
        else:
            self.timers.go_on()

    def _process_ended(self, path: str) -> None:
        """The process of a worker has ended: its steps wait for no message."""
        for desk in self.mail.desks():
            desk.process_ended(self.state.workers[path])


def _adoption(count: int) -> str:
    """What people are told of outcomes that an earlier version would have thrown away."""
    steps = "1 step that" if count == 1 else f"{count} steps that"
    return (
        f"{steps} began before the failure and finished after it: kept and not executed again"
        " (an earlier version marked the outcome as clean-up)"
    )


def check_decided(run_id: str, state: State, unknown: UnknownDecision | None) -> None:
    """Raise if a run failed by a step of which nobody knows whether it happened, and nobody has decided what to do."""
    undecided = [worker.path for worker in state.workers.values() if worker.in_doubt]
    if undecided and unknown is None:
        reason = f"nobody knows whether the last step of {undecided[0]} happened; decide with --unknown"
        raise ResumeRefusedError(run_id, reason)


def _rewind(worker: Worker, unknown: UnknownDecision | None) -> list[tuple[e.EntryData, Value]]:
    """The entries that set a failed worker back to its failing step."""
    if worker.in_doubt and unknown is not None and unknown.choice == "fail":
        return [(e.WorkerRewound(path=worker.path, to=0), NO_VALUE)]
    items: list[tuple[e.EntryData, Value]] = [
        (e.WorkerRewound(path=worker.path, to=worker.origin_seq), NO_VALUE)
    ]
    decided = worker.in_doubt and unknown is not None and unknown.choice == "done"
    if decided and unknown is not None and worker.origin is not None and worker.origin_seq:
        p, n = worker.origin
        kind, fp, *_ = worker.origin_facts
        done = step_finished(StepRef(p, n, kind, fp), by="decision")
        items.append((done, unknown.value))
    for (p, n), cut in worker.blame.doubts(worker.origin, worker.origin_seq) if worker.origin else ():
        # It must not be done a second time just because something beside it failed.
        error = OutcomeUnknownError(f"{p}:{n}", cut.step)
        items.append((step_failed(StepRef(p, n, cut.step, cut.fp), error, worker.path), NO_VALUE))
    return items
