"""Runs of programs in memory, for tests: ``run_worker`` runs one to its end, ``start_worker`` step by step.

The program meets the same hub and the same scheduler as everywhere; only what is outside is made up by the test. Nothing here
waits for real time: when all workers wait, the clock jumps to the next timer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Final, Generic, Literal, Self, TypeVar, cast

import msgspec

from bartack.agents import ScriptedAgent
from bartack.agents.scripted.scripted import Prompt
from bartack.errors import DeadlockError, QuestionNotFoundError, RunFailedError, ShellNotScriptedError
from bartack.journal import Entry
from bartack.runtime.context.definitions import Worker, WorkerCall
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.memory.run import MemoryRun
from bartack.runtime.protocol.frames import Frame
from bartack.runtime.protocol.values import encode
from bartack.runtime.scheduler.results import Failure, ShellResult
from bartack.runtime.state.entries import MessageSent, OutputWritten, decode_entry
from bartack.runtime.state.timeline import StepRecord, Timeline
from bartack.runtime.state.worker_state import OpenStep, UnknownDecision, Value
from bartack.runtime.worker_process.child import load_worker
from bartack.testing._clock import VirtualClock

R = TypeVar("R")

ShellScript = Mapping[tuple[str, ...], ShellResult] | Callable[[list[str]], ShellResult | None]
"""How commands end, by their words. Between the commands of a pipe is the word ``|``."""

Unknown = Literal["retry", "done", "fail"]

_NOTHING: Final = object()


@dataclass(frozen=True)
class SentMessage:
    """A message that was sent in a run."""

    id: str
    mailbox: str
    value: object
    sender: str
    key: str = ""


class _Outside:
    """What the run finds outside itself."""

    def __init__(self, shell: ShellScript | None) -> None:
        self._shell = shell if shell is not None else dict[tuple[str, ...], ShellResult]()
        self.commands: list[list[str]] = []
        self.frames: list[Frame] = []
        self.notes: list[str] = []

    def run_shell(self, pipeline: list[list[str]]) -> ShellEnd:
        """See ``Surroundings.run_shell``."""
        words = [word for command in pipeline for word in ["|", *command]][1:]
        self.commands.append(words)
        shell = self._shell
        found = shell(words) if callable(shell) else shell.get(tuple(words))
        if found is None:
            raise ShellNotScriptedError(words)
        return ShellEnd(found.status, found.stdout.encode(), found.stderr.encode())

    def sent(self, frame: Frame) -> None:
        """See ``Surroundings.sent``."""
        self.frames.append(frame)

    def show(self, channel: str, worker: str, text: str) -> None:
        """See ``Surroundings.show``."""
        if channel == "note":
            self.notes.append(text)


class _OneAgent(Mapping[str, ScriptedAgent]):
    """One agent for every name."""

    def __init__(self, agent: ScriptedAgent | None) -> None:
        self._agent = agent

    def __getitem__(self, name: str) -> ScriptedAgent:
        if self._agent is None:
            raise KeyError(name)
        return self._agent

    def __iter__(self) -> Iterator[str]:
        return iter(() if self._agent is None else (self._agent.name,))

    def __len__(self) -> int:
        return 0 if self._agent is None else 1


class TestRun(Generic[R]):
    """A run in memory. Made by ``start_worker`` and ``run_worker``; a context manager that releases everything."""

    __test__ = False

    def __init__(
        self,
        call: WorkerCall[R],
        *,
        agent: ScriptedAgent | None = None,
        answers: Mapping[str, object] | None = None,
        shell: ShellScript | None = None,
        clock: VirtualClock | None = None,
        seed: int = 0,
        dies_after: int | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.outside = _Outside(shell)
        self._worker = call.worker
        self._agent = agent
        self._asked_before = len(agent.prompts) if agent is not None else 0
        self._answers = answers or {}
        self._scratch = tempfile.TemporaryDirectory(prefix="bartack-")
        os.mkdir(os.path.join(self._scratch.name, "work"))
        self._crashed_at: float | None = None
        self._seen = 0
        self._run = MemoryRun(
            (call.worker.ref, call.encode()),
            _finder(call.worker),
            self.clock,
            self.outside,
            _OneAgent(agent),
            seed=seed,
            workspace=os.getcwd(),
            run_dir=self._scratch.name,
        )
        self._started = False
        self._dies_after = dies_after

    # Running.

    def start(self) -> None:
        """Let the run begin."""
        self._started = True
        self._run.start(self._dies_after)

    def wait_for(self, event: str, **match: object) -> dict[str, object]:
        """Let the run continue, without time passing, until something happens that has not been waited for yet.

        Args:
            event: The kind of journal entry; ``*`` and ``?`` stand for any text and any character.
            match: Fields that the entry must have.

        Returns:
            The entry, as an object.

        Raises:
            DeadlockError: It does not happen unless the test does something first.
        """
        while True:
            found = self._next_event(event, match)
            if found is not None:
                return found
            if not self._turn():
                self._run.flush()
                found = self._next_event(event, match)
                if found is not None:
                    return found
                raise DeadlockError(self._waits())

    def finish(self) -> Self:
        """Let the run come to its end; time jumps when all workers wait for it.

        Raises:
            DeadlockError: All workers wait, and no timer is left.
            ShellNotScriptedError: The program runs a command that the test says nothing about.
        """
        while not self._run.hub.status:
            if not self._turn() and not self._run.pass_time():
                raise DeadlockError(self._waits())
        self._run.flush()
        return self

    def answer(self, question: str, value: object) -> None:
        """Answer an open question.

        Args:
            question: Its number, or a pattern that its text matches.
            value: The answer.

        Raises:
            QuestionNotFoundError: No open question fits.
        """
        self._settle()
        for number in list(self._run.state.questions):
            if question == number or fnmatchcase(self._question(number), question):
                self._give(number, value)
                return
        raise QuestionNotFoundError(question)

    def send(self, mailbox: str, value: object, *, key: str = "") -> str:
        """Put a message into a mailbox, as a process outside the run does; returns its id."""
        self._settle()
        packed = Value(msgspec.Raw(encode(value)))
        message_id = self._run.hub.core.mail.outside.leave(mailbox, "the test", packed, key)
        self._run.hub.finish_turn()
        return message_id

    def crash(self, worker: str | None = None) -> None:
        """Kill the process of a worker, by its path; or everything, with ``kill -9``."""
        if worker is None:
            self._run.crash()
            self._crashed_at = self.clock.monotonic_ns() / 1e9
        elif worker in self._run.state.workers:
            self._run.end_worker(worker)
        else:
            known = ", ".join(self._run.state.workers)
            raise ValueError(f"there is no worker {worker!r} ({known})")

    def resume(self, unknown: Unknown | None = None, value: object = None) -> None:
        """Resume a run that was killed or has failed.

        Args:
            unknown: What to do with a step whose outcome is unknown.
            value: Its outcome, if it is to count as done.
        """
        if self._crashed_at is None:
            self.crash()
        assert self._crashed_at is not None
        dead_s = self.clock.monotonic_ns() / 1e9 - self._crashed_at
        self._crashed_at = None
        decision = None if unknown is None else UnknownDecision(unknown, Value(msgspec.Raw(encode(value))))
        self._run.resume(dead_s, decision)

    def close(self) -> None:
        """Release everything; what was recorded can still be looked at."""
        self._run.crash()
        self._scratch.cleanup()

    def __enter__(self) -> Self:
        if not self._started:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What became of it.

    @property
    def status(self) -> str:
        """``running``, or how it ended."""
        return self._run.hub.status or "running"

    @property
    def result(self) -> R:
        """What the worker returned.

        Raises:
            RunFailedError: The run has failed.
            RuntimeError: The run has not ended.
        """
        error = self.error
        if error is not None:
            raise RunFailedError("the run", error.worker, error.kind, error.message)
        state = self._run.state
        if state.ended is None:
            raise RuntimeError("the run has not ended")
        result = state.result
        data = self._run.store.get(result.ref) if result.ref is not None else result.raw
        return cast("R", self._worker.shape.result.decode(b"null" if data is None else data))

    @property
    def error(self) -> Failure | None:
        """Why the run failed, if it did."""
        failure = self._run.state.failure
        return None if failure is None else Failure.of(failure.error)

    @property
    def steps(self) -> list[StepRecord]:
        """All steps, in the order in which they began."""
        timeline = Timeline()
        timeline.add_all(self.journal)
        return timeline.steps

    @property
    def messages(self) -> list[SentMessage]:
        """All messages, in the order in which they were sent."""
        return [
            SentMessage(data.id, data.mailbox, self._load(entry), data.sender, data.key)
            for entry in self.journal
            if isinstance(data := decode_entry(entry.kind, entry.raw), MessageSent)
        ]

    @property
    def output(self) -> list[str]:
        """What was printed, in order."""
        return [
            str(self._load(entry))
            for entry in self.journal
            if isinstance(data := decode_entry(entry.kind, entry.raw), OutputWritten)
            and data.channel == "print"
        ]

    @property
    def notes(self) -> list[str]:
        """The notes shown to people, besides what was printed and logged."""
        return self.outside.notes

    @property
    def commands(self) -> list[list[str]]:
        """The commands that were run, word by word, each time they were."""
        return self.outside.commands

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts that the agent was asked, each time it was."""
        return [] if self._agent is None else self._agent.prompts[self._asked_before :]

    @property
    def journal(self) -> list[Entry]:
        """What is durable."""
        return list(self._run.store.entries)

    @property
    def lines(self) -> list[int]:
        """The last place of each line that the hub which runs it now has written."""
        return list(self._run.journal.lines)

    # Inside.

    def _turn(self) -> bool:
        return self._run.turn() or self._answer_known()

    def _settle(self) -> None:
        """Let all workers run until they wait."""
        self._run.tick()
        while self._turn():
            pass

    def _answer_known(self) -> bool:
        for number in list(self._run.state.questions):
            value = next(
                (value for glob, value in self._answers.items() if fnmatchcase(self._question(number), glob)),
                _NOTHING,
            )
            if value is not _NOTHING and not self._run.hub.status:
                self._give(number, value)
                return True
        return False

    def _question(self, number: str) -> str:
        return self._run.hub.core.questions.asked(number).args.question

    def _give(self, number: str, value: object) -> None:
        self._run.hub.core.questions.answer(number, msgspec.Raw(encode(value)), "the test")
        self._run.hub.finish_turn()

    def _next_event(self, event: str, match: Mapping[str, object]) -> dict[str, object] | None:
        self._run.tick()
        for entry in self._run.store.entries[self._seen :]:
            self._seen += 1
            fields = entry.data
            if fnmatchcase(entry.kind, event) and all(fields.get(name) == match[name] for name in match):
                return {"seq": entry.seq, "at": entry.at, "kind": entry.kind, **fields}
        return None

    def _load(self, entry: Entry) -> object:
        data = self._run.store.get(entry.ref) if entry.ref is not None else entry.value
        return None if data is None else msgspec.json.decode(data)

    def _waits(self) -> tuple[str, ...]:
        if self._run.hub.status:
            return (f"the run has ended ({self._run.hub.status})",)
        return tuple(_describe(path, opened) for path, opened in self._run.waits())


