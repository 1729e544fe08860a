"""Requests of processes outside, by their ids: each is carried out once, however often it is sent.

A process that loses its connection does not know whether its request was carried out. It sends the request again with the same
id: over another connection, to the next hub, or as a file in the inbox of the run. Which way it comes does not matter. ``hub.sock``
and everything else that hands the core an ``Ask`` of a peer come here through ``foreign.py``, files of ``inbox/`` through
``hub/inbox.py``.

**Why a request is not carried out twice.** All entries that a request causes, and the entry ``request.taken`` with its outcome,
are one line of the journal (``Turn.one_line``). So after a crash at any moment the journal has the effects of the request and its
outcome, or nothing of it. In the first case the next hub knows the id and answers with the outcome that was recorded. In the
second case no process has seen an effect of the request, since no action leaves before the line is durable (``turn.py``), and it
is carried out then.

**Requests that take time.** A supervised send and a broadcast record their id when they are opened, and a call records it with its
message (``reply_to``). If they are repeated meanwhile, the process waits for the outcome of the one that is under way, also if
another hub continues it. A send that waits for room has recorded nothing. If its process is gone it never happened, and a
repetition is a new one. A call whose process is gone takes its message back unless a receiver has it; a reply that comes then is
recorded, and waits for the repetition.

**Refusals.** A request that was refused without having changed anything is not recorded. If it is repeated, it is decided anew, and
may be carried out then, once.

``state/requests.py`` says how long an id is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bartack.errors import BartackError
from bartack.runtime.kernel.actions import SendOutcome
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, Value


class Asked(NamedTuple):
    """A request: its id, what it asks for, and the process that asks."""

    id: str
    do: str
    by: str


class RequestDesk(Desk):
    """Takes each request once, and answers it."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._waiting: dict[str, tuple[Peer, int] | None] = {}
        """The requests that are under way, and where each is awaited: by this peer, under this number there, or nowhere."""

    def is_known(self, peer: Peer, ask: f.Ask) -> bool:
        """Whether a request came before. Then the peer gets its outcome: now, or when it is known."""
        place = self.state.requests.place_of(ask.id)
        if place:
            self.turn.after_commit(SendOutcome(peer.number, ask.i, place))
            return True
        if ask.id not in self._waiting and not self.state.requests.is_sending(ask.id):
            return False
        self._waiting[ask.id] = (peer, ask.i)
        return True

    def take(self, peer: Peer, ask: f.Ask, carry_out: Callable[[], None]) -> None:
        """Carry out a request that was not carried out before. An error that is raised is the answer."""
        self._waiting[ask.id] = (peer, ask.i)
        is_taken = False
        try:
            with self.turn.one_line() as line:
                try:
                    carry_out()
                except BartackError as error:
                    if line.has_begun:
                        self.settle(Asked(ask.id, ask.do, peer.signature), error)
                    else:
                        self.refuse(ask.id, error)
            is_taken = True
        finally:
            if not is_taken:
                self._waiting.pop(ask.id, None)

    def answer_look(self, peer: Peer, number: int, value: object) -> None:
        """Answer a request that changes nothing."""
        packed = self.turn.pack(value)
        self.turn.send(peer, f.Answer(i=number, v=packed.raw, ref=packed.ref))

    def settle(self, asked: Asked, outcome: Value | BartackError) -> None:
        """Record the outcome of a request, and answer it."""
        entry = self.entry(asked, outcome)
        self.turn.record(entry)
        self.answer(*entry)

    def entry(self, asked: Asked, outcome: Value | BartackError) -> tuple[e.RequestTaken, Value]:
        """The entry with the outcome of a request. ``answer`` is called when it is recorded."""
        if isinstance(outcome, BartackError):
            return e.RequestTaken(id=asked.id, do=asked.do, by=asked.by, error=describe(outcome)), NO_VALUE
        return e.RequestTaken(id=asked.id, do=asked.do, by=asked.by), outcome

    def answer(self, data: e.RequestTaken, value: Value) -> None:
        """Send an outcome that is recorded to the process that waits for it, if one does."""
        waiting = self._waiting.pop(data.id, None)
        if waiting is None:
            return
        peer, number = waiting
        if data.error is not None:
            self.turn.send(peer, f.Refusal(i=number, e=data.error))
        else:
            self.turn.send(peer, f.Answer(i=number, v=value.raw, ref=value.ref))

    def refuse(self, request: str, error: BartackError) -> None:
        """Answer a request by an error that is not its outcome: it was not carried out, or is not over."""
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            self.turn.send(waiting[0], f.Refusal(i=waiting[1], e=describe(error)))

    def awaited_by(self, peer: Peer, number: int | None = None) -> list[str]:
        """The requests whose outcomes a peer waits for, or the one that it has given this number."""
        return [
            request
            for request, waiting in self._waiting.items()
            if waiting is not None and waiting[0] is peer and number in {None, waiting[1]}
        ]

    def drop(self, request: str) -> None:
        """A request is not under way any longer, and has no outcome."""
        self._waiting.pop(request, None)

    def refuse_sends(self, error: BartackError) -> None:
        """Answer all who wait for a supervised send or a broadcast: it continues when the run is resumed."""
        for request in list(self._waiting):
            if self.state.requests.is_sending(request):
                self.refuse(request, error)

    def peer_gone(self, peer: Peer) -> None:
        """A process that is gone waits for nothing, and may come back for what is under way."""
        for request in self.awaited_by(peer):
            self._waiting[request] = None
