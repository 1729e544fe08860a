"""Requests of processes outside the run that concern messages: sending, receiving, subscribing, dead letters.

Messages to a process outside are delivered at least once: it acknowledges each, and what it held when it ended goes back. It has to
send something from time to time while it holds a message, as it may hang. ``foreign.py`` passes on the requests; ``mail/`` decides
what becomes of the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bartack.messaging import Message
from bartack.messaging.mailboxes import check_name
from bartack.messaging.options import check_metadata
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.mail.attempts import SendRequest
from bartack.runtime.kernel.mail.enqueue import Outgoing, size_of
from bartack.runtime.kernel.mail.mailroom import MailDesks
from bartack.runtime.kernel.mail.waiters import Holder
from bartack.runtime.kernel.requests import Asked, RequestDesk
from bartack.runtime.kernel.timers import Timer
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import LEASE_S, Request
from bartack.runtime.protocol.steps import MailboxStats
from bartack.runtime.state.worker_state import NO_VALUE, Value

Handle = Callable[[Peer, f.Ask, Request], None]


class MailRequests(Desk):
    """Answers the requests of processes outside that concern messages."""

    def __init__(self, shared: Shared, mail: MailDesks, requests: RequestDesk) -> None:
        super().__init__(shared)
        self._requests = requests
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
        self._outside.send(_asked(peer, ask), message)

    def _call(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = Value(ask.v, ask.ref)
        message = Outgoing(request.mailbox, peer.name, value, size_of(value))
        self._outside.call(_asked(peer, ask), message, request.timeout_s)

    def _reply(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        if peer.held.get(request.id) == request.mailbox:
            self._calls.answer(request.mailbox, request.id, Value(ask.v, ask.ref))
        self._settle(peer, ask, None)

    def _settle(self, peer: Peer, ask: f.Ask, value: object) -> None:
        self._requests.settle(_asked(peer, ask), self.turn.pack(value))

    def _send_supervised(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._delivery.send_for(_sending(peer, ask), request.mailbox, request.terms)

    def _broadcast(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._delivery.broadcast_for(_sending(peer, ask), request.copies, request.strategy, request.terms)

    def _publish(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._delivery.publish_for(_sending(peer, ask), request.topic, request.strategy, request.terms)

    def _subscribe(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        changed = self._registry.subscription(request.mailbox, request.pattern, off=request.off)
        self.turn.record((changed, NO_VALUE))
        self._settle(peer, ask, None)

    def _withdraw(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._settle(peer, ask, self._enqueue.withdraw(request.mailbox, request.id, peer.name))

    def _close(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._registry.close(request.mailbox)
        self._settle(peer, ask, None)

    def _stats(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        check_name(request.mailbox)
        self._requests.answer_look(peer, ask.i, self._registry.describe(request.mailbox))

    def _add_letter(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = Value(ask.v, ask.ref)
        added = self._letters.add(
            request.mailbox, peer.name, value, request.message, check_metadata(request.metadata)
        )
        self._settle(peer, ask, added)

    def _retry_letters(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._letters.retry(request.letters, "command", lambda results: self._settle(peer, ask, results))

    def _purge_letters(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._settle(peer, ask, self._letters.purge(request.letters))

    def _receive(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._receive_desk.check_reader(request.mailbox)
        waiter = Holder(self.turn, peer, ask.i, request.mailbox, lambda: self.lease(peer))
        self._outside.receive(waiter, request.timeout_s)

    def _ack(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._held.settle(peer, request.id, ok=request.ok)
        self._requests.answer_look(peer, ask.i, None)

    def _renew(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        """The peer is still busy with what it holds: ``foreign.py`` renews its lease at every request."""
        self._requests.answer_look(peer, ask.i, None)

    def _forget(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        """The peer no longer waits for the answer to a request. If that is on its way already, the peer has to deal with it."""
        self._outside.forget_request(peer, request.number)
        self._requests.answer_look(peer, ask.i, None)

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
        self._requests.answer_look(peer, ask.i, [_shown(message) for message in messages])

    def _mailboxes(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        stats: dict[str, MailboxStats] = {
            name: self._registry.describe(name) for name in self.state.mailboxes
        }
        self._requests.answer_look(peer, ask.i, stats)


def _asked(peer: Peer, ask: f.Ask) -> Asked:
    return Asked(ask.id, ask.do, peer.signature)


def _sending(peer: Peer, ask: f.Ask) -> SendRequest:
    """What a process outside wants delivered. It gets the outcome if it waits for that then."""
    return SendRequest(peer.name, Value(ask.v, ask.ref), request=_asked(peer, ask))


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
