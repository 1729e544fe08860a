"""The hub: the process that owns a run. A loop around the core; everything it decides is decided there.

One turn: take what is ready, look once more for who became ready meanwhile, commit once for all of them, then do and say what was
decided. Processes are started by two parent programs, so that nothing the hub starts can outlive it: the zygote forks workers, the
keeper runs commands.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Final, Literal, Protocol

import msgspec

from bartack.core import Account, is_disk_trouble
from bartack.errors import AgentStartError, BartackError, FrameError, JournalPoisonedError, RunDiskError
from bartack.journal import Journal, Veil
from bartack.runtime.hub.admission import Gatekeeper
from bartack.runtime.hub.agent_host import HubHost
from bartack.runtime.hub.clock import HubClock
from bartack.runtime.hub.commands import Commands
from bartack.runtime.hub.connection import Connection
from bartack.runtime.hub.listener import Door, silent
from bartack.runtime.hub.machine import check_room
from bartack.runtime.hub.orphans import kill_orphans
from bartack.runtime.hub.poller import READ, WRITE, Poller, open_poller
from bartack.runtime.hub.post_mortem import PostMortem
from bartack.runtime.hub.prompts import Prompts
from bartack.runtime.hub.reopened import Reopened
from bartack.runtime.kernel import actions as act
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.idle import describe_deadlock, find_deadlock, is_blocked_on_people
from bartack.runtime.kernel.tools import TalkBegins, TalkFails, TalkWaits, ToolCall
from bartack.runtime.kernel.workers import START_FAILED
from bartack.runtime.program.stderr import pass_on_errors
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.requests import PARENT_OF_COMMANDS, PARENT_OF_WORKERS, Process
from bartack.runtime.protocol.scoreboard import Scoreboard
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.inside import ZYGOTE
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Describe, Mirror
from bartack.runtime.rundir.shown import Shown
from bartack.runtime.state.history import iter_greeting
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Recorded
from bartack.supervision import (
    KEEPER,
    Exited,
    Fence,
    Gone,
    Intensity,
    ParentClient,
    ParentDied,
    ParentEvent,
    Started,
    StartFailed,
    files_limit,
    kill_descendants,
    raise_files,
    read_facts,
    restore_files,
    set_subreaper,
)

IDLE_COMMIT_S: Final = 0.05
"""Entries nobody waits for are made durable when nothing has happened for this long."""
STAGED_LIMIT: Final = 1000
"""More entries than this are never kept waiting."""
PARENT_RESTARTS: Final = (3, 5.0)
"""So often within so many seconds a parent program may die and be started again; once more fails the session."""
SWEEP_S: Final = 5.0
LOOK_S: Final = 1.0
"""How often the hub leaves a sign of life, and looks at what nobody reports."""
STUCK_S: Final = 30.0
DEADLOCK_NOTE_S: Final = 10.0
"""How long all workers wait for each other before the log has it, too."""


class Observer(Protocol):
    """Somebody who watches a run from inside the hub's process: the live view, or nobody."""

    @property
    def listens(self) -> bool:
        """Whether ``entries`` is to be called."""
        ...

    def reopened(self, how: Reopened) -> None:
        """The journal was opened; this is what was wrong with it, if anything. Called before ``opened``."""
        ...

    def opened(self, hub: Hub) -> None:
        """The hub is there: it listens, and can be asked and told things from now on."""
        ...

    def entries(self, recorded: list[Recorded]) -> None:
        """These entries are durable."""
        ...

    def show(self, channel: str, worker: str, text: str) -> None:
        """Something was printed, logged or happened, and is durable; or a command wrote it, and it is shown as it comes."""
        ...

    def changed(self, state: State) -> None:
        """The run changed its status."""
        ...

    def turn(self, state: State) -> None:
        """A turn is over."""
        ...


