"""What happened in a run, step by step, for people: entries in, records out. Pure; the state itself is ``run_state.py``'s.

A record is one line of ``bartack show``: a step with its times and its outcome, a message with where it is, something that was
noted. A step that a rewind took out of its worker's history stays as a record, marked ``undone``.
"""

from __future__ import annotations

import shlex
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
from bartack.runtime.state.worker_state import Value, WorkerState
from bartack.supervision import CrashReport

StepStatus = Literal["open", "finished", "failed", "undone", "aborted"]
MessageStatus = Literal["scheduled", "queued", "held", "received", "dead", "dropped", "withdrawn"]
"""``dead``: it is a dead letter. ``dropped``: its mailbox was full, or the run keeps no dead letters."""

COMPACTED: Final = 20_000
"""A timeline that keeps only the newest records drops the others each time it has added this many entries."""

_MOVES: Final[dict[str, MessageStatus]] = {
    "processed": "received",
    "returning": "held",
    "returned": "queued",
    "due": "queued",
    "dead": "dead",
    "withdrawn": "withdrawn",
}
_OVER: Final[frozenset[MessageStatus]] = frozenset({"received", "dead", "dropped", "withdrawn"})
_GIVEN_UP: Final = _OVER - {"received"}
"""Messages that no receiver has got, with the reason why."""


class StepRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """One step, as it is in the journal."""

    p: str
    """The worker's path, or that of a branch of it."""
    n: int
    kind: str
    status: StepStatus = "open"
    about: str = ""
    started_at: int = 0
    """Microseconds since 1970, UTC; 0 if only the end of the step is in the journal."""
    ended_at: int = 0
    took_us: int = 0
    """How long the body ran that had this outcome, as its worker measured it; 0: it is not a body, or of an older version."""
    seq: int = 0
    """Place of the outcome."""
    started_seq: int = 0
    """Place of the entry that began its last attempt; 0 if there is none."""
    attempt: int = 1
    error: ErrorData | None = None
    usd: float = 0.0
    usd_estimated: bool = False
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
        """How long it took, if that is known: a body its execution, one that was retried all attempts and the pauses between."""
        if self.took_us and self.attempt == 1:
            return self.took_us / 1e6
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
    """Something that happened to the run or to a worker and is not a step."""

    at: int
    kind: str
    text: str
    worker: str = ""


class WorkerRecord(msgspec.Struct, omit_defaults=True):
    """One worker and its status."""

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
    """How many records a timeline that keeps only the newest has dropped."""

    steps: int = 0
    messages: int = 0
    notes: int = 0


