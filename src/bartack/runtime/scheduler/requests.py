"""What a worker sends to the hub, and which of it is still unanswered.

Everything with a place in the history is submitted here. A live worker sends it; a replaying one keeps it as pending until the
history has confirmed it, or is used up. Values that are too long for a frame go through the blobs of the run. When to submit is
decided in ``scheduler.py``; ``bodies.py`` executes the steps that are done in the worker and reports them with ``send``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

import msgspec

from bartack.core.disk import is_disk_trouble
from bartack.errors import BartackError, RunDiskError, StepCancelledError
from bartack.journal import BlobRef
from bartack.journal.contract import INLINE_LIMIT
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error, revive_error
from bartack.runtime.protocol.steps import SITED
from bartack.runtime.protocol.values import Buffer, encode
from bartack.runtime.scheduler.operations import Counted, Deadline, NoteOp, StepOp, WakeUp, WorkOp, site_of
from bartack.runtime.scheduler.replay_log import Key, Pending, ReplayLog

_NULL: Final = msgspec.Raw(b"null")


class Blobs(Protocol):
    """Where values go that are too long for a frame."""

    def put(self, content: bytes) -> BlobRef:
        """Keep a value."""
        ...

    def get(self, ref: BlobRef) -> bytes:
        """A value that was kept."""
        ...


class StepExecutor(Protocol):
    """Executes the steps that are done in the worker."""

    def begin(self, op: WorkOp[object]) -> None:
        """Report to the hub that a step begins, and execute it."""
        ...

    def answered(self, op: WorkOp[object], data: Buffer) -> None:
        """The hub answered something else than the outcome."""
        ...

    def cancel(self, op: WorkOp[object]) -> None:
        """Give a step up."""
        ...

    def abandon(self) -> None:
        """Nothing waits for the outcomes any more. They are reported all the same."""
        ...


class Requests:
    """Sends the frames of one worker, and finds the step that an answer is for."""

    def __init__(self, log: ReplayLog, send: Callable[[f.Frame], None], blobs: Blobs, path: str) -> None:
        self.send = send
        """Sends a frame to the hub."""
        self.closed = False
        """Whether frames are dropped instead."""
        self.executor: StepExecutor
        self.note_open = False
        """Whether the program has seen a note that is perhaps not durable yet."""
        self._log = log
        self._blobs = blobs
        self._path = path
        self._number = 0
        self._noted = 0
        """The number of the last request before the last note."""
        self._unanswered: dict[int, Counted[object]] = {}

    def close(self) -> None:
        """Drop every further frame: what the collector does to abandoned coroutines is not part of the program."""
        self.closed = True
        self.send = _drop

    # Steps.

    def submit(self, step: Key, pending: Pending) -> None:
        """Send something that the program did; on replay only when it turns out that the history does not have it."""
        if self._log.replaying:
            self._log.add(step, pending)
        else:
            self._send_pending(pending)

    def submit_rest(self) -> None:
        """Send everything that the history did not confirm, in the order in which it was done."""
        for pending in self._log.drain():
            self._send_pending(pending)
            if isinstance(pending, Counted) and pending.cancel_reason:
                self.give_up(pending)

    def give_up(self, op: Counted[object]) -> None:
        """Cancel a step with the party that does it. One that is still pending is cancelled as soon as it is sent."""
        if self._log.replaying:
            return
        if isinstance(op, WorkOp):
            self.executor.cancel(op)
        else:
            self.send(f.Cancel(p=op.p, n=op.n, reason=op.cancel_reason))

    def make_note(self, op: NoteOp[object]) -> WakeUp:
        """Do a harmless step right here, and submit its outcome."""
        note = f.Note(p=op.p, n=op.n, step=op.step, fp=op.fp, about=op.about, cleanup=op.cleanup)
        wake_up: WakeUp
        try:
            if op.cancelled:
                raise StepCancelledError(op.branch.interruptions[0][1])
            data = encode(op.run(), op.about)
            note.v, note.ref = self.pack(data)
            wake_up = data, None
        except BartackError as error:
            note.e = describe_error(error, self._path)
            wake_up = None, note_error(op, note.e)
        self.submit((op.p, op.n), note)
        return wake_up

    def _send_pending(self, pending: Pending) -> None:
        if isinstance(pending, StepOp):
            self._send_step(pending)
        elif isinstance(pending, WorkOp):
            self.executor.begin(pending)
        elif isinstance(pending, Deadline):
            self._send_deadline(pending)
        elif not isinstance(pending, Counted):
            self.send(pending)
            is_note = isinstance(pending, f.Note) and pending.step != "timeout"
            if is_note or isinstance(pending, f.VersionChosen):
                self.note_open = True
                self._noted = self._number

    def _send_step(self, op: StepOp[object]) -> None:
        v, ref = (None, None) if op.value is None else self.pack(op.value)
        self.send(
            f.Step(
                i=self.ask(op),
                p=op.p,
                n=op.n,
                step=op.step,
                fp=op.fp,
                about=op.about,
                a=msgspec.Raw(op.args),
                v=v,
                ref=ref,
                cancelled=op.cancelled,
                cleanup=op.cleanup,
                site=site_of(op.made) if op.step in SITED else None,
            )
        )

    def _send_deadline(self, deadline: Deadline) -> None:
        path, n = deadline.step
        self.send(
            f.Begin(
                p=path,
                n=n,
                step="timeout",
                fp=deadline.fp,
                about=f"{deadline.seconds:g} s",
                timeout_s=deadline.seconds,
                cleanup=deadline.cleanup,
            )
        )

    # Answers.

    def ask(self, op: Counted[object]) -> int:
        """The number of a request whose answer is for this step."""
        number = op.number = self._number = self._number + 1
        self._unanswered[number] = op
        return number

    def answered(self, number: int) -> Counted[object] | None:
        """The step that an answer is for; ``None`` if nothing waits for it any more."""
        if number > self._noted:
            # Whatever was noted before this request is durable: so is the answer, and it came later.
            self.note_open = False
        return self._unanswered.pop(number, None)

    def settle(self, op: Counted[object]) -> None:
        """The outcome of a step came without an answer."""
        self._unanswered.pop(op.number, None)

    def drop_all(self, but: Collection[int]) -> list[Counted[object]]:
        """Nothing waits for an answer any more, except for those with these numbers; returns their steps."""
        kept = {number: op for number, op in self._unanswered.items() if number in but}
        self._unanswered = kept
        return list(kept.values())

    # Values.

    def pack(self, data: bytes) -> tuple[msgspec.Raw | None, BlobRef | None]:
        """An encoded value for a frame: as it is or, if it is long, as a reference."""
        if len(data) > INLINE_LIMIT:
            try:
                return None, self._blobs.put(data)
            except OSError as error:
                if is_disk_trouble(error):
                    raise RunDiskError("blobs", error.strerror or str(error)) from error
                raise
        return msgspec.Raw(data), None

    def load(self, raw: msgspec.Raw | None, ref: BlobRef | None) -> Buffer:
        """An encoded value that came in a frame."""
        if raw is not None:
            return raw
        return _NULL if ref is None else self._blobs.get(ref)


def note_error(op: NoteOp[object], data: f.ErrorData) -> Exception:
    """The error of a harmless step, to be raised in its branch."""
    error = revive_error(data, (op.p, op.n))
    op.branch.settle(error)
    return error


def _drop(frame: f.Frame) -> None:
    """No hub takes the frames of a worker that has ended."""
