"""Steps that workers execute themselves: bodies (``body``, ``write``, ``append``), and the steps that they only report.

A body begins by ``Begin`` and ends by ``Done``. One that ends within the turn of the hub in which it began is not worth an entry of
its beginning; ``settle`` records the others at the end of the turn. A body that waits for the hub before it begins (``Begin.i``) is
recorded at once, and its worker is answered when that is durable. A harmless step (the time, a random number, a file that was read)
is reported by ``Note`` after the worker has used its value: it becomes durable with the next commit, and until then the turn counts
as *exposed* (``turn.py``).
"""

from __future__ import annotations

from bartack.errors import BartackError, OutcomeUnknownError, StepTimeoutError, UnknownRequestError
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.jobs import StepTimers
from bartack.runtime.kernel.outcome import step_failed, step_finished
from bartack.runtime.kernel.processes import ProcessDesk
from bartack.runtime.kernel.sleeps import ScopeDesk
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.state import entries as e
from bartack.runtime.state.links import Abort
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, StepKey, Value, WorkerState


class BodyDesk(Desk, StepHandler):
    """Records the steps that workers execute themselves."""

    def __init__(
        self, shared: Shared, step_timers: StepTimers, scopes: ScopeDesk, processes: ProcessDesk
    ) -> None:
        super().__init__(shared)
        self._step_timers = step_timers
        self._scopes = scopes
        self._processes = processes
        self.begun: dict[StepKey, tuple[Peer, WorkerState, f.Begin]] = {}
        """Bodies that began in this turn and have not ended in it."""

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """A body is begun by ``Begin``, not by ``Step``."""
        raise UnknownRequestError(step.step)

    # Reports.

    def note(self, peer: Peer, worker: WorkerState, note: f.Note) -> None:
        """A worker executed a harmless step; it is durable with the next commit."""
        if note.step == "timeout" and not self._scopes.is_left(worker, note):
            return
        if note.e is not None:
            self.turn.record((step_failed(note, note.e), NO_VALUE), sync=False)
        else:
            done = step_finished(note, about=note.about)
            self.turn.record((done, Value(note.v, note.ref)), sync=False)
        self.turn.exposed = True

    def version(self, peer: Peer, worker: WorkerState, chosen: f.VersionChosen) -> None:
        """A worker chose a version; it is durable with the next commit, and before every step that comes after it."""
        if chosen.name not in worker.versions:
            recorded = e.VersionRecorded(p=chosen.p, name=chosen.name, number=chosen.number)
            self.turn.record((recorded, NO_VALUE), sync=False)
            self.turn.exposed = True

    def out(self, peer: Peer, worker: WorkerState, out: f.Out) -> None:
        """A worker printed or logged; it is durable with the next commit, and shown after it."""
        data = e.OutputWritten(p=out.p, n=out.n, channel=out.channel, fp=out.fp, cleanup=out.cleanup)
        self.turn.record((data, self.turn.pack(out.text)), sync=False)
        shown = Show("print" if out.channel == "print" else "log", worker.path, out.text, self.state.last_at)
        self.turn.with_next_commit(shown)

    # Beginning.

    def begin(self, peer: Peer, worker: WorkerState, begin: f.Begin) -> None:
        """A body begins, or a block with a deadline."""
        if begin.step == "timeout":
            self._scopes.begin(peer, worker, begin)
        elif begin.i and not begin.cleanup and self.state.failure is not None:
            return  # it has not begun, and will not: its worker learns of the failure instead
        elif begin.i:
            self._begin(peer, worker, begin)
        else:
            self.begun[begin.p, begin.n] = (peer, worker, begin)

    def was_busy(self, worker: WorkerState, begin: f.Begin) -> None:
        """A process has ended, and this is a body it was in."""
        state = self.state
        known = (begin.p, begin.n) in worker.open
        if not known and not worker.ended and state.worker_of(begin.p) is worker and state.failure is None:
            self._start_attempt(worker, begin, None)
            self._step_timers.cancel((begin.p, begin.n))

    def settle(self) -> None:
        """Record the bodies that began in this turn and have not ended in it."""
        while self.begun:
            _, begun = self.begun.popitem()
            self._begin(*begun)

    def _begin(self, peer: Peer, worker: WorkerState, begin: f.Begin) -> None:
        known = worker.open.get((begin.p, begin.n))
        if begin.i:
            peer.awaited[begin.p, begin.n] = begin.i
        if known is not None and known.abort is not None:
            self._abort(worker, known, begin, known.abort)
        elif known is not None and known.between and begin.attempt < known.attempt:
            # A restarted worker begins with its first attempt; the attempts that failed before count.
            self._start_when_due(worker, known, begin)
        elif known is not None and known.once and begin.once and begin.attempt == 1:
            error = OutcomeUnknownError(f"{begin.p}:{begin.n}", known.about)
            self.turn.fail_open(worker, known, error)
        elif worker.doubted.get((begin.p, begin.n)) == begin.fp:
            error = OutcomeUnknownError(f"{begin.p}:{begin.n}", begin.about)
            self.turn.fail_open(worker, self._start_attempt(worker, begin, None), error)
        else:
            opened = self._start_attempt(worker, begin, known)
            if begin.i and known is None:
                peer.begun.add(opened.key)
            abort = worker.abort_next
            if abort is not None and not worker.may_clean_up(opened.step):
                self._abort(worker, opened, begin, abort)
            elif begin.i:
                self._answer_begin(worker, opened)

    def _start_attempt(self, worker: WorkerState, begin: f.Begin, known: OpenStep | None) -> OpenStep:
        data = e.StepStarted(
            p=begin.p,
            n=begin.n,
            step=begin.step,
            fp=begin.fp,
            about=begin.about,
            attempt=known.attempt if known is not None else begin.attempt,
            once=begin.once,
            timeout_s=begin.timeout_s or None,
            max_crashes=begin.max_crashes,
            cleanup=begin.cleanup,
            changes=begin.changes,
            # 0 if it is recorded at once.
            since=min(begin.since, self.now_us()) if begin.since else 0,
        )
        # Where an append began is decided once: each further attempt writes there.
        asked = known.asked if known is not None and known.is_append else Value(begin.a)
        opened = self.turn.open_step(data, asked, sync=bool(begin.i))
        self._watch(worker, opened, begin)
        return opened

    def _watch(self, worker: WorkerState, opened: OpenStep, begin: f.Begin) -> None:
        if not begin.timeout_s:
            return

        def late() -> None:
            if self.is_open(worker, opened):
                self._end(worker, opened, StepTimeoutError("step", begin.timeout_s, "explicit"))

        self._step_timers.set(opened.key, self.timers.after(begin.timeout_s + begin.grace_s, late))

    def _start_when_due(self, worker: WorkerState, opened: OpenStep, begin: f.Begin) -> None:
        """Begin the next attempt when its time has come, and let the worker execute it when that is durable."""

        def start() -> None:
            if self.is_open(worker, opened):
                self._answer_begin(worker, self._start_attempt(worker, begin, opened))

        if opened.due > self.now_us():
            self._step_timers.set(opened.key, self.timers.at(opened.due, start))
        else:
            start()

    def _answer_begin(self, worker: WorkerState, opened: OpenStep) -> None:
        """Let a worker execute the body that waits for this."""
        value = opened.asked if opened.is_append else self.turn.pack({"attempt": opened.attempt})
        self.turn.answer(worker, opened.p, opened.n, value)

    # Ending.

    def may_change_files(self, worker: WorkerState, step: StepKey) -> bool:
        """Whether a body that has not ended here yet may change files. One that is not known may."""
        begun, opened = self.begun.get(step), worker.open.get(step)
        if begun is not None:
            return begun[2].changes
        return opened is None or opened.may_change_files

    def done(self, peer: Peer, worker: WorkerState, done: f.Done) -> None:
        """A body ended in its worker."""
        step = (done.p, done.n)
        begun = self.begun.pop(step, None)
        about = begun[2].about if begun is not None else done.about
        opened = worker.open.get(step)
        if opened is not None:
            about = opened.about
            self._step_timers.cancel(step)
        peer.awaited[step] = done.i
        if peer.begun:
            peer.begun.discard(step)
        if done.e is None:
            finished = step_finished(done, about=about, took_us=done.took_us)
            self.turn.finish(worker, finished, Value(done.v, done.ref))
        elif done.retry_in_s >= 0 and opened is not None:
            self._retry(worker, opened, done, done.e)
        else:
            late = self.is_unseen(worker) and not done.cleanup
            self.turn.fail(worker, step_failed(done, done.e, took_us=done.took_us, late=late))

    def _retry(self, worker: WorkerState, opened: OpenStep, done: f.Done, error: f.ErrorData) -> None:
        due = self.now_us() + int(done.retry_in_s * 1e6)
        retried = e.StepRetried(p=done.p, n=done.n, attempt=done.attempt, due=due, error=error)
        self.turn.record((retried, NO_VALUE))
        begin = f.Begin(
            p=opened.p,
            n=opened.n,
            step=opened.step,
            fp=opened.fp,
            about=opened.about,
            i=done.i,
            once=opened.once,
            timeout_s=opened.timeout_s or 0.0,
            max_crashes=opened.max_crashes,
            cleanup=opened.cleanup,
            changes=opened.changes,
        )
        self._start_when_due(worker, opened, begin)

    def cancel(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Stop a body; one that waits for its next attempt just fails."""
        if opened.is_body:
            self._end(worker, opened, error)
        else:
            self._step_timers.cancel(opened.key)
            self.turn.fail_open(worker, opened, error)

    def not_begun(self, worker: WorkerState, opened: OpenStep, error: f.ErrorData) -> None:
        """A body whose beginning is durable will not be executed, because the session failed: so nothing about it is unknown."""
        if opened.is_body:
            self._step_timers.cancel(opened.key)
            self.turn.fail_open(worker, opened, error, late=True)

    def process_ended(self, worker: WorkerState) -> None:
        """The bodies in a process have ended with it: their time begins anew with their next attempt."""
        for opened in worker.open.values():
            if opened.in_worker:
                self._step_timers.cancel(opened.key)

    def _abort(self, worker: WorkerState, opened: OpenStep, begin: f.Begin, abort: Abort) -> None:
        """A body is cancelled that begins just now: one that waits for the hub has not begun, and needs no restart."""
        if begin.i:
            self._step_timers.cancel(opened.key)
            self.turn.fail_open(worker, opened, abort.error())
        else:
            self._end(worker, opened, abort.error())

    def _end(self, worker: WorkerState, opened: OpenStep, error: BartackError) -> None:
        """Stop a body. A thread cannot be stopped, so the process is replaced; the next one replays to after this step."""
        self._step_timers.cancel(opened.key)
        self._processes.restart(worker)
        self.turn.fail_open(worker, opened, error)