class _Steps:
    """The records of steps.

    Args:
        state: The state of the run, after the entry that is being added.
        workers: The records of workers by path; their steps are counted there.
    """

    def __init__(self, state: State, workers: dict[str, WorkerRecord]) -> None:
        self._state = state
        self._workers = workers
        self.records: list[StepRecord] = []
        self.current: dict[str, dict[tuple[str, int], StepRecord]] = {}
        """Of each worker: the steps in its history."""

    def find(self, p: str, n: int) -> StepRecord | None:
        """The step of this name in its worker's history, or the last one that was."""
        found = self.of(p).get((p, n))
        return found or next((s for s in reversed(self.records) if (s.p, s.n) == (p, n)), None)

    def of(self, p: str) -> dict[tuple[str, int], StepRecord]:
        """The steps in the history of the worker that a path belongs to."""
        owner = self._state.worker_of(p)
        return self.current.setdefault(p if owner is None else owner.path, {})

    def end(self, p: str, n: int, kind: str, seq: int, at: int, *, cleanup: bool = False) -> StepRecord:
        """A step has an outcome."""
        found = self._begin(p, n, kind)
        found.status = "finished"
        found.seq = seq
        found.ended_at = at
        found.cleanup = cleanup
        owner = self._state.worker_of(p)
        if owner is not None:
            self._workers[owner.path].steps += 1
        return found

    def abort_open(self, path: str, at: int) -> None:
        """A worker has ended: its open steps have no outcome any more."""
        for step in self.of(path).values():
            if step.status == "open":
                step.status = "aborted"
                step.ended_at = at

    def take_back(self, path: str, is_taken_back: Callable[[StepRecord], bool]) -> None:
        """Take steps out of the history of a worker. Their records stay, as undone."""
        current = self.of(path)
        for step in list(current.values()):
            if is_taken_back(step):
                step.status = "undone"
                del current[step.p, step.n]

    def drop(self, newest: int) -> int:
        """Drop all that are over except the newest; returns how many."""
        over = [step for step in self.records if step.status != "open"]
        gone = {id(step) for step in over[: max(len(over) - newest, 0)]}
        if gone:
            self.records[:] = [step for step in self.records if id(step) not in gone]
            for path, current in self.current.items():
                self.current[path] = {key: step for key, step in current.items() if id(step) not in gone}
        return len(gone)

    # Kinds of entries.

    def step_started(self, data: e.StepStarted, seq: int, at: int) -> None:
        step = self._begin(data.p, data.n, data.step)
        step.about = data.about or step.about
        step.started_at = step.started_at or data.since or at
        step.attempt, step.started_seq = data.attempt or step.attempt, seq
        step.once, step.due, step.question = data.once, data.due, data.question
        step.timeout_s, step.cleanup = data.timeout_s, data.cleanup

    def step_retried(self, data: e.StepRetried, seq: int, at: int) -> None:
        step = self._begin(data.p, data.n, "body")
        step.attempt, step.due, step.error = data.attempt + 1, data.due, data.error

    def step_finished(self, data: e.StepFinished, seq: int, at: int) -> None:
        step = self.end(data.p, data.n, data.step, seq, at, cleanup=self._is_cleanup(data, seq))
        step.about = data.about or step.about
        step.started_at, step.took_us = step.started_at or _begin_of(data.took_us, at), data.took_us
        step.usd, step.usd_estimated, step.by, step.error = data.usd, data.usd_estimated, data.by, None

    def step_failed(self, data: e.StepFailed, seq: int, at: int) -> None:
        step = self.end(data.p, data.n, data.step, seq, at, cleanup=data.cleanup)
        step.about = data.about or step.about
        step.started_at, step.took_us = step.started_at or _begin_of(data.took_us, at), data.took_us
        step.usd, step.usd_estimated = data.usd, data.usd_estimated
        step.status, step.error = "failed", data.error

    def tool_called(self, data: e.ToolCalled, seq: int, at: int) -> None:
        step = self._begin(CallPlace(data.p, data.n, data.call).path, 0, "tool")
        step.about, step.started_at = data.tool, at

    def tool_ended(self, data: e.ToolFinished | e.ToolFailed, seq: int, at: int) -> None:
        step = self.end(CallPlace(data.p, data.n, data.call).path, 0, "tool", seq, at)
        if isinstance(data, e.ToolFailed):
            step.status, step.error = "failed", data.error

    def output(self, data: e.OutputWritten, seq: int, at: int) -> None:
        self.end(data.p, data.n, data.channel, seq, at, cleanup=data.cleanup)

    # Inside.

    def _is_cleanup(self, data: e.StepFinished, seq: int) -> bool:
        owner = self._state.worker_of(data.p) if data.cleanup else None
        return owner is not None and owner.adopted.get((data.p, data.n)) != seq

    def _begin(self, p: str, n: int, kind: str) -> StepRecord:
        current = self.of(p)
        found = current.get((p, n))
        if found is None or found.status != "open":
            found = current[p, n] = StepRecord(p, n, kind)
            self.records.append(found)
        return found


