"""A conversation with an agent that does not speak the line protocol: everything but its dialect is the same."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from tests.unit.agents.stage import request_for

from bartack.agents._record import AgentRecord, Link
from bartack.agents.contract import (
    AgentAnswer,
    AgentQuestion,
    AgentResult,
    CallPermission,
    CallRetry,
    CallText,
    CallUsage,
    ToolOutcome,
)
from bartack.agents.conversation._actions import Action, CallOut, Done, NeedProcess, Report, StopProcess
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.messages import Budget, Event, Reason, Source, ToolProblem, ToolSpec, Usage
from bartack.errors import AgentBudgetError
from bartack.testing import VirtualClock


class Words:
    """A dialect of single words: ``say X``, ``cost X``, ``tool X``, ``fail X`` and ``done X``."""

    def __init__(self, talk: Conversation[str]) -> None:
        self.talk = talk
        self.wrote: list[str] = []
        self.command_id = ""

    def send_command(self) -> bool:
        self.command_id = f"c{self.talk.attempts.number}"
        self.wrote.append(f"do {self.talk.attempts.cause}")
        return True

    def send_cancel(self, reason: Reason) -> None:
        self.wrote.append(f"stop {reason}")

    def send_result(self, call_id: str, result: object, problem: ToolProblem | None) -> None:
        self.wrote.append(f"{call_id} {problem.code if problem else result}")

    def read(self, link: Link, read: str) -> str:
        del link
        verb, _, rest = read.partition(" ")
        talk, stamp = self.talk, self.talk.actions.stamp
        match verb:
            case "say":
                talk.watchdog.progress()
                talk.actions.report(CallText(**stamp(), text=rest))
            case "cost":
                talk.note_usage(Usage(cost_usd=float(rest)), final=False)
            case "tool":
                talk.tools.call("t1", rest, {})
            case "ask":
                talk.questions.ask(AgentQuestion(id="a1", text=rest))
            case "may":
                question = AgentQuestion(id="p1", kind="permission", text="May it?", tool=rest)
                talk.questions.ask(question)
            case "fail":
                talk.fail(AgentFailure(rest, "it failed"))
            case "done":
                talk.take_answer(self.answer(rest))
            case _:
                return "unknown"
        return ""

    def answer(self, text: str) -> Event:
        request = self.talk.request
        return Event(
            message_id="m", correlation_id="c", task_id="t", sender=Source(request.role), event="prompt.completed",
            payload={"text": text}, occurred_at="2026-01-01T00:00:00Z",
        )  # fmt: skip

    def recover(self, read: str) -> Event | None:
        return self.answer(read.removeprefix("done ")) if read.startswith("done ") else None

    def send_answer(self, question_id: str, answer: AgentAnswer) -> None:
        self.wrote.append(f"answer {question_id} {answer.text or answer.refused}")

    def delivered(self) -> list[str]:
        return []

    def refuse_answers(self) -> None:
        self.wrote.append("refused")

    def notes(self) -> list[str]:
        return ["spoke in words"]

    def close(self) -> None:
        self.wrote.append("closed")


E = TypeVar("E")


class Wordy:
    """One call of an agent that speaks in words, with a process that is there at once."""

    def __init__(self, root: Path, *, usd: float | None = None, earlier: str | None = None) -> None:
        self.clock = VirtualClock()
        tools = [ToolSpec("look", "", {})]
        request = request_for("prompt", root, tools=tools, budget=Budget(usd=usd))
        config = msgspec.convert({"kind": "ndjson", "command": "x"}, type=NdjsonConfig)
        self.words: Words

        def speak(talk: Conversation[str]) -> Words:
            self.words = Words(talk)
            return self.words

        self.talk = Conversation(
            "wordy", request, config.limits, AgentRecord("wordy"), speak, clock=self.clock
        )
        self.done: list[Action] = []
        self.talk.begin(earlier)
        self.perform()

    def hear(self, read: str) -> None:
        self.talk.line(read)
        self.perform()

    def wait(self) -> None:
        due = self.talk.next_due()
        assert due is not None
        self.clock.advance(max(due - self.clock.monotonic_ns() / 1e9, 0.0) + 0.001)
        self.talk.tick()
        self.perform()

    def perform(self) -> None:
        while actions := self.talk.take():
            self.done += actions
            for action in actions:
                if isinstance(action, NeedProcess):
                    self.talk.attached(Link(pid=17))
                elif isinstance(action, CallOut):
                    self.talk.tool_ended(action.call_id, ToolOutcome("seen"))
                elif isinstance(action, StopProcess):
                    self.talk.exited(0)

    @property
    def outcome(self) -> object:
        return next((action.outcome for action in self.done if isinstance(action, Done)), None)

    def events(self, kind: type[E]) -> list[E]:
        reports = [action.event for action in self.done if isinstance(action, Report)]
        return [event for event in reports if isinstance(event, kind)]


def test_a_call_needs_nothing_of_the_line_protocol(tmp_path: Path) -> None:
    wordy = Wordy(tmp_path)

    for read in ("say hm", "cost 0.5", "tool look", "tool dig", "done fine"):
        wordy.hear(read)

    assert isinstance(wordy.outcome, AgentResult)
    assert wordy.outcome.text == "fine"
    assert wordy.outcome.usage.cost_usd == 0.5
    assert wordy.outcome.notes == ["spoke in words"]
    assert wordy.words.wrote == ["do first", "t1 seen", "t1 unknown_tool", "closed"]
    assert len(wordy.events(CallText)) == len(wordy.events(CallUsage)) == 1


def test_an_attempt_that_failed_is_repeated_and_adds_to_the_cost(tmp_path: Path) -> None:
    wordy = Wordy(tmp_path)

    wordy.hear("cost 0.5")
    wordy.hear("fail overloaded")
    wordy.wait()
    wordy.hear("cost 0.25")
    wordy.hear("done fine")

    assert isinstance(wordy.outcome, AgentResult)
    assert wordy.outcome.usage.cost_usd == pytest.approx(0.75)
    assert wordy.outcome.failed == ["1 overloaded"]
    assert wordy.outcome.command_id == "c2"
    assert wordy.words.wrote == ["do first", "refused", "do failed", "closed"]
    assert len(wordy.events(CallRetry)) == 1


def test_a_call_over_its_budget_is_cancelled(tmp_path: Path) -> None:
    wordy = Wordy(tmp_path, usd=1.0)

    wordy.hear("cost 1.5")
    wordy.wait()

    assert isinstance(wordy.outcome, AgentBudgetError)
    assert wordy.outcome.usd == 1.5
    assert wordy.words.wrote == ["do first", "stop budget", "closed"]


def test_an_answer_of_an_earlier_process_needs_no_command(tmp_path: Path) -> None:
    wordy = Wordy(tmp_path, earlier="done before")

    assert isinstance(wordy.outcome, AgentResult)
    assert wordy.outcome.harvested
    assert wordy.words.wrote == ["closed"]


def test_time_does_not_count_while_a_person_is_asked(tmp_path: Path) -> None:
    wordy = Wordy(tmp_path)
    wordy.hear("ask which one?")

    assert wordy.talk.next_due() is None
    wordy.clock.advance(100_000)
    wordy.talk.answered("a1", AgentAnswer(text="the first"))
    wordy.talk.answered("a1", AgentAnswer(text="the second"))
    wordy.hear("done thanks")

    assert wordy.words.wrote[1] == "answer a1 the first"
    assert not any("second" in line for line in wordy.words.wrote)
    assert isinstance(wordy.outcome, AgentResult)


def test_a_permission_is_reported_when_it_is_asked_for_and_when_it_is_given(tmp_path: Path) -> None:
    wordy = Wordy(tmp_path)
    wordy.hear("may Bash")
    wordy.talk.answered("p1", AgentAnswer(text="deny", number="q4", by="me"))
    wordy.perform()

    reported = [(event.decision, event.by) for event in wordy.events(CallPermission)]
    assert reported == [("asked", "question"), ("deny", "question q4")]


def test_a_question_of_an_attempt_that_failed_is_not_answered(tmp_path: Path) -> None:
    wordy = Wordy(tmp_path)
    wordy.hear("ask which one?")
    wordy.hear("fail overloaded")

    wordy.talk.answered("a1", AgentAnswer(text="the first"))

    assert not any("answer" in line for line in wordy.words.wrote)
    assert wordy.talk.next_due() is not None
