"""Requests of processes outside the run that concern messages: sending, receiving, subscribing, dead letters.

Messages to a process outside are delivered at least once: it acknowledges each, and what it held when it ended goes back. It has to
send something from time to time while it holds a message, as it may hang. ``foreign.py`` passes on the requests; ``mail/`` decides
what becomes of the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bartack.errors import BartackError
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
from bartack.runtime.kernel.mail.mailroom import MailDesks
from bartack.runtime.kernel.mail.waiters import Holder
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import LEASE_S, Request
from bartack.runtime.protocol.steps import MailboxStats
from bartack.runtime.state.worker_state import NO_VALUE, Value

Handle = Callable[[Peer, f.Ask, Request], None]


class MailRequests(Desk):
    """Answers the requests of processes outside that concern messages."""

    def __init__(self, shared: Shared, mail: MailDesks) -> None:
        super().__init__(shared)
        self._outside = mail.outside
        self._calls = mail.calls
        self._held = mail.held
        self._receive_desk = mail.receive
        self._registry = mail.registry
        self._delivery = mail.delivery
        self._letters = mail.letters
        self._enqueue = mail.enqueue
        self._leases: dict[int, Timer] = {}
        self.handlers: Mapping[str, Handle] = {
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
        }

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
        self._outside.send(peer, ask.i, message, self._answerer(peer, ask))

    def _call(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = Value(ask.v, ask.ref)
        message = Outgoing(request.mailbox, peer.name, value, size_of(value))
        self._outside.call(peer, ask.i, message, request.timeout_s, self._answerer(peer, ask))

    def _reply(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        if peer.held.get(request.id) == request.mailbox:
            self._calls.answer(request.mailbox, request.id, Value(ask.v, ask.ref))
        self.turn.answer_request(peer, ask.i, None)

    def _answerer(self, peer: Peer, ask: f.Ask) -> OnOutcome:
        """Answers a request by its outcome, when that is known."""

        def answer(outcome: Value | BartackError) -> None:
            if isinstance(outcome, BartackError):
                self.turn.send(peer, f.Refusal(i=ask.i, e=describe(outcome)))
            else:
                self.turn.send(peer, f.Answer(i=ask.i, v=outcome.raw, ref=outcome.ref))

        return answer

    def _send_supervised(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._delivery.send_for(self._request(peer, ask, request), request.mailbox, request.terms)

    def _broadcast(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        sending = self._request(peer, ask, request)
        self._delivery.broadcast_for(sending, request.copies, request.strategy, request.terms)

    def _publish(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        sending = self._request(peer, ask, request)
        self._delivery.publish_for(sending, request.topic, request.strategy, request.terms)

    def _request(self, peer: Peer, ask: f.Ask, request: Request) -> SendRequest:
        """What a process outside wants delivered. It gets the outcome if it is still connected then."""

        def answer(verdict: Verdict) -> None:
            error = verdict if isinstance(verdict, BartackError) else _error_of(request, verdict)
            if peer.number not in self.turn.peers:
                return
            if error is not None:
                self.turn.send(peer, f.Refusal(i=ask.i, e=describe(error)))
            else:
                self.turn.answer_request(peer, ask.i, verdict)

        return SendRequest(peer.name, Value(ask.v, ask.ref), report=answer)

    def _subscribe(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        changed = self._registry.subscription(request.mailbox, request.pattern, off=request.off)
        self.turn.record((changed, NO_VALUE))
        self.turn.answer_request(peer, ask.i, None)

    def _withdraw(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self.turn.answer_request(peer, ask.i, self._enqueue.withdraw(request.mailbox, request.id, peer.name))

    def _close(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._registry.close(request.mailbox)
        self.turn.answer_request(peer, ask.i, None)

    def _stats(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        check_name(request.mailbox)
        self.turn.answer_request(peer, ask.i, self._registry.describe(request.mailbox))

    def _add_letter(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = Value(ask.v, ask.ref)
        added = self._letters.add(
            request.mailbox, peer.name, value, request.message, check_metadata(request.metadata)
        )
        self.turn.answer_request(peer, ask.i, added)

    def _retry_letters(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._letters.retry(
            request.letters, "command", lambda results: self.turn.answer_request(peer, ask.i, results)
        )

    def _purge_letters(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self.turn.answer_request(peer, ask.i, self._letters.purge(request.letters))

    def _receive(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._receive_desk.check_reader(request.mailbox)
        waiter = Holder(self.turn, peer, ask.i, request.mailbox, lambda: self.lease(peer))
        self._outside.receive(waiter, request.timeout_s)

    def _ack(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._held.settle(peer, request.id, ok=request.ok)
        self.turn.answer_request(peer, ask.i, None)

    def _renew(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        """The peer is still busy with what it holds: ``foreign.py`` renews its lease at every request."""
        self.turn.answer_request(peer, ask.i, None)

    def _forget(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        """The peer no longer waits for the answer to a request. If that is on its way already, the peer has to deal with it."""
        self._outside.forget_request(peer, request.number)
        self.turn.answer_request(peer, ask.i, None)

    def lease(self, peer: Peer) -> None:
        """Return what a peer holds if it sends nothing for ``LEASE_S`` seconds, even if it is connected: it may hang."""
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
        self.turn.answer_request(peer, ask.i, [_shown(message) for message in messages])

    def _mailboxes(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        stats: dict[str, MailboxStats] = {
            name: self._registry.describe(name) for name in self.state.mailboxes
        }
        self.turn.answer_request(peer, ask.i, stats)


def _error_of(request: Request, verdict: SendOutcome | BroadcastResult) -> BartackError | None:
    """The error in place of an outcome, if the request wants an error to be raised."""
    if request.terms.on_error != "raise":
        return None
    if isinstance(verdict, BroadcastResult):
        return None if verdict.ok else broadcast_error(verdict)
    return None if is_success(verdict) else delivery_error(request.mailbox, verdict)


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
