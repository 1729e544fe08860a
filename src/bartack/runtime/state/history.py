"""The history of a worker, as it is sent to a process that has to replay it: the outcomes of its steps, in journal order.

The outcome of a request is read from the journal likewise, if the request is sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from bartack.journal import Entry, Journal
from bartack.messaging import Accepted
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.paths import CallPlace
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import WorkerState

CHUNK: Final = 512 * 1024
"""About how many bytes of outcomes go into one frame."""


def iter_greeting(
    state: State, journal: Journal, worker: WorkerState, known: int, config: msgspec.Raw, run_dir: str
) -> Iterator[bytes]:
    """The first frames for a worker's process: its welcome, its history, and that it is live from there on.

    Args:
        state: The run.
        journal: Where the outcomes are.
        worker: Whom to greet.
        known: How many outcomes of its steps there were when it said hello.
        config: Settings that workers need.
        run_dir: Where the run is.
    """
    places = list(worker.history[:known])
    run = state.run
    assert run is not None
    welcome = f.Welcome(
        run=run.run,
        dir=run_dir,
        workspace=run.workspace,
        timestamp=state.created_at,
        worker=worker.worker,
        rewinds=worker.rewinds,
        first=worker.first,
        argv=run.argv,
        versions=dict(worker.versions),
        v=worker.arguments.raw,
        ref=worker.arguments.ref,
        config=config,
    )
    yield f.encode(welcome)
    past: list[f.Past] = []
    size = 0
    for entry in journal.fetch(places):
        outcome = outcome_of(entry)
        if outcome is None:
            continue
        past.append(outcome)
        size += 200 + (0 if outcome.v is None else len(bytes(outcome.v)))
        if size > CHUNK:
            yield f.encode(f.History(past=past))
            past, size = [], 0
    if past:
        yield f.encode(f.History(past=past))
    yield f.encode(f.Live(open=open_steps(worker)))


def open_steps(worker: WorkerState) -> list[f.Past]:
    """The steps of a worker that have begun and have no outcome."""
    return [
        f.Past(p=step.p, n=step.n, step=step.step, fp=step.fp, about=step.about)
        for step in worker.open.values()
        if not step.cleanup
    ]


def outcome_of(entry: Entry) -> f.Past | None:
    """The outcome of a step that an entry is, if it is one."""
    past: f.Past | None = None
    match e.decode_entry(entry.kind, entry.raw):
        case e.StepFinished() as data:
            past = f.Past(
                p=data.p, n=data.n, step=data.step, fp=data.fp, v=entry.value, ref=entry.ref, about=data.about
            )
        case e.StepFailed() as data:
            past = f.Past(p=data.p, n=data.n, step=data.step, fp=data.fp, e=data.error, about=data.about)
        case e.OutputWritten() as data:
            past = f.Past(p=data.p, n=data.n, step=data.channel, fp=data.fp, v=entry.value, ref=entry.ref)
        case e.ToolCalled() as data:
            path = CallPlace(data.p, data.n, data.call).path
            past = f.Past(p=path, n=0, step="tool", v=entry.value, ref=entry.ref, about=data.tool)
        case e.ToolFinished() | e.ToolFailed() as data:
            past = f.Past(p=CallPlace(data.p, data.n, data.call).path, n=0, step="returned")
        case e.MessageSent() as data:
            sent = data.id if data.step == "send" else Accepted(data.id, entry.seq)
            message_id = msgspec.Raw(msgspec.json.encode(sent))
            past = f.Past(p=data.p, n=data.n, step=data.step, fp=data.fp, v=message_id, about=data.mailbox)
        case e.MessageTaken() as data:
            past = f.Past(
                p=data.p,
                n=data.n,
                step=data.step,
                fp=data.fp,
                v=entry.value,
                ref=entry.ref,
                about=data.mailbox,
            )
        case e.MessagesDrained() as data:
            past = f.Past(
                p=data.p, n=data.n, step="drain", fp=data.fp, v=entry.value, ref=entry.ref, about=data.mailbox
            )
        case _:
            pass
    return past


def encode_outcome(journal: Journal, place: int, number: int) -> bytes:
    """The frame that answers a request which was taken before.

    Args:
        journal: Where its outcome is.
        place: The place of the entry that has it.
        number: The number that the request has in the connection over which it came again.
    """
    entry = next(journal.fetch([place]))
    taken = entry.decode(e.RequestTaken)
    if taken.error is not None:
        return f.encode(f.Refusal(i=number, e=taken.error))
    return f.encode(f.Answer(i=number, v=entry.value, ref=entry.ref))