def run_worker(
    call: WorkerCall[R],
    *,
    agent: ScriptedAgent | None = None,
    answers: Mapping[str, object] | None = None,
    shell: ShellScript | None = None,
    clock: VirtualClock | None = None,
    seed: int = 0,
) -> TestRun[R]:
    """Run a worker to its end, in memory and without waiting.

    Args:
        call: The worker with its arguments.
        agent: Answers every prompt, whichever agent it is for.
        answers: Answers to questions, by patterns of their texts.
        shell: How commands end: by their words, or a function of them.
        clock: Shows the time; jumps to the next timer when all workers wait.
        seed: Decides what is random.

    Returns:
        The run, failed or completed.

    Raises:
        DeadlockError: All workers wait, and no timer is left.
        ShellNotScriptedError: The program runs a command that ``shell`` says nothing about.
    """
    with start_worker(call, agent=agent, answers=answers, shell=shell, clock=clock, seed=seed) as run:
        return run.finish()


def start_worker(
    call: WorkerCall[R],
    *,
    agent: ScriptedAgent | None = None,
    answers: Mapping[str, object] | None = None,
    shell: ShellScript | None = None,
    clock: VirtualClock | None = None,
    seed: int = 0,
) -> TestRun[R]:
    """Run a worker step by step; to be used as a context manager. The arguments are those of ``run_worker``."""
    return TestRun(call, agent=agent, answers=answers, shell=shell, clock=clock, seed=seed)


def _finder(first: Worker[..., R]) -> Callable[[str], Worker[..., object]]:
    """Finds workers where the first one is defined, so that they need not be importable from elsewhere."""
    if first.find is not None:
        return first.find
    names = cast("dict[str, object]", getattr(first.function, "__globals__", {}))
    found = (cast("Worker[..., object]", thing) for thing in names.values() if isinstance(thing, Worker))
    near = {worker.ref: worker for worker in found}
    near[first.ref] = first

    def find(ref: str) -> Worker[..., object]:
        return near.get(ref) or load_worker(ref)

    return find


def _describe(path: str, opened: OpenStep) -> str:
    what = f"{opened.step} {opened.about}".strip()
    return f"{path} waits in {what} (step {opened.n})"
