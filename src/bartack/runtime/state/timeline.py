"""What happened in a run, step by step, for people: entries in, records out. Pure; the state itself is ``run_state.py``'s.

A record is one line of ``bartack show``: a step with its times and its outcome, a message with where it is, something that was
noted. A step that a rewind took out of its worker's history stays as a record, marked ``undone``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from bartack.journal import BlobRef, Entry
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.paths import CallPlace
from bartack.runtime.protocol.requests import PARENT_OF_WORKERS, Process
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply
from bartack.runtime.state.entries import SUPERVISOR
from bartack.runtime.state.run_state import State, below
from bartack.runtime.state.worker_state import Value, Worker
from bartack.supervision import CrashReport

StepStatus = Literal["open", "finished", "failed", "undone", "aborted"]
MessageStatus = Literal["scheduled", "queued", "held", "received", "dropped"]

COMPACTED: Final = 20_000
"""After so many entries a timeline that keeps only the newest lets go of the rest."""

_MOVES: Final[dict[str, MessageStatus]] = {"processed": "received", "returned": "queued", "due": "queued"}


class StepRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """One step, as the journal tells it."""

    p: str
    """The worker's path, or that of a branch of it."""
    n: int
    kind: str
    status: StepStatus = "open"
    about: str = ""
    started_at: int = 0
    """Microseconds since 1970, UTC; 0 if only the end of the step is in the journal."""
    ended_at: int = 0
    seq: int = 0
    """Place of the outcome."""
    attempt: int = 1
    error: ErrorData | None = None
    usd: float = 0.0
    by: str = ""
    question: str = ""
    due: int = 0
    timeout_s: float | None = None
    once: bool = False
    cleanup: bool = False

    @property
    def name(self) -> str:
        """How a person names the step: path and number."""
        return f"{self.p}:{self.n}"

    @property
    def duration_s(self) -> float | None:
        """How long it took, if the journal tells."""
        return (self.ended_at - self.started_at) / 1e6 if self.started_at and self.ended_at else None


class MessageRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """One message and where it is."""

    id: str
    mailbox: str
    at: int
    size: int
    status: MessageStatus = "queued"
    sender: str = ""
    receiver: str = ""
    reason: str = ""
    seq: int = 0
    """Place of the entry that holds its value."""


class NoteRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """Something that happened to the run or to a worker and is no step."""

    at: int
    kind: str
    text: str
    worker: str = ""


class WorkerRecord(msgspec.Struct, omit_defaults=True):
    """One worker and how it stands."""

    path: str
    worker: str
    status: str
    at: int
    ended_at: int = 0
    steps: int = 0
    crashes: int = 0
    error: ErrorData | None = None


class CrashRecord(NamedTuple):
    """A crash of a worker's process: when, and what is known of it."""

    at: int
    report: CrashReport


class LeftOut(msgspec.Struct):
    """How much a timeline that keeps only the newest has let go of."""

    steps: int = 0
    messages: int = 0
    notes: int = 0


