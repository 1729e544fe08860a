"""The state of a run: what its entries add up to.

``State.apply`` is the only way it changes, and takes the same entries when the hub writes them and when a journal is read again:
that is what makes recovery one code path. It decides nothing; ``_core.py`` and the desks decide, by writing entries.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, TypeVar

import msgspec

from bartack.journal import BlobRef, Entry
from bartack.messaging import Mailbox, Message
from bartack.runtime import _entries as e
from bartack.runtime._blame import Blame, Failed
from bartack.runtime._deliveries import Deliveries
from bartack.runtime._frames import ErrorData
from bartack.runtime._links import ABORTS, LINKED_EXIT, Abort, LinkRegistry
from bartack.runtime._places import CallPlace, outer
from bartack.runtime._steps import CLEANUP
from bartack.supervision import Leak, Monitor, MonitorRegistry

WorkerStatus = Literal["waiting", "running", "completed", "failed", "cancelled"]
RunStatus = Literal["running", "waiting", "failed", "completed", "cancelled", "aborted", "interrupted"]
_ENDS: Final[dict[str, RunStatus]] = {"completed": "completed", "failed": "failed", "aborted": "aborted"}
"""How a run has ended, by what its last entry says; else it is cancelled."""

LEAKS_KEPT: Final = 1000

FIRED: Final = b'"fired"'
"""The outcome of a deadline that ran out."""

_ENDED: Final = (*ABORTS, ":StepTimeoutError", ":ShellTimeoutError", ":MessageTooLargeError")

T = TypeVar("T", bound=e.EntryData)


class Value(msgspec.Struct, frozen=True):
    """A payload, in the entry or as a blob."""

    raw: msgspec.Raw | None = None
    ref: BlobRef | None = None


NO_VALUE: Final = Value()


class OpenStep(msgspec.Struct, gc=False):
    """A step without an outcome."""

    p: str
    n: int
    step: str
    fp: str
    about: str
    at: int
    dead_us: int
    """Time that nobody ran the run, before this step began."""
    seq: int
    """Place of the entry that began it."""
    attempt: int = 1
    once: bool = False
    timeout_s: float | None = None
    due: int = 0
    question: str = ""
    reserved_usd: float = 0.0
    max_crashes: int = 0
    limit: int = 0
    asked: Value = NO_VALUE
    cleanup: bool = False
    between: bool = False
    """An attempt failed and the next one has not begun: nothing of it is under way."""
    abort: Abort | None = None
    """Why it is being given up, if it is."""
    sent: tuple[str, str] | None = None
    """The mailbox that the message of a call was put into, and its id."""


class ToolRun(msgspec.Struct):
    """A call of a tool that was run for a prompt."""

    call: int
    place: int
    tool: str
    id: str
    seq: int
    asked: Value
    ended_seq: int = 0
    """Place of the entry with its outcome; 0 while it runs."""
    value: Value = NO_VALUE
    error: ErrorData | None = None


class ToolRecord:
    """Every call of a tool that was ever run for one prompt, in order.

    Calls stay in it also when a later attempt of the agent went another way: the program has run them. The *line* is what the agent
    knows: the calls that it made, without those that another attempt superseded.
    """

    def __init__(self) -> None:
        self.runs: list[ToolRun] = []

    @property
    def line(self) -> list[ToolRun]:
        """The calls that the agent has made, as far as it knows."""
        line: list[ToolRun] = []
        for run in self.runs:
            del line[run.place - 1 :]
            line.append(run)
        return line

    @property
    def running(self) -> ToolRun | None:
        """The call without an outcome, if there is one; there is never more than one."""
        return next((run for run in self.runs if not run.ended_seq), None)

    def find(self, call: int) -> ToolRun | None:
        """A call by its number."""
        return next((run for run in self.runs if run.call == call), None)

    def rewind(self, stands: Callable[[int], bool]) -> None:
        """The worker was set back: what does not stand never happened."""
        self.runs = [run for run in self.runs if stands(run.seq)]
        for run in self.runs:
            if run.ended_seq and not stands(run.ended_seq):
                run.ended_seq, run.value, run.error = 0, NO_VALUE, None


class Worker:
    """One worker of the run, as far as the journal tells."""

    trapping = False
    """Whether ends of linked workers are messages to it."""

    def __init__(self, data: e.WorkerSpawned, seq: int, arguments: Value) -> None:
        self.path = data.path
        self.seq = seq
        """Place of the entry that made it."""
        self.worker = data.worker
        self.parent = (data.p, data.n)
        self.spawned = data.spawned
        self.collect = data.collect
        self.arguments = arguments
        self.status: WorkerStatus = "waiting"
        self.history = array("Q")
        """Places of the entries that are outcomes of its steps, in order."""
        self.open: dict[tuple[str, int], OpenStep] = {}
        self.tools: dict[tuple[str, int], ToolRecord] = {}
        """What was run for the agents of prompts that have no outcome, or one that may be set back."""
        self.doubted: dict[tuple[str, int], str] = {}
        """Steps to be done once that may have happened and were set back with a failure before them: their fingerprints."""
        self.crashes: dict[tuple[str, int], int] = {}
        self.crashes_in_a_row = 0
        self.last_crash = ""
        """Why its process died last."""
        self.last_step: tuple[str, int, str] = ("", 0, "")
        """The last of its steps that has an outcome: path, number and kind."""
        self.last_message = ""
        """The last message that it received."""
        self.rewinds = 0
        self.result = NO_VALUE
        self.error: ErrorData | None = None
        self.error_is_final = False
        self.origin: tuple[str, int] | None = None
        self.origin_seq = 0
        self.in_doubt = False
        """Whether it failed because nobody knows whether a step of it happened: a person has to decide."""
        self.origin_facts: tuple[str, str] = ("", "")
        """Kind and fingerprint of the step that an uncaught error came from."""
        self.exits: set[tuple[str, int]] = set()
        """Steps that a link has aborted."""
        self.cancelled = False
        """Whether it was told to stop: that it ends with a cancellation is then no failure."""
        self.blame = Blame()
        """Steps that failed and may be what a failure of the worker goes back to."""
        self.suspended: dict[tuple[str, int], OpenStep] | None = None
        """What was open when it was cut off, if it was."""
        self.returning: dict[str, tuple[int, tuple[str, int]]] = {}
        """Messages that it gave back when a failure left their block: place of that outcome, and the step. They are its own
        until it is known that the failure was caught."""

        self.let_go: list[tuple[int, Callable[[], object]]] = []
        """What it let go of behind a failure that it may be set back to: place of that outcome, and what undoes it."""
        self.watching: list[Monitor] = []
        """Its monitors when it was cut off, if it was."""
        self.aborts: list[Abort] = []
        """What its next steps are given up for, each for one."""

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left to do."""
        return self.status in {"completed", "failed", "cancelled"}

    @property
    def abort_next(self) -> Abort | None:
        """Why its next step is given up, if it is."""
        return self.aborts[0] if self.aborts else None

    def put_off(self, abort: Abort, *, first: bool = False) -> None:
        """Something aborts the next step that it has no open one for; a cancellation is for certain, whatever links do."""
        if self.aborts and not self.aborts[0].by:
            return
        if not abort.by:
            self.aborts = [abort]
        elif abort not in self.aborts:
            self.aborts.insert(0 if first else len(self.aborts), abort)

    @property
    def leaving(self) -> bool:
        """Whether a link has aborted it and it has done nothing since but tidy up."""
        return not self.exits.isdisjoint(self.blame.steps)

    @property
    def end_reason(self) -> str:
        """How it ended, in a word."""
        if self.status == "completed":
            return "normal"
        return "aborted" if self.error is None or self.error.type.endswith(ABORTS) else "error"

    def waits(self) -> list[OpenStep]:
        """Its open steps, without the blocks that have a deadline."""
        return [step for step in self.open.values() if step.step != "timeout"]

    def awaits_tool(self, step: OpenStep) -> bool:
        """Whether a prompt waits for a tool of this worker, and not for its agent."""
        record = self.tools.get((step.p, step.n))
        return record is not None and record.running is not None