class _Messages:
    """The records of messages.

    Args:
        steps: The records of steps: sending and receiving are steps, too.
    """

    def __init__(self, steps: _Steps) -> None:
        self._steps = steps
        self.records: dict[str, MessageRecord] = {}

    def drop(self, newest: int) -> int:
        """Drop all that have arrived except the newest; returns how many."""
        arrived = [one.id for one in self.records.values() if one.status in _OVER]
        gone = arrived[: max(len(arrived) - newest, 0)]
        for message_id in gone:
            del self.records[message_id]
        return len(gone)

    # Kinds of entries.

    def sent(self, data: e.MessageSent, seq: int, at: int) -> None:
        status: MessageStatus = "scheduled" if data.not_before else "queued"
        self.records[data.id] = MessageRecord(
            data.id, data.mailbox, at, data.size, status, data.sender, seq=seq
        )
        if data.n and not data.reply_to:
            self._steps.end(data.p, data.n, data.step, seq, at).about = data.mailbox

    def taken(self, data: e.MessageTaken, seq: int, at: int) -> None:
        self._move(data.id, "held" if data.attempt else "received", data.p)
        self._steps.end(data.p, data.n, data.step, seq, at).about = data.mailbox

    def drained(self, data: e.MessagesDrained, seq: int, at: int) -> None:
        for message_id in data.ids:
            self._move(message_id, "received", data.p)
        self._steps.end(data.p, data.n, "drain", seq, at).about = data.mailbox

    def held(self, data: e.MessageHeld, seq: int, at: int) -> None:
        self._move(data.id, "held", data.by)

    def moved(self, data: e.MessageMoved, seq: int, at: int) -> None:
        status = _MOVES.get(data.to, "dropped")
        keeps_receiver = status in _OVER or status == "held"
        self._move(data.id, status, None if keeps_receiver else "", data.reason or data.to)

    def letter_added(self, data: e.LetterAdded, seq: int, at: int) -> None:
        self.records[data.message] = MessageRecord(
            data.message,
            data.mailbox,
            at,
            data.size,
            "dead",
            data.sender,
            reason=data.reason,
            seq=seq,
        )

    def letter_moved(self, data: e.LetterMoved, seq: int, at: int) -> None:
        if data.to == "retrying":
            self._move(data.message, "queued", "")

    # Inside.

    def _move(self, message_id: str, status: MessageStatus, receiver: str | None, reason: str = "") -> None:
        message = self.records.get(message_id)
        if message is None:
            return
        message.status = status
        if receiver is not None:
            message.receiver = receiver
        message.reason = reason if status in _GIVEN_UP else ""


