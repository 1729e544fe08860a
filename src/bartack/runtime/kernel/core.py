"""The core of the hub: frames and events in, entries and actions out. It neither waits nor touches sockets, files or processes.

**One turn.** The driver (``hub/hub.py``, or ``memory/hub.py`` in tests) passes on what has happened since the last turn
(``frame``, ``lost``, ``process_gone``, ``shell_ended``, ``tick`` …), then calls ``settle``, commits the journal if the turn
``must_sync``, and performs the actions that ``Turn.committed`` returns. ``turn.py`` explains why that order loses nothing and
promises nothing too early.

**Who decides what.** The core owns the desks and passes on to them. A frame of a worker goes to the desk that ``_takers`` names;
a step goes through ``step_table.py`` to the handler of its kind; a request of a process outside goes to ``foreign.py``. What
happens to a run as a whole is reported to every desk, in the one order of ``Core.__init__``, by the methods that ``Desk``
lists: ``resumed``, ``session_failed``, ``worker_aborted``, ``worker_ended``, ``process_ended``, ``peer_gone``. A desk that
reports to all others is given ``Desks`` in its constructor. No desk is given a callback afterwards.

**What a misbehaving process can do.** A frame that no handler accepts raises; ``frame`` turns that into the failure of its
worker, or into a refusal for a process outside. Only errors of the journal and of the disk reach the driver, which stops: after
them it is unknown what is durable.

Read next: ``turn.py``, ``step_table.py``, ``failure.py``, ``workers.py``, ``mail/enqueue.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bartack.config.timeouts import Timeouts
from bartack.core.clock import Clock
from bartack.errors import (
    AgentError,
    BartackError,
    InternalError,
    JournalClosedError,
    JournalPoisonedError,
    OutcomeUnknownError,
    ResumeRefusedError,
    RunDiskError,
    StepCancelledError,
    SupervisorExhaustedError,
)
from bartack.journal import Journal
from bartack.runtime.kernel.actions import CloseConnection, EndHub, Show, Transition
from bartack.runtime.kernel.agent_questions import AgentQuestionDesk
from bartack.runtime.kernel.bodies import BodyDesk
from bartack.runtime.kernel.commands import CommandDesk, ShellEnd
from bartack.runtime.kernel.delegates import DelegateDesk, FinalCheck, JoinDesk, WorkerEnds
from bartack.runtime.kernel.desk import Desk, Desks, Settings, Shared
from bartack.runtime.kernel.failure import SessionFailure
from bartack.runtime.kernel.foreign import ForeignDesk
from bartack.runtime.kernel.jobs import Jobs, StepTimers
from bartack.runtime.kernel.links import LinkDesk
from bartack.runtime.kernel.mail.mailroom import MailDesks
from bartack.runtime.kernel.mail_events import EventEmitter
from bartack.runtime.kernel.mail_requests import MailRequests
from bartack.runtime.kernel.monitors import MonitorDesk
from bartack.runtime.kernel.outcome import StepRef, describe, step_failed, step_finished
from bartack.runtime.kernel.processes import ProcessDesk
from bartack.runtime.kernel.prompts import PromptDesk
from bartack.runtime.kernel.questions import QuestionDesk
from bartack.runtime.kernel.requests import RequestDesk
from bartack.runtime.kernel.sleeps import ScopeDesk, SleepDesk
from bartack.runtime.kernel.step_table import Handling, StepTable, handlers
from bartack.runtime.kernel.timers import Timers
from bartack.runtime.kernel.tools import TalkAsks, TalkFails, TalkWaits, TalkWithdraws, ToolCall, ToolDesk
from bartack.runtime.kernel.turn import Peer, Turn
from bartack.runtime.kernel.workers import NOTHING_KNOWN, ProcessEnd, Workers
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.blame import TIDYING
from bartack.runtime.state.entries import SUPERVISOR
from bartack.runtime.state.run_state import State
from bartack.runtime.state.status import moving
from bartack.runtime.state.worker_state import NO_VALUE, UnknownDecision, Value, WorkerState
from bartack.telemetry import NO_TELEMETRY, Telemetry

CLOCK_SET_US: Final = 500_000
"""A clock on the wall that is off by this much was set, or stood still with the machine; less is its usual correction."""

_OF_A_BRANCH: Final = (f.Done, f.Step, f.Note, f.VersionChosen, f.Begin, f.Out, f.Cancel, f.Returned)
"""Frames that are about one branch of a worker. (``isinstance`` stops at the first that fits, so the most frequent come first.)"""
_OF_A_STEP: Final = (f.Done, f.Step, f.Begin)
_WITH_ERROR: Final = (f.Done, f.Failed)


class Core(Desk):
    """Decides everything a run does.

    Args:
        state: What the journal adds up to.
        journal: Where entries are staged.
        clock: The time.
        timeouts: How long waits may take.
        settings: The settings of the run.
        telemetry: Where events are emitted.
        final_check: See ``FinalCheck``.
    """

    # Long because it is the one place that shows which desk is given which others.
    def __init__(
        self,
        state: State,
        journal: Journal,
        clock: Clock,
        timeouts: Timeouts,
        settings: Settings | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        final_check: FinalCheck = list,
    ) -> None:
        emitter = EventEmitter(telemetry, state, clock) if telemetry is not NO_TELEMETRY else None
        turn = Turn(state, journal, clock, emitter)
        shared = Shared(turn, Timers(clock), timeouts, settings or Settings())
        super().__init__(shared)
        self._wall_offset_us = self._read_wall_offset_us()
        """How far the clock on the wall is ahead of the one that only goes forward."""
        self._peers = turn.peers
        self._desks = Desks(shared)
        step_timers = StepTimers()
        tools = ToolDesk(shared)
        self.jobs = Jobs(shared)
        self.commands = CommandDesk(shared, self.jobs)
        self.agent_questions = AgentQuestionDesk(shared)
        self.prompts = PromptDesk(shared, self.jobs, step_timers, tools, self.agent_questions)
        self.processes = ProcessDesk(shared)
        self.failure = SessionFailure(shared, self.processes, self._desks)
        joins = JoinDesk(shared)
        ends = WorkerEnds(shared, self.processes, self.failure, joins, self._desks, final_check)
        self.delegates = DelegateDesk(shared, self.processes, ends, self._desks)
        self.workers = Workers(shared, self.processes, self.failure, ends, self.delegates, self._desks)
        scopes = ScopeDesk(shared, step_timers)
        self.bodies = BodyDesk(shared, step_timers, scopes, self.processes)
        self.requests = RequestDesk(shared)
        self.mail = MailDesks(shared, self.requests)
        self.letters = self.mail.letters
        self.delivery = self.mail.delivery
        self.monitors = MonitorDesk(shared, self.mail.enqueue, self.processes)
        self.links = LinkDesk(shared, self.mail.enqueue, self._desks)
        self.questions = QuestionDesk(shared, self.agent_questions)
        handling = Handling(
            commands=self.commands,
            prompts=self.prompts,
            sleeps=SleepDesk(shared, step_timers),
            scopes=scopes,
            bodies=self.bodies,
            questions=self.questions,
            delegates=self.delegates,
            joins=joins,
            failure=self.failure,
            mail=self.mail,
            monitors=self.monitors,
            links=self.links,
        )
        self.steps = StepTable(shared, handlers(turn, handling), self.failure)
        mail_requests = MailRequests(shared, self.mail, self.requests)
        self.foreign = ForeignDesk(
            shared, self.processes, self.failure, self.questions, mail_requests, self.requests
        )
        # The order in which each of them learns what happens to the run. Messages come first: monitors and links put messages
        # into mailboxes, so what a worker held has to be back, and its inbox closed, before they report its end. Links come after
        # monitors, because they may end further workers, whose ends are reported in turn. Work outside is stopped after all
        # processes that waited are notified, because stopping takes time that they should not wait. Processes are started last,
        # when everything that they may ask for is there again.
        self._mail_desks = self.mail.desks()
        self._held = self.mail.held
        self._desks.register(
            *self._mail_desks,
            self.requests,
            self.monitors,
            self.links,
            self.steps,
            self.bodies,
            self.jobs,
            self.processes,
        )
        self._takers: dict[type[f.ToHub], Callable[..., None]] = {
            f.Done: self.bodies.done,
            f.Step: self.steps.take,
            f.Note: self.bodies.note,
            f.VersionChosen: self.bodies.version,
            f.Begin: self.bodies.begin,
            f.Returned: tools.returned,
            f.Out: self.bodies.out,
            f.Cancel: self._cancel,
            f.Result: ends.result,
            f.Failed: ends.failed,
            f.Slow: self.workers.slow,
            f.Ask: self._close,
            f.Hello: self._close,
        }

    # Life of the hub.

    def start(
        self, dead_us: int = 0, unknown: UnknownDecision | None = None, orphans: Sequence[str] = ()
    ) -> None:
        """The run begins or is resumed: failed workers are set back to their failing step, and all workers start.

        A run that was cancelled ends: the hub before this one died before it could record that.

        Args:
            dead_us: How long no hub was alive, by the clock on the wall: negative if that was set back meanwhile.
            unknown: What to do with a step whose outcome is not known, if that is not recorded.
            orphans: The command lines of processes of an earlier hub that were killed, as people may see them.
        """
        self.prompts.previous_was_alive_until(max(self.state.last_at, self.now_us() - dead_us))
        self._wall_offset_us = self._read_wall_offset_us()
        if self.state.ending is not None:
            started = e.HubStarted(hub=self.state.hub + 1, dead_us=dead_us)
            self.turn.record((moving(self.state, started), NO_VALUE))
            self.failure.end_run()
            return
        failed = [w for w in self.state.workers.values() if w.status == "failed" and not w.error_is_final]
        adopted = sum(len(worker.adopted) for worker in self.state.workers.values())
        started = e.HubStarted(
            hub=self.state.hub + 1, dead_us=dead_us, adopted=adopted, orphans=list(orphans)
        )
        items: list[tuple[e.EntryData, Value]] = [(moving(self.state, started), NO_VALUE)]
        for worker in failed:
            items += _rewind(worker, unknown or self.state.decided)
        self.turn.record(*items)
        self.turn.after_commit(Transition())
        if adopted:
            self.turn.after_commit(Show("note", "", _adoption(adopted)))
        if orphans:
            self.turn.after_commit(Show("note", "", started.about_orphans))
            if self.run_events is not None:
                self.run_events.orphans_found("", orphans, [])
        self._check_pause()
        self._desks.resumed()

    def stop(self, reason: str, until_us: int = 0, about: str = "") -> None:
        """The hub shuts down cleanly; the run stays resumable.

        Args:
            reason: Why.
            until_us: When the run has something to do again by itself.
            about: What it waits for until then.
        """
        if self.state.ended is None:
            stopped = e.HubStopped(reason=reason, until=until_us, about=about)
            self.turn.record((moving(self.state, stopped), NO_VALUE))
            self.turn.after_commit(Transition())

    @property
    def unsettled(self) -> bool:
        """Whether this turn has left anything to write, to do or to make durable."""
        return self.turn.must_sync or bool(self.turn.at_once or self.bodies.begun)

    def settle(self) -> None:
        """The turn is over: record what only has to be recorded if nothing more came of it."""
        if self.state.prompts_over:
            self.monitors.check()
        if self.bodies.begun:
            self.bodies.settle()

    def check_clock(self) -> None:
        """Record that the clock on the wall was set, or that the machine was asleep: that is not time that counts for any wait.

        Called before anything of a turn is recorded, so that no entry is dated by a clock that is not accounted for.
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
        if self.run_events is not None:
            self.run_events.check(self.now_us())

    # Workers and processes outside.

    def connect(self, number: int, hello: f.Hello, peer: Peer | None = None) -> Peer | None:
        """A process has connected: a worker, or a process outside whose rights the driver has looked up."""
        if hello.role != "worker":
            return self.foreign.join(peer) if peer is not None else None
        joined = self.processes.hello(number, hello)
        if joined is not None and self.state.failure is not None:
            self.failure.notify(joined)
        return joined

    def frame(self, number: int, frame: f.ToHub) -> None:
        """A peer sent a frame. An error in it concerns that peer, or fails the session; it never ends the hub."""
        peer = self._peers.get(number)
        if peer is None:
            return
        try:
            self._take(peer, frame)
        except (JournalPoisonedError, JournalClosedError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary between one process and the hub: it is reported as its failure
            self._refuse(peer, frame, error)

    def _refuse(self, peer: Peer, frame: f.ToHub, error: Exception) -> None:
        """A peer sent a frame that no handler accepts, most likely because its memory is corrupt."""
        known = (
            error if isinstance(error, BartackError) else InternalError(f"{type(error).__name__}: {error}")
        )
        worker = peer.worker
        if worker is not None:
            self.failure.fail_session(worker, describe(known, worker.path))
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
            self.processes.arrived(worker)
            if worker.history:
                self._check_pause()
        if isinstance(frame, _OF_A_BRANCH):
            if frame.p != worker.path and self.state.worker_of(frame.p) is not worker:
                # A worker may only speak for its own branches: drop the connection.
                self.turn.after_commit(CloseConnection(peer.number))
                return
            if peer.known and isinstance(frame, _OF_A_STEP) and (frame.p, frame.n) in peer.known:
                return  # the outcome was on its way to the worker when it sent this
            if self.state.failure is None and self.jobs.puts_off(worker, frame):
                return
        if worker.returning and isinstance(frame, _OF_A_STEP) and frame.step not in TIDYING:
            self._held.return_caught(worker, frame.p)
        if isinstance(frame, _WITH_ERROR) and frame.e is not None and frame.e.code == RunDiskError.code:
            # This is not an outcome of the step: it is executed again when there is room on the disk.
            self.interrupt(worker.path, frame.e.message, "disk")
        else:
            self._takers[type(frame)](peer, worker, frame)

    def interrupt(self, path: str, problem: str, reason: str) -> None:
        """The machine lacks what the run needs, like room on the disk: the hub ends, and the run stays resumable."""
        self.turn.after_commit(Show("note", path, problem))
        self.stop(reason)
        self.turn.after_commit(EndHub(reason))

    def _close(self, peer: Peer, worker: WorkerState, frame: f.Ask | f.Hello) -> None:
        """A frame that no worker sends."""
        self.turn.with_next_commit(CloseConnection(peer.number))

    def _cancel(self, peer: Peer, worker: WorkerState, frame: f.Cancel) -> None:
        self.bodies.settle()  # a body may begin and be cancelled in the same turn
        opened = worker.open.get((frame.p, frame.n))
        if self.state.failure is not None and (opened is None or not opened.cleanup):
            if opened is not None and frame.unbegun and (frame.p, frame.n) in peer.begun:
                self.bodies.not_begun(worker, opened, self.failure.describe_for(worker.path))
            return  # the failure ends every wait, and is not an outcome
        if opened is not None:
            self.steps.cancel(worker, opened, StepCancelledError(frame.reason or "cancelled"))

    def lost(self, number: int) -> None:
        """The connection of a peer is closed. Whether a worker has crashed is decided when its process ends, not by its socket."""
        peer = self._peers.get(number)
        if peer is None:
            return
        peer.awaited.clear()
        if peer.worker is None:
            self.turn.remove_peer(peer)
            self._desks.peer_gone(peer)
        else:
            for desk in self._mail_desks:
                desk.process_ended(peer.worker)  # no message is handed to a process that cannot be reached
            self.processes.expect_exit(peer.worker, peer.incarnation)

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
        """The process of a worker has ended, with its whole tree; ``busy``: the bodies it was in and had not reported."""
        self.bodies.settle()  # a body may begin and crash its process in the same turn
        if busy and path in self.state.workers and self.processes.is_crash(path, incarnation):
            for begin in busy:
                self.bodies.was_busy(self.state.workers[path], begin)
        self.workers.process_gone(path, incarnation, reason, counted=counted, end=end)
        self._check_pause()

    def report_orphans(self, path: str, leftovers: list[str], survivors: list[str]) -> None:
        """A process of a worker, or a command of it, ended and left orphans: terminated by now, or impossible to terminate."""
        if leftovers:
            text = f"left {', '.join(leftovers)} running; it was terminated"
            self.turn.after_commit(Show("note", path, text))
        if survivors:
            text = f"left {', '.join(survivors)} running; it cannot be terminated"
            self.turn.after_commit(Show("note", path, text))
        if self.run_events is not None:
            self.run_events.orphans_found(path, leftovers, survivors)

    def parent_died(self, parent: str, deaths: int, limit: tuple[int, float], *, restarted: bool) -> None:
        """A parent program died, for the nth time in the window, and is restarted unless that is too often."""
        events = self.run_events
        if restarted:
            if events is not None:
                events.restarted(parent, deaths, "lost", deaths + 1, 0)
            return
        if events is not None:
            events.escalated(parent, deaths, "lost")
        error = SupervisorExhaustedError(SUPERVISOR, parent, "lost", *limit)
        self.failure.fail_session(None, describe(error))

    def trace_of_worker(self, path: str) -> str:
        """Where in its trace a worker is; empty if the run is not traced."""
        return "" if self.run_events is None else self.run_events.trace_of_worker(self.state.workers[path])

    # Commands and prompts.

    def shell_ended(self, token: int, end: ShellEnd) -> None:
        """Commands have ended."""
        self.commands.ended(token, end)

    def shell_lost(self, token: int) -> None:
        """Commands died with the program that kept them: they are run again, under the same key."""
        self.commands.lost(token)

    def shell_too_large(self, token: int) -> None:
        """Commands write more than can be kept."""
        self.commands.too_large(token)

    def prompt_ended(self, token: int, outcome: s.ThinkOutcome | AgentError) -> None:
        """An agent replied, or could not."""
        self.prompts.ended(token, outcome)

    def prompt_waits(self, token: int, wait: TalkWaits) -> None:
        """An agent must not be called before a moment on the wall."""
        self.prompts.waits(token, wait)

    def attempt_failed(self, token: int, failed: TalkFails) -> None:
        """An attempt of an agent failed; there is another one."""
        self.prompts.attempt_failed(token, failed)

    def tool_called(self, token: int, call: ToolCall) -> None:
        """The agent of a prompt calls a tool; ``AnswerCall`` has its outcome."""
        self.prompts.tool_called(token, call)

    def person_asked(self, token: int, asks: TalkAsks) -> None:
        """The agent of a prompt asks a person; ``AnswerQuestion`` has the answer."""
        self.prompts.person_asked(token, asks.question)

    def question_withdrawn(self, token: int, withdraws: TalkWithdraws) -> None:
        """The agent of a prompt does not wait for an answer any longer."""
        self.prompts.question_withdrawn(token, withdraws.question)

    # Inside.

    def _check_pause(self) -> None:
        """Deadlines stand still while a worker replays."""
        if self.processes.is_replaying:
            self.timers.pause()
        else:
            self.timers.resume()


def _adoption(count: int) -> str:
    """The note on outcomes that an earlier version would have discarded."""
    steps = "1 step that" if count == 1 else f"{count} steps that"
    return (
        f"{steps} began before the failure and finished after it: kept and not executed again"
        " (an earlier version marked the outcome as clean-up)"
    )


def check_decided(run_id: str, state: State, unknown: UnknownDecision | None) -> None:
    """Raise if a run failed by a step whose outcome is unknown, and no decision was made on it."""
    if state.undecided and unknown is None:
        reason = f"the outcome of {state.undecided}'s last step is unknown; choose retry, done or fail with --unknown"
        raise ResumeRefusedError(run_id, reason)


def _rewind(worker: WorkerState, unknown: UnknownDecision | None) -> list[tuple[e.EntryData, Value]]:
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
