"""The hub: the process that owns a run. It is a loop around the core (``kernel/core.py``), which makes every decision.

**One turn, in order** (``_turn``, ``_turn_end`` and ``_beat`` below):

1. *Poll.* Wait for descriptors that are ready, no longer than until the next timer, the next reply of an agent or the next look.
   A hub that was given a lease stands still from here on while that is not valid (``holding.py``).
2. *Frames to the core.* Each ready descriptor has a function. That of a connection decodes its frames and calls ``Core.frame`` for
   each; those of the parent programs report processes that started or ended. The core stages entries and collects actions.
3. *Timers.* ``Core.tick`` fires the timers that are due.
4. *A second poll*, without waiting, if a commit is due and there is more than one connection. A sync of the disk takes far longer
   than reading a socket. Workers whose frames arrived meanwhile share this commit instead of waiting for one of their own, so
   that many workers need few syncs. After the poll, a signal to stop is obeyed. A node asks more gently (``draining.py``).
5. *Actions before the commit* (``Turn.at_once``). ``kernel/turn.py`` explains which actions these are and why that is safe.
6. *Commit.* One write and one sync for all entries of the turn, if one of them or an action asks for it (``Turn.must_sync``). Other
   entries stay staged until the next commit, until the loop was idle for ``IDLE_COMMIT_S``, or until there are ``STAGED_LIMIT``.
   A journal that is not a file may need time for a commit (``Journal.fileno``). Then the loop continues, the descriptor wakes it
   when the commit is over, and step 7 is part of that turn. One commit is under way at a time.
7. *Actions after the commit*, in the order in which the core decided them: answers, history, processes, prompts, notes. An action
   can fail at once and so lead to new decisions; steps 5 to 7 are repeated until there are none.
8. *Heartbeat.* Replies of agents that are due go to the core, each with steps 5 to 7. Once a second the hub updates the file that
   shows that it is alive, and looks for what no process reports: a vanished directory, long bodies, deadlocks.

**Nothing leaves before its entries are durable.** A worker that gets an answer continues on it, an agent that gets a prompt costs
money, and a person who reads a note relies on it. If the hub died after sending and before syncing, the next hub would not know
of it and would decide anew, perhaps otherwise. So all actions but those of step 5 wait for the commit. A hub that dies between the
commit and its actions loses only those, and the next hub derives them again from the state.

**When the hub dies**, its sockets to the two parent programs close. The zygote, which forks the workers, and the keeper, which runs
commands and agents, then kill everything below them and end. Where the system has subreapers, a guardian above each of them kills
the rest if the parent program was killed itself. All of them hold the lock of the tree, and the next hub waits for that lock
before it executes anything (``orphans.py``). When a parent program dies and the hub lives, the hub kills what is left of its tree
and starts another one (``parents.py``).

Read on in ``connections.py`` (frames), ``worker_processes.py`` and ``commands.py`` (processes), ``agents/prompts.py`` (agents), and
``launch.py`` (how a hub begins and ends).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from bartack.core.accounts import Account
from bartack.core.disk import is_disk_trouble
from bartack.errors import AgentStartError, JournalPoisonedError, RunDiskError
from bartack.journal import Journal
from bartack.journal.veil import Veil
from bartack.runtime.hub.admission import Gatekeeper
from bartack.runtime.hub.agents.bridges import Bridges
from bartack.runtime.hub.agents.host import HubHost
from bartack.runtime.hub.agents.prompts import Prompts
from bartack.runtime.hub.clock import HubClock
from bartack.runtime.hub.commands import Commands
from bartack.runtime.hub.connections import Connections
from bartack.runtime.hub.deadlock import DeadlockWatch
from bartack.runtime.hub.draining import LOOK_S as DRAIN_LOOK_S
from bartack.runtime.hub.draining import Draining
from bartack.runtime.hub.holding import HOLD_S, Holding
from bartack.runtime.hub.listener import Listener
from bartack.runtime.hub.orphans import kill_orphans
from bartack.runtime.hub.parents import NAMES, Parents
from bartack.runtime.hub.poller import READ, open_poller
from bartack.runtime.hub.post_mortem import PostMortem
from bartack.runtime.hub.reopened import Reopened
from bartack.runtime.hub.signals import Signals
from bartack.runtime.hub.worker_processes import WorkerProcesses
from bartack.runtime.kernel import actions as act
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.idle import NO_REST, Rest, find_rest, is_blocked_on_people
from bartack.runtime.kernel.tools import TalkAsks, TalkBegins, TalkFails, TalkWaits, TalkWithdraws, ToolCall
from bartack.runtime.kernel.turn import CommitBatch, Commits
from bartack.runtime.program.stderr import pass_on_errors
from bartack.runtime.protocol.asked import ReadQuestion
from bartack.runtime.protocol.requests import PARENT_OF_COMMANDS, Process
from bartack.runtime.rundir.inside import ZYGOTE
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Describe, Mirror, MirrorFiles
from bartack.runtime.rundir.shown import Shown
from bartack.runtime.state.history import encode_outcome, iter_greeting
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Recorded
from bartack.supervision.parent.client import ParentClient
from bartack.supervision.parent.wire import ParentDied
from bartack.supervision.process.limits import raise_files, restore_files
from bartack.supervision.process.system import set_subreaper

if TYPE_CHECKING:
    from bartack.runtime.hub.copier import Copier
    from bartack.runtime.hub.notices import NoticeFeed

IDLE_COMMIT_S: Final = 0.05
"""Entries that no action waits for are made durable when nothing has happened for this long."""
STAGED_LIMIT: Final = 1000
"""So that a crash loses few entries: this many are committed in any case."""
STAGED_MOST: Final = 10 * STAGED_LIMIT
"""So that memory stays bounded: while this many entries wait for a commit under way, nothing more is read."""
SWEEP_S: Final = 5.0
LOOK_S: Final = 1.0
"""How often the hub leaves a sign of life, and looks for what no process reports."""


class Observer(Protocol):
    """Watches a run from inside the hub's process, like the live view."""

    @property
    def listens(self) -> bool:
        """Whether ``entries`` is to be called."""
        ...

    def reopened(self, how: Reopened) -> None:
        """The journal was opened; this is what was wrong with it, if anything. Called before ``opened``."""
        ...

    def opened(self, hub: Hub) -> None:
        """The hub listens, and takes requests from now on."""
        ...

    def entries(self, recorded: list[Recorded]) -> None:
        """Entries became durable."""
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


