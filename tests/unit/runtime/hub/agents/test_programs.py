"""Agents that are programs ask people: the hub gets the question, the agent the answer, and other calls begin meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import cast

import pytest

from bartack.agents import Agent, AgentAnswer, AgentQuestion, AgentRequest, CallSink
from bartack.agents.contract import CallRateLimit, CallStarted, ToolOutcome
from bartack.agents.protocol.ids import parse_moment
from bartack.config.load import load_config
from bartack.core.clock import Clock
from bartack.errors import AgentBudgetError, AgentError
from bartack.runtime.hub.agents.programs import Programs, Ready
from bartack.runtime.hub.agents.requests import make_request
from bartack.runtime.kernel.actions import AnswerQuestion, StartPrompt
from bartack.runtime.kernel.tools import TalkAsks, TalkWaits
from bartack.runtime.protocol.steps import ThinkArgs
from bartack.testing import VirtualClock

CONFIG = """[agents]
max_parallel = 1
[agents.one]
kind = "ndjson"
command = ["true"]
[agents.two]
kind = "ndjson"
command = ["true"]
"""


class Talking:
    """A call that does what the test makes it do."""

    deadline_in_s = 60.0

    def __init__(self, sink: CallSink) -> None:
        self.sink = sink
        self.heard: list[tuple[str, AgentAnswer]] = []

    def cancel(self, reason: str) -> None: ...

    def tool_ended(self, call_id: str, outcome: ToolOutcome) -> None: ...

    def answered(self, question_id: str, answer: AgentAnswer) -> None:
        self.heard.append((question_id, answer))


class Talker:
    """An agent that only notes who calls it."""

    def __init__(self) -> None:
        self.calls: list[Talking] = []
        self.error: Exception | None = None

    def start(self, request: AgentRequest, sink: CallSink) -> Talking:
        if self.error is not None:
            raise self.error
        self.calls.append(Talking(sink))
        return self.calls[-1]


class TalkingPrograms(Programs):
    """Programs that are all the same agent, without a process."""

    talker = Talker()

    def _agent(self, name: str, cwd: str) -> Agent:
        return self.talker  # type: ignore[return-value]  # - nothing else is asked of it


@pytest.fixture
def programs(tmp_path: Path) -> TalkingPrograms:
    return make_programs(tmp_path, CONFIG)


@pytest.fixture
def paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TalkingPrograms:
    """Programs that share 10 USD a day, in a state home of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return make_programs(tmp_path, f"{CONFIG}[budget]\ndaily_usd = 10\nreserve_usd = 8\n")


def make_programs(tmp_path: Path, config: str) -> TalkingPrograms:
    (tmp_path / "bartack.toml").write_text(config)
    made = TalkingPrograms(
        load_config(tmp_path), folder=tmp_path, workspace=str(tmp_path), environment={"BARTACK_RUN": "r"}
    )
    made.talker = Talker()
    made.attach(QuietHost(VirtualClock()))  # type: ignore[arg-type]  # - nothing is started
    return made


