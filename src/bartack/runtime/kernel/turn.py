"""One turn of the hub: what was decided, to be made durable, and what is to be done before, with and after that.

The desks decide by calling a ``Turn``. ``record`` stages entries in the journal and applies them to the state at once;
``send``, ``after_commit``, ``with_next_commit`` and ``before_commit`` collect actions. The driver (``hub/hub.py``) commits
the journal and performs the actions. Nothing here waits, or talks to a process.

**Why a turn is correct.** The promise to keep is: nothing that a worker, a person or an agent has seen of the run is missing
after a crash, and no step with an outcome in the journal is executed again. (The live view is ahead of it: it shows the state
of the turn, and the output of a command as it comes.) A crash may happen between any two statements, and loses exactly the
entries that are staged and not committed, with the whole memory of the hub.

1. *The state is ahead of the disk, and that is safe.* An entry is applied when it is staged, so desks decide on a state that
   may be lost. But such a state is only in memory: what leaves the hub is an action, and actions wait for a commit (3), but
   for the two of (5). If the hub dies before that, the next one reads the journal, gets the state before the lost entries,
   and no process knows of them.
2. *One line is one decision.* Entries that are recorded in one call are one line of the journal, which is there as a whole or
   not at all. So a message and the outcome of the step that sent it, or a worker's end and the outcome of the delegate that
   waited for it, cannot be torn apart by a crash. Lines become durable in the order in which they were recorded.
3. *After the commit.* ``send`` and ``after_commit`` append to one list, and set ``must_sync``. The driver commits, then calls
   ``committed`` and performs the list in its order. So an answer reaches a worker, a note a person and a prompt an agent only
   when every entry that it is based on is durable, and answers reach one worker in the order of their entries: its replay,
   which reads the entries, takes the same course. An action that is lost with the hub is not missed, unless it is a note for
   people: it is implied by the state, and ``Desk.resumed`` or a restarted worker brings it about again.
4. *With the next commit.* An entry recorded without ``sync``, and an action ``with_next_commit``, do not ask for a commit but
   share the next one. That is for facts on which nothing waits: a line that was printed, the value of a harmless step. Losing
   them costs nothing, since the worker then executes that step again and no other process has seen the old value: the hub
   starts no command with it, by (5), and the worker begins no body and writes no file until it is durable
   (``Requests.note_open`` in ``scheduler/requests.py``).
5. *Before the commit.* A worker uses the value of a harmless step (the time, a random number, the content of a file) before
   it is durable: it made the value itself and only reports it (``Note``). From the report to the next commit the turn is
   ``exposed``, that is, the program has seen a value that a crash would take back. ``before_commit`` lets an action start at
   once, without waiting for the disk, only while the turn is not exposed; otherwise it is ``after_commit``. Two actions use
   it. A *command* that may be executed again (neither ``once`` nor ``live``): if the hub dies, its process tree is killed
   before the next hub starts anything, the journal has no trace of it or an open step, and the worker asks for it again under
   the same key; that is the contract of such a command. While exposed it must wait, or it could be started with a value that
   the repeated step does not have. The *refusal of a call of a tool*, which is not recorded at all: if an entry that led to
   it is lost, the agent makes the call again.

Read ``actions.py`` for the actions, ``core.py`` for what happens in a turn, ``journal/_contract.py`` for what a commit
promises.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from bartack.core import Clock
from bartack.errors import BartackError
from bartack.journal import INLINE_LIMIT, BlobRef, Draft, Journal
from bartack.runtime.kernel.actions import Action, SendFrames
from bartack.runtime.kernel.mail_events import EventEmitter
from bartack.runtime.kernel.outcome import step_failed, step_finished
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.apply import apply
from bartack.runtime.state.entries import EntryData, StepFailed, StepFinished, StepStarted
from bartack.runtime.state.run_state import State
from bartack.runtime.state.units import Units
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, Recorded, Value, WorkerState

FOREIGN: Final = "foreign:"
"""How the names of processes outside begin."""

NULL: Final = msgspec.Raw(b"null")
TOGETHER: Final = 16 * 1024
"""Bytes for one peer to which another frame is still joined."""
_encode = msgspec.json.Encoder().encode


class Peer:
    """A connection as the core sees it."""

    def __init__(
        self, number: int, *, worker: WorkerState | None = None, incarnation: int = 0, name: str = ""
    ) -> None:
        self.number = number
        self.worker = worker
        self.incarnation = incarnation
        self.name = name
        self.rights: frozenset[str] | None = None
        """Requests that a process inside a run may make; ``None``: all."""
        self.noted = False
        """Whether it is recorded that it joined."""
        self.inside = ""
        """Why it has only these rights: the run that it belongs to, and how the hub knows."""
        self.awaited: dict[tuple[str, int], int] = {}
        """Steps it waits for, with the number of its request."""
        self.known: set[tuple[str, int]] = set()
        """Steps whose outcome was sent to it before it asked for them."""
        self.begun: set[tuple[str, int]] = set()
        """Steps whose bodies it was to begin when that is durable, and that no process before it has begun."""
        self.replaying = worker is not None
        self.knows_failure = False
        """Whether it was notified that the session failed."""
        self.held: dict[str, str] = {}
        """Messages a foreign process holds: id and mailbox."""


class Turn:
    """What one turn of the hub records, sends and starts."""

    def __init__(
        self, state: State, journal: Journal, clock: Clock, emitter: EventEmitter | None = None
    ) -> None:
        self.state = state
        self.clock = clock
        self.must_sync = False
        self.peers: dict[int, Peer] = {}
        self.by_worker: dict[str, Peer] = {}
        self._journal = journal
        self.exposed = False
        """Whether a program has used a value that is not durable yet."""
        self._actions: list[Action] = []
        self.at_once: list[Action] = []
        """Actions that need not wait for the disk."""
        self._tokens = 0
        self._recorded: list[Recorded] | None = None
        self.emitter = emitter
        """Emits telemetry, if it is enabled."""

    # Connections.

    def add_peer(self, peer: Peer) -> None:
        """A process is connected from now on."""
        self.peers[peer.number] = peer
        if peer.worker is not None:
            self.by_worker[peer.worker.path] = peer

    def remove_peer(self, peer: Peer) -> None:
        """A process is no longer connected."""
        self.peers.pop(peer.number, None)
        if peer.worker is not None:
            self.by_worker.pop(peer.worker.path, None)

    def peer_of(self, path: str) -> Peer | None:
        """The process of a worker, if it is connected."""
        return self.by_worker.get(path)

    def peers_outside(self) -> list[Peer]:
        """The processes outside the run that are connected."""
        return [peer for peer in self.peers.values() if peer.worker is None]

    # Observing.

    def listen(self) -> None:
        """Keep what is recorded from here on, for ``take_recorded``."""
        self._recorded = []

    def take_recorded(self) -> list[Recorded]:
        """What was recorded since the last call; nothing before ``listen``."""
        if not self._recorded:
            return []
        recorded, self._recorded = self._recorded, []
        return recorded

    # Writing.

    def record(self, *items: tuple[EntryData, Value], sync: bool = True) -> int:
        """Record entries as one line and apply them; without ``sync`` they wait for the next commit that another entry needs."""
        if self.emitter is not None and self.emitter.traces:
            items = tuple(self.emitter.stamp(items))
        # Entries are encoded here, and what a frame carries was checked when it came in.
        drafts: list[Draft] = []
        for data, value in items:
            raw = None if value.raw is None else bytes(value.raw)
            drafts.append(Draft(data.kind, data, raw, value.ref, sound=True))
        seq = self._journal.stage(*drafts)
        now = self.clock.now_us()
        if self.emitter is not None:
            for data, value in items:
                self.emitter.note(data, now, value)
        for place, (data, value) in enumerate(items, seq):
            apply(self.state, data, place, now, value)
        if self._recorded is not None:
            self._recorded += [Recorded(place, now, *item) for place, item in enumerate(items, seq)]
        if sync:
            self.must_sync = True
        return seq

    def open_step(self, data: StepStarted, asked: Value = NO_VALUE, *, sync: bool = False) -> OpenStep:
        """A step is under way."""
        self.record((data, asked), sync=sync)
        worker = self.state.worker_of(data.p)
        assert worker is not None
        return worker.open[data.p, data.n]

    def finish(self, worker: WorkerState, data: StepFinished, value: Value) -> None:
        """Record the outcome of a step and report it to the worker."""
        self.record((data, value))
        self.report(worker, data, value)

    def fail(self, worker: WorkerState, data: StepFailed) -> None:
        """Record that a step failed and report it to the worker."""
        self.record((data, NO_VALUE))
        self.report(worker, data, NO_VALUE)

    def end_open(
        self,
        worker: WorkerState,
        step: OpenStep,
        value: Value,
        *,
        usd: float = 0.0,
        used: Units | None = None,
        by: str = "",
    ) -> None:
        """Finish a step that was under way."""
        self.finish(worker, step_finished(step, about=step.about, usd=usd, used=used, by=by), value)

    def fail_open(
        self,
        worker: WorkerState,
        step: OpenStep,
        error: BartackError | f.ErrorData,
        *,
        usd: float = 0.0,
        used: Units | None = None,
        late: bool = False,
    ) -> None:
        """Fail a step that was under way."""
        self.fail(
            worker, step_failed(step, error, worker.path, about=step.about, usd=usd, used=used, late=late)
        )

    # Answering.

    def report(self, worker: WorkerState, data: StepFinished | StepFailed, value: Value) -> None:
        """Report the outcome of a step to its worker. A process that has not reached the step yet gets it as history."""
        peer = self.by_worker.get(worker.path)
        if peer is None:
            return
        error = data.error if isinstance(data, StepFailed) else None
        number = peer.awaited.pop((data.p, data.n), None)
        if number is None and not data.cleanup:
            peer.known.add((data.p, data.n))
            past = f.Past(p=data.p, n=data.n, step=data.step, fp=data.fp, v=value.raw, ref=value.ref, e=error)
            self.send(peer, f.History(past=[past]))
        elif number and error is not None:
            self.send(peer, f.Refusal(i=number, e=error))
        elif number:
            self.send_encoded(peer, f.encode(f.Answer(i=number, v=value.raw, ref=value.ref)))

    def answer(self, worker: WorkerState, p: str, n: int, value: Value) -> None:
        """Answer a worker's step, if its process waits for that."""
        peer = self.by_worker.get(worker.path)
        number = peer.awaited.pop((p, n), None) if peer else None
        if peer is not None and number:
            self.send(peer, f.Answer(i=number, v=value.raw, ref=value.ref))

    def answer_request(self, peer: Peer, number: int, value: object) -> None:
        """Answer a request of a process outside."""
        packed = self.pack(value)
        self.send(peer, f.Answer(i=number, v=packed.raw, ref=packed.ref))

    def send(self, peer: Peer, frame: f.Frame, *, urgent: bool = False) -> None:
        """Send a frame when the turn is durable; frames for the same peer that follow each other go together."""
        self.send_encoded(peer, f.encode(frame), urgent=urgent)

    def send_encoded(self, peer: Peer, data: bytes, *, urgent: bool = False) -> None:
        """As ``send``, with a frame that is encoded already, since many peers get the same."""
        number, actions = peer.number, self._actions
        if actions:
            last = actions[-1]
            if (
                isinstance(last, SendFrames)
                and last.peer == number
                and last.urgent == urgent
                and len(last.data) < TOGETHER
            ):
                actions[-1] = SendFrames(number, last.data + data, urgent)
                return
        actions.append(SendFrames(number, data, urgent))
        self.must_sync = True

    # Acting.

    def after_commit(self, action: Action) -> None:
        """Perform an action when everything so far is durable, and ask for a commit."""
        self._actions.append(action)
        self.must_sync = True

    def with_next_commit(self, action: Action) -> None:
        """Perform an action with the next commit, without asking for one."""
        self._actions.append(action)

    def before_commit(self, action: Action) -> None:
        """Perform an action without waiting for the disk, unless the turn is exposed."""
        if self.exposed:
            self.after_commit(action)
        else:
            self.at_once.append(action)

    def take_at_once(self) -> list[Action]:
        """Take the actions that need not wait for the disk."""
        actions, self.at_once = self.at_once, []
        return actions

    def committed(self) -> list[Action]:
        """Everything so far is durable: take the actions that waited for that."""
        actions, self._actions = self._actions, []
        self.must_sync = False
        self.exposed = False
        if self.emitter is not None:
            self.emitter.flush()
        return actions

    def pack(self, value: object) -> Value:
        """A value of the hub's own, encoded; as a blob if it is long."""
        return self.pack_raw(_encode(value))

    def pack_raw(self, encoded: bytes) -> Value:
        """An encoded value; as a blob if it is long."""
        if len(encoded) > INLINE_LIMIT:
            return Value(None, self._journal.put_blob(encoded))
        return Value(msgspec.Raw(encoded))

    def keep(self, encoded: bytes) -> Value:
        """An encoded value as a blob, because several entries have it."""
        return Value(None, self._journal.put_blob(encoded))

    def next_message(self) -> int:
        """A number for a message that no other message of the run has."""
        return self._journal.last_seq + 1

    def load(self, raw: msgspec.Raw | None, ref: BlobRef | None) -> bytes:
        """A payload, wherever it is kept; ``null`` if there is none."""
        if raw is not None:
            return bytes(raw)
        return b"null" if ref is None else self._journal.get_blob(ref)

    def next_token(self) -> int:
        """A number for work that is started outside."""
        self._tokens += 1
        return self._tokens

    def key(self, worker: WorkerState, p: str, n: int) -> str:
        """The idempotency key of a step: the same on every attempt at it."""
        run = self.state.run
        assert run is not None
        text = f"{run.run}\n{p}\n{n}\n{worker.rewinds}"
        return "ik:" + hashlib.sha256(text.encode()).hexdigest()