class Question(msgspec.Struct, frozen=True):
    """An open question."""

    id: str
    worker: str
    p: str
    n: int
    at: int
    asked: Value


class State:
    """Everything the journal of a run says, added up."""

    def __init__(self) -> None:
        self.run: e.RunCreated | None = None
        self.created_at = 0
        self.arguments = NO_VALUE
        self.workers: dict[str, Worker] = {}
        self.children: dict[tuple[str, int], list[str]] = {}
        self.undone: dict[str, int] = {}
        """Workers whose making was set back, with the number of rewinds one of the same path begins with."""
        self.mailboxes: dict[str, Mailbox] = {}
        self.held: dict[str, tuple[str, str]] = {}
        """Messages that are to be acknowledged: mailbox and holder, a worker's path or a process outside."""
        self.deliveries = Deliveries()
        self.monitors = MonitorRegistry()
        self.links = LinkRegistry()
        self.leaks: deque[Leak] = deque(maxlen=LEAKS_KEPT)
        """Monitors that workers have left behind, the latest of them."""
        self.prompts_over: dict[str, str] = {}
        """Prompts that are over and whose watchers have not been told: how, by step."""
        self.told: dict[str, Monitor] = {}
        """Monitors that have reported and that their watchers have not let go of."""
        self.failure: e.FailureRecorded | None = None
        self.failed_at = 0
        self.suppressed = 0
        self.ended: e.RunEnded | None = None
        self.stopped = ""
        self.result = NO_VALUE
        self.hub = 0
        self.dead_us = 0
        self.spent_usd = 0.0
        self.reserved_usd = 0.0
        self.questions: dict[str, tuple[str, str, int]] = {}
        self.questions_asked = 0
        self.last_at = 0
        self.outputs = 0
        """How many texts workers have printed and logged."""
        self._owners: dict[str, Worker] = {}

    @property
    def status(self) -> RunStatus:
        """What the run is doing, as far as the journal can tell."""
        if self.ended is not None:
            return _ENDS.get(self.ended.status, "cancelled")
        if self.stopped:
            return "interrupted"
        return "waiting" if self.questions else "running"

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run if self.run is not None else ""

    def worker_of(self, p: str) -> Worker | None:
        """The worker that a path belongs to: its own, or that of one of its branches or of the tools it runs."""
        found = self._owners.get(p)
        if found is None:
            found = self.workers.get(p) or self._by_branch(p)
            if found is not None:
                self._owners[p] = found
        return found

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of this name; it exists from its first use on."""
        found = self.mailboxes.get(name)
        if found is None:
            found = self.mailboxes[name] = Mailbox(name)
        return found

    def is_closed(self, name: str) -> bool:
        """Whether a mailbox takes no more messages: it was closed, or is the inbox of a worker that has ended."""
        if name.startswith("@"):
            worker = self.workers.get(name[1:])
            if worker is not None and worker.ended:
                return True
        return self.mailbox(name).closed

    def owner_of(self, mailbox: Mailbox) -> str:
        """The worker whose name a mailbox is, as long as it lives."""
        owner = self.workers.get(mailbox.owner) if mailbox.owner else None
        return "" if owner is None or owner.ended else owner.path

    def path_of(self, name: str) -> str:
        """The path of the worker that is meant: by its path, its inbox, or the name that it has registered."""
        path = name.removeprefix("@")
        mailbox = self.mailboxes.get(name)
        if path in self.workers or mailbox is None:
            return path
        return self.owner_of(mailbox) or mailbox.owner or path

    def prompt_at(self, place: str) -> OpenStep | None:
        """The open prompt of a step, given as ``PATH:NUMBER``."""
        p, _, n = place.rpartition(":")
        worker = self.worker_of(p) if is_step(place) else None
        found = worker.open.get((p, int(n))) if worker is not None else None
        return found if found is not None and found.step == "think" else None

    def has_nobody(self, name: str) -> bool:
        """Whether a mailbox belongs to one worker, and there is none: its inbox, or the name that it had registered."""
        if name.startswith("@"):
            worker = self.workers.get(name[1:])
            return worker is None or worker.ended
        mailbox = self.mailboxes.get(name)
        return mailbox is not None and bool(mailbox.owner) and not self.owner_of(mailbox)

    def apply_all(self, entries: Iterable[Entry]) -> None:
        """Add up the entries of a journal."""
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add up one entry of a journal."""
        data = e.decode_entry(entry.kind, entry.raw)
        if data is not None:
            self.apply(data, entry.seq, entry.at, Value(entry.value, entry.ref))

    def apply(self, data: e.EntryData, seq: int, at: int, value: Value) -> None:
        """Add one entry."""
        self.last_at = at
        _APPLY[type(data)](self, data, seq, at, value)

    def left_behind(self, watcher: str) -> list[str]:
        """The monitors of blocks of a worker; those of Patchwork have none, and last as long as their worker."""
        return [monitor.ref for monitor in self.monitors.of_watcher(watcher) if monitor.stack]

    def _by_branch(self, p: str) -> Worker | None:
        head = outer(p)
        while head and head not in self.workers:
            head = outer(head)
        return self.workers.get(head)

    def _open(self, data: e.StepStarted, seq: int, at: int, value: Value) -> None:
        worker = self.worker_of(data.p)
        if worker is None:
            return
        self.reserved_usd += data.reserved_usd
        known = worker.open.get((data.p, data.n))
        if known is not None:
            self.reserved_usd -= known.reserved_usd
        worker.open[data.p, data.n] = OpenStep(
            p=data.p,
            n=data.n,
            step=data.step,
            fp=data.fp,
            about=data.about,
            at=known.at if known else at,
            dead_us=known.dead_us if known else self.dead_us,
            seq=known.seq if known else seq,
            attempt=data.attempt,
            once=data.once,
            timeout_s=data.timeout_s,
            due=data.due,
            question=data.question,
            reserved_usd=data.reserved_usd,
            max_crashes=data.max_crashes,
            limit=data.limit,
            asked=value,
            cleanup=data.cleanup,
        )
        if data.question:
            self.questions[data.question] = (worker.path, data.p, data.n)
            self.questions_asked += 1

    def revive_children(self, steps: Iterable[tuple[str, int]]) -> None:
        """A worker was set back: the workers whose step it gave up because of its failure go on where they were."""
        for path in [path for step in steps for path in self.children.get(step, ())]:
            worker = self.workers[path]
            if worker.suspended is not None:
                self._revive(worker)

    def _revive(self, worker: Worker) -> None:
        worker.open, worker.suspended = worker.suspended or {}, None
        for monitor in worker.watching:
            self.monitors.add(monitor)
        worker.watching = []
        worker.status, worker.error, worker.error_is_final = "waiting", None, False
        for step in worker.open.values():
            self.reserved_usd += step.reserved_usd
            if step.question:
                self.questions[step.question] = (worker.path, step.p, step.n)
        spawned = [
            child.parent
            for child in self.workers.values()
            if child.spawned and self.worker_of(child.parent[0]) is worker
        ]
        self.revive_children([*worker.open, *spawned])

    def drop_children(self, made: list[str]) -> None:
        """Workers, and all below them, are no part of the run any more."""
        for path in [path for path in self.workers if path in made or path.startswith(below(made))]:
            gone = self.workers.pop(path)
            self.stop_watching(path)
            self.links.forget(path)
            # Their keys must not come again.
            self.undone[path] = gone.rewinds + 1
            self.children.pop(gone.parent, None)
            self._owners = {p: owner for p, owner in self._owners.items() if owner is not gone}

    def stop_watching(self, watcher: str, at: int = 0, *, leaving: bool = False) -> list[Monitor]:
        """A worker has ended: its monitors go with it. Those of blocks that it did not leave, if it should have, are leaks."""
        if leaving:
            left = [self.monitors.leaked(ref, "scope_left", at) for ref in self.left_behind(watcher)]
            self.leaks += [leak for leak in left if leak is not None]
        self.told = {ref: monitor for ref, monitor in self.told.items() if monitor.watcher != watcher}
        return self.monitors.watcher_gone(watcher)

    def abort(self, worker: Worker, abort: Abort) -> None:
        """A worker is interrupted from outside: in its open steps, or else in its next one.

        One that a link has aborted already is left to tidy up, and learns of the end of another one behind that.
        """
        tidies = bool(abort.by) and worker.leaving
        waiting = [step for step in worker.waits() if not (tidies and step.step in CLEANUP)]
        free = [step for step in waiting if step.abort is None or (step.abort.by and not abort.by)]
        for step in free:
            step.abort = abort
        cancelled = any(step.abort is not None and not step.abort.by for step in waiting)
        if not free and not cancelled:
            worker.put_off(abort)

    def _unlink_ended(self, worker: Worker) -> None:
        """A worker ended abnormally: nobody is told of it who has ended, too, unless that one may go on."""
        for other in self.links.of(worker.path):
            found = self.workers.get(other)
            if found is None or (found.ended and found.suspended is None):
                self.links.remove(worker.path, other)

    def forget_step(self, worker: Worker, step: tuple[str, int]) -> OpenStep | None:
        """A step is no longer open; returns what it was, if it was."""
        was = worker.open.pop(step, None)
        if was is not None:
            self.reserved_usd -= was.reserved_usd
            self.questions.pop(was.question, None)
        return was

    def close_step(
        self, p: str, n: int, step: str, seq: int, *, cleanup: bool, failed: e.StepFailed | None = None
    ) -> None:
        """A step has its outcome."""
        worker = self.worker_of(p)
        if worker is None:
            return
        was = self.forget_step(worker, (p, n))
        if step == "think" and self.monitors.is_target(f"{p}:{n}"):
            cut = failed is not None and _is_cancellation(failed)
            self.prompts_over[f"{p}:{n}"] = "aborted" if cut else "error" if failed else "normal"
        _settle_abort(worker, was, failed)
        worker.crashes_in_a_row = 0
        worker.last_step = (p, n, step)
        if cleanup:
            return
        worker.doubted.pop((p, n), None)
        worker.history.append(seq)
        if failed is None:
            worker.tools.pop((p, n), None)
            worker.blame.finish(p, n, step, seq)
            if worker.let_go and not worker.blame.steps:
                worker.let_go.clear()
        else:
            cancelled = _is_cancellation(failed)
            cut_short = was is not None and was.once and not was.between and _was_ended(failed)
            unknown = cut_short or is_unknown(failed.error)
            worker.blame.fail(p, n, Failed(seq, step, failed.fp, unknown), cancelled=cancelled)
            if failed.error.type.endswith(LINKED_EXIT):
                worker.exits.add((p, n))
            else:
                worker.exits.discard((p, n))