class Hub:
    """Drives one run until it ends or is interrupted."""

    _fence: Fence | None = None
    """Around processes of another user."""
    _waits: Sequence[str] = ()
    """What all workers waited for when the hub looked last, if they waited for each other."""
    _deadlocked_at = 0.0
    _soft_files = 0
    """How many files this process could open before the hub raised that; its children can open as many."""

    def __init__(
        self,
        run: RunDir,
        journal: Journal,
        core: Core,
        prompts: Prompts,
        observer: Observer,
        *,
        veil: Veil,
        config: msgspec.Raw,
        clock: HubClock,
        describe: Describe | None = None,
        account: Account | None = None,
    ) -> None:
        self._run, self._journal = run, journal
        self._core, self._observer = core, observer
        self._config, self._account = config, account
        self._clock = clock
        self._mirror = Mirror(run, core.state, describe, veil)
        self._poller = open_poller()
        self._connections: dict[int, Connection] = {}
        self._numbers = self._tokens = 0
        self._workers: dict[int, tuple[str, int]] = {}
        self._slates: dict[int, tuple[int, Scoreboard]] = {}
        """What each worker is busy with, by its token, beside the number of its connection."""
        self._statuses: dict[int, str] = {}
        self._pids: dict[int, int] = {}
        self._began_us = time.time_ns() // 1000
        self._started: dict[str, int] = {}
        """When each parent program was started: microseconds since 1970, UTC."""
        self._witness = PostMortem(self.watch, self.unwatch, pass_on_errors)
        self._deaths = {module: Intensity(*PARENT_RESTARTS) for module in (ZYGOTE, KEEPER)}
        self._status = ""
        self._door: Door | None = None
        self._swept = self._looked = 0.0
        self._signals: list[int] = []
        self._done_with: list[str] = []
        self._zygote: ParentClient | None = None
        self._keeper: ParentClient | None = None
        self._commands = Commands(run, self._new_token, core.state, self._show_live, account)
        self._prompts = prompts
        core.workers.last_look = prompts.unused
        self._host = HubHost(self._poller, self._kept, self._new_token, observer.show, clock, account)
        self._gate = Gatekeeper(self._commands.token_key, core.state, account)
        self._perform: dict[type[act.Action], Callable[..., None]] = {
            act.SendFrames: self._say,
            act.SendHistory: self._greet,
            act.CloseConnection: self._hang,
            act.StartWorker: self._start_worker,
            act.StopWorker: self._stop_worker,
            act.ReadScoreboard: self._look_at,
            act.StartShell: self._start_shell,
            act.StopShell: self._stop_shell,
            act.StartPrompt: self._start_prompt,
            act.StopPrompt: self._stop_prompt,
            act.AnswerCall: self._answer_call,
            act.Show: self._show,
            act.Transition: self._transition,
            act.EndHub: self._end,
        }

    def run(self, begin: Callable[[Core], None]) -> str:
        """Run until the run has ended or is interrupted; returns completed, failed, cancelled, interrupted or disk.

        Args:
            begin: Tells the core what to begin with: a new run, or one to resume.
        """
        self._soft_files = raise_files()
        set_subreaper()
        kill_orphans(self._run, self._core.timeouts.limit("lock"), first=self._core.state.hub == 0)
        if self._observer.listens:
            self._core.turn.listen()
        with self._catching_signals():
            try:
                self._mirror.mend_transcript()
                begin(self._core)
                self._open()
                self._observer.opened(self)
                self._turn_end()
                while not self._status:
                    self._turn()
            except JournalPoisonedError as error:
                self._observer.show("note", "", str(error))
                self._status = "disk"
            except OSError as error:
                if not is_disk_trouble(error):
                    raise
                self._observer.show("note", "", str(_as_disk_error(error, self._run)))
                self._status = "disk"
            finally:
                self._close()
                restore_files(self._soft_files)
        return self._status

    def sign_off(self) -> None:
        """Say in the run's files that nobody runs it any more. Called when its lock is free: whoever reads it may take over."""
        self._mirror.write(self._journal.synced_seq, active=False, status=self._status)

    def forget_when_durable(self, files: list[str]) -> None:
        """Remove files whose content is in the journal, once it is durable there."""
        self._done_with += files

    def interrupt(self, status: str = "interrupted") -> None:
        """Stop in order at the end of this turn; the run stays resumable."""
        if not self._status:
            self._core.stop(status)
            self._turn_end()
            self._status = status

    # For the observer.

    @property
    def state(self) -> State:
        """The state of the run."""
        return self._core.state

    @property
    def deadlock(self) -> list[str]:
        """What each worker waits for, if all wait for each other."""
        return self._mirror.deadlock

    @property
    def needs_a_person(self) -> bool:
        """Whether a question is open and nobody in the run can go on before it is answered."""
        return is_blocked_on_people(self._core)

    def take_turn_after(self, seconds: float) -> None:
        """Let the observer see a turn after this time, whether or not anything happens."""
        self._core.timers.after(seconds, lambda: None)

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        """Call ``ready`` whenever there is something to read."""

        def call(events: int) -> None:
            ready()

        self._poller.register(descriptor, READ, call)

    def unwatch(self, descriptor: int) -> None:
        """End a ``watch``."""
        self._poller.unregister(descriptor)

    def question(self, number: str) -> AskArgs:
        """What an open question asks.

        Raises:
            QuestionNotFoundError: There is none of this number.
            QuestionAnsweredError: It is no longer open.
        """
        return self._core.questions.asked(number)[0]

    def answer(self, number: str, value: object, by: str) -> None:
        """Answer an open question; the first answer counts.

        Raises:
            QuestionNotFoundError: There is none of this number.
            QuestionAnsweredError: Somebody was first.
            TypeMismatchError: The answer is not of the kind that was asked for.
        """
        self._core.questions.answer(number, msgspec.Raw(msgspec.json.encode(value)), by)

    # The loop.

    def _turn(self) -> None:
        ready = self._poller.wait(self._patience())
        self._core.check_clock()
        for call, events in ready:
            call(events)
        self._core.tick()
        if self._core.turn.must_sync and len(self._connections) > 1:
            # Late commit: whoever became ready meanwhile shares the sync.
            for call, events in self._poller.wait(0.0):
                call(events)
        if self._signals:
            self.interrupt("interrupted" if self._signals[0] == signal.SIGINT else "terminated")
        self._turn_end(idle=not ready)
        self._beat()
        self._observer.turn(self._core.state)

    def _turn_end(self, *, idle: bool = False) -> None:
        """Commit if anybody waits for it, then do what was decided; that may lead to more."""
        core, turn, journal = self._core, self._core.turn, self._journal
        while True:
            core.settle()
            if turn.at_once:
                self._do(turn.take_at_once())
            if not turn.must_sync:
                staged = journal.last_seq - journal.synced_seq
                if staged < STAGED_LIMIT and not (idle and staged):
                    return
            journal.commit()
            if self._observer.listens and (heard := turn.take_heard()):
                self._observer.entries(heard)
            while self._done_with:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._done_with.pop())
            self._do(turn.committed())
            if not core.unsettled:
                return

    def _do(self, actions: list[act.Action]) -> None:
        for action in actions:
            self._perform[type(action)](action)

    def _patience(self) -> float:
        staged = self._journal.last_seq > self._journal.synced_seq
        wait = min(IDLE_COMMIT_S if staged else LOOK_S, self._commands.patience_s)
        due = self._core.timers.next_in_s()
        if due is not None and due < wait:
            wait = due
        prompt = self._prompts.next_in_s()
        return wait if prompt is None or prompt > wait else prompt

    def _beat(self) -> None:
        for token, what in self._prompts.take_ready():
            if isinstance(what, ToolCall):
                self._core.tool_called(token, what)
            elif isinstance(what, TalkBegins):
                self._core.effects.tools.begin_again(token)
            elif isinstance(what, TalkWaits):
                self._core.prompt_waits(token, what)
            elif isinstance(what, TalkFails):
                self._core.attempt_failed(token, what)
            else:
                self._core.prompt_ended(token, what)
            self._turn_end()
        now = self._clock.alive_at = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._run.beat()
            self._check_kept()
            if self._door is not None:
                self._door.look(now)
            self._look_at_slates()
            self._look_for_deadlock(now)
        self._commands.look(now, self._core.shell_too_large)
        if now - self._swept >= SWEEP_S:
            self._swept = now
            self._drop_stuck(now)

    def _drop_stuck(self, now: float) -> None:
        """A stranger who asks and does not read is not waited for, nor one who does not say who he is."""
        for connection in silent(self._connections.values(), now):
            self._drop(connection)
        for connection in list(self._connections.values()):
            since = connection.stuck_since
            if connection.worker is None and since is not None and now - since >= STUCK_S:
                self._drop(connection)

    def _check_kept(self) -> None:
        """A run that waits writes nothing, and would not notice for long that its directory is gone."""
        if not self._status and not os.path.exists(self._run.journal):
            self.interrupt("disk")

    def _look_at_slates(self) -> None:
        """A body that goes on for long is written down, like everything that takes its time."""
        for number, scoreboard in self._slates.values():
            self._take_slate(number, scoreboard)
            self._turn_end()

    def _look_for_deadlock(self, now: float) -> None:
        """Report that all workers wait for each other, when two looks have found the same; after some time also in the log."""
        waits = find_deadlock(self._core)
        settled, self._waits = waits == self._waits, waits
        if not settled or not self._is_asleep():
            waits = []
        if waits != self._mirror.deadlock:
            self._mirror.deadlock = waits
            self._deadlocked_at = now
            self._transition(act.Transition())
        elif waits and self._deadlocked_at and now - self._deadlocked_at >= DEADLOCK_NOTE_S:
            self._deadlocked_at = 0.0
            self._core.turn.after_commit(act.Show("note", "", describe_deadlock(waits)))
            self._turn_end()

    def _is_asleep(self) -> bool:
        """Whether no worker computes beside its waits."""
        facts = [read_facts(pid) for pid in self._pids.values()] if self._waits else []
        return all(one is not None and one.state == "S" for one in facts)

    def _look_at(self, action: act.ReadScoreboard) -> None:
        peer = self._core.turn.by_worker.get(action.path)
        for number, scoreboard in self._slates.values():
            if peer is not None and peer.number == number:
                self._take_slate(number, scoreboard)

    def _take_slate(self, number: int, scoreboard: Scoreboard) -> None:
        peer = self._core.turn.peers.get(number)
        if peer is None or peer.worker is None:
            return
        for begin in _read_slate(scoreboard):
            if (begin.p, begin.n) not in peer.worker.open:
                self._core.frame(number, begin)

    def _last_words(self, token: int) -> list[f.Begin]:
        """What a worker was busy with that is gone."""
        _, scoreboard = self._slates.pop(token, (0, None))
        if scoreboard is None:
            return []
        words = _read_slate(scoreboard)
        scoreboard.close()
        return words

    # Opening and closing.

    def _open(self) -> None:
        if self._account is not None:
            self._fence = Fence.open(str(self._run.tree_lock))
        self._zygote = self._start_parent(ZYGOTE)
        self._keeper = self._start_parent(KEEPER)
        if self._prompts.programs is not None:
            self._prompts.programs.attach(self._host)
        group = None if self._account is None else self._account.groups[-1]
        self._door = Door(self._run.listen(group), self._poller, self._add)
        self._core.foreign.on_interrupt = lambda: self._signals.append(signal.SIGINT)
        self._core.foreign.processes = self._processes
        self._core.foreign.deadlock = lambda: self._mirror.deadlock

    def _start_parent(self, module: str) -> ParentClient:
        account = self._account
        environ = os.environ if account is None else account.environment(os.environ)
        env = {**environ, **self._run.environment(self._core.state), "PYTHONHASHSEED": str(self._seed())}
        run = self._core.state.run
        assert run is not None
        tree_lock = str(self._run.tree_lock)
        start = partial(ParentClient.start, module, tree_lock, env, run.workspace, files=self._soft_files)
        if self._fence is None:
            parent = start()
        else:
            # Another user must not hold our terminal, from which it could read.
            with open(os.devnull, "wb") as null, self._fence.around(module):
                parent = start(stdout=null.fileno(), stderr=null.fileno(), account=account)
        self._started[module] = time.time_ns() // 1000

        def ready(events: int) -> None:
            self._parent_ready(parent)

        self._poller.register(parent, READ, ready)
        return parent

    def _seed(self) -> int:
        return self._run.seed(self._core.state)

    def _close(self) -> None:
        if self._door is not None:
            self._door.close()
            self._run.remove_socket()
        if self._prompts.programs is not None:
            self._prompts.programs.wind_down()
        for parent in (self._zygote, self._keeper):
            if parent is not None:
                self._unregister(parent)
                parent.close()
        kill_descendants()
        if self._fence is not None:
            self._fence.close()
        for connection in self._connections.values():
            connection.flush()
            connection.close()
        for _, scoreboard in self._slates.values():
            scoreboard.close()
        self._commands.close()
        self._witness.close()
        self._poller.close()

    # Connections.

    def _add(self, sock: socket.socket, worker: tuple[str, int] | None = None) -> Connection:
        self._numbers += 1
        connection = Connection(self._numbers, sock, worker)
        self._connections[connection.number] = connection
        self._poller.register(sock, READ, partial(self._connection_ready, connection))
        return connection

    def _connection_ready(self, connection: Connection, events: int) -> None:
        if events & WRITE and not connection.flush():
            self._drop(connection)
            return
        if events & READ:
            try:
                bodies = connection.receive()
                if bodies is None:
                    self._drop(connection)
                    return
                for body in bodies:
                    frame = f.decode_to_hub(body)
                    if type(frame) is f.Hello:
                        self._hello(connection, frame)
                    else:
                        self._core.frame(connection.number, frame)
            except FrameError:
                self._drop(connection)
        if not connection.at_rest:
            self._watch(connection)

    def _hello(self, connection: Connection, frame: f.Hello) -> None:
        if connection.number not in self._connections:
            return  # sent away for what it said before, in the same breath
        claimed = (frame.path, frame.incarnation) if frame.role == "worker" else None
        if connection.greeted or claimed != connection.worker:
            # Only the process that was started for it is a worker, and nobody changes what he is.
            self._drop(connection)
            return
        connection.greeted = True
        peer = self._gate.admit(connection, frame, self._parents()) if claimed is None else None
        if self._core.connect(connection.number, frame, peer) is None:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        self._core.lost(connection.number)
        self._unregister(connection.sock)
        connection.close()

    def _watch(self, connection: Connection) -> None:
        if connection.number not in self._connections:
            return
        if connection.closing and not connection.wants_write:
            self._drop(connection)
            return
        events = READ if connection.wants_read else WRITE
        if connection.wants_write:
            events |= WRITE
        if connection.events != events:
            connection.events = events
            self._poller.modify(connection.sock, events)

    def _unregister(self, what: socket.socket | ParentClient) -> None:
        try:
            self._poller.unregister(what)
        except (KeyError, ValueError):
            return

    def _parents(self) -> set[int]:
        return {parent.pid for parent in (self._zygote, self._keeper) if parent is not None}

    # Processes.

    def _kept(self) -> ParentClient | None:
        return self._keeper

    def _new_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _parent_ready(self, parent: ParentClient) -> None:
        for event in parent.read_events():
            if isinstance(event, ParentDied):
                self._parent_died(parent)
            elif parent is self._zygote:
                self._worker_event(event)
            elif not self._host.event(event):
                self._commands.event(event, self._core.shell_ended, self._core.left_behind)

    def _worker_event(self, event: ParentEvent) -> None:
        match event:
            case Started(token=token, pids=pids, pidfds=pidfds):
                self._pids[token] = pids[0]
                self._witness.started(token, pids[0])
                for fd in pidfds:
                    os.close(fd)
            case Exited(token=token, statuses=statuses, max_rss_kb=max_rss_kb):
                self._pids.pop(token, None)
                self._statuses[token] = self._witness.reason_of(_reason(statuses[0]))
                self._witness.exited(token, max_rss_kb)
            case Gone(token=token, leftovers=leftovers, survivors=survivors):
                path, incarnation = self._workers.pop(token, ("", 0))
                reason = self._statuses.pop(token, "lost")
                busy, end = self._last_words(token), self._witness.end(token)
                if path:
                    self._core.left_behind(path, leftovers, survivors)
                    self._core.process_gone(path, incarnation, reason, busy=busy, end=end)
            case StartFailed(token=token, problem=problem):
                path, incarnation = self._workers.pop(token, ("", 0))
                self._last_words(token)
                self._witness.end(token)
                if path:
                    self._core.process_gone(path, incarnation, f"{START_FAILED}{problem}")
            case _:
                return

    def _processes(self) -> list[Process]:
        found = [Process("hub", os.getpid(), started=self._began_us)]
        for module, parent in ((ZYGOTE, self._zygote), (KEEPER, self._keeper)):
            if parent is not None:
                found.append(
                    Process(_PARENTS[module], parent.program_pid, under="hub", started=self._started[module])
                )
        found += [
            Process(
                "worker",
                self._pids.get(token, 0),
                worker=path,
                incarnation=incarnation,
                started=self._witness.began_us(token),
            )
            for token, (path, incarnation) in self._workers.items()
        ]
        found += self._commands.processes(self._core.effects.step_of)
        found += [
            Process(
                "agent", under=PARENT_OF_COMMANDS, worker=path, step=f"{step.p}:{step.n}", about=step.about
            )
            for path, step in self._core.effects.prompts()
        ]
        if self._prompts.programs is not None:
            found += [
                Process("agent", pid, under=PARENT_OF_COMMANDS, about=name)
                for pid, name in self._prompts.programs.pids()
            ]
        return found

    def _parent_died(self, parent: ParentClient) -> None:
        """A parent program was killed: everything below it dies with it; another takes its place, unless that is of no use."""
        self._unregister(parent)
        parent.close(0.0)
        other = self._keeper if parent is self._zygote else self._zygote
        kill_descendants(keep=[other.pid] if other is not None else [])
        module = ZYGOTE if parent is self._zygote else KEEPER
        if self._fence is not None:
            self._fence.kill(module)
        now_ns = time.monotonic_ns()
        successor = self._succeed(module) if self._deaths[module].admit(now_ns) else None
        deaths = self._deaths[module].count(now_ns)
        restarted = successor is not None
        self._core.parent_died(_PARENTS[module], deaths, PARENT_RESTARTS, restarted=restarted)
        if module == ZYGOTE:
            lost, self._workers = self._workers, {}
            self._pids.clear()
            self._zygote = successor
            for token, (path, incarnation) in lost.items():
                self._last_words(token)
                end = self._witness.end(token)
                self._core.process_gone(path, incarnation, "lost its parent", counted=False, end=end)
        else:
            self._keeper = successor
            for token in self._commands.all_lost():
                self._core.shell_lost(token)
            self._host.all_lost()

    def _succeed(self, module: str) -> ParentClient | None:
        """Start a parent program in the place of one that died; ``None`` if the system has nothing left for it."""
        try:
            return self._start_parent(module)
        except OSError as error:
            if is_disk_trouble(error):
                raise
            self._observer.show(
                "note", "", f"{_PARENTS[module]} cannot be started: {error.strerror or error}"
            )
            return None

    # Actions.

    def _say(self, action: act.SendFrames) -> None:
        connection = self._connections.get(action.peer)
        if connection is not None and not connection.send(action.data, urgent=action.urgent):
            self._watch(connection)

    def _greet(self, action: act.SendHistory) -> None:
        connection = self._connections.get(action.peer)
        if connection is not None:
            worker = self._core.state.workers[action.path]
            greeting = iter_greeting(
                self._core.state, self._journal, worker, action.known, self._config, str(self._run.path)
            )
            connection.stream(greeting)
            self._watch(connection)

    def _hang(self, action: act.CloseConnection) -> None:
        connection = self._connections.get(action.peer)
        if connection is not None:
            connection.closing = True
            self._watch(connection)

    def _start_worker(self, action: act.StartWorker) -> None:
        token = self._new_token()
        try:
            with contextlib.ExitStack() as on_failure:
                self._fork_worker(action, token, on_failure)
                on_failure.pop_all()
        except OSError as error:
            if is_disk_trouble(error):
                raise
            problem = f"{START_FAILED}{error.strerror or error}"
            self._core.process_gone(action.path, action.incarnation, problem)
        else:
            self._workers[token] = (action.path, action.incarnation)

    def _fork_worker(self, action: act.StartWorker, token: int, on_failure: contextlib.ExitStack) -> None:
        """Have the zygote fork a worker; what was opened for it belongs to the hub unless that fails.

        Raises:
            OSError: The system has no descriptor left, or none that the hub does not need itself.
        """
        zygote = self._zygote
        if zygote is None:
            raise OSError(errno.ESRCH, "the program that starts workers died too often")
        with contextlib.ExitStack() as closing:
            ours, theirs = socket.socketpair()
            closing.callback(theirs.close)
            on_failure.callback(ours.close)
            scoreboard = Scoreboard.create()
            on_failure.callback(scoreboard.close)
            errors = self._witness.begin(token)
            closing.callback(os.close, errors)
            on_failure.callback(self._witness.end, token)
            check_room(max(theirs.fileno(), scoreboard.fileno(), errors), files_limit())
            payload = self._run.worker_payload(self._core.state, action.path, action.incarnation)
            env = {"BARTACK_WORKER": f"{action.path}#{action.incarnation}"}
            trace = self._core.trace_of_worker(action.path)
            if trace:
                env["TRACEPARENT"] = trace
            zygote.fork(token, payload, [theirs.fileno(), scoreboard.fileno(), errors], env)
            connection = self._add(ours, (action.path, action.incarnation))
            self._slates[token] = (connection.number, scoreboard)

    def _stop_worker(self, action: act.StopWorker) -> None:
        for token, (path, _) in self._workers.items():
            if path == action.path and self._zygote is not None:
                if action.grace_s:
                    self._zygote.stop(token, action.grace_s)
                else:
                    self._zygote.kill(token)

    def _start_shell(self, action: act.StartShell) -> None:
        try:
            if self._keeper is None:
                raise OSError("the program that runs commands died too often")  # noqa: TRY301 - refused like any other
            self._commands.start(self._keeper, action, self._journal)
        except (BartackError, OSError) as error:
            if is_disk_trouble(error):
                raise
            self._core.shell_ended(action.token, self._commands.refused(error))

    def _stop_shell(self, action: act.StopShell) -> None:
        if self._keeper is not None:
            self._commands.stop(self._keeper, action.token)

    def _start_prompt(self, action: act.StartPrompt) -> None:
        try:
            self._prompts.start(action)
        except (OSError, ValueError) as error:
            if is_disk_trouble(error):
                raise
            problem = getattr(error, "strerror", None) or str(error)
            name = action.args.agent or self._core.default_agent
            self._core.prompt_ended(action.token, AgentStartError(name, problem))

    def _stop_prompt(self, action: act.StopPrompt) -> None:
        self._prompts.stop(action.token)

    def _answer_call(self, action: act.AnswerCall) -> None:
        value = self._core.turn.load(action.value.raw, action.value.ref)
        self._prompts.answer(action.token, action.request, value, action.error)

    def _show(self, action: act.Show) -> None:
        self._mirror.transcribe(Shown(action.channel, action.worker, action.text))
        self._observer.show(action.channel, action.worker, action.text)

    def _show_live(self, channel: Literal["out", "err"], worker: str, text: str) -> None:
        self._show(act.Show(channel, worker, text.removesuffix("\n")))

    def _transition(self, action: act.Transition) -> None:
        self._mirror.write(self._journal.synced_seq, active=True)
        self._observer.changed(self._core.state)

    def _end(self, action: act.EndHub) -> None:
        self._status = self._status or action.status

    # Signals.

    def _catching_signals(self) -> _Signals:
        return _Signals(self._poller, self._signals, self._clock.continued)


