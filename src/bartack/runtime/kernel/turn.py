"""One turn of the hub: what was decided, to be made durable, and what is to be done before, with and after that.

The desks decide by calling a ``Turn``. ``record`` stages entries in the journal and applies them to the state at once;
``send``, ``after_commit``, ``with_next_commit`` and ``before_commit`` collect actions. The driver (``hub/hub.py``) has
``Commits`` commit the journal and performs the actions. No desk waits, or talks to a process.

**Why a turn is correct.** The promise to keep is: nothing that a worker, a person or an agent has seen of the run is missing
after a crash, and no step with an outcome in the journal is executed again. (The live view is ahead of it: it shows the state
of the turn, and the output of a command as it comes.) A crash may happen between any two statements, and loses exactly the
entries that are not durable, with the whole memory of the hub.

1. *The state is ahead of the disk, and that is safe.* An entry is applied when it is staged, so desks decide on a state that
   may be lost. But such a state is only in memory: what leaves the hub is an action, and actions wait for a commit (3), but
   for the two of (5). If the hub dies before that, the next one reads the journal, gets the state before the lost entries,
   and no process knows of them.
2. *One line is one decision.* Entries that are recorded in one call are one line of the journal, which is there as a whole or
   not at all. So a message and the outcome of the step that sent it, or a worker's end and the outcome of the delegate that
   waited for it, cannot be torn apart by a crash. Where several desks record parts of one decision, ``one_line`` makes them
   one line. Lines become durable in the order in which they were recorded.
3. *After the commit.* ``send`` and ``after_commit`` append to one list, and set ``must_sync``. The driver commits, calls
   ``committed`` when that is confirmed, and performs the list in its order. So an answer reaches a worker, a note a
   person and a prompt an agent only when every entry that it is based on is durable, and answers reach one worker in the
   order of their entries: its replay, which reads the entries, takes the same course. An action that is lost with the hub
   is not missed, unless it is a note for people: it is implied by the state, and ``Desk.resumed`` or a restarted worker
   brings it about again.
4. *With the next commit.* An entry recorded without ``sync``, and an action ``with_next_commit``, do not ask for a commit but
   share the next one. That is for facts on which nothing waits: a line that was printed, the value of a harmless step. Losing
   them costs nothing, since the worker then executes that step again and no other process has seen the old value: the hub starts
   no command with it, by (5), and the worker begins no body and writes no file until it is durable (``Requests.note_open`` in
   ``scheduler/requests.py``). The actions are notes for people, and ``CloseConnection``. To close a connection shows nothing of
   the state, so it needs no entry to be durable. It is in the list all the same, since the frames that were decided before it
   must leave first. It may come late, because the peer was removed from the turn, or the frame that led to it was not taken; and
   it may be lost, because every connection ends with the hub.
5. *Before the commit.* A worker uses the value of a harmless step (the time, a random number, the content of a file) before
   it is durable: it made the value itself and only reports it (``Note``). From the report to the next commit the turn is
   ``exposed``, that is, the program has seen a value that a crash would take back. ``before_commit`` lets an action start at
   once, without waiting for the disk, only while the turn is not exposed; otherwise it is ``after_commit``. Two actions use
   it. A *command* that may be executed again (neither ``once`` nor ``live``): if the hub dies, its process tree is killed
   before the next hub starts anything, the journal has no trace of it or an open step, and the worker asks for it again under
   the same key; that is the contract of such a command. While exposed it must wait, or it could be started with a value that
   the repeated step does not have. The *refusal of a call of a tool*, which is not recorded at all: if an entry that led to
   it is lost, the agent makes the call again.
6. *While a commit is under way.* The file engine ends a commit before the hub does anything else. Another engine may need
   time for it, and the hub decides on meanwhile. So between staged and durable an entry has one more state: it is in the
   commit under way, and it is not known whether it is durable. The points above hold in that state, too:

   - *There is one commit under way, and the next one begins when it is confirmed.* Everything that is staged when a commit
     begins is in it, and everything that waits for these entries is its ``CommitBatch``. What is recorded and decided from then on
     belongs to the next commit and the next batch, whatever it depends on. So a batch is performed when its own entries and
     all before them are durable, and batches are performed in the order of their entries (2, 3).
   - *The state may be ahead by more than one turn*, which changes nothing in (1). But an action that read the state when it is
     performed would show what is not durable. Actions are data, made when they were decided. The two that are not are bound
     to their commit in another way: ``SendHistory`` has the number of outcomes that the worker is sent, and the files that
     ``Transition`` writes are made when the commit begins (``hub/hub.py``).
   - *A value is exposed until the commit that has it is confirmed*, so ``before_commit`` also waits if the commit under way
     has one. An action that need not wait may overtake the batch under way, as it may overtake the actions of its own turn:
     it concerns a command or a call that no other action knows yet.
   - *If the commit fails*, it is unknown whether its entries are durable, and those after it are lost. No action of either
     batch was performed. The driver stops, as after every failed commit, and the next hub decides from what the journal has.
     The same holds if the hub dies at that moment: the commit may be durable or not, and no process has seen anything of it.

Read ``actions.py`` for the actions, ``core.py`` for what happens in a turn, ``journal/contract.py`` for what a commit
promises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from bartack.core.clock import Clock
from bartack.errors import BartackError
from bartack.journal import BlobRef, Draft, Journal, wait_for_commit
from bartack.journal.contract import INLINE_LIMIT
from bartack.runtime.kernel.actions import Action, SendFrames
from bartack.runtime.kernel.mail_events import EventEmitter, PendingEvent
from bartack.runtime.kernel.outcome import step_failed, step_finished
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import signed
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
        self.role = ""
        """The role of the database for which a process outside asks; empty if it asks for itself."""
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

    @property
    def signature(self) -> str:
        """Who asks, as the journal has it: a role of the database, or a process."""
        return signed("", self.role) or self.name


class Line:
    """A line of the journal to which several desks add entries, in a block. A block inside it is part of it."""

    __slots__ = ("_depth", "_turn", "has_begun")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._depth = 0
        self.has_begun = False

    def __enter__(self) -> Line:
        self._depth += 1
        if self._depth == 1:
            self._turn.line = self
        return self

    def __exit__(self, *problem: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._turn.line = None


class CommitBatch(NamedTuple):
    """What waits for one commit."""

    actions: list[Action]
    recorded: list[Recorded]
    """What the commit makes durable, if that is observed."""
    events: list[PendingEvent]


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
        """Whether a program has used a value that is recorded, and that no commit has begun for."""
        self._exposed_in_commit = False
        """Whether a program has used a value that is in the commit under way."""
        self._actions: list[Action] = []
        self.at_once: list[Action] = []
        """Actions that need not wait for the disk."""
        self._tokens = 0
        self.line: Line | None = None
        """The line that everything belongs to which is recorded now; set by the block of ``one_line``."""
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
        """Keep what is recorded from here on, for those who observe commits."""
        self._recorded = []

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
        if self.line is None:
            seq = self._journal.stage(*drafts)
        else:
            seq = self._journal.stage(*drafts, join=self.line.has_begun)
            self.line.has_begun = True
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

    def one_line(self) -> Line:
        """Everything that is recorded in its block is one line: a crash leaves all of it or nothing."""
        return self.line or Line(self)

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
        usd_estimated: bool = False,
        used: Units | None = None,
        by: str = "",
    ) -> None:
        """Finish a step that was under way."""
        data = step_finished(step, about=step.about, usd=usd, usd_estimated=usd_estimated, used=used, by=by)
        self.finish(worker, data, value)

    def fail_open(
        self,
        worker: WorkerState,
        step: OpenStep,
        error: BartackError | f.ErrorData,
        *,
        usd: float = 0.0,
        usd_estimated: bool = False,
        used: Units | None = None,
        late: bool = False,
    ) -> None:
        """Fail a step that was under way."""
        data = step_failed(
            step,
            error,
            worker.path,
            about=step.about,
            usd=usd,
            usd_estimated=usd_estimated,
            used=used,
            late=late,
        )
        self.fail(worker, data)

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
        if self.exposed or self._exposed_in_commit:
            self.after_commit(action)
        else:
            self.at_once.append(action)

    def take_at_once(self) -> list[Action]:
        """Take the actions that need not wait for the disk."""
        actions, self.at_once = self.at_once, []
        return actions

    def begin_commit(self) -> CommitBatch:
        """A commit of all that is recorded begins: take what waits for it."""
        batch = CommitBatch(
            self._actions,
            self._recorded or [],
            [] if self.emitter is None else self.emitter.take(),
        )
        self._actions = []
        if batch.recorded:
            self._recorded = []
        self.must_sync = False
        self._exposed_in_commit, self.exposed = self.exposed, False
        return batch

    def committed(self, batch: CommitBatch | None = None) -> list[Action]:
        """A commit is confirmed: take the actions that waited for it. Without a batch, all that is recorded was committed."""
        batch = batch or self.begin_commit()
        self._exposed_in_commit = False
        if self.emitter is not None:
            self.emitter.emit(batch.events)
        return batch.actions

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


class Commits:
    """The commits of a hub, one after the other: which one is under way, and what follows when it is confirmed.

    Args:
        turn: What is to be made durable.
        journal: Where that is.
        starting: Called with the batch of a commit that begins, before the journal knows of it.
    """

    def __init__(
        self, turn: Turn, journal: Journal, starting: Callable[[CommitBatch], None] | None = None
    ) -> None:
        self._turn = turn
        self._journal = journal
        self._starting = starting
        self._under_way: CommitBatch | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a commit has begun and is not confirmed."""
        return self._under_way is not None

    def advance(self, *, due: bool, wait: bool = False) -> CommitBatch | None:
        """Finish the commit that is under way; if there is none, begin one if it is due.

        Args:
            due: Whether what is recorded has to become durable now.
            wait: Whether to wait for the end of the commit.

        Returns:
            The batch of a commit that is confirmed; its actions are due. ``None`` if there is none: not yet, or none was due.

        Raises:
            JournalPoisonedError: The commit failed. Nothing of its batch, and nothing that was recorded after it, may be done.
        """
        batch = self._under_way
        if batch is None:
            if not due:
                return None
            batch = self._turn.begin_commit()
            if self._starting is not None:
                self._starting(batch)
            self._journal.start_commit()
        self._under_way = batch
        if wait:
            wait_for_commit(self._journal)
        elif not self._journal.finish_commit():
            return None
        self._under_way = None
        return batch
