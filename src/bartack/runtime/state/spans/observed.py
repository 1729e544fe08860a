"""A state that reports when something becomes open and when it ceases to be: steps, messages, questions and workers.

It changes as every state does, by ``state/apply.py`` alone. It overrides the methods that all these changes go through, so that the
state of a hub, which has no listeners, does not become slower. ``spans.py`` listens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from bartack.messaging import Mailbox, Message
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import (
    NO_VALUE,
    AskedQuestion,
    OpenStep,
    StepKey,
    Value,
    WorkerState,
)

T = TypeVar("T")


class Current:
    """The entry that is being added.

    Attributes:
        seq: Its place.
        at: Its time.
        data: What it says.
        value: Its value.
        hub_us: When the hub that wrote it was started.
        run: The id of the run.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.at = 0
        self.data: e.EntryData | None = None
        self.value = NO_VALUE
        self.hub_us = 0
        self.run = ""


class StepListener(Protocol):
    """Is notified of steps."""

    def opened(self, worker: WorkerState, step: OpenStep) -> None:
        """A step is open, or another attempt at it begins."""

    def gone(self, step: StepKey) -> None:
        """A step is not open any longer."""

    def settling(self, *, failed: bool) -> None:
        """A step has an outcome. If it was open, ``gone`` follows."""

    def settled(self, worker: WorkerState, step: StepKey, kind: str, *, cleanup: bool) -> None:
        """The outcome of a step was added."""


class MessageListener(Protocol):
    """Is notified of messages."""

    def queued(self, mailbox: str, message: Message) -> None:
        """A message is in a mailbox, or scheduled for it."""

    def held(self, mailbox: str, message: Message) -> None:
        """A message is with a receiver that has to acknowledge it."""

    def taken(self, mailbox: str, message: Message) -> None:
        """A message was received."""

    def removed(self, mailbox: str, message: Message) -> None:
        """A message is gone, and was not received."""


class MailboxListener(Protocol):
    """Is notified of mailboxes."""

    def made(self, mailbox: Mailbox) -> None:
        """A mailbox was used for the first time."""

    def sent(self, mailbox: str) -> None:
        """A message was put into it."""


class QuestionListener(Protocol):
    """Is notified of questions."""

    def asked(self, question: AskedQuestion) -> None:
        """A question is open."""

    def over(self, question: AskedQuestion) -> None:
        """A question is not open any longer."""


class WorkerListener(Protocol):
    """Is notified of workers."""

    def added(self, worker: WorkerState) -> None:
        """A worker belongs to the run."""

    def changed(self, worker: WorkerState) -> None:
        """A worker may have ended, or may have come back to life."""

    def dropped(self, worker: WorkerState) -> None:
        """A worker does not belong to the run any longer."""


class ObservedState(State):
    """The state of a run, with listeners."""

    def __init__(
        self,
        steps: StepListener,
        messages: MessageListener,
        boxes: MailboxListener,
        questions: QuestionListener,
        workers: WorkerListener,
    ) -> None:
        super().__init__()
        self._steps = steps
        self._messages = messages
        self._boxes = boxes
        self._lives = workers
        self.questions: dict[str, AskedQuestion] = _ObservedDict(questions.asked, questions.over)
        self.workers: dict[str, WorkerState] = _ObservedDict(self._worker_added, self._worker_gone)

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of this name; it exists from its first use on."""
        found = self.mailboxes.get(name)
        if found is None:
            found = self.mailboxes[name] = _ObservedMailbox(name, self._messages, self._boxes)
            self._boxes.made(found)
        return found

    def open_step(self, data: e.StepStarted, seq: int, at: int, value: Value) -> None:
        """A step has begun."""
        super().open_step(data, seq, at, value)
        worker = self.worker_of(data.p)
        if worker is not None:
            self._steps.opened(worker, worker.open[data.p, data.n])

    def forget_step(self, worker: WorkerState, step: StepKey) -> OpenStep | None:
        """A step is no longer open; returns what it was, if it was."""
        was = super().forget_step(worker, step)
        if was is not None:
            self._steps.gone(step)
        return was

    def close_step(
        self, p: str, n: int, step: str, seq: int, *, cleanup: bool, failed: e.StepFailed | None = None
    ) -> None:
        """A step has its outcome."""
        self._steps.settling(failed=failed is not None)
        super().close_step(p, n, step, seq, cleanup=cleanup, failed=failed)
        worker = self.worker_of(p)
        if worker is not None:
            self._steps.settled(worker, (p, n), step, cleanup=cleanup)

    def _revive(self, worker: WorkerState) -> None:
        for step in worker.open:
            self._steps.gone(step)
        super()._revive(worker)
        self._lives.changed(worker)
        for opened in worker.open.values():
            self._steps.opened(worker, opened)

    def _worker_added(self, worker: WorkerState) -> None:
        self._lives.added(worker)

    def _worker_gone(self, worker: WorkerState) -> None:
        for step in worker.open:
            self._steps.gone(step)
        self._lives.dropped(worker)


class _ObservedDict(dict[str, T]):
    """A dict that reports what is put into it and what is removed."""

    def __init__(self, put: Callable[[T], None], removed: Callable[[T], None]) -> None:
        super().__init__()
        self._put = put
        self._removed = removed

    def __setitem__(self, key: str, value: T) -> None:
        before = self.get(key)
        if before is not None:
            self._removed(before)
        super().__setitem__(key, value)
        self._put(value)

    def __delitem__(self, key: str) -> None:
        value = self[key]
        super().__delitem__(key)
        self._removed(value)

    def pop(self, key: str, *default: T | None) -> T | None:  # type: ignore[override]  # - the state uses no other form of it
        if key not in self:
            return super().pop(key, *default)
        value = super().pop(key)
        self._removed(value)
        return value


class _ObservedMailbox(Mailbox):
    """A mailbox that reports where its messages are."""

    def __init__(self, name: str, listener: MessageListener, boxes: MailboxListener) -> None:
        super().__init__(name)
        self._listener = listener
        self._boxes = boxes

    def put(self, message: Message) -> None:
        super().put(message)
        self._boxes.sent(self.name)
        self._listener.queued(self.name, message)

    def take(self, message_id: str) -> Message | None:
        message = super().take(message_id)
        if message is not None:
            self._listener.taken(self.name, message)
        return message

    def hold(self, message_id: str, attempt: int) -> Message | None:
        message = super().hold(message_id, attempt)
        if message is not None:
            self._listener.held(self.name, message)
        return message

    def give_back(self, message_id: str) -> Message | None:
        message = super().give_back(message_id)
        if message is not None:
            self._listener.queued(self.name, message)
        return message

    def drop(self, message_id: str) -> Message | None:
        message = super().drop(message_id)
        if message is not None:
            self._listener.removed(self.name, message)
        return message

    def release(self, message_id: str, order: int) -> Message | None:
        message = super().release(message_id, order)
        if message is not None:
            self._listener.queued(self.name, message)
        return message