# Long because everything that the loop waits for, and every action that it performs, is named in one place.
class Hub:
    """Drives one run until it ends or is interrupted."""

    _soft_files = 0
    """How many files this process could open before the hub raised the limit; its children can open as many."""

    # Long because the parts of a hub are put together here, and only here; it decides nothing.
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
        notices: NoticeFeed | None = None,
        lease: int | None = None,
        hold_s: float = HOLD_S,
        copier: Copier | None = None,
    ) -> None:
        self._run, self._journal = run, journal
        self._copier = copier
        self._notices, self._account = notices, account
        self._core, self._observer = core, observer
        self._clock = clock
        self._mirror = Mirror(run, core.state, describe, veil)
        self._files: MirrorFiles | None = None
        """What the mirror shows when the commit under way is confirmed."""
        beside = journal.fileno() is not None
        self._commits = Commits(core.turn, journal, self._take_files if beside else None)
        self._poller = open_poller()
        self._began_us = time.time_ns() // 1000
        self._status = ""
        self._listener: Listener | None = None
        self._swept = self._looked = 0.0
        self._signals = Signals(self._poller, clock.continued)
        self._prompts = prompts
        new_token = partial(next, itertools.count(1))
        self._parents = Parents(
            run,
            core.state,
            self._poller,
            ready=self._parent_ready,
            note=lambda text: observer.show("note", "", text),
            account=account,
            lease=lease,
        )
        note = partial(observer.show, "note", "")
        self._holding = Holding(lease, clock, note, self._signals.seen, hold_s)
        parents = self._parents
        self._bridges = Bridges(self._poller, str(run.socket.path))
        self._host = HubHost(
            self._poller, lambda: parents.keeper, new_token, observer.show, clock.wall, account, self._bridges
        )
        self._commands = Commands(run, core, journal, parents, new_token, self._show, account)
        gate = Gatekeeper(self._commands.token_key, core.state, account)
        history_for = partial(_history_for, core.state, journal, config, str(run.path))
        self._connections = Connections(
            core, self._poller, gate, parents, history_for, self._bridges, clock.seconds
        )
        post_mortem = PostMortem(self.watch, self.unwatch, pass_on_errors)
        self._workers = WorkerProcesses(run, core, parents, self._connections, post_mortem, new_token)
        self._draining = Draining(core, self._workers, self._note_waiting)
        self._deadlock = DeadlockWatch(core, self._workers.are_asleep)
        self.bodies = self._workers.bodies

        def stop_prompt(action: act.StopPrompt) -> None:
            prompts.stop(action.token)

        self._perform: dict[type[act.Action], Callable[..., None]] = {
            act.SendFrames: self._connections.send,
            act.SendHistory: self._connections.send_history,
            act.SendOutcome: partial(_send_outcome, journal, self._connections),
            act.CloseConnection: self._connections.close_one,
            act.StartWorker: self._workers.start,
            act.StopWorker: self._workers.stop,
            act.ReadScoreboard: self._workers.read_one,
            act.StartShell: self._commands.start,
            act.StopShell: self._commands.stop,
            act.StartPrompt: self._start_prompt,
            act.StopPrompt: stop_prompt,
            act.AnswerCall: self._answer_call,
            act.AnswerQuestion: prompts.answer_question,
            act.Show: self._show,
            act.Transition: self._transition,
            act.ListProcesses: self._list_processes,
            act.RemoveFile: _remove_file,
            act.InterruptHub: self._signals.interrupt,
            act.EndHub: self._end,
        }
        if copier is not None:
            self._perform |= {act.KeepCopy: copier.keep, act.PackCopy: copier.pack}

    def run(self, begin: Callable[[Core, Sequence[str]], None]) -> str:
        """Run until the run has ended or is interrupted; returns completed, failed, cancelled, interrupted or disk.

        Args:
            begin: Starts or resumes the run in the core; given what an earlier hub had left running.
        """
        self._soft_files = raise_files()
        set_subreaper()
        limit_s, redactor = self._core.timeouts.limit("lock"), self._core.settings.redactor
        orphans = kill_orphans(self._run, limit_s, redactor, first=self._core.state.hub == 0)
        if self._observer.listens:
            self._core.turn.listen()
        with self._signals:
            try:
                self._mirror.repair_transcript()
                begin(self._core, orphans)
                self._open()
                self._observer.opened(self)
                self._turn_end()
                while not self._status:
                    self._turn()
                while self._commits.is_under_way:
                    self._turn_end(wait=True)
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

    def write_left(self) -> None:
        """Write to the run's files that no process runs it. Called when its lock is free: a reader of them may take over."""
        self._mirror.write(self._journal.synced_seq, active=False, status=self._status)

    def interrupt(self, status: str = "interrupted", rest: Rest = NO_REST) -> None:
        """Stop at the end of this turn; the run stays resumable. ``rest``: what it waits for."""
        if not self._status:
            while self._copier is not None and self._copier.wait_for_held():
                self._copier.take_outcomes()
                self._turn_end()
            self._core.stop(status, rest.due_us, rest.about)
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
        """Whether a question is open and no worker can continue before it is answered."""
        return is_blocked_on_people(self._core)

    @property
    def rest(self) -> Rest | None:
        """What the run waits for, if it needs no process until then and none outside is connected."""
        if self._connections.has_visitors or not self._workers.are_asleep():
            return None
        return find_rest(self._core)

    def now_us(self) -> int:
        """What time it is for the run."""
        return self._clock.now_us()

    def take_turn_after(self, seconds: float) -> None:
        """Let the observer see a turn after this time, whether or not anything happens."""
        self._core.timers.after(seconds, lambda: None)

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        """Call ``ready`` whenever there is something to read."""
        self._poller.register(descriptor, READ, lambda _events: ready())

    def unwatch(self, descriptor: int) -> None:
        """End a ``watch``."""
        self._poller.unregister(descriptor)

    def question(self, number: str) -> ReadQuestion:
        """What an open question asks.

        Raises:
            QuestionNotFoundError: There is none of this number.
            QuestionAnsweredError: It is no longer open.
        """
        return self._core.questions.asked(number)

    def answer(self, number: str, value: object, by: str) -> None:
        """Answer an open question; the first answer counts.

        Raises:
            QuestionNotFoundError: There is none of this number.
            QuestionAnsweredError: It was answered before.
            TypeMismatchError: The answer is not of the kind that was asked for.
        """
        self._core.questions.answer(number, msgspec.Raw(msgspec.json.encode(value)), by)

    # The loop.

    def _turn(self) -> None:
        ready = self._poller.wait(self._patience())
        if not self._holding.heed():  # another process may own the run: nothing is recorded
            self._status = "interrupted"
            return
        self._core.check_clock()
        for call, events in ready:
            call(events)
        self._core.tick()
        if self._core.turn.must_sync and len(self._connections) > 1:
            # Late commit: connections that became ready meanwhile share the sync.
            for call, events in self._poller.wait(0.0):
                call(events)
        if self._signals.seen:
            self.interrupt("interrupted" if self._signals.seen[0] == signal.SIGINT else "terminated")
        elif self._draining.is_asked:
            is_quiet = not (ready or self._core.unsettled or self._commits.is_under_way)
            if self._draining.is_due(self._clock.seconds(), is_quiet=is_quiet):
                self.interrupt("terminated")
        self._turn_end(idle=not ready)
        self._beat()
        self._observer.turn(self._core.state)

    def _turn_end(self, *, idle: bool = False, wait: bool = False) -> None:
        """Commit if an action waits for it, then perform the actions of what is durable, until they lead to no more."""
        core, turn, journal = self._core, self._core.turn, self._journal
        while True:
            core.settle()
            if turn.at_once:
                self._do(turn.take_at_once())
            due = turn.must_sync
            if not due or self._commits.is_under_way:
                staged = journal.last_seq - journal.synced_seq
                due = due or staged >= STAGED_LIMIT or (idle and staged > 0)
                wait = wait or staged >= STAGED_MOST
            batch = self._commits.advance(due=due, wait=wait)
            if batch is None:
                return
            if batch.recorded:
                self._observer.entries(batch.recorded)
            self._do(turn.committed(batch))
            if not core.unsettled:
                return

    def _do(self, actions: list[act.Action]) -> None:
        for action in actions:
            self._perform[type(action)](action)

    def _patience(self) -> float:
        if self._signals.seen:
            return 0.0
        staged = self._journal.last_seq > self._journal.synced_seq
        wait = min(IDLE_COMMIT_S if staged else LOOK_S, self._commands.patience_s, self._holding.left_s)
        if self._draining.is_asked:
            wait = min(wait, DRAIN_LOOK_S)
        due = self._core.timers.next_in_s()
        if due is not None and due < wait:
            wait = due
        prompt = self._prompts.next_in_s()
        return wait if prompt is None or prompt > wait else prompt

    def _beat(self) -> None:
        for token, what in self._prompts.take_ready():
            if isinstance(what, ToolCall):
                self._core.tool_called(token, what)
            elif isinstance(what, TalkAsks):
                self._core.person_asked(token, what)
            elif isinstance(what, TalkWithdraws):
                self._core.question_withdrawn(token, what)
            elif isinstance(what, TalkBegins):
                self._core.prompts.begins_again(token, what)
            elif isinstance(what, TalkWaits):
                self._core.prompt_waits(token, what)
            elif isinstance(what, TalkFails):
                self._core.attempt_failed(token, what)
            else:
                self._core.prompt_ended(token, what)
            self._turn_end()
        self._clock.alive_at = time.monotonic()
        now = self._clock.seconds()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._look(now)
        self._commands.look(now)
        if now - self._swept >= SWEEP_S:
            self._swept = now
            self._connections.drop_stuck(now)

    def _look(self, now: float) -> None:
        """Leave a sign of life, and look for what no process reports."""
        self._run.beat()
        if self._notices is not None:
            self._notices.durable(self._journal.synced_seq)
        # A run that only waits writes nothing, and would not notice that its directory is gone.
        if not self._status and not self._run.exists():
            self.interrupt("disk")
        if self._listener is not None:
            self._listener.look(now)
        # Bodies that have been running for some time are recorded like other open steps.
        for number in self._workers.connection_numbers():
            self._workers.read_scoreboard(number)
            self._turn_end()
        if self._deadlock.look(now):
            self._mirror.deadlock = self._deadlock.found
            self._core.foreign.report_deadlock(self._deadlock.found)
            self._core.turn.after_commit(act.Transition())
        elif not self._status and self._mirror.is_stale():
            # Lists of runs show how many workers there are and what they do; a file for each step would be too much.
            self._core.turn.after_commit(act.Transition())
        self._turn_end()

    # Opening and closing.

    def _open(self) -> None:
        self._parents.open(self._soft_files)
        if self._notices is not None:
            self._notices.start(self._parents.spared, lambda text: self._observer.show("note", "", text))
        if self._prompts.programs is not None:
            self._prompts.programs.attach(self._host)
        group = None if self._account is None else self._account.groups[-1]
        self._listener = Listener(self._run.socket.listen(group), self._poller, self._connections.add)
        committed = self._journal.fileno()
        if committed is not None:
            # It only wakes the loop: the end of the turn looks what became of the commit.
            self._poller.register(committed, READ, lambda events: None)
        if self._run.link is not None:
            self._poller.register(self._run.link.drains, READ, self._drain)
        copier = self._copier
        if copier is not None:
            self._poller.register(copier, READ, lambda _events: copier.take_outcomes())

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._run.socket.remove()
        if self._prompts.programs is not None:
            self._prompts.programs.wind_down()
        self._parents.close()
        self._bridges.close()
        self._connections.close()
        self._workers.close()
        self._commands.close()
        if self._copier is not None:
            self._copier.close()
        self._poller.close()

    # Processes.

    def _parent_ready(self, parent: ParentClient) -> None:
        for event in parent.read_events():
            if isinstance(event, ParentDied):
                self._parent_died(parent)
            elif parent is self._parents.zygote:
                self._workers.event(event)
            elif not self._host.event(event):
                self._commands.event(event)

    def _parent_died(self, parent: ParentClient) -> None:
        module, deaths, restarted = self._parents.replace(parent)
        self._core.parent_died(NAMES[module], deaths, self._parents.limit, restarted=restarted)
        if module == ZYGOTE:
            self._workers.all_lost()
        else:
            self._commands.all_lost()
            self._host.all_lost()

    def _drain(self, events: int) -> None:
        """The node asks this hub to stop."""
        assert self._run.link is not None
        os.read(self._run.link.drains, 64)
        self._draining.ask()

    def _note_waiting(self, what: str) -> None:
        self._observer.show("note", "", f"it is to stop, and waits for {what}")
        if self._run.link is not None:
            self._run.link.note_waiting(what)

    def _list_processes(self, action: act.ListProcesses) -> None:
        found = [Process("hub", os.getpid(), started=self._began_us)]
        found += self._parents.processes()
        found += self._workers.processes()
        found += self._commands.processes()
        found += [
            Process(
                "agent", under=PARENT_OF_COMMANDS, worker=path, step=f"{step.p}:{step.n}", about=step.about
            )
            for path, step in self._core.jobs.prompts()
        ]
        if self._prompts.programs is not None:
            found += [
                Process("agent", pid, under=PARENT_OF_COMMANDS, about=name)
                for pid, name in self._prompts.programs.pids()
            ]
        self._core.foreign.report_processes(action.peer, action.request, found)

    # Actions.

    def _start_prompt(self, action: act.StartPrompt) -> None:
        try:
            self._prompts.start(action)
        except (OSError, ValueError) as error:
            if is_disk_trouble(error):
                raise
            problem = getattr(error, "strerror", None) or str(error)
            name = action.args.agent or self._core.settings.agent
            self._core.prompt_ended(action.token, AgentStartError(name, problem))

    def _answer_call(self, action: act.AnswerCall) -> None:
        value = self._core.turn.load(action.value.raw, action.value.ref)
        self._prompts.answer(action.token, action.request, value, action.error)

    def _show(self, action: act.Show) -> None:
        self._mirror.transcribe(Shown(action.channel, action.worker, action.text, action.at))
        self._observer.show(action.channel, action.worker, action.text)

    def _transition(self, action: act.Transition) -> None:
        if self._files is None:
            self._mirror.write(self._journal.synced_seq, active=True)
        else:
            self._mirror.put(self._files, self._journal.synced_seq)
        self._observer.changed(self._core.state)

    def _take_files(self, batch: CommitBatch) -> None:
        """A commit begins, and the state will be ahead of it when it is confirmed: keep what the files are to show then."""
        if any(isinstance(action, act.Transition) for action in batch.actions):
            self._files = self._mirror.take(active=True)

    def _end(self, action: act.EndHub) -> None:
        self._status = self._status or action.status


def _history_for(
    state: State, journal: Journal, config: msgspec.Raw, run_dir: str, action: act.SendHistory
) -> Iterator[bytes]:
    return iter_greeting(state, journal, state.workers[action.path], action.known, config, run_dir)


def _send_outcome(journal: Journal, connections: Connections, action: act.SendOutcome) -> None:
    data = encode_outcome(journal, action.place, action.request)
    connections.send(act.SendFrames(action.peer, data))


def _remove_file(action: act.RemoveFile) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(action.path)


def _as_disk_error(error: OSError, run: RunDir) -> RunDiskError:
    path = error.filename if isinstance(error.filename, str) else str(run.path)
    return RunDiskError(path, error.strerror or str(error))