class Timeline:
    """Everything that happened in a run, added up entry by entry.

    Attributes:
        state: The state of the run behind the last entry.
        steps: All steps, in the order in which they began.
        messages: All messages by id, in the order in which they were sent.
        notes: What else happened, in order.
        crashes: The crashes of workers, in order.
        workers: All workers by path.
        left_out: How many steps, messages and notes are not kept, because they were over long before the last ones.

    Args:
        newest: Keep so many of the steps that are over, of the messages that have arrived, and of the notes: the newest. What is
            under way is kept in any case. Without it, everything is kept.
    """

    def __init__(self, newest: int | None = None) -> None:
        self.newest = newest
        self.left_out = LeftOut()
        self.state = State()
        self.steps: list[StepRecord] = []
        self.messages: dict[str, MessageRecord] = {}
        self.notes: list[NoteRecord] = []
        self.crashes: list[CrashRecord] = []
        self.workers: dict[str, WorkerRecord] = {}
        self._current: dict[str, dict[tuple[str, int], StepRecord]] = {}
        """Of each worker: its steps that count."""
        self._tell: dict[type[e.EntryData], Callable[..., None]] = {
            e.HubStarted: self._hub_started,
            e.HubStopped: self._hub_stopped,
            e.RunEnded: self._run_ended,
            e.FailureRecorded: self._failed,
            e.WorkerSpawned: self._spawned,
            e.WorkerEnded: self._worker_ended,
            e.WorkerCrashed: self._crashed,
            e.AttemptFailed: self._attempt_failed,
            e.WorkerRewound: self._rewound,
            e.StepSetAside: self._set_aside,
            e.WorkerRestarted: self._restarted,
            e.PeerJoined: self._joined,
            e.ProgramPinned: self._pinned,
            e.StepStarted: self._step_started,
            e.StepRetried: self._step_retried,
            e.StepFinished: self._step_finished,
            e.StepFailed: self._step_failed,
            e.ToolCalled: self._tool_called,
            e.ToolFinished: self._tool_ended,
            e.ToolFailed: self._tool_ended,
            e.Output: self._output,
            e.MessageSent: self._sent,
            e.MessageTaken: self._taken,
            e.MessagesDrained: self._drained,
            e.MessageHeld: self._held,
            e.MessageMoved: self._moved,
            e.LetterAdded: self._letter_added,
            e.LetterMoved: self._letter_moved,
        }

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Add the entries of a journal."""
        for entry in entries:
            data = e.decode_entry(entry.kind, entry.raw)
            if data is not None:
                self.add(data, entry.seq, entry.at, Value(entry.value, entry.ref))

    def add(self, data: e.EntryData, seq: int, at: int, value: Value) -> None:
        """Add one entry."""
        apply(self.state, data, seq, at, value)
        tell = self._tell.get(type(data))
        if tell is not None:
            tell(data, seq, at)
        if self.newest is not None and not seq % COMPACTED:
            self.compact(self.newest)

    def step(self, p: str, n: int) -> StepRecord | None:
        """The step of this name that counts, or counted last."""
        found = self._of(p).get((p, n))
        return found or next((s for s in reversed(self.steps) if (s.p, s.n) == (p, n)), None)

    def compact(self, newest: int) -> None:
        """Let go of steps, messages and notes that are over, but for the newest."""
        over = [step for step in self.steps if step.status != "open"]
        gone = {id(step) for step in over[: max(len(over) - newest, 0)]}
        if gone:
            self.left_out.steps += len(gone)
            self.steps = [step for step in self.steps if id(step) not in gone]
            for path, current in self._current.items():
                self._current[path] = {key: step for key, step in current.items() if id(step) not in gone}
        arrived = [one.id for one in self.messages.values() if one.status in {"received", "dropped"}]
        for message_id in arrived[: max(len(arrived) - newest, 0)]:
            self.left_out.messages += 1
            del self.messages[message_id]
        older = max(len(self.notes) - newest, 0)
        self.left_out.notes += older
        del self.notes[:older]
        del self.crashes[: max(len(self.crashes) - newest, 0)]

    # Inside.

    def _note(self, at: int, kind: str, text: str, worker: str = "") -> None:
        self.notes.append(NoteRecord(at, kind, text, worker))

    def _begin(self, p: str, n: int, kind: str) -> StepRecord:
        current = self._of(p)
        found = current.get((p, n))
        if found is None or found.status != "open":
            found = current[p, n] = StepRecord(p, n, kind)
            self.steps.append(found)
        return found

    def _end(self, p: str, n: int, kind: str, seq: int, at: int, *, cleanup: bool = False) -> StepRecord:
        found = self._begin(p, n, kind)
        found.status = "finished"
        found.seq = seq
        found.ended_at = at
        found.cleanup = cleanup
        owner = self.state.worker_of(p)
        if owner is not None:
            self.workers[owner.path].steps += 1
        return found

    def _abort_open(self, path: str, at: int) -> None:
        for step in self._of(path).values():
            if step.status == "open":
                step.status = "aborted"
                step.ended_at = at

    def _of(self, p: str) -> dict[tuple[str, int], StepRecord]:
        """The steps that count of the worker that a path belongs to."""
        owner = self.state.worker_of(p)
        return self._current.setdefault(p if owner is None else owner.path, {})

    # Kinds of entries.

    def _hub_started(self, data: e.HubStarted, seq: int, at: int) -> None:
        if data.hub > 1:
            away = f" after {data.dead_us / 1e6:.1f} s without a hub" if data.dead_us > 0 else ""
            self._note(at, "resumed", f"resumed{away}")
        for steps in self._current.values():
            for step in steps.values():
                if step.cleanup and step.status == "open":
                    step.status = "aborted"

    def _hub_stopped(self, data: e.HubStopped, seq: int, at: int) -> None:
        self._note(at, "stopped", f"stopped: {data.reason}")

    def _run_ended(self, data: e.RunEnded, seq: int, at: int) -> None:
        self._note(at, "ended", f"{data.status}{f': {data.reason}' if data.reason else ''}")

    def _failed(self, data: e.FailureRecorded, seq: int, at: int) -> None:
        name = data.error.type.rpartition(":")[2]
        kind = "suppressed" if data.suppressed else "failed"
        self._note(at, kind, f"{name}: {data.error.message}", data.worker)

    def _spawned(self, data: e.WorkerSpawned, seq: int, at: int) -> None:
        self.workers[data.path] = WorkerRecord(data.path, data.worker, "waiting", at)

    def _worker_ended(self, data: e.WorkerEnded, seq: int, at: int) -> None:
        worker = self.workers[data.path]
        worker.status = self.state.workers[data.path].status
        worker.ended_at = at
        worker.error = data.error
        self._abort_open(data.path, at)

    def _crashed(self, data: e.WorkerCrashed, seq: int, at: int) -> None:
        self.workers[data.path].crashes += 1
        then = "given up" if data.decision == "escalate" else "started again"
        self._note(at, "crashed", f"its process ended ({data.reason}); {then}", data.path)
        self.crashes.append(CrashRecord(at, crash_report(data)))

    def _rewound(self, data: e.WorkerRewound, seq: int, at: int) -> None:
        worker = self.workers[data.path]
        worker.status, worker.error, worker.ended_at = "waiting", None, 0
        current = self._of(data.path)
        history = set(self.state.workers[data.path].history[-10_000:])
        for step in list(current.values()):
            behind = data.to and step.seq >= data.to and step.seq not in history
            if step.cleanup or step.status == "aborted" or behind:
                step.status = "undone"
                del current[step.p, step.n]
        self._note(at, "rewound", "goes on at its failing step", data.path)

    def _set_aside(self, data: e.StepSetAside, seq: int, at: int) -> None:
        worker = self.workers[data.path]
        worker.status, worker.error, worker.ended_at = "waiting", None, 0
        history = set(self.state.workers[data.path].history)
        current = self._of(data.path)
        for step in list(current.values()):
            if step.cleanup or step.status in {"aborted", "open"} or step.seq not in history:
                step.status = "undone"
                del current[step.p, step.n]
        for path in list(self._current):
            if path in data.workers or path.startswith(below(data.workers)):
                for step in self._current.pop(path).values():
                    step.status = "undone"
        self._note(
            at, "set aside", f"step {data.p}:{data.n} is executed again: a person set its outcome aside"
        )

    def _restarted(self, data: e.WorkerRestarted, seq: int, at: int) -> None:
        self._end(data.path, data.n, "restart", seq, at)
        self._current[data.path] = {}
        self._note(at, "restarted", f"began a new history after step {data.n}", data.path)

    def _joined(self, data: e.PeerJoined, seq: int, at: int) -> None:
        self._note(at, "joined", f"{data.peer} joined")

    def _pinned(self, data: e.ProgramPinned, seq: int, at: int) -> None:
        self._note(at, "updated", f"goes on with the changed program {data.program}")

    def _step_started(self, data: e.StepStarted, seq: int, at: int) -> None:
        step = self._begin(data.p, data.n, data.step)
        step.about = data.about or step.about
        step.started_at = step.started_at or data.since or at
        step.attempt = data.attempt or step.attempt
        step.once, step.due, step.question = data.once, data.due, data.question
        step.timeout_s, step.cleanup = data.timeout_s, data.cleanup

    def _step_retried(self, data: e.StepRetried, seq: int, at: int) -> None:
        step = self._begin(data.p, data.n, "body")
        step.attempt, step.due, step.error = data.attempt + 1, data.due, data.error

    def _attempt_failed(self, data: e.AttemptFailed, seq: int, at: int) -> None:
        owner = self.state.worker_of(data.p)
        self._note(at, "retried", f"{data.agent}: {data.text}", owner.path if owner else data.p)

    def _step_finished(self, data: e.StepFinished, seq: int, at: int) -> None:
        step = self._end(data.p, data.n, data.step, seq, at, cleanup=self._is_cleanup(data, seq))
        step.about = data.about or step.about
        step.started_at = step.started_at or _begin_of(data.took_us, at)
        step.usd, step.by, step.error = data.usd, data.by, None

    def _is_cleanup(self, data: e.StepFinished, seq: int) -> bool:
        owner = self.state.worker_of(data.p) if data.cleanup else None
        return owner is not None and owner.adopted.get((data.p, data.n)) != seq

    def _step_failed(self, data: e.StepFailed, seq: int, at: int) -> None:
        step = self._end(data.p, data.n, data.step, seq, at, cleanup=data.cleanup)
        step.about = data.about or step.about
        step.started_at = step.started_at or _begin_of(data.took_us, at)
        step.status, step.error = "failed", data.error

    def _tool_called(self, data: e.ToolCalled, seq: int, at: int) -> None:
        step = self._begin(CallPlace(data.p, data.n, data.call).path, 0, "tool")
        step.about, step.started_at = data.tool, at

    def _tool_ended(self, data: e.ToolFinished | e.ToolFailed, seq: int, at: int) -> None:
        step = self._end(CallPlace(data.p, data.n, data.call).path, 0, "tool", seq, at)
        if isinstance(data, e.ToolFailed):
            step.status, step.error = "failed", data.error

    def _output(self, data: e.Output, seq: int, at: int) -> None:
        self._end(data.p, data.n, data.channel, seq, at, cleanup=data.cleanup)

    def _sent(self, data: e.MessageSent, seq: int, at: int) -> None:
        status: MessageStatus = "scheduled" if data.not_before else "queued"
        self.messages[data.id] = MessageRecord(
            data.id, data.mailbox, at, data.size, status, data.sender, seq=seq
        )
        if data.n and not data.reply_to:
            self._end(data.p, data.n, data.step, seq, at).about = data.mailbox

    def _taken(self, data: e.MessageTaken, seq: int, at: int) -> None:
        self._move(data.id, "held" if data.attempt else "received", data.p)
        self._end(data.p, data.n, data.step, seq, at).about = data.mailbox

    def _drained(self, data: e.MessagesDrained, seq: int, at: int) -> None:
        for message_id in data.ids:
            self._move(message_id, "received", data.p)
        self._end(data.p, data.n, "drain", seq, at).about = data.mailbox

    def _held(self, data: e.MessageHeld, seq: int, at: int) -> None:
        self._move(data.id, "held", data.by)

    def _moved(self, data: e.MessageMoved, seq: int, at: int) -> None:
        status = _MOVES.get(data.to, "dropped")
        self._move(data.id, status, None if status in {"received", "dropped"} else "", data.reason or data.to)

    def _letter_added(self, data: e.LetterAdded, seq: int, at: int) -> None:
        self.messages[data.message] = MessageRecord(
            data.message,
            data.mailbox,
            at,
            data.size,
            "dropped",
            data.sender,
            reason=data.reason,
            seq=seq,
        )

    def _letter_moved(self, data: e.LetterMoved, seq: int, at: int) -> None:
        if data.to == "retrying":
            self._move(data.message, "queued", "")

    def _move(self, message_id: str, status: MessageStatus, receiver: str | None, reason: str = "") -> None:
        message = self.messages.get(message_id)
        if message is None:
            return
        message.status = status
        if receiver is not None:
            message.receiver = receiver
        message.reason = reason if status == "dropped" else ""


def _begin_of(took_us: int, ended_at: int) -> int:
    """When a body began that was recorded only when it ended; 0 if that is unknown."""
    return ended_at - took_us if took_us else 0


def crash_report(data: e.WorkerCrashed) -> CrashReport:
    """What the journal tells of the crash of a worker, in the form of every supervisor's reports."""
    return CrashReport(
        supervisor=SUPERVISOR,
        child=data.path,
        path=f"{data.path}#{data.incarnation}",
        incarnation=data.incarnation,
        pid=data.pid or None,
        reason=data.reason,
        exception="",
        stack=(),
        last_step=data.last_step,
        last_message=data.last_message,
        stderr_tail=data.stderr_tail,
        uptime_s=data.uptime_s,
        peak_memory_bytes=data.peak_memory_bytes,
        restarts_in_window=data.restarts,
        decision=data.decision,
        next_start_us=data.next_start or None,
        metadata={},
    )