def _settle_abort(worker: Worker, was: OpenStep | None, failed: e.StepFailed | None) -> None:
    """A step has its outcome: was it the one that an abort waited for, or did one come too late for it?"""
    own = None if was is None else was.abort
    if failed is None or not _is_cancellation(failed):
        if own is not None:
            worker.put_off(own, first=True)
    elif (
        own is None and worker.aborts and bool(worker.aborts[0].by) == failed.error.type.endswith(LINKED_EXIT)
    ):
        del worker.aborts[0]


def is_unknown(error: ErrorData) -> bool:
    """Whether an error says that nobody knows whether a step happened."""
    return error.type.endswith(":OutcomeUnknownError")


def _is_cancellation(failed: e.StepFailed) -> bool:
    return failed.error.type.endswith(ABORTS)


def _was_ended(failed: e.StepFailed) -> bool:
    """Whether a step failed because it was ended from outside: what it had done by then nobody knows."""
    return failed.error.type.endswith(_ENDED)


def is_step(place: str) -> bool:
    """Whether a text looks like a step: a path and a number."""
    path, _, number = place.rpartition(":")
    return bool(path) and number.isascii() and number.isdigit()


def below(paths: Iterable[str]) -> tuple[str, ...]:
    """How the paths of workers begin that were made by these, in the worker itself or in one of its branches."""
    return tuple(f"{path}{mark}" for path in paths for mark in "/.")


