"""A core on a stage: everything around it is played by the test.

``Stage`` is the world of a hub in memory. Its workers are puppets, moved by hand frame by frame, or actors, which follow a script
and replay it after a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from bartack.agents import AgentAnswer, AgentQuestion
from bartack.agents.scripted.scripted import Prompt
from bartack.config.timeouts import Timeouts
from bartack.errors import AgentError
from bartack.journal import Entry
from bartack.journal.memory import MemoryStore
from bartack.runtime.kernel import actions as act
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.kernel.tools import TalkAsks, TalkWithdraws, ToolCall
from bartack.runtime.memory.hub import MemoryHub, MortalJournal
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE, UnknownDecision, Value, WorkerState
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.testing import VirtualClock

RUN = "run-20260101-000000-00000000"


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def plain(value: msgspec.Raw | None) -> object:
    return None if value is None else msgspec.json.decode(value)


def fields(value: object) -> dict[str, object]:
    return msgspec.convert(value, type=dict[str, object])


def error(name: str = "ValueError", message: str = "no") -> f.ErrorData:
    return f.ErrorData(type=f"builtins:{name}", message=message)


class Puppet:
    """A worker's process that says what the test makes it say."""

    def __init__(self, stage: Stage, path: str, incarnation: int) -> None:
        self.stage = stage
        self.path = path
        self.incarnation = incarnation
        self.heard: list[f.ToPeer] = []
        self.past: list[f.Past] = []
        self.gone = False
        self.aborted = False
        """Whether it was told that the session failed: whatever it begins from then on is clean-up."""
        self._asked = 0
        self._begun: set[tuple[str, int]] = set()
        self.number = stage.hub.join(f.Hello(path=path, incarnation=incarnation), self.hear)

    def hear(self, frame: f.ToPeer) -> None:
        self.heard.append(frame)
        if isinstance(frame, f.History):
            self.past += frame.past
        elif isinstance(frame, f.SessionFailed):
            self.aborted = True
        elif isinstance(frame, f.Leave):
            self.die("exit:0")

    def die(self, reason: str = "signal:SIGKILL") -> None:
        """The process ends."""
        if not self.gone:
            self.gone = True
            self.stage.hub.hang_up(self.number)
            self.stage.hub.gone(self.path, self.incarnation, reason)

    def step(
        self,
        n: int,
        kind: str,
        args: s.Args | None = None,
        value: object = None,
        *,
        p: str = "",
        fp: str = "",
        cancelled: bool = False,
    ) -> int:
        """Ask for a step; returns the number of the request."""
        self._asked += 1
        frame = f.Step(
            i=self._asked,
            p=p or self.path,
            n=n,
            step=kind,
            fp=fp or f"fp-{kind}",
            a=raw(args) if args is not None else raw({}),
            v=None if value is None else raw(value),
            cancelled=cancelled,
        )
        self.say(frame)
        return self._asked

    def begin(
        self, n: int, kind: str = "body", *, asked: bool = False, p: str = "", **options: object
    ) -> int:
        """The body of a step begins."""
        self._asked += asked
        given: dict[str, object] = {"p": p or self.path, "n": n, "step": kind, "fp": f"fp-{kind}", **options}
        self.say(
            msgspec.json.decode(raw({"k": "begin", "i": self._asked if asked else 0, **given}), type=f.Begin)
        )
        return self._asked

    def done(
        self,
        n: int,
        value: object = None,
        kind: str = "body",
        *,
        e: f.ErrorData | None = None,
        p: str = "",
        attempt: int = 1,
        retry_in_s: float = -1.0,
    ) -> int:
        """The body of a step ended."""
        self._asked += 1
        self.say(
            f.Done(
                i=self._asked,
                p=p or self.path,
                n=n,
                step=kind,
                fp=f"fp-{kind}",
                v=raw(value) if e is None else None,
                e=e,
                attempt=attempt,
                retry_in_s=retry_in_s,
            )
        )
        return self._asked

    def cancel(self, n: int, *, p: str = "") -> None:
        self.say(f.Cancel(p=p or self.path, n=n, reason="changed its mind"))

    def result(self, value: object = None) -> None:
        self.say(f.Result(v=raw(value)))

    def fail(self, problem: f.ErrorData | None = None, origin: tuple[str, int] | None = None) -> None:
        self.say(f.Failed(e=problem or error(), origin=origin))

    def say(self, frame: f.Frame) -> None:
        """Say something, and let the hub do all that follows from it."""
        if isinstance(frame, f.Step | f.Begin | f.Done | f.Note | f.Out):
            if not self.aborted:
                self._begun.add((frame.p, frame.n))
            frame.cleanup = frame.cleanup or (frame.p, frame.n) not in self._begun
        self.stage.hub.say(self.number, frame)
        self.stage.hub.run_ready()

    def answer(self, i: int) -> f.Answer | f.Refusal | None:
        """What was answered to a request; ``None`` if nothing was."""
        answers = [frame for frame in self.heard if isinstance(frame, f.Answer | f.Refusal) and frame.i == i]
        assert len(answers) <= 1, f"{self.path} got {len(answers)} answers to request {i}"
        return answers[0] if answers else None

    def value(self, i: int) -> object:
        """The value that was answered to a request."""
        found = self.answer(i)
        assert isinstance(found, f.Answer), f"{self.path}: request {i} got {found}"
        return plain(found.v)

    def error(self, i: int) -> str:
        """The name of the error that was answered to a request."""
        found = self.answer(i)
        assert isinstance(found, f.Refusal), f"{self.path}: request {i} got {found}"
        return found.e.type.rpartition(":")[2]

    def pushed(self, kind: type[f.Frame]) -> int:
        """How many frames of a kind were heard."""
        return sum(isinstance(frame, kind) for frame in self.heard)


