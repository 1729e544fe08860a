"""How the entries of a journal add up to the state of a run: what each kind of them changes.

This is the only way a state changes, and it takes the same entries when the hub writes them and when a journal is read again: that
is what makes recovery one code path.

**Why one function suffices.** When the hub records an entry, it stages it in the journal and calls ``apply`` with the data, its
``seq`` and its value (``Turn.record`` in ``runtime/kernel/turn.py``). When the journal is read, ``add_entry`` decodes the same
data and calls ``apply`` with the same ``seq`` and value. Both begin with an empty ``State`` and take the entries in the order of
``seq``. So if every function here depends on its arguments alone, the state after entry n is the same in the hub that wrote it,
in the hub that resumes the run, and in every view, by induction over n. Entries that a crash took away were applied only in
memory that is gone.

What follows for each function here:

- *It reads nothing else*: no clock, no file, no setting, no environment, no random number, nothing that only the hub has
  (processes, connections, timers). What a decision needs of these is put into the entry by the desk that decides. A value over 64
  KiB is a reference here and is not loaded.
- *It decides nothing and refuses nothing.* An entry is a fact. What must not happen is refused before it is recorded; a check
  that failed here would keep the run from ever being opened again. The assertions state only what the order of entries guarantees.
- *A time is only for durations.* ``at`` is read twice, by the journal and by the turn, and may differ by microseconds between the
  hub that wrote the entry and a reader. Nothing may compare two of them for equality, or order entries by them: that is what
  ``seq`` is for.
- *An old entry keeps its meaning.* Journals of earlier versions are read by these functions; a new meaning is a new member with a
  default, or a new kind. An entry of an unknown kind changes nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal

import msgspec

from bartack.core import typed
from bartack.journal import Entry
from bartack.messaging import Message
from bartack.runtime.protocol.paths import CallPlace
from bartack.runtime.state import entries as e
from bartack.runtime.state.blame import FailedStep, follows
from bartack.runtime.state.links import Abort
from bartack.runtime.state.requests import request_of
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import (
    FIRED,
    AskedQuestion,
    ToolRecord,
    ToolRun,
    UnknownDecision,
    Value,
    WorkerState,
    is_unknown,
)
from bartack.supervision import Monitor

_Overflow = Literal["block", "reject", "drop_oldest", "drop_newest"]


def apply_all(state: State, entries: Iterable[Entry]) -> None:
    """Add up the entries of a journal."""
    for entry in entries:
        add_entry(state, entry)


def add_entry(state: State, entry: Entry) -> None:
    """Add up one entry of a journal."""
    data = e.decode_entry(entry.kind, entry.raw)
    if data is not None:
        apply(state, data, entry.seq, entry.at, Value(entry.value, entry.ref))


def apply(state: State, data: e.EntryData, seq: int, at: int, value: Value) -> None:
    """Add one entry."""
    state.last_at = at
    APPLY[type(data)](state, data, seq, at, value)


def _run_created(state: State, data: e.RunCreated, seq: int, at: int, value: Value) -> None:
    state.run = data
    state.created_at = at
    state.arguments = value


def _program_pinned(state: State, data: e.ProgramPinned, seq: int, at: int, value: Value) -> None:
    assert state.run is not None
    state.run = msgspec.structs.replace(
        state.run, program=data.program, root=data.root, environment=data.environment, paths=data.paths
    )
    state.next_program = data.waiting
    state.pinned_seq = seq


def _run_moved(state: State, data: e.RunMoved, seq: int, at: int, value: Value) -> None:
    assert state.run is not None
    old = state.run.workspace

    def there(path: str) -> str:
        inside = path == old or path.startswith(f"{old}/")
        return data.workspace + path[len(old) :] if inside else path

    state.run = msgspec.structs.replace(
        state.run, workspace=data.workspace, program=there(state.run.program), root=there(state.run.root)
    )


def _workspace_part(state: State, data: e.WorkspacePart, seq: int, at: int, value: Value) -> None:
    if value.ref is not None:
        state.copies.add_part(value.ref)


def _workspace_kept(state: State, data: e.WorkspaceKept, seq: int, at: int, value: Value) -> None:
    if value.ref is not None:
        state.copies.add(data, value.ref)


def _workspace_packed(state: State, data: e.WorkspacePacked, seq: int, at: int, value: Value) -> None:
    if value.ref is not None:
        state.copies.replace(data.copy, value.ref)


def _clock_set(state: State, data: e.ClockSet, seq: int, at: int, value: Value) -> None:
    state.dead_us += data.by_us


def _run_decided(state: State, data: e.RunDecided, seq: int, at: int, value: Value) -> None:
    state.decided = UnknownDecision(data.choice, value)


def _hub_started(state: State, data: e.HubStarted, seq: int, at: int, value: Value) -> None:
    state.hub = data.hub
    state.kept_usd, state.kept_answers = state.spent_usd, state.answers_paid
    state.dead_us += data.dead_us
    state.stopped = ""
    state.rests_until, state.rests_for = 0, ""
    state.decided = None
    state.failure = None
    state.failed_at = 0
    state.suppressed = 0
    state.ended = None
    for worker in state.workers.values():
        for step in [step for step in worker.open.values() if step.cleanup]:
            state.forget_step(worker, (step.p, step.n))
        if data.adopted:
            worker.adopted.clear()
        if not worker.ended:
            worker.status = "waiting"


def _run_ended(state: State, data: e.RunEnded, seq: int, at: int, value: Value) -> None:
    state.ended = data
    state.result = value


def _hub_stopped(state: State, data: e.HubStopped, seq: int, at: int, value: Value) -> None:
    state.stopped = data.reason
    state.rests_until, state.rests_for = data.until, data.about


def _worker_spawned(state: State, data: e.WorkerSpawned, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path] = WorkerState(data, seq, value)
    worker.began_us = at
    worker.rewinds = state.undone.pop(data.path, 0)
    state.children.setdefault((data.p, data.n), []).append(data.path)
    above = state.worker_of(data.p) if data.p else None
    if above is not None:
        above.made.append(data.path)
        opened = above.open.get((data.p, data.n)) if data.site is None else None
        worker.site = opened.site if opened is not None else data.site


def _worker_ended(state: State, data: e.WorkerEnded, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    worker.ended_us = at
    worker.result = value
    worker.error = data.error
    worker.error_is_final = data.final
    worker.status = "failed" if data.error else "completed"
    worker.origin = data.origin
    failed = worker.blame.steps.get(data.origin) if data.origin else None
    worker.origin_seq = failed.seq if failed is not None else 0
    worker.origin_facts = (failed.step, failed.fp) if failed is not None else ("", "")
    worker.suspended = dict(worker.open) if data.cut else None
    if data.error is None or data.final:
        watching = state.stop_watching(worker.path, at, leaving=not data.cut)
        worker.watching = watching if data.cut else []
    if data.error is None:
        state.links.forget(worker.path)
    elif data.final and not data.cut:
        state.unlink_ended(worker)
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
    _set_back(worker)


def _step_set_aside(state: State, data: e.StepSetAside, seq: int, at: int, value: Value) -> None:
    worker, step, kept = state.workers[data.path], (data.p, data.n), set(data.kept)
    state.drop_children(data.workers)
    for key, opened in list(worker.open.items()):
        if opened.seq > data.to and follows(opened.p, step):
            state.forget_step(worker, key)
    worker.history = array("Q", (place for place in worker.history if place < data.to or place in kept))
    worker.tools = {key: record for key, record in worker.tools.items() if key in worker.open}
    worker.blame.rewind(kept, data.to)
    worker.doubted.pop(step, None)
    worker.adopted.clear()
    worker.crashes.clear()
    worker.set_aside |= {step}
    _set_back(worker)


def _set_back(worker: WorkerState) -> None:
    """A worker continues with a shorter history."""
    worker.rewinds += 1
    worker.crashes_in_a_row = 0
    worker.status = "waiting"
    worker.error = None
    worker.origin = None
    worker.origin_seq = 0
    worker.in_doubt = False


def _undo(state: State, worker: WorkerState, to: int) -> None:
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
    for place, undo in reversed(worker.released):
        if place >= to and place not in kept:
            undo()
    worker.released.clear()
    worker.blame.rewind(kept, to)


def _worker_restarted(state: State, data: e.WorkerRestarted, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    worker.restart(data.n, value)
    state.forget_below(worker)


def _workers_dropped(state: State, data: e.WorkersDropped, seq: int, at: int, value: Value) -> None:
    state.drop_children(list(state.children.get((data.p, data.n), ())))


def _worker_cancelled(state: State, data: e.WorkerCancelled, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    state.abort(worker, Abort(data.reason))
    worker.cancelled = True


def _step_started(state: State, data: e.StepStarted, seq: int, at: int, value: Value) -> None:
    state.open_step(data, seq, at, value)


def _step_retried(state: State, data: e.StepRetried, seq: int, at: int, value: Value) -> None:
    worker = state.worker_of(data.p)
    step = worker.open.get((data.p, data.n)) if worker else None
    if step is not None:
        if step.is_prompt:
            step.limited_us = step.waits_for_limits_us(at, state.dead_us)
            step.limited = (at, state.dead_us)
        step.attempt = data.attempt + 1
        step.due = data.due
        step.between = True


def _spend(state: State, data: e.StepFinished | e.StepFailed) -> None:
    """A prompt has cost something."""
    state.spent_usd += data.usd
    state.usd_estimated |= data.usd_estimated
    if data.used is not None:
        state.spent += data.used
    worker = state.worker_of(data.p)
    if worker is not None:
        worker.spent_usd += data.usd


def _step_finished(state: State, data: e.StepFinished, seq: int, at: int, value: Value) -> None:
    if data.usd or data.used is not None:
        _spend(state, data)
    state.close_step(data.p, data.n, data.step, seq, cleanup=data.cleanup)
    if data.step == "think":
        state.answers_paid += 1
        asked = state.worker_of(data.p)
        if asked is not None and asked.set_aside:
            asked.set_aside -= {(data.p, data.n)}
    if data.step == "timeout" and value.raw is not None and bytes(value.raw) == FIRED:
        worker = state.worker_of(data.p)
        if worker is not None:
            # A deadline that ran out is what the error that leaves its block came from.
            worker.blame.fail(data.p, data.n, FailedStep(seq, data.step, data.fp), cancelled=False)


def _step_failed(state: State, data: e.StepFailed, seq: int, at: int, value: Value) -> None:
    if data.usd or data.used is not None:
        _spend(state, data)
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
    worker: WorkerState, data: e.ToolCalled | e.ToolFinished | e.ToolFailed, step: str, seq: int
) -> None:
    worker.history.append(seq)
    worker.crashes_in_a_row = 0
    worker.blame.finish(CallPlace(data.p, data.n, data.call).path, 0, step, seq)


def _question_asked(state: State, data: e.QuestionAsked, seq: int, at: int, value: Value) -> None:
    state.questions_asked += 1
    for number in data.drops:
        state.answers.pop(number, None)
    worker = state.worker_of(data.p)
    step = worker.open.get((data.p, data.n)) if worker is not None else None
    if worker is None or step is None:
        return
    if step.asking is None:
        step.asking = (at, state.dead_us)
    state.questions[data.id] = AskedQuestion(
        id=data.id,
        worker=worker.path,
        p=data.p,
        n=data.n,
        seq=seq,
        at=at,
        dead_us=state.dead_us,
        asked=value,
        by_agent=True,
        agent=data.agent,
        kind=data.ask,
        tool=data.tool,
        fp=data.fp,
        about=data.about,
        timeout_s=data.timeout_s,
    )


def _question_settled(state: State, data: e.QuestionSettled, seq: int, at: int, value: Value) -> None:
    question = state.questions.pop(data.id, None)
    if question is None:
        return
    if data.how != "superseded":
        state.answers[data.id] = msgspec.structs.replace(question, settled=data)
    worker = state.worker_of(question.p)
    step = worker.open.get(question.key) if worker is not None else None
    if step is not None and all(other.key != step.key for other in state.questions.values()):
        step.asked_us = step.waits_for_people_us(at, state.dead_us)
        step.asking = None


def _output(state: State, data: e.OutputWritten, seq: int, at: int, value: Value) -> None:
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
    if data.reply_to and (request := request_of(data.reply_to)):
        state.requests.called(request, data.mailbox, data.id)
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
        state.requests.withdrawn(mailbox.withdraw(data.id))
    else:
        message = mailbox.drop(data.id)
        if message is not None and data.to == "dead":
            deliveries.died(state.run_id, message, data, at)


def _mailbox_changed(state: State, data: e.MailboxChanged, seq: int, at: int, value: Value) -> None:
    mailbox = state.mailbox(data.mailbox)
    if data.closed:
        mailbox.close()
    if data.capacity:
        mailbox.declare(data.capacity, data.max_bytes, typed.convert(data.overflow, type=_Overflow))
    if data.subscribe:
        mailbox.subscribe(data.subscribe)
    if data.unsubscribe:
        mailbox.unsubscribe(data.unsubscribe)
    if data.owner:
        mailbox.register(data.owner)


def _send_opened(state: State, data: e.SendOpened, seq: int, at: int, value: Value) -> None:
    state.deliveries.opened(data, at, state.dead_us, value.raw, value.ref)
    if data.request:
        state.requests.opened(data.request)


def _send_tried(state: State, data: e.SendTried, seq: int, at: int, value: Value) -> None:
    state.deliveries.tried(data, at, state.dead_us)


def _send_settled(state: State, data: e.SendSettled, seq: int, at: int, value: Value) -> None:
    state.deliveries.settled(data)


def _cast_opened(state: State, data: e.CastOpened, seq: int, at: int, value: Value) -> None:
    state.deliveries.cast_opened(data, at, state.dead_us)
    if data.request:
        state.requests.opened(data.request)


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


def _monitor_reported(state: State, data: e.MonitorReported, seq: int, at: int, value: Value) -> None:
    monitor = state.monitors.remove(data.ref)
    if monitor is not None:
        state.reported[data.ref] = monitor
        if not state.monitors.is_target(monitor.target):
            state.prompts_over.pop(monitor.target, None)


def _monitor_gone(state: State, data: e.MonitorGone, seq: int, at: int, value: Value) -> None:
    monitor = state.monitors.remove(data.ref) or state.reported.pop(data.ref, None)
    worker = state.worker_of(data.p)
    if monitor is not None and worker is not None:
        _note_release(worker, seq, partial(state.monitors.add, monitor))


def _link_made(state: State, data: e.LinkMade, seq: int, at: int, value: Value) -> None:
    state.links.add(data.path, data.other)


def _link_gone(state: State, data: e.LinkGone, seq: int, at: int, value: Value) -> None:
    _note_release(state.workers[data.path], seq, partial(state.links.add, data.path, data.other))
    state.links.remove(data.path, data.other)


def _link_acted(state: State, data: e.LinkReported, seq: int, at: int, value: Value) -> None:
    state.links.remove(data.path, data.by)
    if not data.trapped:
        state.abort(state.workers[data.path], Abort(data.reason, data.by))


def _worker_traps(state: State, data: e.WorkerTraps, seq: int, at: int, value: Value) -> None:
    worker = state.workers[data.path]
    _note_release(worker, seq, partial(setattr, worker, "trapping", worker.trapping))
    worker.trapping = data.on


def _version_recorded(state: State, data: e.VersionRecorded, seq: int, at: int, value: Value) -> None:
    worker = state.worker_of(data.p)
    if worker is not None:
        worker.versions = {data.name: data.number, **worker.versions}


def _note_release(worker: WorkerState, seq: int, undo: Callable[[], object]) -> None:
    """The outcome right before this entry released something; if the worker is set back to before that outcome, it has it again."""
    if worker.blame.steps:
        worker.released.append((seq - 1, undo))


def _request_taken(state: State, data: e.RequestTaken, seq: int, at: int, value: Value) -> None:
    state.requests.settled(data.id, seq)


def _session_failed(state: State, data: e.FailureRecorded, seq: int, at: int, value: Value) -> None:
    if data.ends:
        state.ending = data
    if data.suppressed or state.failure is not None:
        state.suppressed += 1
        return
    state.failure = data
    state.failed_at = at


def _for_people(
    state: State,
    data: e.PeerJoined | e.WaitSlow | e.AttemptFailed | e.WorkspacePrepared,
    seq: int,
    at: int,
    value: Value,
) -> None:
    """Kept for people; changes nothing."""


APPLY: Final[dict[type[e.EntryData], Callable[..., None]]] = {
    e.RunCreated: _run_created,
    e.RunMoved: _run_moved,
    e.WorkspacePart: _workspace_part,
    e.WorkspaceKept: _workspace_kept,
    e.WorkspacePacked: _workspace_packed,
    e.WorkspacePrepared: _for_people,
    e.ClockSet: _clock_set,
    e.ProgramPinned: _program_pinned,
    e.RunDecided: _run_decided,
    e.HubStarted: _hub_started,
    e.RunEnded: _run_ended,
    e.HubStopped: _hub_stopped,
    e.WorkerSpawned: _worker_spawned,
    e.WorkerEnded: _worker_ended,
    e.WorkerCrashed: _worker_crashed,
    e.WorkersDropped: _workers_dropped,
    e.WorkerRewound: _worker_rewound,
    e.StepSetAside: _step_set_aside,
    e.WorkerRestarted: _worker_restarted,
    e.WorkerCancelled: _worker_cancelled,
    e.StepStarted: _step_started,
    e.StepRetried: _step_retried,
    e.StepFinished: _step_finished,
    e.StepFailed: _step_failed,
    e.ToolCalled: _tool_called,
    e.ToolFinished: _tool_ended,
    e.ToolFailed: _tool_ended,
    e.QuestionAsked: _question_asked,
    e.QuestionSettled: _question_settled,
    e.OutputWritten: _output,
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
    e.MonitorReported: _monitor_reported,
    e.MonitorGone: _monitor_gone,
    e.LinkMade: _link_made,
    e.LinkGone: _link_gone,
    e.LinkReported: _link_acted,
    e.WorkerTraps: _worker_traps,
    e.VersionRecorded: _version_recorded,
    e.RequestTaken: _request_taken,
    e.FailureRecorded: _session_failed,
    e.PeerJoined: _for_people,
    e.WaitSlow: _for_people,
    e.AttemptFailed: _for_people,
}