def _run_created(state: State, data: e.RunCreated, seq: int, at: int, value: Value) -> None:
    state.run = data
    state.created_at = at
    state.arguments = value


def _program_pinned(state: State, data: e.ProgramPinned, seq: int, at: int, value: Value) -> None:
    assert state.run is not None
    state.run = msgspec.structs.replace(
        state.run, program=data.program, root=data.root, environment=data.environment
    )


def _run_moved(state: State, data: e.RunMoved, seq: int, at: int, value: Value) -> None:
    assert state.run is not None
    old = state.run.workspace

    def there(path: str) -> str:
        inside = path == old or path.startswith(old + os.sep)
        return data.workspace + path[len(old) :] if inside else path

    state.run = msgspec.structs.replace(
        state.run, workspace=data.workspace, program=there(state.run.program), root=there(state.run.root)
    )


def _hub_started(state: State, data: e.HubStarted, seq: int, at: int, value: Value) -> None:
    state.hub = data.hub
    state.dead_us += data.dead_us
    state.stopped = ""
    state.failure = None
    state.failed_at = 0
    state.suppressed = 0
    state.ended = None
    for worker in state.workers.values():
        for step in [step for step in worker.open.values() if step.cleanup]:
            state.forget_step(worker, (step.p, step.n))
        if not worker.ended:
            worker.status = "waiting"


