"""A whole run in this process: the same core, the same scheduler, no sockets, no processes, and a clock that can be moved.

For tests of programs (``bartack.testing``). All of them take turns: the hub takes one event after the other, a worker runs inside
``MemoryWorker`` until it waits. Only bodies of steps may use threads, exactly as in a worker's process.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping
from operator import methodcaller
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from bartack.agents import ScriptedAgent
from bartack.config.timeouts import DEFAULTS, Timeouts
from bartack.core.clock import Clock
from bartack.errors import ResumeRefusedError
from bartack.journal.memory import MemoryStore
from bartack.runtime.context.definitions import Worker
from bartack.runtime.context.invoke import call_worker, facts_of, report_end
from bartack.runtime.hub.agents.prompts import Prompts
from bartack.runtime.kernel import actions as act
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.core import check_decided
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.tools import TalkAsks, TalkBegins, TalkFails, TalkWaits, TalkWithdraws, ToolCall
from bartack.runtime.memory.hub import MemoryHub, MortalJournal
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.scheduler.bodies import Bodies
from bartack.runtime.scheduler.forgotten import origins_noted
from bartack.runtime.scheduler.scheduler import Scheduler
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import NO_VALUE, OpenStep, UnknownDecision
from bartack.supervision.forms import form_words

if TYPE_CHECKING:
    from bartack.runtime.hub.agents.programs import Programs

_EVENTS: Final[dict[type, str]] = {
    ToolCall: "tool_called",
    TalkAsks: "person_asked",
    TalkWithdraws: "question_withdrawn",
    TalkWaits: "prompt_waits",
    TalkFails: "attempt_failed",
}
"""The method of the core for each event of a prompt; without one, the prompt has ended."""
RUN_ID: Final = "run-20260101-000000-00000000"
BODY_PATIENCE_S: Final = 60.0
"""How long a body on another thread may take, in real seconds."""

Load = Callable[[str], Worker[..., object]]
"""Finds the worker that ``module:name`` means."""


class MovableClock(Clock, Protocol):
    """A clock that stands still until it is advanced."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        ...


class Surroundings(Protocol):
    """What a run in memory finds outside itself."""

    def run_shell(self, pipeline: list[list[str]]) -> ShellEnd:
        """How commands end."""
        ...

    def sent(self, frame: f.Frame) -> None:
        """A worker sent a frame to the hub."""
        ...

    def show(self, channel: str, worker: str, text: str) -> None:
        """Something was printed, logged or happened."""
        ...


