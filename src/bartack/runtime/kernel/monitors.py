"""Monitors of the workers of a run: who watches whom is in the journal, and so is each message of an end.

What is watched is a worker, a process outside (by its name, which messages from it have as their sender), or the agent of a prompt
(by its step, ``PATH:NUMBER``).

The message, and that its monitor is gone, are one line: whatever is killed, it comes once. A worker's end takes its own monitors
with it, in the line that says so.
"""

from __future__ import annotations

from collections.abc import Callable

from bartack.errors import MailboxClosedError, MonitorNotFoundError, ReceiveTimeoutError
from bartack.messaging.mailboxes import check_name
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.handler import StepHandler
from bartack.runtime.kernel.mail.enqueue import Enqueue, Outgoing, size_of
from bartack.runtime.kernel.mail.receive import check_reader
from bartack.runtime.kernel.outcome import step_finished
from bartack.runtime.kernel.processes import ProcessDesk
from bartack.runtime.kernel.turn import FOREIGN, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import is_step
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Value, WorkerState
from bartack.supervision import Down, Monitor

Items = list[tuple[e.EntryData, Value]]


class MonitorDesk(Desk, StepHandler):
    """Handles the steps that concern monitors, of which only ``down`` may wait, and notifies watchers.

    Args:
        shared: What desks share.
        enqueue: Puts the messages of monitors into mailboxes.
        processes: The processes of workers.
    """

    def __init__(self, shared: Shared, enqueue: Enqueue, processes: ProcessDesk) -> None:
        super().__init__(shared)
        self._enqueue = enqueue
        self._processes = processes
        self._waiting: dict[str, tuple[WorkerState, OpenStep]] = {}
        """Steps that wait for the message of one monitor."""

    # Steps of workers.

    def monitor(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Watch a worker. One that has ended is down at once."""
        args = self.decode(step.a, s.MonitorArgs)
        check_name(args.into)
        ref = f"mon-{step.p}:{step.n}.{worker.rewinds}"
        target = self.state.path_of(args.target)
        made = e.MonitorMade(
            ref=ref, target=target, watcher=worker.path, into=args.into, tag=args.tag, stack=args.stack
        )
        value = self.turn.pack(ref)
        done = step_finished(step, about=step.about)
        items: Items = [(made, NO_VALUE), (done, value)]
        if self._is_there(target):
            self.turn.record(*items)
            self.turn.answer(worker, step.p, step.n, value)
            return
        now = self.now_us()
        monitor = Monitor(ref, target, worker.path, args.tag, now, args.stack, args.into)
        self._send(
            Down(monitor, 0, "noproc", now),
            before=items,
            recorded=lambda: self.turn.answer(worker, step.p, step.n, value),
        )

    def demonitor(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Remove a monitor, and withdraw its message if no receiver has it."""
        args = self.decode(step.a, s.DemonitorArgs)
        check_name(args.into)
        state = self.state
        value = self.turn.pack(args.ref in state.monitors)
        done = step_finished(step, about=step.about)
        gone = e.MonitorGone(ref=args.ref, p=step.p, n=step.n)
        items: Items = [(done, value), (gone, NO_VALUE)]
        queued = args.flush and state.mailbox(args.into).find(message_id(args.ref)) is not None
        if queued:
            withdrawn = e.MessageMoved(mailbox=args.into, id=message_id(args.ref), to="withdrawn")
            items.append((withdrawn, NO_VALUE))
        self.turn.record(*items)
        self.turn.answer(worker, step.p, step.n, value)
        if queued:
            self._enqueue.left(args.into)

    def start(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """The step ``down``: take the message of one monitor, whatever else is in the mailbox, or wait for it."""
        args = self.decode(step.a, s.DownArgs)
        check_reader(args.into, worker.path)
        message = self.state.mailbox(args.into).find(message_id(args.ref))
        if message is not None:
            value = Value(message.value, message.ref)
            self.turn.record((_taken(args.into, args.ref, step), value))
            self.turn.answer(worker, step.p, step.n, value)
            self._enqueue.left(args.into)
        elif args.ref not in self.state.monitors:
            self.fail_step(worker, step, MonitorNotFoundError(args.ref))
        elif args.timeout_s == 0:
            self.fail_step(worker, step, ReceiveTimeoutError("receive", 0.0, "explicit"))
        else:
            known = worker.open.get((step.p, step.n))
            self._wait(worker, args.ref, known or self.open_step(step, timeout_s=args.timeout_s))

    # What happens.

    def worker_ended(self, worker: WorkerState) -> None:
        """Notify the watchers of a worker. After a failure nothing is sent; the hub that resumes the run notifies them."""
        if self.state.failure is None and self.state.ended is None:
            self._notify(worker.path, worker.end_reason, self._processes.incarnation_of(worker))
        for leak in self.state.leaks:
            if leak.monitor.watcher == worker.path:
                text = (
                    f"did not release its monitor of {leak.monitor.target}, made at {leak.monitor.stack[-1]}"
                )
                self.turn.with_next_commit(Show("note", worker.path, text))
        self.check()

    def peer_gone(self, peer: Peer) -> None:
        """Notify the watchers of a process outside."""
        self.check()

    def check(self) -> None:
        """Notify the watchers of processes outside that have left, and of agents that have finished."""
        state = self.state
        if state.failure is not None or state.ended is not None:
            return
        for target in state.monitors.targets():
            if target not in state.workers and not self._is_there(target):
                self._notify(target, self._reason(target), 0)

    def resumed(self) -> None:
        """Notify the watchers of what ended while no hub was alive, or after a failure."""
        for target in self.state.monitors.targets():
            if not self._is_there(target):
                self._notify(target, self._reason(target), 0)

    # Inside.

    def _is_there(self, target: str) -> bool:
        """Whether a target has not ended: a worker, a process outside, or the agent of a prompt."""
        found = self.state.workers.get(target)
        if found is not None:
            return not found.ended
        if target.startswith(FOREIGN):
            return any(peer.name == target for peer in self.turn.peers_outside())
        return self.state.prompt_at(target) is not None

    def _reason(self, target: str) -> str:
        """How a target that is not there has ended."""
        found = self.state.workers.get(target)
        if found is not None:
            return found.end_reason
        if target.startswith(FOREIGN):
            return "lost"
        return self.state.prompts_over.get(target, "aborted" if is_step(target) else "noproc")

    def _wait(self, worker: WorkerState, ref: str, opened: OpenStep) -> None:
        self._waiting[ref] = (worker, opened)

        def late() -> None:
            self._waiting.pop(ref, None)
            error = ReceiveTimeoutError("receive", opened.timeout_s or 0.0, "explicit")
            self.turn.fail_open(worker, opened, error)

        left = self.left_s(opened) or 0.0
        self.timers.after(left, late, lambda: self.is_open(worker, opened))

    def _notify(self, target: str, reason: str, incarnation: int) -> None:
        for monitor in self.state.monitors.of_target(target):
            self._report(Down(monitor, incarnation, reason, self.now_us()))

    def _report(self, down: Down) -> None:
        """One line: the message, and that its monitor is gone; and if a step waits for just that, its outcome."""
        monitor = down.monitor
        worker, opened = self._waiting.pop(monitor.ref, (None, None))
        if worker is None or opened is None or not self.is_open(worker, opened):
            self._send(down)
        elif self.state.is_closed(monitor.into):
            self._send(down)
            self.turn.fail_open(worker, opened, MailboxClosedError(monitor.into))
        else:
            value = self.turn.pack(down.message())
            self._send(
                down,
                after=[(_taken(monitor.into, monitor.ref, opened), value)],
                recorded=lambda: self.turn.answer(worker, opened.p, opened.n, value),
            )

    def _send(
        self,
        down: Down,
        *,
        before: Items | None = None,
        after: Items | None = None,
        recorded: Callable[[], None] = lambda: None,
    ) -> None:
        """Record that a monitor has reported, and enqueue its message, unless the mailbox is closed.

        Args:
            down: The report.
            before: Entries of the same line.
            after: Entries of the same line that follow the message.
            recorded: Called when the line is recorded, before receivers are woken.
        """
        monitor = down.monitor
        reported = e.MonitorReported(ref=monitor.ref, reason=down.reason, incarnation=down.incarnation)
        items: Items = [*(before or []), (reported, NO_VALUE)]
        if self.state.is_closed(monitor.into):
            self.turn.record(*items)
            recorded()
            return
        value = self.turn.pack(down.message())
        message = Outgoing(
            monitor.into,
            monitor.target,
            value,
            size_of(value),
            system=True,
            id=message_id(monitor.ref),
        )
        self._enqueue.enqueue(message, lambda _: recorded(), before=items, after=after or [])


def message_id(ref: str) -> str:
    """The id of the one message that a monitor sends."""
    return f"down-{ref}"


def _taken(mailbox: str, ref: str, step: f.Step | OpenStep) -> e.MessageTaken:
    return e.MessageTaken(mailbox=mailbox, id=message_id(ref), p=step.p, n=step.n, fp=step.fp, step="down")