def _run_ended(state: State, data: e.RunEnded, seq: int, at: int, value: Value) -> None:
    state.ended = data
    state.result = value


def _hub_stopped(state: State, data: e.HubStopped, seq: int, at: int, value: Value) -> None:
    state.stopped = data.reason


def _worker_spawned(state: State, data: e.WorkerSpawned, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path] = Worker(data, seq, value)
    worker.rewinds = state.undone.pop(data.path, 0)
    state.children.setdefault((data.p, data.n), []).append(data.path)


def _worker_ended(state: State, data: e.WorkerEnded, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    worker.result = value
    worker.error = data.error
    worker.error_is_final = data.final
    worker.status = "failed" if data.error else "completed"
    worker.origin = data.origin
    failed = worker.blame.steps.get(data.origin) if data.origin else None
    if failed is not None:
        worker.origin_seq = failed.seq
        worker.origin_facts = (failed.step, failed.fp)
    worker.suspended = dict(worker.open) if data.cut else None
    if data.error is None or data.final:
        watching = state.stop_watching(worker.path, at, leaving=not data.cut)
        worker.watching = watching if data.cut else []
    if data.error is None:
        state.links.forget(worker.path)
    elif data.final and not data.cut:
        state._unlink_ended(worker)  # noqa: SLF001 - the appliers are the state's own
    # The program may have raised something of its own instead: what it goes back to is as unknown as before.
    unknown = failed.unknown if failed is not None else data.error is not None and is_unknown(data.error)
    worker.in_doubt = unknown and not data.final
    for step in list(worker.open):
        # A failed worker may be set back: then it asks again for what was open, and is attached to it.
        if data.error is None or data.final or worker.open[step].cleanup:
            state.forget_step(worker, step)


def _worker_crashed(state: State, data: e.WorkerCrashed, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    # A process that came to where its worker was did get somewhere, even if nothing has come of it yet.
    worker.crashes_in_a_row = 1 if data.arrived else worker.crashes_in_a_row + 1
    worker.last_crash = data.reason
    if data.n:
        step = (data.p, data.n)
        worker.crashes[step] = worker.crashes.get(step, 0) + 1


def _worker_rewound(state: State, data: e.WorkerRewound, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    if data.to:
        _undo(state, worker, data.to)
    worker.rewinds += 1
    worker.crashes_in_a_row = 0
    worker.status = "waiting"
    worker.error = None
    worker.origin = None
    worker.origin_seq = 0
    worker.in_doubt = False


def _undo(state: State, worker: Worker, to: int) -> None:
    """Take what followed from a failure out of a worker's history."""
    origin = worker.origin or (worker.path, 0)
    kept, undone = worker.blame.standing(origin, to)
    for step in undone - {origin}:
        failed = worker.blame.steps.get(step)
        if failed is not None and failed.unknown:
            worker.doubted[step] = failed.fp
    for step, opened in list(worker.open.items()):
        if opened.seq > to and worker.blame.depends(opened.p, origin, to):
            state.forget_step(worker, step)
    state.revive_children({*undone, *worker.open})
    worker.history = array("Q", (place for place in worker.history if place < to or place in kept))
    worker.returning = {
        message: given for message, given in worker.returning.items() if given[0] < to or given[0] in kept
    }
    for record in worker.tools.values():
        record.rewind(lambda place: place < to or place in kept)
    for place, undo in reversed(worker.let_go):
        if place >= to and place not in kept:
            undo()
    worker.let_go.clear()
    worker.blame.rewind(kept, to)


def _workers_dropped(state: State, data: e.WorkersDropped, seq: int, at: int, value: Value) -> None:
    state.drop_children(list(state.children.get((data.p, data.n), ())))


def _worker_cancelled(state: State, data: e.WorkerCancelled, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    state.abort(worker, Abort(data.reason))
    worker.cancelled = True


def _step_started(state: State, data: e.StepStarted, seq: int, at: int, value: Value) -> None:
    state._open(data, seq, at, value)  # noqa: SLF001 - the appliers are the state's own


def _step_retried(state: State, data: e.StepRetried, seq: int, at: int, value: Value) -> None:
    worker = state.worker_of(data.p)
    step = worker.open.get((data.p, data.n)) if worker else None
    if step is not None:
        step.attempt = data.attempt + 1
        step.due = data.due
        step.between = True


def _step_finished(state: State, data: e.StepFinished, seq: int, at: int, value: Value) -> None:
    state.spent_usd += data.usd
    state.close_step(data.p, data.n, data.step, seq, cleanup=data.cleanup)
    if data.step == "timeout" and value.raw is not None and bytes(value.raw) == FIRED:
        worker = state.worker_of(data.p)
        if worker is not None:
            # A deadline that ran out is what the error that leaves its block came from.
            worker.blame.fail(data.p, data.n, Failed(seq, data.step, data.fp), cancelled=False)


def _step_failed(state: State, data: e.StepFailed, seq: int, at: int, value: Value) -> None:
    state.spent_usd += data.usd
    state.close_step(data.p, data.n, data.step, seq, cleanup=data.cleanup, failed=data)


def _tool_called(state: State, data: e.ToolCalled, seq: int, at: int, value: Value) -> None:
    worker = state.worker_of(data.p)
    if worker is None:
        return
    run = ToolRun(data.call, data.place, data.tool, data.id, seq, value)
    worker.tools.setdefault((data.p, data.n), ToolRecord()).runs.append(run)
    _note_tool(worker, data, "tool", seq)


def _tool_ended(state: State, data: e.ToolFinished | e.ToolFailed, seq: int, at: int, value: Value) -> None:
    worker = state.worker_of(data.p)
    if worker is None:
        return
    record = worker.tools.get((data.p, data.n))
    run = record.find(data.call) if record is not None else None
    if run is not None:
        run.ended_seq, run.value = seq, value
        run.error = data.error if isinstance(data, e.ToolFailed) else None
    # Whatever failed inside has gone to the agent: it is handled.
    _note_tool(worker, data, "returned", seq)


def _note_tool(
    worker: Worker, data: e.ToolCalled | e.ToolFinished | e.ToolFailed, step: str, seq: int
) -> None:
    worker.history.append(seq)
    worker.crashes_in_a_row = 0
    worker.blame.finish(CallPlace(data.p, data.n, data.call).path, 0, step, seq)


def _output(state: State, data: e.Output, seq: int, at: int, value: Value) -> None:
    state.outputs += 1
    state.close_step(data.p, data.n, data.channel, seq, cleanup=data.cleanup)


def _message_sent(state: State, data: e.MessageSent, seq: int, at: int, value: Value) -> None:
    state.mailbox(data.mailbox).put(
        Message(
            id=data.id,
            order=seq,
            sender=data.sender,
            size=data.size,
            at=at,
            value=value.raw,
            ref=value.ref,
            key=data.key,
            metadata=data.metadata,
            topic=data.topic,
            reply_to=data.reply_to,
            not_before=data.not_before,
            track=data.track,
        )
    )
    if data.track:
        state.deliveries.queued(data.track, data.id)
    if data.n and not data.reply_to:
        state.close_step(data.p, data.n, data.step, seq, cleanup=False)
    elif data.n:
        caller = state.worker_of(data.p)
        called = caller.open.get((data.p, data.n)) if caller is not None else None
        if called is not None:
            called.sent = (data.mailbox, data.id)


def _message_taken(state: State, data: e.MessageTaken, seq: int, at: int, value: Value) -> None:
    mailbox = state.mailbox(data.mailbox)
    worker = state.worker_of(data.p)
    if worker is not None:
        worker.last_message = data.id
    if data.attempt:
        message = mailbox.hold(data.id, data.attempt)
        state.held[data.id] = (data.mailbox, worker.path if worker else "")
    else:
        message = mailbox.take(data.id)
    if message is not None and message.track:
        state.deliveries.reached(message, data.p, at, for_good=not data.attempt)
    state.close_step(data.p, data.n, data.step, seq, cleanup=False)


def _messages_drained(state: State, data: e.MessagesDrained, seq: int, at: int, value: Value) -> None:
    mailbox = state.mailbox(data.mailbox)
    for message_id in data.ids:
        message = mailbox.take(message_id)
        if message is not None and message.track:
            state.deliveries.reached(message, data.p, at, for_good=True)
    state.close_step(data.p, data.n, "drain", seq, cleanup=False)


def _message_held(state: State, data: e.MessageHeld, seq: int, at: int, value: Value) -> None:
    message = state.mailbox(data.mailbox).hold(data.id, data.attempt)
    state.held[data.id] = (data.mailbox, data.by)
    if message is not None and message.track:
        state.deliveries.reached(message, data.by, at, for_good=False)


def _message_moved(state: State, data: e.MessageMoved, seq: int, at: int, value: Value) -> None:
    mailbox = state.mailbox(data.mailbox)
    holder = state.workers.get(state.held.get(data.id, ("", ""))[1])
    if data.to == "returning":
        if holder is not None:
            holder.returning[data.id] = (seq - 1, (data.p, data.n))
        return
    state.held.pop(data.id, None)
    if holder is not None:
        holder.returning.pop(data.id, None)
    deliveries = state.deliveries
    if data.to == "processed":
        message = mailbox.take(data.id)
        if message is not None and message.track:
            deliveries.processed(message)
    elif data.to == "returned":
        message = mailbox.give_back(data.id)
        if message is not None:
            deliveries.returned(message, at, data.reason)
    elif data.to == "due":
        message = mailbox.release(data.id, seq)
        if message is not None and message.track:
            deliveries.came_due(message, at, state.dead_us)
    elif data.to == "withdrawn":
        mailbox.withdraw(data.id)
    else:
        message = mailbox.drop(data.id)
        if message is not None and data.to == "dead":
            deliveries.died(state.run_id, message, data, at)


def _mailbox_changed(state: State, data: e.MailboxChanged, seq: int, at: int, value: Value) -> None:
    mailbox = state.mailbox(data.mailbox)
    if data.closed:
        mailbox.close()
    if data.capacity:
        mailbox.declare(data.capacity, data.max_bytes, msgspec.convert(data.overflow, type=_Overflow))
    if data.subscribe:
        mailbox.subscribe(data.subscribe)
    if data.unsubscribe:
        mailbox.unsubscribe(data.unsubscribe)
    if data.owner:
        mailbox.register(data.owner)


def _send_opened(state: State, data: e.SendOpened, seq: int, at: int, value: Value) -> None:
    state.deliveries.opened(data, at, state.dead_us, value.raw, value.ref)


def _send_tried(state: State, data: e.SendTried, seq: int, at: int, value: Value) -> None:
    state.deliveries.tried(data, at, state.dead_us)


def _send_settled(state: State, data: e.SendSettled, seq: int, at: int, value: Value) -> None:
    state.deliveries.settled(data)


def _cast_opened(state: State, data: e.CastOpened, seq: int, at: int, value: Value) -> None:
    state.deliveries.cast_opened(data, at, state.dead_us)


def _cast_settled(state: State, data: e.CastSettled, seq: int, at: int, value: Value) -> None:
    state.deliveries.cast_settled(data)


def _letter_added(state: State, data: e.LetterAdded, seq: int, at: int, value: Value) -> None:
    state.deliveries.letter_added(state.run_id, data, at, value.raw, value.ref)
    state.mailbox(data.mailbox).reserve(data.key, data.message)


def _letter_moved(state: State, data: e.LetterMoved, seq: int, at: int, value: Value) -> None:
    letter = state.deliveries.letter_moved(data, at)
    if letter is not None and data.to == "retrying":
        state.mailbox(letter.mailbox).put(
            Message(
                id=letter.message_id,
                order=seq,
                sender=letter.sender,
                size=letter.size,
                at=at,
                value=letter.value,
                ref=letter.ref,
                key=letter.key,
                metadata=letter.metadata,
                topic=letter.topic,
                track=letter.id,
            )
        )


def _monitor_made(state: State, data: e.MonitorMade, seq: int, at: int, value: Value) -> None:
    state.monitors.add(Monitor(data.ref, data.target, data.watcher, data.tag, at, data.stack, data.into))


def _monitor_told(state: State, data: e.MonitorTold, seq: int, at: int, value: Value) -> None:
    monitor = state.monitors.remove(data.ref)
    if monitor is not None:
        state.told[data.ref] = monitor
        if not state.monitors.is_target(monitor.target):
            state.prompts_over.pop(monitor.target, None)


def _monitor_gone(state: State, data: e.MonitorGone, seq: int, at: int, value: Value) -> None:
    monitor = state.monitors.remove(data.ref) or state.told.pop(data.ref, None)
    worker = state.worker_of(data.p)
    if monitor is not None and worker is not None:
        _let_go(worker, seq, partial(state.monitors.add, monitor))


def _link_made(state: State, data: e.LinkMade, seq: int, at: int, value: Value) -> None:
    state.links.add(data.path, data.other)


def _link_gone(state: State, data: e.LinkGone, seq: int, at: int, value: Value) -> None:
    _let_go(state.workers[data.path], seq, partial(state.links.add, data.path, data.other))
    state.links.remove(data.path, data.other)


def _link_told(state: State, data: e.LinkTold, seq: int, at: int, value: Value) -> None:
    state.links.remove(data.path, data.by)
    if not data.trapped:
        state.abort(state.workers[data.path], Abort(data.reason, data.by))


def _worker_traps(state: State, data: e.WorkerTraps, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    _let_go(worker, seq, partial(setattr, worker, "trapping", worker.trapping))
    worker.trapping = data.on


def _let_go(worker: Worker, seq: int, undo: Callable[[], object]) -> None:
    """Something was undone by the outcome right before it; if the worker is set back behind that, it is there again."""
    if worker.blame.steps:
        worker.let_go.append((seq - 1, undo))


def _session_failed(state: State, data: e.FailureRecorded, seq: int, at: int, value: Value) -> None:
    if data.suppressed or state.failure is not None:
        state.suppressed += 1
        return
    state.failure = data
    state.failed_at = at


def _for_people(state: State, data: e.PeerJoined | e.WaitSlow, seq: int, at: int, value: Value) -> None:
    """Kept for people; changes nothing."""


_Overflow = Literal["block", "reject", "drop_oldest", "drop_newest"]

_Apply = Callable[[State, T, int, int, Value], None]

_APPLY: Final[dict[type[e.EntryData], Callable[..., None]]] = {
    e.RunCreated: _run_created,
    e.RunMoved: _run_moved,
    e.ProgramPinned: _program_pinned,
    e.HubStarted: _hub_started,
    e.RunEnded: _run_ended,
    e.HubStopped: _hub_stopped,
    e.WorkerSpawned: _worker_spawned,
    e.WorkerEnded: _worker_ended,
    e.WorkerCrashed: _worker_crashed,
    e.WorkersDropped: _workers_dropped,
    e.WorkerRewound: _worker_rewound,
    e.WorkerCancelled: _worker_cancelled,
    e.StepStarted: _step_started,
    e.StepRetried: _step_retried,
    e.StepFinished: _step_finished,
    e.StepFailed: _step_failed,
    e.ToolCalled: _tool_called,
    e.ToolFinished: _tool_ended,
    e.ToolFailed: _tool_ended,
    e.Output: _output,
    e.MessageSent: _message_sent,
    e.MessageTaken: _message_taken,
    e.MessagesDrained: _messages_drained,
    e.MessageHeld: _message_held,
    e.MessageMoved: _message_moved,
    e.MailboxChanged: _mailbox_changed,
    e.SendOpened: _send_opened,
    e.SendTried: _send_tried,
    e.SendSettled: _send_settled,
    e.CastOpened: _cast_opened,
    e.CastSettled: _cast_settled,
    e.LetterAdded: _letter_added,
    e.LetterMoved: _letter_moved,
    e.MonitorMade: _monitor_made,
    e.MonitorTold: _monitor_told,
    e.MonitorGone: _monitor_gone,
    e.LinkMade: _link_made,
    e.LinkGone: _link_gone,
    e.LinkTold: _link_told,
    e.WorkerTraps: _worker_traps,
    e.FailureRecorded: _session_failed,
    e.PeerJoined: _for_people,
    e.WaitSlow: _for_people,
}