class Stage:
    """The world of a hub in memory, with a run whose first worker is ``main``."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        clock: VirtualClock | None = None,
        settings: Settings | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        keeps_copies: bool = False,
        dies_after: int | None = None,
        late: bool = False,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.settings = settings
        self.telemetry = telemetry
        self.store = store or MemoryStore()
        self.workers: dict[str, Puppet] = {}
        self.crew: list[Puppet] = []
        self.shells: dict[int, act.StartShell] = {}
        self.started_shells: list[act.StartShell] = []
        self.stopped_shells: list[int] = []
        self.prompts: dict[int, act.StartPrompt] = {}
        self.stopped_prompts: list[int] = []
        self.answered: list[tuple[int, object, str]] = []
        """What agents were told of their calls: number of the request, value, problem."""
        self.replies: list[tuple[str, AgentAnswer]] = []
        """What agents were told of their questions, each with its own id."""
        self.stopped: list[str] = []
        self.shown: list[tuple[str, str]] = []
        self.slow_to_die: set[str] = set()
        """Workers whose processes do not end by themselves when they are stopped."""
        self.shy: set[str] = set()
        """Workers that do not say hello."""
        self.copying: list[act.KeepCopy | act.PackCopy] = []
        """Copies of the workspace that are being made."""
        self._keeps_copies = keeps_copies
        self.hub = self._hub(dies_after, late=late)

    # The world.

    def start_worker(self, path: str, incarnation: int) -> None:
        if path not in self.shy:
            self.workers[path] = self.make_worker(path, incarnation)
            self.crew.append(self.workers[path])

    def make_worker(self, path: str, incarnation: int) -> Puppet:
        return Puppet(self, path, incarnation)

    def stop_worker(self, path: str) -> None:
        self.stopped.append(path)
        if path in self.shy:
            self.hub.gone(path, 1, "signal:SIGKILL")
        elif path not in self.slow_to_die:
            self.workers[path].die()

    def start_shell(self, action: act.StartShell) -> None:
        self.shells[action.token] = action
        self.started_shells.append(action)

    def stop_shell(self, token: int) -> None:
        self.stopped_shells.append(token)

    def start_prompt(self, action: act.StartPrompt) -> None:
        self.prompts[action.token] = action

    def answer_call(self, action: act.AnswerCall) -> None:
        self.answered.append((action.request, plain(action.value.raw), action.error))

    def answer_question(self, action: act.AnswerQuestion) -> None:
        self.replies.append((action.question, action.answer))

    def stop_prompt(self, token: int) -> None:
        self.stopped_prompts.append(token)

    def show(self, action: act.Show) -> None:
        self.shown.append((action.channel, action.text))

    def keep_copy(self, action: act.KeepCopy | act.PackCopy) -> None:
        self.copying.append(action)

    # The test.

    @property
    def core(self) -> Core:
        return self.hub.core

    def worker(self, path: str) -> WorkerState:
        return self.hub.core.state.workers[path]

    def begin(self, dead_s: float = 0.0, unknown: UnknownDecision | None = None) -> Puppet:
        """Start the run, or go on with it; returns its first worker."""
        if self.hub.core.state.run is None:
            self._create()
        self.hub.begin(int(dead_s * 1e6), unknown)
        self.hub.run_ready()
        return self.workers["main"]

    def again(self, dead_s: float = 0.0, unknown: UnknownDecision | None = None) -> Puppet:
        """Kill everything, and resume after a while; less than none if the clock on the wall was set back meanwhile."""
        self.clock.advance(max(dead_s, 0.0))
        self.workers.clear()
        self.shells.clear()
        self.prompts.clear()
        self.hub = self._hub(None)
        return self.begin(dead_s, unknown)

    def kill(self, path: str) -> Puppet | None:
        """Kill the process of a worker; returns the next one, if one was started."""
        before = self.workers[path]
        before.die()
        self.hub.run_ready()
        after = self.workers[path]
        return after if after is not before else None

    def wait(self, seconds: float) -> None:
        """Let time pass in small steps, as it does."""
        end = self.clock.monotonic_ns() + int(seconds * 1e9)
        while self.clock.monotonic_ns() < end:
            due = self.core.timers.next_in_s()
            left = (end - self.clock.monotonic_ns()) / 1e9
            self.clock.advance(left if due is None else min(max(due, 1e-6), left))
            self.hub.tick()
            self.hub.run_ready()

    def end_shell(self, end: ShellEnd | None = None, token: int | None = None) -> None:
        """Commands end; the oldest ones by default."""
        chosen = token if token is not None else next(iter(self.shells))
        del self.shells[chosen]
        self.hub.post(lambda core: core.shell_ended(chosen, end or ShellEnd(0)))
        self.hub.run_ready()

    def end_prompt(self, outcome: s.ThinkOutcome | AgentError, token: int | None = None) -> None:
        """An agent replies; the oldest call by default."""
        chosen = token if token is not None else next(iter(self.prompts))
        del self.prompts[chosen]
        self.hub.post(lambda core: core.prompt_ended(chosen, outcome))
        self.hub.run_ready()

    def call_tool(
        self,
        request: int,
        tool: str = "do_1",
        token: int | None = None,
        call_id: str = "",
        **arguments: object,
    ) -> None:
        """An agent calls a tool; the one that was asked first by default."""
        chosen = token if token is not None else next(iter(self.prompts))
        call = ToolCall(request, tool, msgspec.json.encode(arguments), call_id)
        self.hub.post(lambda core: core.tool_called(chosen, call))
        self.hub.run_ready()

    def ask_person(
        self, asked: str | Mapping[str, object] = "Which one?", own_id: str = "a1", token: int | None = None
    ) -> None:
        """An agent asks a person; the one that was asked first by default."""
        chosen = token if token is not None else next(iter(self.prompts))
        given = {"text": asked} if isinstance(asked, str) else asked
        question = msgspec.convert({"id": own_id, "text": "Which one?", **given}, type=AgentQuestion)
        self.hub.post(lambda core: core.person_asked(chosen, TalkAsks(question)))
        self.hub.run_ready()

    def withdraw_question(self, own_id: str = "a1") -> None:
        """The agent that was asked first does not wait for an answer any longer."""
        chosen = next(iter(self.prompts))
        self.hub.post(lambda core: core.question_withdrawn(chosen, TalkWithdraws(own_id)))
        self.hub.run_ready()

    def entries(self, *kinds: str) -> list[Entry]:
        """The entries that are durable."""
        self.hub.flush()
        return [entry for entry in self.store.entries if not kinds or entry.kind in kinds]

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.entries()]

    def outcomes(self) -> Counter[tuple[str, int]]:
        """How many outcomes of each step are in the journal, without clean-up."""
        found: Counter[tuple[str, int]] = Counter()
        for entry in self.entries():
            data = e.decode_entry(entry.kind, entry.raw)
            if _is_outcome(data):
                found[str(entry.data["p"]), int(str(entry.data["n"]))] += 1
        return found

    def lines(self) -> int:
        """How many lines this hub has written."""
        assert isinstance(self.hub.journal, MortalJournal)
        return len(self.hub.journal.lines)

    def _hub(self, dies_after: int | None, *, late: bool = False) -> MemoryHub:
        journal = MortalJournal(self.store, self.clock, dies_after, late=late)
        return MemoryHub(
            journal,
            self.clock,
            self,
            timeouts=Timeouts({}),
            settings=self.settings,
            telemetry=self.telemetry,
            copier=self.keep_copy if self._keeps_copies else None,
        )

    def _create(self) -> None:
        created = e.RunCreated(
            run=RUN, worker="prog:main", name="main", program="prog.py", workspace="/w", root="/w", seed=1
        )
        spawned = e.WorkerSpawned(path="main", worker="prog:main")
        record = self.hub.core.turn.record
        record((created, NO_VALUE), (spawned, Value(raw({"args": []}))))


def _is_outcome(data: e.EntryData | None) -> bool:
    match data:
        case e.StepFinished() | e.StepFailed():
            return not data.cleanup
        case e.MessageSent():
            return bool(data.n) and not data.reply_to
        case _:
            return isinstance(data, e.MessageTaken | e.MessagesDrained)


def _answer(number: str, value: msgspec.Raw, core: Core) -> None:
    core.questions.answer(number, value, "me")


def delegate(
    worker: Puppet, n: int, names: list[str], *, p: str = "", kind: str = "delegate", **options: object
) -> int:
    """Have a worker delegate to others."""
    args = msgspec.convert({"workers": [f"prog:{name}" for name in names], **options}, type=s.DelegateArgs)
    return worker.step(n, kind, args, [dict[str, object]() for _ in names], p=p)


# Actors.


class Ask(NamedTuple):
    """What the script of an actor wants done next."""

    kind: str
    args: s.Args | None = None
    value: object = None


class RemoteError(Exception):
    """A step of an actor failed."""

    def __init__(self, data: f.ErrorData, step: tuple[str, int]) -> None:
        super().__init__(data.message)
        self.data = data
        self.name = data.type.rpartition(":")[2]
        self.step = step


Lines = Generator[Ask, object, object]
Role = Callable[[], Lines]


class Actor(Puppet):
    """A worker that follows a script: one step after the other, from the history as far as that goes."""

    def __init__(self, stage: Theatre, path: str, incarnation: int) -> None:
        self.theatre = stage
        self._role = stage.role(path)
        self._known: dict[int, f.Past] = {}
        self._lines: Lines | None = None
        self._n = 0
        self._ask: Ask | None = None
        self._sent = 0
        self._ended = False
        super().__init__(stage, path, incarnation)

    def hear(self, frame: f.ToPeer) -> None:
        super().hear(frame)
        match frame:
            case f.History(past=past):
                self._known.update({item.n: item for item in past})
            case f.Live():
                self._lines = self._role()
                self._play(None, None)
            case f.Answer() if frame.i == self._sent:
                self._answered(frame)
            case f.Refusal() if frame.i == self._sent:
                self._play(None, frame.e)
            case f.SessionFailed() if self._lines is not None and not self._ended:
                self._play(None, frame.e)
            case _:
                return

    def _answered(self, frame: f.Answer) -> None:
        self._play(plain(frame.v), None)

    def _play(self, value: object, failure: f.ErrorData | None) -> None:
        lines = self._lines
        if lines is None or self._ended or self.gone:
            return
        self._sent = 0
        while True:
            try:
                if failure is None:
                    self._ask = lines.send(value)
                else:
                    self._ask = lines.throw(RemoteError(failure, (self.path, self._n)))
            except StopIteration as stop:
                self._end(f.Result(v=raw(stop.value)))
                return
            except RemoteError as problem:
                self._end(f.Failed(e=problem.data, origin=problem.step))
                return
            self._n += 1
            past = self._known.pop(self._n, None)
            if past is None:
                self._perform(self._ask)
                return
            assert (past.step, past.fp) == (self._ask.kind, f"fp-{self._ask.kind}"), "the replay differs"
            value, failure = plain(past.v), past.e

    def _perform(self, ask: Ask) -> None:
        assert not self._known, f"{self.path} does not replay {self._known}"
        if ask.kind == "body":
            self.theatre.bodies[self.path, self._n] += 1
            self._say_later(f.Begin(p=self.path, n=self._n, step="body", fp="fp-body"))
            self._asked += 1
            self._sent = self._asked
            frame: f.Frame = f.Done(
                i=self._asked, p=self.path, n=self._n, step="body", fp="fp-body", v=raw(ask.value)
            )
        else:
            self._asked += 1
            self._sent = self._asked
            frame = f.Step(
                i=self._asked,
                p=self.path,
                n=self._n,
                step=ask.kind,
                fp=f"fp-{ask.kind}",
                a=raw(ask.args) if ask.args is not None else raw({}),
                v=None if ask.value is None else raw(ask.value),
            )
        self._say_later(frame)

    def _end(self, frame: f.Frame) -> None:
        self._ended = True
        self._say_later(frame)

    def _say_later(self, frame: f.Frame) -> None:
        self.stage.hub.say(self.number, frame)


class Theatre(Stage):
    """A stage whose workers are actors, and whose commands and agents answer by themselves."""

    def __init__(
        self,
        roles: Mapping[str, Role],
        store: MemoryStore | None = None,
        *,
        clock: VirtualClock | None = None,
        keeps_copies: bool = False,
        dies_after: int | None = None,
        late: bool = False,
    ) -> None:
        self.roles = roles
        self.bodies: Counter[tuple[str, int]] = Counter()
        self.executed: Counter[str] = Counter()
        self.asked: list[Prompt] = []
        self.answers: dict[str, object] = {}
        self.results: dict[str, ShellEnd] = {}
        """How commands end, by their first word."""
        super().__init__(store, clock=clock, keeps_copies=keeps_copies, dies_after=dies_after, late=late)

    def role(self, path: str) -> Role:
        return self.roles[path.rpartition(":")[2]]

    def make_worker(self, path: str, incarnation: int) -> Puppet:
        return Actor(self, path, incarnation)

    def start_shell(self, action: act.StartShell) -> None:
        word = action.args.pipeline[0][0]
        self.executed[f"{word} {action.key}"] += 1
        end = self.results.get(word, ShellEnd(0, word.encode()))
        self.hub.post(lambda core: core.shell_ended(action.token, end))

    def stop_shell(self, token: int) -> None:
        super().stop_shell(token)
        self.hub.post(lambda core: core.shell_ended(token, ShellEnd(-15)))

    def start_prompt(self, action: act.StartPrompt) -> None:
        self.executed[f"think {action.key}"] += 1
        outcome = s.ThinkOutcome(key=action.key, agent="a", text=action.args.prompt, usd=1.0)
        self.hub.post(lambda core: core.prompt_ended(action.token, outcome))

    def play(self) -> str:
        """Run to the end, letting time pass when everybody waits; returns how it ended."""
        self.hub.run_ready()
        while not self.hub.status:
            self.hub.flush()
            self._answer_questions()
            due = self.core.timers.next_in_s()
            assert due is not None or self.hub.turn(), f"everybody waits: {self._waits()}"
            self.clock.advance(max(due or 0.0, 1e-6))
            self.hub.tick()
            self.hub.run_ready()
        self.hub.flush()
        return self.hub.status

    def _answer_questions(self) -> None:
        for number in list(self.core.state.questions):
            asked = self.core.questions.asked(number).args
            value = raw(self.answers[asked.question])
            self.hub.post(partial(_answer, number, value))
        self.hub.run_ready()

    def _waits(self) -> list[str]:
        return [
            f"{worker.path}: {opened.step}"
            for worker in self.core.state.workers.values()
            for opened in worker.open.values()
        ]


def ask(worker: Puppet, n: int, **options: object) -> int:
    given = {"question": "Go?", **{name: value for name, value in options.items() if value is not None}}
    worker.say(f.Step(i=100 + n, p=worker.path, n=n, step="ask", fp="fp-ask", a=raw(given)))
    return 100 + n


def answer(stage: Stage, number: str, value: object) -> None:
    stage.core.questions.answer(number, raw(value), "a person")
    stage.hub.finish_turn()


def pair(
    stage: Stage, on_failure: str = "fail", timeout_s: float | None = None
) -> tuple[Puppet, int, Puppet, Puppet]:
    """A first worker that delegates to two."""
    main = stage.begin()
    i = delegate(main, 1, ["a", "b"], on_failure=on_failure, timeout_s=timeout_s)
    return main, i, stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]


def shell(worker: Puppet, n: int, *words: str, once: bool = False, check: bool = True, p: str = "") -> int:
    args = s.ShellArgs(pipeline=[list(words or ("make",))], once=once, check=check)
    return worker.step(n, "shell", args, p=p)


def receive(worker: Puppet, n: int, mailbox: str = "box") -> int:
    return worker.step(n, "receive", s.ReceiveArgs(mailbox=mailbox))