class _SeededEntropy:
    """The clock and the randomness of a run in memory."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock = clock
        self._random = Random(seed)

    def now_us(self) -> int:
        return self._clock.now_us()

    def random_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)


class MemoryWorker:
    """The process of a worker, played in this one."""

    def __init__(self, run: MemoryRun, path: str, incarnation: int) -> None:
        self.path = path
        self.incarnation = incarnation
        self._run = run
        self._dead = False
        self._worker: Worker[..., object] | None = None
        self._scheduler: Scheduler | None = None
        self._bodies: Bodies | None = None
        self._begin: Callable[[], None] | None = None
        self._reported = False
        self._number = run.hub.join(f.Hello(path=path, incarnation=incarnation), self._receive)

    @property
    def busy(self) -> Bodies | None:
        """The bodies that are under way on other threads, if any are."""
        return self._bodies if self._bodies is not None and self._bodies.in_threads else None

    def run_posted(self) -> None:
        """Bodies have ended."""
        if self._bodies is not None:
            with origins_noted():
                self._bodies.run_posted()
            self._report()

    def kill(self) -> None:
        """The process is gone: nothing in it continues."""
        self._dead = True
        if self._scheduler is not None:
            self._scheduler.discard()
        if self._bodies is not None:
            # Threads cannot be killed: they are waited for, and what they did counts for nothing.
            self._bodies.abandon()
            while self._bodies.in_threads and select.select([self._bodies], [], [], BODY_PATIENCE_S)[0]:
                self._bodies.run_posted()
            self._bodies.close()

    def _receive(self, frame: f.ToPeer) -> None:
        if self._dead:
            return
        try:
            with origins_noted():
                self._take(frame)
            self._report()
        except Exception as error:  # noqa: BLE001 - the boundary of the process: whatever stops the worker is reported
            self._send_end(f.Failed(e=describe_error(error, self.path)))

    def _take(self, frame: f.ToPeer) -> None:
        if isinstance(frame, f.Welcome):
            self._prepare(frame)
        elif isinstance(frame, f.Leave):
            self._run.end_worker(self.path, "exit:0")
        elif self._scheduler is not None and not self._reported:
            self._scheduler.take(frame)
            begin, self._begin = self._begin, None
            if begin is not None:
                begin()

    def _prepare(self, welcome: f.Welcome) -> None:
        worker = self._worker = self._run.load(welcome.worker)
        facts = facts_of(welcome, self.path, worker)
        store = self._run.store
        scheduler = self._scheduler = Scheduler(facts, os.environ, self._send, store, self._run.entropy)
        scheduler.requests.executor = self._bodies = Bodies(scheduler, DEFAULTS["step"])
        data = store.get(welcome.ref) if welcome.ref is not None else (welcome.v or b"{}")
        coroutine = call_worker(worker, scheduler, data)
        self._begin = lambda: scheduler.start(coroutine)

    def _report(self) -> None:
        scheduler, worker = self._scheduler, self._worker
        if scheduler is not None and worker is not None and scheduler.ended and not self._reported:
            if scheduler.aborted and self.busy is not None:
                return  # the outcomes of its bodies count
            scheduler.discard()
            self._send_end(report_end(worker, scheduler))

    def _send_end(self, frame: f.Frame) -> None:
        if not self._reported and not self._dead:
            self._reported = True
            self._run.hub.say(self._number, frame)

    def _send(self, frame: f.Frame) -> None:
        if not self._dead:
            self._run.surroundings.sent(frame)
            self._run.hub.say(self._number, frame)


class MemoryRun:
    """A run in this process. It stands still when it is made; ``turn`` lets it continue."""

    def __init__(
        self,
        call: tuple[str, bytes],
        load: Load,
        clock: MovableClock,
        surroundings: Surroundings,
        agents: Mapping[str, ScriptedAgent],
        *,
        seed: int = 0,
        workspace: str = "",
        run_dir: str = "",
        max_usd: float | None = None,
        programs: Callable[[], Programs] | None = None,
    ) -> None:
        self.load = load
        self.clock = clock
        self.store = MemoryStore()
        self.entropy = _SeededEntropy(clock, seed)
        self.journal: MortalJournal
        self.hub: MemoryHub
        self._worker, self._arguments = call
        self.surroundings = surroundings
        self._agents = agents
        self._seed = seed
        self._workspace = workspace
        self._run_dir = run_dir
        self._settings = Settings(max_usd=max_usd, environ=dict(os.environ))
        self._processes: dict[str, MemoryWorker] = {}
        self._prompts: Prompts
        self.programs = programs
        """Makes the agents that are programs, for each hub anew; without it there are none."""
        self._timeouts = Timeouts({})

    # Life.

    def start(self, dies_after: int | None = None, *, late: bool = False) -> None:
        """The run begins. ``dies_after`` and ``late``: see ``MortalJournal``."""
        self._open(dies_after, late=late)
        name = self._worker.rpartition(":")[2]
        created = e.RunCreated(
            run=RUN_ID,
            worker=self._worker,
            name=name,
            program=self._worker.partition(":")[0],
            workspace=self._workspace,
            root=self._workspace,
            seed=self._seed,
        )
        spawned = e.WorkerSpawned(path=name, worker=self._worker)
        turn = self.hub.core.turn
        turn.record((created, NO_VALUE), (spawned, turn.pack_raw(self._arguments)))
        self.hub.begin()

    def resume(self, dead_s: float = 0.0, unknown: UnknownDecision | None = None) -> None:
        """Resume the run after everything was killed ``dead_s`` seconds ago.

        Raises:
            ResumeRefusedError: It has ended for good, or needs a decision first.
        """
        self._open(None)
        ended = self.state.ended
        if ended is not None and ended.status != "failed":
            raise ResumeRefusedError(RUN_ID, f"it is {ended.status}")
        check_decided(RUN_ID, self.state, unknown)
        self.hub.begin(int(dead_s * 1e6), unknown)

    def crash(self) -> None:
        """Kill everything."""
        for process in self._processes.values():
            process.kill()
        self._processes.clear()

    def end_worker(self, path: str, reason: str = "signal:SIGKILL") -> None:
        """The process of a worker ends."""
        process = self._processes.pop(path, None)
        if process is not None:
            process.kill()
            self.hub.gone(path, process.incarnation, reason)

    # Turns.

    @property
    def state(self) -> State:
        """The state of the run."""
        return self.hub.core.state

    def turn(self) -> bool:
        """Do whatever can be done without time passing; ``False`` if that is nothing."""
        if self.hub.status:
            return False
        return self.hub.turn() or self._take_replies() or self._run_posted()

    def pass_time(self) -> bool:
        """Let time pass until something is due; ``False`` if all workers wait for ever."""
        self.flush()
        if not self._can_wait():
            return False
        waits = [self.hub.core.timers.next_in_s(), self._prompts.next_in_s()]
        left = [wait for wait in waits if wait is not None]
        if left:
            self.clock.advance(max(min(left), 1e-6))
            self.tick()
        return bool(left)

    def tick(self) -> None:
        """Time has passed."""
        self.hub.tick()

    def flush(self) -> None:
        """Make durable what no worker waits for."""
        self.hub.flush()

    def waits(self) -> list[tuple[str, OpenStep]]:
        """What workers wait for: the paths of workers or branches, with their open steps."""
        return [
            (opened.p, opened)
            for worker in self.state.workers.values()
            if not worker.ended
            for opened in worker.open.values()
        ]

    # World.

    def start_worker(self, path: str, incarnation: int) -> None:
        """See ``World.start_worker``."""
        self._processes[path] = MemoryWorker(self, path, incarnation)

    def stop_worker(self, path: str) -> None:
        """See ``World.stop_worker``."""
        self.end_worker(path)

    def start_shell(self, action: act.StartShell) -> None:
        """See ``World.start_shell``."""
        form = action.args.form
        end = self.surroundings.run_shell(action.args.pipeline if form is None else [form_words(form)])
        self.hub.post(lambda core: core.shell_ended(action.token, end))

    def stop_shell(self, token: int) -> None:
        """See ``World.stop_shell``. Commands end as soon as they began: their end is on its way."""

    def start_prompt(self, action: act.StartPrompt) -> None:
        """See ``World.start_prompt``."""
        self._prompts.start(action)

    def stop_prompt(self, token: int) -> None:
        """See ``World.stop_prompt``."""
        self._prompts.stop(token)

    def answer_call(self, action: act.AnswerCall) -> None:
        """See ``World.answer_call``."""
        value = self.hub.core.turn.load(action.value.raw, action.value.ref)
        self._prompts.answer(action.token, action.request, value, action.error)

    def answer_question(self, action: act.AnswerQuestion) -> None:
        """See ``World.answer_question``."""
        self._prompts.answer_question(action)

    def show(self, action: act.Show) -> None:
        """See ``World.show``."""
        self.surroundings.show(action.channel, action.worker, action.text)

    # Inside.

    def _open(self, dies_after: int | None, *, late: bool = False) -> None:
        self.journal = MortalJournal(self.store, self.clock, dies_after, late=late)
        self._prompts = Prompts(
            self._agents,
            "",
            self._workspace,
            self.clock,
            None if self.programs is None else self.programs(),
            run_id=RUN_ID,
        )
        self.hub = MemoryHub(
            self.journal,
            self.clock,
            self,
            timeouts=self._timeouts,
            settings=self._settings,
            run_dir=self._run_dir,
            final_check=self._prompts.unused,
        )

    def _take_replies(self) -> bool:
        ready = self._prompts.take_ready()
        for token, what in ready:
            if isinstance(what, TalkBegins):
                self.hub.core.prompts.begins_again(token, what)
                continue
            self.hub.post(methodcaller(_EVENTS.get(type(what), "prompt_ended"), token, what))
        return bool(ready)

    def _run_posted(self) -> bool:
        """Wait for bodies that are under way on other threads."""
        busy = {process.busy: process for process in self._processes.values() if process.busy is not None}
        if not busy:
            return False
        ready, _, _ = select.select(list(busy), [], [], BODY_PATIENCE_S)
        for bodies in ready:
            busy[bodies].run_posted()
        return bool(ready)

    def _can_wait(self) -> bool:
        """Whether a worker waits for something that comes by itself. The default limits of waits do not count."""
        mailboxes = self.state.mailboxes.values()
        return (
            self._prompts.next_in_s() is not None
            or any(self._ends_by_itself(opened) for _, opened in self.waits())
            or any(mailbox.scheduled for mailbox in mailboxes)
            or self.hub.core.mail.room.has_waiting
            or self.hub.core.delivery.has_open
            or self.hub.core.letters.has_waiting
            or self._is_restarting()
        )

    def _ends_by_itself(self, opened: OpenStep) -> bool:
        if self.hub.core.agent_questions.is_waiting(opened.key):
            asked = [one for one in self.state.questions.values() if one.key == opened.key]
            return any(one.timeout_s is not None for one in asked)
        if opened.step == "delegate":
            return opened.timeout_s != self._timeouts.limit("delegate")
        return bool(opened.due) or opened.timeout_s is not None

    def _is_restarting(self) -> bool:
        """Whether a worker that crashed is about to be started again."""
        alive = self.hub.core.processes.alive
        return any(
            worker.crashes_in_a_row > 1 and not worker.ended and path not in alive
            for path, worker in self.state.workers.items()
        )
