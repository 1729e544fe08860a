"""Processes outside the run that take part in it: the command line, other programs, commands of the run itself.

What a process may ask for depends on where it stands: everything from outside, little from inside (``STEP_RIGHTS``). Messages to a
foreign process are delivered at least once: it acknowledges each, and what it held when it died goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from bartack.errors import BartackError, PeerRefusedError, SessionFailedError, UnknownRequestError
from bartack.messaging import (
    BroadcastResult,
    Message,
    SendOutcome,
    check_metadata,
    check_name,
    delivery_error,
    is_success,
)
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.attempts import SendRequest, Verdict
from bartack.runtime.kernel.mail.broadcast import broadcast_error
from bartack.runtime.kernel.mail.enqueue import Outgoing, size_of
from bartack.runtime.kernel.mail.foreign import OnOutcome
from bartack.runtime.kernel.mail.mailroom import Mailroom
from bartack.runtime.kernel.mail.waiters import Holder
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.questions import QuestionDesk
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.kernel.workers import Workers
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import LEASE_S, MESSAGES, Process, Request, RunFacts
from bartack.runtime.protocol.steps import MailboxStats
from bartack.runtime.state import entries as e
from bartack.runtime.state.timeline import describe_worker
from bartack.runtime.state.worker_state import NO_VALUE, Value

LOOKS: Final = frozenset({"state", "ps", "watch", "stats", "peek", "mailboxes"})
"""Requests that change nothing in a run."""


class ForeignDesk(Desk):
    """Answers the requests of processes outside."""

    def __init__(self, shared: Shared, crew: Workers, mail: Mailroom, questions: QuestionDesk) -> None:
        super().__init__(shared)
        self._crew = crew
        self.mail = mail.outside
        self._calls = mail.calls
        self._held = mail.held
        self._receive_desk = mail.receive
        self._registry = mail.registry
        self._delivery = mail.delivery
        self._letters = mail.letters
        self._enqueue = mail.enqueue
        self._questions = questions
        self._leases: dict[int, Timer] = {}
        self.on_interrupt: Callable[[], None] = lambda: None
        self.processes: Callable[[], list[Process]] = list
        self.deadlock: Callable[[], list[str]] = list
        """What each worker waits for, if all wait for each other."""
        """The processes that the hub has, its workers with nothing but their paths."""
        self._handlers: Mapping[str, Callable[[Peer, f.Ask, Request], None]] = {
            "send": self._send,
            "call": self._call,
            "reply": self._reply,
            "receive": self._receive,
            "ack": self._ack,
            "renew": self._renew,
            "forget": self._forget,
            "send_supervised": self._send_supervised,
            "broadcast": self._broadcast,
            "publish": self._publish,
            "subscribe": self._subscribe,
            "withdraw": self._withdraw,
            "close": self._close,
            "stats": self._stats,
            "dead.add": self._add_letter,
            "dead.retry": self._retry_letters,
            "dead.purge": self._purge_letters,
            "peek": self._peek,
            "mailboxes": self._mailboxes,
            "answer": self._answer,
            "fail": self._fail,
            "cancel": self._cancel,
            "interrupt": self._interrupt,
            "state": self._state,
            "ps": self._ps,
            "watch": self._watch,
        }

    def join(self, peer: Peer) -> Peer:
        """A foreign process is there."""
        self.turn.peers[peer.number] = peer
        return peer

    def _note_joined(self, peer: Peer, do: str) -> None:
        """A process that takes part in the run is recorded once; one that only looks at it leaves no trace."""
        if peer.rights is None and not peer.noted and do not in LOOKS:
            peer.noted = True
            self.turn.record((e.PeerJoined(peer=peer.name), NO_VALUE), sync=False)

    def ask(self, peer: Peer, ask: f.Ask) -> None:
        """A request; everything that goes wrong with it is its answer."""
        if peer.held:
            self._lease(peer)
        try:
            if peer.rights is not None and ask.do not in peer.rights:
                raise PeerRefusedError(ask.do, peer.inside or "the process that asks belongs to the run")
            handler = self._handlers.get(ask.do)
            if handler is None:
                raise UnknownRequestError(ask.do)
            self._check_alive(ask.do)
            self._note_joined(peer, ask.do)
            handler(peer, ask, self.decode(ask.a, Request))
        except BartackError as error:
            self.turn.send(peer, f.Refusal(i=ask.i, e=describe(error)))

    def _check_alive(self, do: str) -> None:
        """A failed session takes and gives no messages; what was there stays for the resumed one."""
        failure = self.state.failure
        if failure is not None and do in MESSAGES:
            name = failure.error.type.rpartition(":")[2]
            raise SessionFailedError(failure.worker, name, failure.error.message)

    def _say(self, peer: Peer, ask: f.Ask, value: object) -> None:
        packed = self.turn.pack(value)
        self.turn.send(peer, f.Answer(i=ask.i, v=packed.raw, ref=packed.ref))

    def _send(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = Value(ask.v, ask.ref)
        message = Outgoing(
            request.mailbox,
            peer.name,
            value,
            size_of(value),
            request.key,
            request.metadata,
            request.not_before,
        )
        self.mail.send(peer, ask.i, message, self._told(peer, ask))

    def _call(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = Value(ask.v, ask.ref)
        message = Outgoing(request.mailbox, peer.name, value, size_of(value))
        self.mail.call(peer, ask.i, message, request.timeout_s, self._told(peer, ask))

    def _reply(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        if peer.held.get(request.id) == request.mailbox:
            self._calls.answer(request.mailbox, request.id, Value(ask.v, ask.ref))
        self._say(peer, ask, None)

    def _told(self, peer: Peer, ask: f.Ask) -> OnOutcome:
        """Tells a peer what became of its request."""

        def told(outcome: Value | BartackError) -> None:
            if isinstance(outcome, BartackError):
                self.turn.send(peer, f.Refusal(i=ask.i, e=describe(outcome)))
            else:
                self.turn.send(peer, f.Answer(i=ask.i, v=outcome.raw, ref=outcome.ref))

        return told

    def _send_supervised(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._delivery.send_for(self._errand(peer, ask, request), request.mailbox, request.terms)

    def _broadcast(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        errand = self._errand(peer, ask, request)
        self._delivery.broadcast_for(errand, request.copies, request.strategy, request.terms)

    def _publish(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        errand = self._errand(peer, ask, request)
        self._delivery.publish_for(errand, request.topic, request.strategy, request.terms)

    def _errand(self, peer: Peer, ask: f.Ask, request: Request) -> SendRequest:
        """What a process outside wants delivered. It is told what became of it if it is still there then."""

        def told(verdict: Verdict) -> None:
            error = verdict if isinstance(verdict, BartackError) else error_of(request, verdict)
            if peer.number not in self.turn.peers:
                return
            if error is not None:
                self.turn.send(peer, f.Refusal(i=ask.i, e=describe(error)))
            else:
                self._say(peer, ask, verdict)

        return SendRequest(peer.name, Value(ask.v, ask.ref), report=told)

    def _subscribe(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        changed = self._registry.subscription(request.mailbox, request.pattern, off=request.off)
        self.turn.record((changed, NO_VALUE))
        self._say(peer, ask, None)

    def _withdraw(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._say(peer, ask, self._enqueue.withdraw(request.mailbox, request.id, peer.name))

    def _close(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._registry.close(request.mailbox)
        self._say(peer, ask, None)

    def _stats(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        check_name(request.mailbox)
        self._say(peer, ask, self._registry.describe(request.mailbox))

    def _add_letter(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = Value(ask.v, ask.ref)
        added = self._letters.add(
            request.mailbox, peer.name, value, request.message, check_metadata(request.metadata)
        )
        self._say(peer, ask, added)

    def _retry_letters(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._letters.retry(request.letters, "command", lambda results: self._say(peer, ask, results))

    def _purge_letters(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._say(peer, ask, self._letters.purge(request.letters))

    def _receive(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._receive_desk.check_reader(request.mailbox)

        waiter = Holder(self.turn, peer, ask.i, request.mailbox, lambda: self._lease(peer))
        self.mail.receive(waiter, request.timeout_s)

    def _ack(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._held.settle(peer, request.id, ok=request.ok)
        self._say(peer, ask, None)

    def _renew(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        """The peer is still busy with what it holds; that it asks at all says so."""
        self._say(peer, ask, None)

    def _forget(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        """The peer waits no longer for the answer to a request. If it is on its way already, the peer has to deal with it."""
        self.mail.forget_request(peer, request.number)
        self._say(peer, ask, None)

    def _lease(self, peer: Peer) -> None:
        """What a peer holds goes back if it says nothing for so long, even if it is there: it may hang."""
        known = self._leases.pop(peer.number, None)
        if known is not None:
            known.cancel()

        def expire() -> None:
            self._leases.pop(peer.number, None)
            for message_id in list(peer.held):
                self._held.settle(peer, message_id, ok=False)

        self._leases[peer.number] = self.timers.after(LEASE_S, expire)

    def _peek(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        check_name(request.mailbox)
        messages = self.state.mailbox(request.mailbox).queued()[: request.limit]
        self._say(peer, ask, [_shown(message) for message in messages])

    def _mailboxes(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        stats: dict[str, MailboxStats] = {
            name: self._registry.describe(name) for name in self.state.mailboxes
        }
        self._say(peer, ask, stats)

    def _answer(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = msgspec.Raw(self.turn.load(ask.v, ask.ref))
        self._questions.answer(request.question, value, request.by or peer.name)
        self._say(peer, ask, None)

    def _fail(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        error = f.ErrorData(
            type="bartack.errors:SessionFailedError", message=request.message, worker=peer.name
        )
        self._say(peer, ask, None)
        self._crew.fail_session(None, error, None)

    def _cancel(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._say(peer, ask, None)
        self._crew.cancel_run(request.message)

    def _interrupt(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._say(peer, ask, None)
        self.on_interrupt()

    def _state(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        state = self.state
        facts = RunFacts(
            run=state.run.run if state.run else "",
            status=state.status,
            workers=len(state.workers),
            alive=len(self._crew.alive),
            questions=list(state.questions),
            spent_usd=state.spent_usd,
            hub=state.hub,
            deadlock=self.deadlock(),
        )
        self._say(peer, ask, facts)

    def _ps(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._say(peer, ask, [self._described(process) for process in self.processes()])

    def _described(self, process: Process) -> Process:
        worker = self.state.workers.get(process.worker)
        if worker is None:
            return process
        if process.kind == "worker":
            describe_worker(process, worker)
        opened = worker.open.get(_parse(process.step))
        if opened is not None:
            process.since, process.left_s = opened.at, self.left_s(opened)
        return process

    def _watch(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        """The peer wants to be told when the session fails; every connected peer is, so there is nothing to do."""
        self._say(peer, ask, None)


def error_of(request: Request, verdict: SendOutcome | BroadcastResult) -> BartackError | None:
    """What is raised instead of telling an outcome, if that is what was asked for."""
    if request.terms.on_error != "raise":
        return None
    if isinstance(verdict, BroadcastResult):
        return None if verdict.ok else broadcast_error(verdict)
    return None if is_success(verdict) else delivery_error(request.mailbox, verdict)


def _parse(step: str) -> tuple[str, int]:
    path, _, number = step.rpartition(":")
    return (path, int(number)) if path else ("", 0)


def _shown(message: Message) -> dict[str, object]:
    return {
        "id": message.id,
        "sender": message.sender,
        "at": message.at,
        "size": message.size,
        "attempt": message.attempt,
        "value": message.value,
        "ref": message.ref,
    }