def _as_disk_error(error: OSError, run: RunDir) -> RunDiskError:
    path = error.filename if isinstance(error.filename, str) else str(run.path)
    return RunDiskError(path, error.strerror or str(error))


class _Signals:
    """Ctrl-C and termination end the loop in order; a second one ends the process."""

    def __init__(self, poller: Poller, seen: list[int], continued: Callable[[], None]) -> None:
        self._poller = poller
        self._seen = seen
        self._continued = continued
        self._previous: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._poller.register(self._read, READ, self._wake)
        # A terminal that goes away ends a run in order, unless somebody asked to ignore that (nohup).
        hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        for number in (signal.SIGINT, signal.SIGTERM, *hangup):
            self._previous[number] = signal.signal(number, self._note)
        self._previous[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._note_continued)
        self._old_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def __exit__(self, *problem: object) -> None:
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._read.close()
        self._write.close()

    def _wake(self, events: int) -> None:
        self._read.recv(64)

    def _note_continued(self, number: int, frame: FrameType | None) -> None:
        self._continued()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            # Asked twice: the parent programs end everything when this process is gone.
            os._exit(128 + number)
        self._seen.append(number)


_PARENTS: Final[dict[str, Literal["parent of workers", "parent of commands"]]] = {
    ZYGOTE: PARENT_OF_WORKERS,
    KEEPER: PARENT_OF_COMMANDS,
}


def _read_slate(scoreboard: Scoreboard) -> list[f.Begin]:
    """What is on a slate. A process can die while it writes there, or spoil its memory: what cannot be read is left out."""
    found: list[f.Begin] = []
    for data in scoreboard.read():
        with contextlib.suppress(FrameError):
            frame = f.decode_to_hub(data)
            if isinstance(frame, f.Begin):
                found.append(frame)
    return found


def _reason(status: int) -> str:
    if status >= 0:
        return f"exit:{status}"
    try:
        return f"signal:{signal.Signals(-status).name}"
    except ValueError:
        return f"signal:{-status}"  # one of those that have no name
