"""A hub without sockets, files and processes: the same core, driven in memory, one event at a time.

It is for tests: of programs (``bartack.testing.run_worker``) and of the core itself. Everything outside the hub is a ``World``;
whatever happens there is put into the hub's queue and taken in the order in which it was put. A journal can be made to lose its
owner after a number of lines, as if everything had been killed in the middle of that commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from bartack.config.timeouts import Timeouts
from bartack.core.clock import Clock
from bartack.journal import Draft, MemoryJournal
from bartack.journal.memory import MemoryStore
from bartack.runtime.kernel import actions as act
from bartack.runtime.kernel.copies.core import CopyingCore
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.delegates import FinalCheck
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.turn import Commits, Peer
from bartack.runtime.protocol import frames as f
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.history import encode_outcome, iter_greeting
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import UnknownDecision
from bartack.telemetry import NO_TELEMETRY, Telemetry

Copier = Callable[[act.KeepCopy | act.PackCopy], None]
"""Makes copies of the workspace."""

Ear = Callable[[f.ToPeer], None]
"""Takes the frames that the hub sends to one peer."""


_WITHOUT_EFFECT: Final = (act.Transition, act.ReadScoreboard, act.RemoveFile, act.InterruptHub)
"""Actions that concern files, shared memory and signals, which a run in memory does not have."""


class KilledError(Exception):
    """Everything was killed at this moment. What is not in the journal never happened."""


class MortalJournal(MemoryJournal):
    """A journal in memory whose owner can be killed in the middle of a commit.

    Args:
        store: What an earlier owner left.
        clock: The time of entries.
        dies_after: How many lines of this owner become durable: the commit that reaches the number raises ``KilledError``.
        late: The owner still learns that they are durable; it dies in its next commit.
    """

    def __init__(
        self, store: MemoryStore, clock: Clock, dies_after: int | None = None, *, late: bool = False
    ) -> None:
        self.lines: list[int] = []
        """The last place of each line that this owner staged."""
        self._dies_after = dies_after
        self._late = late
        super().__init__(store, take_over=True, clock=clock)

    def stage(self, *drafts: Draft, join: bool = False) -> int:
        """See ``Journal.stage``."""
        seq = super().stage(*drafts, join=join)
        if join:
            self.lines.pop()
        self.lines.append(seq + len(drafts) - 1)
        return seq

    def commit(self) -> int:
        """See ``Journal.commit``.

        Raises:
            KilledError: This is where it ends.
        """
        synced = super().commit()
        limit = self._dies_after
        if limit is not None and len(self.lines) >= limit + self._late:
            del self.store.entries[self.lines[limit - 1] :]
            raise KilledError
        return synced


class World(Protocol):
    """Everything around a hub in memory."""

    def start_worker(self, path: str, incarnation: int) -> None:
        """Start the process of a worker; it joins with ``MemoryHub.join``."""
        ...

    def stop_worker(self, path: str) -> None:
        """End the process of a worker; ``MemoryHub.gone`` is called when it has ended."""
        ...

    def start_shell(self, action: act.StartShell) -> None:
        """Run commands."""
        ...

    def stop_shell(self, token: int) -> None:
        """End commands."""
        ...

    def start_prompt(self, action: act.StartPrompt) -> None:
        """Call an agent."""
        ...

    def stop_prompt(self, token: int) -> None:
        """Give a call of an agent up."""
        ...

    def answer_call(self, action: act.AnswerCall) -> None:
        """Give an agent the outcome of its call of a tool."""
        ...

    def answer_question(self, action: act.AnswerQuestion) -> None:
        """Give an agent the answer to its question."""
        ...

    def show(self, action: act.Show) -> None:
        """Something was printed, logged or happened."""
        ...


class MemoryHub:
    """Drives a core in memory."""

    def __init__(
        self,
        journal: MemoryJournal,
        clock: Clock,
        world: World,
        *,
        timeouts: Timeouts | None = None,
        settings: Settings | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        run_dir: str = "",
        final_check: FinalCheck = list,
        copier: Copier | None = None,
    ) -> None:
        state = State()
        apply_all(state, journal.read())
        self.journal = journal
        kind = Core if copier is None else CopyingCore
        self.core = kind(state, journal, clock, timeouts or Timeouts({}), settings, telemetry, final_check)
        self.commits = Commits(self.core.turn, journal)
        self.status = ""
        """How it ended; empty while it runs."""
        self._world = world
        self._copier = copier
        self._run_dir = run_dir
        self._ears: dict[int, Ear] = {}
        self._numbers = 0
        self._events: deque[Callable[[Core], None]] = deque()

    def begin(self, dead_us: int = 0, unknown: UnknownDecision | None = None) -> None:
        """The run begins, or is resumed."""
        self.core.start(dead_us, unknown)
        self.finish_turn()

    # What happens outside.

    def post(self, event: Callable[[Core], None]) -> None:
        """Something happened; the hub learns it in its turn."""
        self._events.append(event)

    def join(self, hello: f.Hello, ear: Ear, peer: Peer | None = None) -> int:
        """A peer connects; returns the number of the connection."""
        self._numbers += 1
        number = self._numbers
        self._ears[number] = ear
        if peer is not None:
            peer.number = number
        self.post(lambda core: self._connect(core, number, hello, peer))
        return number

    def say(self, number: int, frame: f.Frame) -> None:
        """A peer sends a frame. It is encoded and decoded, as everywhere else."""
        received = f.decode_to_hub(f.encode(frame)[4:])
        self.post(lambda core: core.frame(number, received))

    def hang_up(self, number: int) -> None:
        """A peer closes its connection."""
        self._ears.pop(number, None)
        self.post(lambda core: core.lost(number))

    def gone(self, path: str, incarnation: int, reason: str) -> None:
        """The process of a worker is gone."""
        self.post(lambda core: core.process_gone(path, incarnation, reason))

    # Turns.

    def turn(self) -> bool:
        """Take one event and do what follows from it; ``False`` if there is none."""
        if not self._events or self.status:
            return False
        self.core.check_clock()
        self._events.popleft()(self.core)
        self.finish_turn()
        return True

    def run_ready(self) -> None:
        """Take all events, also those that follow from them."""
        while self.turn():
            pass

    def tick(self) -> None:
        """Time has passed."""
        self.core.check_clock()
        self.core.tick()
        self.finish_turn()

    def finish_turn(self) -> None:
        """Commit if a peer waits for it, then do what was decided; that may lead to more."""
        while True:
            self.core.settle()
            self._do(self.core.turn.take_at_once())
            batch = self.commits.advance(due=self.core.turn.must_sync)
            if batch is None:
                return
            self._do(self.core.turn.committed(batch))

    def flush(self) -> None:
        """Make durable what no peer waits for, as a hub does that has nothing else to do."""
        if self.journal.last_seq > self.journal.synced_seq:
            batch = self.commits.advance(due=True)
            if batch is not None:
                self._do(self.core.turn.committed(batch))
                self.finish_turn()

    # Inside.

    def _connect(self, core: Core, number: int, hello: f.Hello, peer: Peer | None) -> None:
        if core.connect(number, hello, peer) is None:
            self._ears.pop(number, None)

    def _do(self, actions: Sequence[act.Action]) -> None:
        for action in actions:
            self._perform(action)

    def _perform(self, action: act.Action) -> None:
        world = self._world
        match action:
            case act.SendFrames():
                self._send(action.peer, action.data)
            case act.SendHistory() | act.SendOutcome():
                self._send_recorded(action)
            case act.CloseConnection():
                self._ears.pop(action.peer, None)
            case act.StartWorker():
                world.start_worker(action.path, action.incarnation)
            case act.StopWorker():
                world.stop_worker(action.path)
            case act.StartShell() | act.StopShell() | act.KeepCopy() | act.PackCopy():
                self._work(action)
            case act.StartPrompt() | act.StopPrompt() | act.AnswerCall() | act.AnswerQuestion():
                self._talk(action)
            case act.Show():
                world.show(action)
            case act.ListProcesses():
                self.core.foreign.report_processes(action.peer, action.request, [])
            case act.EndHub():
                self.status = self.status or action.status
            case _:
                assert isinstance(action, _WITHOUT_EFFECT), action

    def _work(self, action: act.StartShell | act.StopShell | act.KeepCopy | act.PackCopy) -> None:
        match action:
            case act.StartShell():
                self._world.start_shell(action)
            case act.StopShell():
                self._world.stop_shell(action.token)
            case _:
                assert self._copier is not None, "a core without copies asks for none"
                self._copier(action)

    def _talk(self, action: act.StartPrompt | act.StopPrompt | act.AnswerCall | act.AnswerQuestion) -> None:
        match action:
            case act.StartPrompt():
                self._world.start_prompt(action)
            case act.StopPrompt():
                self._world.stop_prompt(action.token)
            case act.AnswerCall():
                self._world.answer_call(action)
            case act.AnswerQuestion():
                self._world.answer_question(action)

    def _send(self, number: int, data: bytes) -> None:
        for body in f.FrameReader().feed(data):
            ear = self._ears.get(number)
            if ear is not None:
                ear(f.decode_to_peer(body))

    def _send_recorded(self, action: act.SendHistory | act.SendOutcome) -> None:
        if isinstance(action, act.SendOutcome):
            self._send(action.peer, encode_outcome(self.journal, action.place, action.request))
            return
        state = self.core.state
        worker = state.workers[action.path]
        for data in iter_greeting(
            state, self.journal, worker, action.known, msgspec.Raw(b"{}"), self._run_dir
        ):
            self._send(action.peer, data)