class QuietHost:
    """A loop that has a clock and nothing else."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.shown: list[str] = []

    def show(self, channel: str, worker: str, text: str) -> None:
        self.shown.append(text)


def begin(programs: Programs, token: int, agent: str = "one") -> None:
    programs.start(StartPrompt(token, "main", f"k{token}", 1, ThinkArgs(prompt="p", name="n")), agent)


def limit(programs: TalkingPrograms, call: int, until: str) -> None:
    limited = CallRateLimit(n=1, key="k", at="", status="rate_limited", resets_at=until, error="used up")
    programs.talker.calls[call].sink.emit(limited)


def question(own_id: str = "a") -> AgentQuestion:
    return AgentQuestion(id=own_id, text="Which?")


def ready(programs: Programs) -> list[tuple[int, Ready]]:
    programs._agents.clear()
    return programs.take_ready()


@pytest.mark.requirement("agents-ask-people")
def test_a_question_reaches_the_hub_and_its_answer_the_agent_once(programs: TalkingPrograms) -> None:
    begin(programs, 1)
    call = programs.talker.calls[0]
    call.sink.ask(question())
    assert ready(programs) == [(1, TalkAsks(question()))]
    answer = AnswerQuestion(1, "a", AgentAnswer(text="red", number="q1"))

    assert programs.answered(answer)
    assert programs.answered(answer)

    assert call.heard == [("a", answer.answer)]
    assert not programs.answered(AnswerQuestion(2, "a", AgentAnswer(text="red")))


@pytest.mark.requirement("prompts-stand-still-for-people")
def test_a_call_that_waits_for_a_person_does_not_count(programs: TalkingPrograms) -> None:
    begin(programs, 1)
    begin(programs, 2)
    begin(programs, 3)
    assert len(programs.talker.calls) == 1

    programs.talker.calls[0].sink.ask(question("a"))
    programs.talker.calls[0].sink.ask(question("b"))
    ready(programs)
    assert len(programs.talker.calls) == 2

    programs.answered(AnswerQuestion(1, "a", AgentAnswer(text="red")))
    programs.answered(AnswerQuestion(1, "b", AgentAnswer(text="red")))
    programs.talker.calls[1].sink.done(AgentError("one", "no"))
    ready(programs)
    assert len(programs.talker.calls) == 2  # the first one works again

    programs.talker.calls[0].sink.ask(question("c"))
    programs.talker.calls[0].sink.done(AgentError("one", "no"))
    ready(programs)
    assert len(programs.talker.calls) == 3
    assert not programs._asking


UNTIL = "2040-01-01T03:00:00Z"
WAITS = TalkWaits(parse_moment(UNTIL) or 0, "one", "used up", "rate_limited")


@pytest.mark.requirement("a-limit-is-not-time-of-a-prompt")
def test_calls_in_the_queue_wait_for_the_limit_of_their_agent_too(programs: TalkingPrograms) -> None:
    begin(programs, 1)
    begin(programs, 2)
    begin(programs, 3, "two")

    limit(programs, 0, UNTIL)
    limit(programs, 0, UNTIL)
    begin(programs, 4)

    told = [token for token, what in ready(programs) if what == WAITS]
    assert told == [1, 2, 1, 4]


def test_other_agents_continue_while_one_is_limited(programs: TalkingPrograms) -> None:
    begin(programs, 1)
    begin(programs, 2)
    begin(programs, 3, "two")
    limit(programs, 0, UNTIL)
    ready(programs)
    assert len(programs.talker.calls) == 2  # the first one, and that of the other agent

    programs.talker.calls[1].sink.done(AgentError("two", "no"))
    ready(programs)
    assert len(programs.talker.calls) == 2  # there is no room for another one of the limited agent

    started = CallStarted(n=1, key="k", at="", pid=1, conversation="c", attempt=1, version="")
    programs.talker.calls[0].sink.emit(started)
    begin(programs, 4, "two")
    ready(programs)
    assert len(programs.talker.calls) == 2  # the first one works again

    programs.talker.calls[0].sink.done(AgentError("one", "no"))
    ready(programs)
    assert len(programs.talker.calls) == 3


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_limit_counts_if_the_program_gives_a_deadline(timeout_s: float | None) -> None:
    args = ThinkArgs(prompt="p", name="n", timeout_s=timeout_s)

    request = make_request(StartPrompt(1, "main", "k", 1, args), "r", "/")

    assert request.limits_count == (timeout_s is not None)


# The budget of the day.


@pytest.mark.parametrize("error", [AgentError("one", "no"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_a_call_that_cannot_begin_reserves_nothing_of_the_day(
    paid: TalkingPrograms, error: Exception
) -> None:
    paid.talker.error = error
    with pytest.raises(type(error)):
        begin(paid, 1)
    paid.talker.error = None

    begin(paid, 2)

    assert len(paid.talker.calls) == 1


@pytest.mark.requirement("an-unwritable-day-refuses-calls")
def test_a_call_is_refused_if_the_day_cannot_be_kept_and_the_error_names_the_file(
    paid: TalkingPrograms, tmp_path: Path
) -> None:
    (tmp_path / "state" / "bartack").mkdir(parents=True)
    (tmp_path / "state" / "bartack" / "spending").touch()

    with pytest.raises(AgentBudgetError, match=r"cannot be kept in .*/state/bartack/spending/.*\.json"):
        begin(paid, 1)

    assert paid.talker.calls == []


@pytest.mark.requirement("an-unwritable-day-refuses-calls")
def test_the_answer_of_a_call_counts_though_its_cost_cannot_be_kept(
    paid: TalkingPrograms, tmp_path: Path
) -> None:
    begin(paid, 1)
    folder = tmp_path / "state" / "bartack" / "spending"
    shutil.rmtree(folder)
    folder.touch()
    outcome = AgentError("one", "it failed")

    paid.talker.calls[0].sink.done(outcome)

    assert ready(paid) == [(1, outcome)]
    host = cast(QuietHost, paid._host)
    assert [text for text in host.shown if "cannot be kept in" in text and str(folder) in text]
