"""Processes outside the run that take part in it: the command line, other programs, commands of the run itself.

What a process may ask for depends on where it belongs: everything from outside, little from inside (``STEP_RIGHTS``). Requests that
concern messages are in ``mail_requests.py``; ``requests.py`` says how a request that is sent twice is carried out once. What only
the driver knows, the processes of the hub, it is asked for by an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from bartack.errors import BartackError, FrameError, PeerRefusedError, UnknownRequestError
from bartack.runtime.kernel.actions import InterruptHub, ListProcesses
from bartack.runtime.kernel.desk import Desk, Shared
from bartack.runtime.kernel.failure import SessionFailure
from bartack.runtime.kernel.mail_requests import MailRequests
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.kernel.processes import ProcessDesk
from bartack.runtime.kernel.questions import QuestionDesk
from bartack.runtime.kernel.requests import Asked, RequestDesk
from bartack.runtime.kernel.turn import Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import BY_ID, MESSAGES, REQUEST_ID, Process, Request, RunFacts, signed
from bartack.runtime.state import entries as e
from bartack.runtime.state.timeline import describe_worker
from bartack.runtime.state.worker_state import NO_VALUE

READ_ONLY: Final = frozenset({"state", "ps", "watch", "stats", "peek", "mailboxes"})
"""Requests that change nothing in a run."""


class ForeignDesk(Desk):
    """Answers the requests of processes outside."""

    def __init__(
        self,
        shared: Shared,
        processes: ProcessDesk,
        failure: SessionFailure,
        questions: QuestionDesk,
        mail_requests: MailRequests,
        requests: RequestDesk,
    ) -> None:
        super().__init__(shared)
        self._requests = requests
        self._processes = processes
        self._failure = failure
        self._questions = questions
        self._mail_requests = mail_requests
        self._deadlock: list[str] = []
        self._handlers: Mapping[str, Callable[[Peer, f.Ask, Request], None]] = {
            **mail_requests.handlers,
            "answer": self._answer,
            "fail": self._fail,
            "cancel": self._cancel,
            "interrupt": self._interrupt,
            "state": self._state,
            "ps": self._ps,
            "watch": self._watch,
        }

    def join(self, peer: Peer) -> Peer:
        """A process outside has connected."""
        self.turn.add_peer(peer)
        return peer

    def _note_joined(self, peer: Peer, do: str) -> None:
        """Record a process that takes part in the run, once; one that only looks at the run is not recorded."""
        if peer.rights is None and not peer.noted and do not in READ_ONLY:
            peer.noted = True
            self.turn.record((e.PeerJoined(peer=peer.name), NO_VALUE), sync=False)

    def ask(self, peer: Peer, ask: f.Ask) -> None:
        """A request; an error in it is its answer."""
        if peer.held:
            self._mail_requests.lease(peer)
        try:
            if peer.rights is not None and ask.do not in peer.rights:
                raise PeerRefusedError(ask.do, peer.inside or "the process that asks belongs to the run")
            handler = self._handlers.get(ask.do)
            if handler is None:
                raise UnknownRequestError(ask.do)
            by_id = ask.do in BY_ID
            if by_id and self._was_taken(peer, ask):
                return
            self._check_alive(ask.do)
            self._note_joined(peer, ask.do)
            request = self.decode(ask.a, Request)
            if by_id:
                self._requests.take(peer, ask, lambda: handler(peer, ask, request))
            else:
                handler(peer, ask, request)
        except BartackError as error:
            self.turn.send(peer, f.Refusal(i=ask.i, e=describe(error)))

    def _was_taken(self, peer: Peer, ask: f.Ask) -> bool:
        """Whether a request that changes the run was carried out before, or is under way."""
        # A client of an earlier version gives no ids, and sends nothing again.
        ask.id = ask.id or f"{self.state.hub}.{peer.number}.{ask.i}"
        if not REQUEST_ID.fullmatch(ask.id):
            raise FrameError("the id of a request is made of letters, digits, '.', '_' and '-', 64 at most")
        return self._requests.is_known(peer, ask)

    def _check_alive(self, do: str) -> None:
        """A failed session takes and gives no messages; what was there stays for the resumed one."""
        if self.state.failure is not None and do in MESSAGES:
            raise self._failure.error()

    def _answer(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        value = msgspec.Raw(self.turn.load(ask.v, ask.ref))
        self._questions.answer(request.question, value, signed(request.by, peer.role) or peer.name)
        self._settle(peer, ask)

    def _fail(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        error = f.ErrorData(
            type="bartack.errors:SessionFailedError", message=request.message, worker=peer.name
        )
        self._settle(peer, ask)
        self._failure.fail_session(None, error, by=signed("", peer.role))

    def _cancel(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._settle(peer, ask)
        self._failure.cancel_run(request.message, by=signed("", peer.role))

    def _interrupt(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self._settle(peer, ask)
        self.turn.after_commit(InterruptHub())

    def _settle(self, peer: Peer, ask: f.Ask) -> None:
        self._requests.settle(Asked(ask.id, ask.do, peer.signature), NO_VALUE)

    def _state(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        state = self.state
        facts = RunFacts(
            run=state.run.run if state.run else "",
            status=state.status,
            workers=len(state.workers),
            alive=len(self._processes.alive),
            questions=list(state.questions),
            spent_usd=state.spent_usd,
            hub=state.hub,
            deadlock=self._deadlock,
        )
        self._requests.answer_look(peer, ask.i, facts)

    def _ps(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        self.turn.after_commit(ListProcesses(peer.number, ask.i))

    def report_processes(self, number: int, request: int, processes: list[Process]) -> None:
        """The driver lists the processes of the hub, its workers with nothing but their paths: answer the request."""
        peers = self.turn.peers
        peer = peers.get(number)
        if peer is not None:
            self._requests.answer_look(peer, request, [self._described(process) for process in processes])

    def report_deadlock(self, waits: list[str]) -> None:
        """What each worker waits for, if all wait for each other; else nothing."""
        self._deadlock = waits

    def _described(self, process: Process) -> Process:
        worker = self.state.workers.get(process.worker)
        if worker is None:
            return process
        if process.kind == "worker":
            describe_worker(process, worker, self.state)
            if process.status == "waiting" and self.turn.peer_of(worker.path) is not None:
                process.status = "running"
        opened = worker.open.get(_parse(process.step))
        if opened is not None:
            process.since, process.left_s = opened.at, self.left_s(opened)
        return process

    def _watch(self, peer: Peer, ask: f.Ask, request: Request) -> None:
        """The peer wants to be notified when the session fails; every connected peer is, so there is nothing to do."""
        self._requests.answer_look(peer, ask.i, None)


def _parse(step: str) -> tuple[str, int]:
    path, _, number = step.rpartition(":")
    return (path, int(number)) if path else ("", 0)