class Timeline:
    """Everything that happened in a run, added up entry by entry.

    Attributes:
        state: The state of the run after the last entry.
        steps: All steps, in the order in which they began.
        messages: All messages by id, in the order in which they were sent.
        notes: What else happened, in order.
        crashes: The crashes of workers, in order.
        workers: All workers by path.
        left_out: How many steps, messages and notes were dropped, because they were over long before the last ones.

    Args:
        newest: Keep only this many of the steps that are over, of the messages that have arrived, and of the notes. Steps and
            messages that are under way are kept in any case. Without it, all are kept.
    """

    def __init__(self, newest: int | None = None) -> None:
        self.newest = newest
        self.left_out = LeftOut()
        self.state = State()
        self.workers: dict[str, WorkerRecord] = {}
        self._steps = _Steps(self.state, self.workers)
        self.steps = self._steps.records
        self._mail = _Messages(self._steps)
        self.messages = self._mail.records
        self.notes: list[NoteRecord] = []
        self.crashes: list[CrashRecord] = []
        self._asking: dict[str, str] = {}
        """The workers whose agents have open questions, by the number of the question."""
        self._handlers: dict[type[e.EntryData], Callable[..., None]] = {
            e.HubStarted: self._hub_started,
            e.HubStopped: self._hub_stopped,
            e.RunEnded: self._run_ended,
            e.FailureRecorded: self._failed,
            e.WorkerSpawned: self._spawned,
            e.WorkerEnded: self._worker_ended,
            e.WorkerCrashed: self._crashed,
            e.AttemptFailed: self._attempt_failed,
            e.QuestionAsked: self._asked,
            e.QuestionSettled: self._settled,
            e.WorkerRewound: self._rewound,
            e.StepSetAside: self._set_aside,
            e.WorkerRestarted: self._restarted,
            e.PeerJoined: self._joined,
            e.ProgramPinned: self._pinned,
            e.WorkspacePrepared: self._prepared,
            e.VersionRecorded: self._version_recorded,
            e.StepStarted: self._steps.step_started,
            e.StepRetried: self._steps.step_retried,
            e.StepFinished: self._steps.step_finished,
            e.StepFailed: self._steps.step_failed,
            e.ToolCalled: self._steps.tool_called,
            e.ToolFinished: self._steps.tool_ended,
            e.ToolFailed: self._steps.tool_ended,
            e.OutputWritten: self._steps.output,
            e.MessageSent: self._mail.sent,
            e.MessageTaken: self._mail.taken,
            e.MessagesDrained: self._mail.drained,
            e.MessageHeld: self._mail.held,
            e.MessageMoved: self._mail.moved,
            e.LetterAdded: self._mail.letter_added,
            e.LetterMoved: self._mail.letter_moved,
        }

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Timeline:
        """The timeline of a whole journal."""
        timeline = cls()
        timeline.add_all(entries)
        return timeline

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Add the entries of a journal."""
        for entry in entries:
            data = e.decode_entry(entry.kind, entry.raw)
            if data is not None:
                self.add(data, entry.seq, entry.at, Value(entry.value, entry.ref))

    def add(self, data: e.EntryData, seq: int, at: int, value: Value) -> None:
        """Add one entry."""
        apply(self.state, data, seq, at, value)
        handler = self._handlers.get(type(data))
        if handler is not None:
            handler(data, seq, at)
        if self.newest is not None and not seq % COMPACTED:
            self.compact(self.newest)

    def step(self, p: str, n: int) -> StepRecord | None:
        """The step of this name in its worker's history, or the last one that was."""
        return self._steps.find(p, n)

    def find_ended(self, text: str) -> StepRecord | None:
        """The step that a person means (see ``parse_step``), if it has an outcome."""
        named = parse_step(text, self.state.run.name) if self.state.run is not None else None
        step = self.step(*named) if named is not None else None
        return step if step is not None and step.seq else None

    def compact(self, newest: int) -> None:
        """Drop steps, messages and notes that are over, except the newest."""
        self.left_out.steps += self._steps.drop(newest)
        self.left_out.messages += self._mail.drop(newest)
        older = max(len(self.notes) - newest, 0)
        self.left_out.notes += older
        del self.notes[:older]
        del self.crashes[: max(len(self.crashes) - newest, 0)]

    # Inside.

    def _note(self, at: int, kind: str, text: str, worker: str = "") -> None:
        self.notes.append(NoteRecord(at, kind, text, worker))

    # Kinds of entries.

    def _hub_started(self, data: e.HubStarted, seq: int, at: int) -> None:
        if data.hub > 1:
            away = f" after {data.dead_us / 1e6:.1f} s without a hub" if data.dead_us > 0 else ""
            self._note(at, "resumed", f"resumed{away}")
        if data.orphans:
            self._note(at, "orphans", data.about_orphans)
        for steps in self._steps.current.values():
            for step in steps.values():
                if step.cleanup and step.status == "open":
                    step.status = "aborted"

    def _hub_stopped(self, data: e.HubStopped, seq: int, at: int) -> None:
        self._note(at, "stopped", f"stopped: {data.reason}")

    def _run_ended(self, data: e.RunEnded, seq: int, at: int) -> None:
        by = f" (by {data.by})" if data.by else ""
        self._note(at, "ended", f"{data.status}{f': {data.reason}' if data.reason else ''}{by}")

    def _failed(self, data: e.FailureRecorded, seq: int, at: int) -> None:
        name = data.error.type.rpartition(":")[2]
        kind = "suppressed" if data.suppressed else "failed"
        by = f" (by {data.by})" if data.by else ""
        self._note(at, kind, f"{name}: {data.error.message}{by}", data.worker)

    def _spawned(self, data: e.WorkerSpawned, seq: int, at: int) -> None:
        self.workers[data.path] = WorkerRecord(data.path, data.worker, "waiting", at)

    def _worker_ended(self, data: e.WorkerEnded, seq: int, at: int) -> None:
        worker = self.workers[data.path]
        worker.status = self.state.workers[data.path].status
        worker.ended_at = at
        worker.error = data.error
        self._steps.abort_open(data.path, at)

    def _crashed(self, data: e.WorkerCrashed, seq: int, at: int) -> None:
        self.workers[data.path].crashes += 1
        then = "given up" if data.decision == "escalate" else "started again"
        self._note(at, "crashed", f"its process ended ({data.reason}); {then}", data.path)
        self.crashes.append(CrashRecord(at, crash_report(data)))

    def _rewound(self, data: e.WorkerRewound, seq: int, at: int) -> None:
        worker = self.workers[data.path]
        worker.status, worker.error, worker.ended_at = "waiting", None, 0
        history = set(self.state.workers[data.path].history[-10_000:])

        def is_taken_back(step: StepRecord) -> bool:
            after = data.to and step.seq >= data.to and step.seq not in history
            return bool(step.cleanup or step.status == "aborted" or after)

        self._steps.take_back(data.path, is_taken_back)
        self._note(at, "rewound", "resumed at its failing step", data.path)

    def _set_aside(self, data: e.StepSetAside, seq: int, at: int) -> None:
        worker = self.workers[data.path]
        worker.status, worker.error, worker.ended_at = "waiting", None, 0
        history = set(self.state.workers[data.path].history)
        self._steps.take_back(
            data.path,
            lambda step: step.cleanup or step.status in {"aborted", "open"} or step.seq not in history,
        )
        for path in list(self._steps.current):
            if path in data.workers or path.startswith(below(data.workers)):
                for step in self._steps.current.pop(path).values():
                    step.status = "undone"
        self._note(
            at, "set aside", f"step {data.p}:{data.n} is executed again: a person set its outcome aside"
        )

    def _restarted(self, data: e.WorkerRestarted, seq: int, at: int) -> None:
        self._steps.end(data.path, data.n, "restart", seq, at)
        self._steps.current[data.path] = {}
        self._note(at, "restarted", f"began a new history after step {data.n}", data.path)

    def _joined(self, data: e.PeerJoined, seq: int, at: int) -> None:
        self._note(at, "joined", f"{data.peer} joined")

    def _pinned(self, data: e.ProgramPinned, seq: int, at: int) -> None:
        self._note(at, "updated", f"resumed with the changed program {data.program}")

    def _prepared(self, data: e.WorkspacePrepared, seq: int, at: int) -> None:
        self._note(at, "prepared", f"prepared by {shlex.join(data.words)}, {data.took_us / 1e6:.1f} s")

    def _version_recorded(self, data: e.VersionRecorded, seq: int, at: int) -> None:
        owner = self.state.worker_of(data.p)
        self._note(at, "version", f"{data.name}: {data.number}", owner.path if owner else data.p)

    def _attempt_failed(self, data: e.AttemptFailed, seq: int, at: int) -> None:
        owner = self.state.worker_of(data.p)
        self._note(at, "retried", f"{data.agent}: {data.text}", owner.path if owner else data.p)

    def _asked(self, data: e.QuestionAsked, seq: int, at: int) -> None:
        owner = self.state.worker_of(data.p)
        worker = self._asking[data.id] = owner.path if owner else data.p
        what = f"may use {data.tool or 'a tool'}" if data.ask == "permission" else "asks"
        self._note(at, "asked", f"{data.id}: agent {data.agent} {what}: {data.about}", worker)

    def _settled(self, data: e.QuestionSettled, seq: int, at: int) -> None:
        by = f" (by {data.by})" if data.by else ""
        how = f"{data.answer}{by}" if data.how == "answered" else data.how
        if data.how == "timeout":
            how = f"not answered in time{f': {data.answer}' if data.answer else ''}"
        self._note(at, "answered", f"{data.id}: {how}", self._asking.pop(data.id, ""))


def _begin_of(took_us: int, ended_at: int) -> int:
    """When a body began that was recorded only when it ended; 0 if that is unknown."""
    return ended_at - took_us if took_us else 0


def crash_report(data: e.WorkerCrashed) -> CrashReport:
    """The crash of a worker, in the form of the reports of every supervisor."""
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


def describe_worker(process: Process, worker: WorkerState, state: State) -> None:
    """Add to the facts about a worker's process what the journal has of its worker."""
    process.status = worker.status
    process.under = worker.parent[0] or PARENT_OF_WORKERS
    process.restarted = worker.last_crash
    opened = [step for step in worker.open.values() if step.step != "timeout"]
    if opened:
        newest = max(opened, key=lambda step: step.at)
        about, waits = f"{newest.step} {newest.about}".rstrip(), state.waits_for(newest)
        process.step, process.about = f"{newest.p}:{newest.n}", f"{about}, {waits}" if waits else about
        process.since = newest.at


def name_deadlock(waits: Sequence[str]) -> str:
    """What a deadlock is, in a few words."""
    if len(waits) == 1:
        return "the only worker waits for a message from outside"
    return "all workers wait for each other"
