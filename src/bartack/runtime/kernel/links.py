"""Links between the workers of a run: the abnormal end of one aborts the other, unless that one traps.

A link is in the journal until it has acted or was undone, so that it acts once, whatever is killed meanwhile: if a hub dies before
a link has acted, the next one finds it. The entry by which a link acts marks the steps that it interrupts (``State.abort``); each
of them then fails in a line of its own, when the work that was done for it outside has ended.
"""

from __future__ import annotations

from collections.abc import Callable

from bartack.errors import LinkedExitError
from bartack.runtime.kernel.desk import Desk, Desks, Shared
from bartack.runtime.kernel.mail.enqueue import Enqueue, Outgoing, size_of
from bartack.runtime.kernel.outcome import describe, step_failed, step_finished
from bartack.runtime.kernel.turn import NULL, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value, WorkerState

Items = list[tuple[e.EntryData, Value]]

GONE = "noproc"
"""The reason of a worker that never was there."""


class LinkDesk(Desk):
    """Handles the steps that concern links, and acts on linked workers.

    Args:
        shared: What desks share.
        enqueue: Puts the messages of links into inboxes.
        desks: All desks, as one: reports to each of them.
    """

    def __init__(self, shared: Shared, enqueue: Enqueue, desks: Desks) -> None:
        super().__init__(shared)
        self._enqueue = enqueue
        self._desks = desks

    # Steps of workers.

    def link(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Link a worker with another. One that ended abnormally, or never was, acts at once."""
        other = self.state.path_of(self.decode(step.a, s.LinkArgs).target)
        found = self.state.workers.get(other)
        if found is None:
            self._act_at_once(worker, step, other, GONE)
        elif found.status == "failed":
            self._act_at_once(worker, step, other, found.end_reason)
        elif found is worker or found.ended:
            self.finish_step_raw(worker, step, Value(NULL))
        else:
            self._done(worker, step, [(e.LinkMade(path=worker.path, other=other), NO_VALUE)])

    def unlink(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """Undo a link, and withdraw its message if no receiver has it."""
        state = self.state
        other = state.path_of(self.decode(step.a, s.LinkArgs).target)
        inbox = f"@{worker.path}"
        gone = e.LinkGone(path=worker.path, other=other)
        items: Items = [(gone, NO_VALUE)] if state.links.has(worker.path, other) else []
        unread = [
            message.id
            for message in state.mailbox(inbox).queued()
            if message.sender == other and message.id.startswith(_EXIT)
        ]
        items += [(e.MessageMoved(mailbox=inbox, id=name, to="withdrawn"), NO_VALUE) for name in unread]
        self._done(worker, step, items)
        if unread:
            self._enqueue.left(inbox)

    def trap(self, peer: Peer, worker: WorkerState, step: f.Step) -> None:
        """From now on ends of linked workers are messages; or no longer."""
        args = self.decode(step.a, s.TrapArgs)
        self._done(worker, step, [(e.WorkerTraps(path=worker.path, on=args.on), NO_VALUE)])

    # What happens.

    def worker_ended(self, worker: WorkerState) -> None:
        """Act on the linked workers. After a failure nothing happens; the hub that resumes the run acts on them."""
        state = self.state
        if worker.status != "failed" or state.failure is not None or state.ended is not None:
            return
        for other in state.links.of(worker.path):
            found = state.workers.get(other)
            if found is not None and not found.ended and state.links.has(worker.path, other):
                self._act(found, worker.path, worker.end_reason)

    def resumed(self) -> None:
        """Act on the links of workers that ended while no hub was alive, or after a failure."""
        for path in self.state.links.linked():
            self.worker_ended(self.state.workers[path])

    # Inside.

    def _done(self, worker: WorkerState, step: f.Step, items: Items) -> None:
        """One line: what a step has changed, and its outcome."""
        done = step_finished(step, about=step.about)
        self.turn.record((done, Value(NULL)), *items)
        self.turn.answer(worker, step.p, step.n, Value(NULL))

    def _act_at_once(self, worker: WorkerState, step: f.Step, by: str, reason: str) -> None:
        """The other one had ended before: that is the outcome of the step, and of every other one that is open."""
        acted = (e.LinkReported(path=worker.path, by=by, reason=reason, trapped=worker.trapping), NO_VALUE)
        if worker.trapping:
            done = (step_finished(step, about=step.about), Value(NULL))
            self._send(
                worker,
                by,
                reason,
                [done, acted],
                lambda: self.turn.answer(worker, step.p, step.n, Value(NULL)),
            )
            return
        failed = step_failed(step, describe(LinkedExitError(by, reason), worker.path), about=step.about)
        self.turn.record(acted, (failed, NO_VALUE))
        self.turn.report(worker, failed, NO_VALUE)
        self._desks.worker_aborted(worker)

    def _act(self, worker: WorkerState, by: str, reason: str) -> None:
        acted = (e.LinkReported(path=worker.path, by=by, reason=reason, trapped=worker.trapping), NO_VALUE)
        if worker.trapping:
            self._send(worker, by, reason, [acted])
        else:
            self.turn.record(acted)
            self._desks.worker_aborted(worker)

    def _send(
        self,
        worker: WorkerState,
        by: str,
        reason: str,
        before: Items,
        recorded: Callable[[], None] = lambda: None,
    ) -> None:
        """Enqueue the message of a link for a worker that traps, in one line with the entries ``before``."""
        value = self.turn.pack({"type": "EXIT", "from": by, "reason": reason, "at": self.now_us()})
        message = Outgoing(
            f"@{worker.path}",
            by,
            value,
            size_of(value),
            system=True,
            id=f"{_EXIT}{self.turn.next_message()}",
        )
        self._enqueue.enqueue(message, lambda _: recorded(), before=before)


_EXIT = "exit-"
"""How the ids of messages of links begin."""
