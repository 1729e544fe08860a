"""Runs in memory under schedules made by chance, against a model that counts effects.

The hub's core and the workers' schedulers are the real ones. Everything between and around them is played here: frames are under
way until a schedule delivers them, bodies, commands and agents take as long as it says, and it kills workers and hubs, fails the
session and resumes the run at any moment. The model knows three things, whatever the journal says:

- an effect whose outcome the hub has taken is never executed again, and what is to be done once never happens twice;
- the program sees exactly the outcome that the hub has taken;
- every resume comes to an end, and the last one to the end of the program.

One schedule: ``python -m tests.crash.schedules SEED`` plays it, and prints its journal.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, cast

import msgspec
from tests.crash.schedule_programs import Writer, player

from bartack.errors import AgentError, SessionFailedError
from bartack.journal.memory import MemoryStore
from bartack.runtime.context.invoke import call_worker, facts_of, report_end
from bartack.runtime.kernel import actions as act
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.outcome import describe
from bartack.runtime.memory.hub import KilledError, MemoryHub, MortalJournal
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.exceptions import describe_error
from bartack.runtime.scheduler.bodies import Bodies
from bartack.runtime.scheduler.body import BodyOp, StepInfo
from bartack.runtime.scheduler.body_threads import LoopThread
from bartack.runtime.scheduler.scheduler import Scheduler
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import NO_VALUE, UnknownDecision, Value
from bartack.testing import VirtualClock

HUBS: Final = 40
"""More hubs than this have never been needed to end a run."""
TURNS: Final = 20_000
WAITS_S: Final = 1000.0
"""If nothing else can happen and no timer is nearer than this, something is missing."""
DECIDED: Final = "decided"
"""What a person says that the outcome of a step is which may have happened."""

_FAILURES: Final = frozenset({"ValueError", "ShellError", "OutcomeUnknownError", "SessionFailedError"})
"""What a program made by chance may fail with; anything else is a fault of the runtime."""
_CHAOS: Final = ("kill_hub", "kill_worker", "fail")

Act = Callable[[], None]


class Effects:
    """The model: what was executed, and which outcomes the hub has taken."""

    def __init__(self, once: set[str]) -> None:
        self._once = once
        self._failed: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()
        self.taken: dict[str, str] = {}

    def begin(self, tag: str) -> None:
        """An effect is about to be executed."""
        if tag.startswith("c:"):
            return
        assert tag not in self.taken, f"{tag} is executed again, though its outcome had been taken"
        again = tag in self._once and self._finished[tag]
        assert not again, f"{tag} is to be done once, has happened, and is executed again"

    def end(self, tag: str) -> str | None:
        """An effect has been executed: its outcome, or ``None`` if it failed."""
        if tag.startswith("f:") and not self._failed[tag]:
            self._failed[tag] += 1
            return None
        self._finished[tag] += 1
        return f"{tag}#{self._finished[tag]}"

    def take(self, tag: str, value: str) -> None:
        """The hub has taken an outcome, and it is durable."""
        if not tag.startswith("c:"):
            self.taken[tag] = value

    def forgive(self) -> None:
        """A person wants steps executed again that may have happened."""
        for tag in self._once - set(self.taken):
            self._finished[tag] = 0

    def check(self, trace: list[tuple[str, str]], required: set[str]) -> None:
        """A program has come to its end, and this is what it has seen."""
        seen = Counter(tag for tag, _ in trace)
        assert max(seen.values(), default=1) == 1, f"seen twice: {seen.most_common(3)}"
        lost = required - set(seen)
        assert not lost, f"never seen: {sorted(lost)}"
        for tag, value in trace:
            expected = {self.taken.get(tag, value), *([DECIDED] if tag in self._once else [])}
            assert value == "received" or value in expected, f"{tag} is {value}, not {expected}"


class _NoLoop(LoopThread):
    """The loop of async bodies: it only remembers what is to be cancelled."""

    def __init__(self) -> None:
        self.cancelled: set[BodyOp[object]] = set()

    def run(self, op: BodyOp[object], info: StepInfo, limit_s: float) -> None:
        raise AssertionError("the model executes bodies")

    def cancel(self, op: BodyOp[object], on_timeout: Act | None = None) -> None:
        self.cancelled.add(op)

    def stop(self) -> None:
        pass


class PlayedBodies(Bodies):
    """The bodies of a worker: begun like all, executed when the schedule says so."""

    def __init__(self, process: Process, scheduler: Scheduler) -> None:
        super().__init__(scheduler, 600.0)
        self._process = process
        self.loop = _NoLoop()
        self._loop = self.loop

    def _execute(self, op: BodyOp[object]) -> None:
        op.phase = "running"
        self.in_threads.add(op)
        self._process.execute(op, blocks=self._scheduler.alone and not op.options.is_async)

    def end(self, op: BodyOp[object], value: str | None, *, cut: bool) -> None:
        """A body has come to its end."""
        problem = asyncio.CancelledError() if cut else ValueError("no") if value is None else None
        self._scheduler.resume([partial(self._back, op, value, problem)])


class Process:
    """The process of a worker. What it says and what it is told is under way until the schedule delivers it."""

    def __init__(self, play: Play, path: str, incarnation: int) -> None:
        self.path = path
        self.incarnation = incarnation
        self.inbox: deque[f.ToPeer] = deque()
        self.outbox: deque[f.Frame] = deque()
        self.running: list[BodyOp[object]] = []
        self.blocked = False
        self._play = play
        self._tags: dict[tuple[str, int], str] = {}
        self._scheduler: Scheduler | None = None
        self._bodies: PlayedBodies | None = None
        self._start: Act | None = None
        self._reported = False
        self.number = play.hub.join(f.Hello(path=path, incarnation=incarnation), self.inbox.append)

    def hear(self) -> None:
        """Take the next thing that it is told."""
        frame = self.inbox.popleft()
        if isinstance(frame, f.Leave):
            self._play.end_worker(self, "exit:0")
        elif isinstance(frame, f.Welcome):
            self._prepare(frame)
        elif self._scheduler is not None and not self._reported:
            self._scheduler.take(frame)
            start, self._start = self._start, None
            if start is not None:
                start()
            self._report()

    def speak(self) -> None:
        """The hub hears the next thing that it says."""
        frame = self.outbox.popleft()
        hub = self._play.hub
        peer = hub.core.turn.peers.get(self.number)
        hub.say(self.number, frame)
        is_heard = peer is not None and isinstance(frame, f.Done) and (frame.p, frame.n) not in peer.known
        hub.run_ready()
        if is_heard and isinstance(frame, f.Done) and frame.v is not None:
            self._play.effects.take(self._tags[frame.p, frame.n], msgspec.json.decode(frame.v, type=str))

    def execute(self, op: BodyOp[object], *, blocks: bool) -> None:
        """A body begins."""
        tag = self._tags[op.p, op.n] = str(op.args[0])
        self._play.effects.begin(tag)
        self.running.append(op)
        self.blocked = blocks

    def end_body(self, op: BodyOp[object]) -> None:
        """A body comes to its end; one that was cancelled may have finished all the same."""
        assert self._bodies is not None
        self.running.remove(op)
        self.blocked = False
        cut = op in self._bodies.loop.cancelled and self._play.draw.random() < 0.6
        value = None if cut else self._play.effects.end(self._tags[op.p, op.n])
        self._bodies.end(op, value, cut=cut)
        self._report()

    def die(self) -> None:
        """The process is gone. What its bodies had done by then cannot be told."""
        for op in self.running:
            if self._play.draw.random() < 0.5:
                self._play.effects.end(self._tags[op.p, op.n])
        self.running.clear()
        self.inbox.clear()
        if self._scheduler is not None and self._bodies is not None:
            self._scheduler.discard()
            self._bodies.close()
            if self._start is not None:
                self._coroutine.close()
        self._scheduler = None

    def _prepare(self, welcome: f.Welcome) -> None:
        facts = facts_of(welcome, self.path, player)
        say = self.outbox.append
        scheduler = self._scheduler = Scheduler(facts, {}, say, self._play.store, self._play)
        scheduler.requests.executor = self._bodies = PlayedBodies(self, scheduler)
        store = self._play.store
        data = store.get(welcome.ref) if welcome.ref is not None else (welcome.v or b"{}")
        self._coroutine = call_worker(player, scheduler, data)
        self._start = partial(scheduler.start, self._coroutine)

    def _report(self) -> None:
        scheduler, bodies = self._scheduler, self._bodies
        if scheduler is None or bodies is None or self._reported or not scheduler.ended:
            return
        if scheduler.aborted and bodies.in_threads:
            return
        self._reported = True
        scheduler.discard()
        try:
            self.outbox.append(report_end(player, scheduler))
        except ValueError as error:
            self.outbox.append(f.Failed(e=describe_error(error, self.path)))


class Play:
    """One run under one schedule; the world of its hubs."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.clock = VirtualClock()
        self.store = MemoryStore()
        self._writer = Writer(self.draw)
        self.code = self._writer.write()
        self.effects = Effects(self._writer.once)
        self.hub: MemoryHub
        self._processes: dict[str, Process] = {}
        self._work: dict[int, tuple[str, Callable[[str | None], Act]]] = {}
        """Commands and prompts under way: their tags, and how the hub hears of their end; ``None``: they were stopped."""
        self._ended: list[tuple[str, str, Act]] = []
        """Their ends that the hub has not heard of: tags, outcomes, and how it does."""
        self._chaos = {"kill_hub": 2, "kill_worker": 2, "fail": 2}
        self._wild = self.draw.choice([0.0, 0.01, 0.03, 0.08])

    # Time and chance of the workers.

    def now_us(self) -> int:
        return self.clock.now_us()

    def random_bytes(self, size: int) -> bytes:
        return bytes(size)

    # The whole run.

    def run(self) -> None:
        """Play it to its end, and compare that with the model."""
        state = State()
        for number in range(HUBS):
            try:
                self._open(first=not number)
                self._play()
            except KilledError:
                pass
            self._crash()
            state = State()
            apply_all(state, self.store.entries)
            if state.status == "completed":
                break
        assert state.status == "completed", f"it does not end: {state.status}"
        result = msgspec.json.decode(bytes(state.result.raw or b"[]"), type=list[tuple[str, str]])
        self._check_sent()
        self.effects.check(result, self._writer.required)

    def _check_sent(self) -> None:
        """No message was put into its mailbox twice, except if the first one was taken back before anything had received it."""
        sent: Counter[str] = Counter()
        tags: dict[object, str] = {}
        for entry in self.store.entries:
            if entry.kind == "message.sent" and entry.value is not None:
                tag = tags[entry.data["id"]] = msgspec.json.decode(entry.value, type=str)
                sent[tag] += 1
            elif entry.kind == "message.moved" and entry.data["to"] == "withdrawn":
                sent[tags[entry.data["id"]]] -= 1
        twice = [tag for tag, count in sent.items() if count > 1]
        assert not twice, f"sent twice: {twice}"

    def _open(self, *, first: bool) -> None:
        lines = self.draw.randint(1, 60) if self._take_chaos("kill_hub", 0.3) else None
        journal = MortalJournal(self.store, self.clock, lines, late=self.draw.random() < 0.5)
        self.hub = MemoryHub(journal, self.clock, self)
        if self.hub.core.state.run is None:
            self._create()
        self.clock.advance(1.0)
        self.hub.begin(0 if first else 1_000_000, self._decide())
        self.hub.run_ready()

    def _decide(self) -> UnknownDecision:
        """What a person says of steps that may have happened: that they have or, if they are of different kinds, once more."""
        workers = self.hub.core.state.workers.values()
        kinds = {worker.origin_facts[0] for worker in workers if worker.in_doubt}
        if len(kinds) > 1:
            self.effects.forgive()
            return UnknownDecision("retry")
        value: object = s.ShellOutcome([], 0, DECIDED, "", "", "") if kinds == {"shell"} else DECIDED
        return UnknownDecision("done", Value(msgspec.Raw(msgspec.json.encode(value))))

    def _create(self) -> None:
        created = e.RunCreated(
            run="run-20260101-000000-00000000",
            worker=player.ref,
            name="main",
            program="",
            workspace="/w",
            root="/w",
            seed=1,
        )
        spawned = e.WorkerSpawned(path="main", worker=player.ref)
        turn = self.hub.core.turn
        turn.record((created, NO_VALUE), (spawned, turn.pack_raw(player(self.code).encode())))

    def _play(self) -> None:
        """Let one thing happen after the other until the hub has ended."""
        for _ in range(TURNS):
            if self.hub.status:
                break
            acts = self._possible()
            if self.draw.random() < self._wild and self._disturb():
                pass
            elif acts and self.draw.random() > 0.02:
                self.draw.choice(acts)()
            else:
                self._pass_time(idle=not acts)
        else:
            raise AssertionError("a hub does not come to an end")
        self.hub.flush()
        failure = self.hub.core.state.failure
        name = "" if failure is None else failure.error.type.rpartition(":")[2]
        assert failure is None or name in _FAILURES, failure

    def _possible(self) -> list[Act]:
        acts: list[Act] = []
        for process in self._processes.values():
            if process.inbox and not process.blocked:
                acts += [process.hear] * 2
            if process.outbox:
                acts += [process.speak] * 2
            acts += [partial(process.end_body, op) for op in process.running]
        acts += [partial(self._end_work, token) for token in self._work]
        acts += [partial(self._hear_end, number) for number in range(len(self._ended))]
        acts += [partial(self._answer, number) for number in self.hub.core.state.questions]
        return acts

    def _pass_time(self, *, idle: bool) -> None:
        """Wait for the next timer. While something else can happen, none that is far away."""
        self.hub.flush()
        due = self.hub.core.timers.next_in_s()
        assert not idle or (due is not None and due < WAITS_S), f"everything waits: {due}"
        if due is not None and (idle or due < 10.0):
            self.clock.advance(max(due, 1e-6))
            self.hub.tick()
            self.hub.run_ready()

    # What the schedule does to it.

    def _take_chaos(self, kind: str, likely: float) -> bool:
        if self._chaos[kind] and self._wild and self.draw.random() < likely:
            self._chaos[kind] -= 1
            return True
        return False

    def _disturb(self) -> bool:
        kind = self.draw.choice(_CHAOS)
        if not self._take_chaos(kind, 1.0):
            return False
        if kind == "kill_hub":
            raise KilledError
        if kind == "kill_worker" and self._processes:
            self.end_worker(self.draw.choice(list(self._processes.values())), "signal:SIGKILL")
        elif kind == "fail":
            error = describe(SessionFailedError("a person", "fail", "not now"))
            self.hub.post(lambda core: core.failure.fail_session(None, error, None))
            self.hub.run_ready()
        return True

    def _crash(self) -> None:
        """Nothing of a hub is left."""
        for process in self._processes.values():
            process.die()
        self._processes.clear()
        self._work.clear()
        self._ended.clear()

    def end_worker(self, process: Process, reason: str) -> None:
        """The process of a worker ends; what it has said before is still heard."""
        if self._processes.get(process.path) is process:
            del self._processes[process.path]
            process.die()
            while process.outbox:
                process.speak()
            self.hub.gone(process.path, process.incarnation, reason)
            self.hub.run_ready()

    def _end_work(self, token: int) -> None:
        """A command or an agent has done what it was asked for."""
        tag, told = self._work.pop(token)
        value = self.effects.end(tag)
        self._ended.append((tag, value or "", told(value or "failed")))

    def _hear_end(self, number: int) -> None:
        tag, value, told = self._ended.pop(number)
        told()
        self.hub.run_ready()
        if value:
            self.effects.take(tag, value)

    def _answer(self, number: str) -> None:
        tag = self.hub.core.questions.asked(number).args.question
        self.effects.begin(tag)
        value = cast("str", self.effects.end(tag))
        raw = msgspec.Raw(msgspec.json.encode(value))
        self.hub.post(lambda core: core.questions.answer(number, raw, "a person"))
        self.hub.run_ready()
        self.effects.take(tag, value)

    # World.

    def start_worker(self, path: str, incarnation: int) -> None:
        self._processes[path] = Process(self, path, incarnation)

    def stop_worker(self, path: str) -> None:
        process = self._processes.get(path)
        if process is not None:
            # Not now: the hub is in the middle of a turn.
            self.hub.post(lambda core: self._stopped(process))

    def _stopped(self, process: Process) -> None:
        if self._processes.get(process.path) is process:
            del self._processes[process.path]
            process.die()
            process.outbox.clear()
            self.hub.gone(process.path, process.incarnation, "signal:SIGKILL")

    def start_shell(self, action: act.StartShell) -> None:
        tag = action.args.pipeline[0][0]

        def told(value: str | None) -> Act:
            end = ShellEnd(-15)
            if value is not None:
                status = 1 if value == "failed" else 0
                end = ShellEnd(status, value.encode(), by_itself=True)
            return lambda: self.hub.post(lambda core: core.shell_ended(action.token, end))

        self._begin(action.token, tag, told)

    def start_prompt(self, action: act.StartPrompt) -> None:
        def told(value: str | None) -> Act:
            reply = s.ThinkOutcome(key=action.key, agent="a", text=value or "")
            outcome = AgentError("a", "given up") if value is None else reply
            return lambda: self.hub.post(lambda core: core.prompt_ended(action.token, outcome))

        self._begin(action.token, action.args.prompt, told)

    def _begin(self, token: int, tag: str, told: Callable[[str | None], Act]) -> None:
        self.effects.begin(tag)
        self._work[token] = (tag, told)

    def stop_shell(self, token: int) -> None:
        """It is stopped, unless it has ended by itself and the hub is about to hear it."""
        if token in self._work:
            tag, told = self._work.pop(token)
            self._ended.append((tag, "", told(None)))

    stop_prompt = stop_shell

    def answer_question(self, action: act.AnswerQuestion) -> None:
        raise AssertionError(f"no agent asks: {action}")

    def answer_call(self, action: act.AnswerCall) -> None:
        raise AssertionError("no tools")

    def show(self, action: act.Show) -> None:
        pass


def play(seed: int) -> None:
    """Play one schedule."""
    Play(seed).run()


def main() -> None:
    """Play one schedule, and show what was written."""
    run = Play(int(sys.argv[1]))
    try:
        sys.stdout.write(f"{run.code}\n")
        run.run()
    finally:
        for entry in run.store.entries:
            value = b"" if entry.value is None else bytes(entry.value)
            sys.stdout.write(f"{entry.seq} {entry.kind} {entry.data} {value.decode()}\n")
    sys.stdout.write("nothing found\n")


if __name__ == "__main__":
    main()