def parse_step(text: str, first: str) -> tuple[str, int] | None:
    """The path and number that a person means by ``path:n``, or by ``n`` alone: a step of the first worker."""
    path, colon, number = text.rpartition(":")
    if not number.isdecimal():
        return None
    return (path if colon else first), int(number)


def value_of(value: Value, load: Callable[[BlobRef], bytes]) -> bytes:
    """A payload, wherever it is kept; ``null`` if there is none."""
    if value.raw is not None:
        return bytes(value.raw)
    return b"null" if value.ref is None else load(value.ref)


def describe_worker(process: Process, worker: Worker) -> None:
    """Say of the process of a worker what the journal tells."""
    process.status = worker.status
    process.under = worker.parent[0] or PARENT_OF_WORKERS
    process.restarted = worker.last_crash
    opened = [step for step in worker.open.values() if step.step != "timeout"]
    if opened:
        newest = max(opened, key=lambda step: step.at)
        process.step, process.about = f"{newest.p}:{newest.n}", f"{newest.step} {newest.about}".rstrip()
        process.since = newest.at


def name_deadlock(waits: Sequence[str]) -> str:
    """What is the matter with workers that wait for each other, in a few words."""
    if len(waits) == 1:
        return "the only worker waits for a message from outside"
    return "all workers wait for each other"
