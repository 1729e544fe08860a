"""Scripted agents in the hub: their transcripts have the lines that those of programs have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from bartack.config.load import load_config
from bartack.errors import AgentError
from bartack.runtime.hub.agents.programs import Programs
from bartack.runtime.hub.agents.prompts import Prompts
from bartack.runtime.kernel.actions import StartPrompt
from bartack.runtime.kernel.tools import ToolCall
from bartack.runtime.protocol.steps import ThinkArgs, ThinkOutcome, UsageFacts
from bartack.telemetry import Telemetry
from bartack.testing import VirtualClock

CONFIG = '[agents.ann]\nkind = "scripted"\nscript = "ann.json"\n'
INTEGER: dict[str, object] = {"type": "integer"}

Rule = dict[str, object]


class Talk:
    """One scripted agent in a hub, and what its transcript has."""

    def __init__(self, place: Path, rules: list[Rule]) -> None:
        (place / "bartack.toml").write_text(CONFIG)
        (place / "ann.json").write_text(json.dumps({"prompts": rules}))
        config = load_config(place)
        self.clock = VirtualClock()
        self.folder = place / "run" / "agents"
        self.published: list[str] = []
        telemetry = Telemetry()
        telemetry.attach("test", "agent.*", lambda event, _numbers, _facts, _: self.published.append(event))
        self.programs = Programs(
            config,
            folder=self.folder,
            workspace=str(place),
            environment={"BARTACK_RUN": "r"},
            environ={"SHOP_TOKEN": "tomato-soup"},
            telemetry=telemetry,
        )
        scripted = config.open_scripted(place, place / "run")
        self.prompts = Prompts(scripted, "ann", str(place), clock=self.clock, programs=self.programs)

    def ask(self, **options: object) -> None:
        args = msgspec.convert({"prompt": "count", "name": "count", **options}, type=ThinkArgs)
        self.prompts.start(StartPrompt(1, "main", "k1", 1, args))

    def ready(self) -> object:
        (event,) = self.prompts.take_ready()
        return event.what

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "ann/transcript.ndjson").read_text().splitlines()]

    def events(self) -> list[str]:
        return [str(line["event"]).removeprefix("agent.") for line in self.lines()]


Begin = Callable[..., Talk]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    (tmp_path / "run").mkdir()
    return lambda *rules: Talk(tmp_path, list(rules))


@pytest.mark.requirement("scripted-agents-have-transcripts")
def test_a_reply_is_in_the_transcript_with_its_text_and_what_it_used(begin: Begin) -> None:
    talk = begin(
        {"text": "the key is tomato-soup", "delay_s": 2.0, "usd": 0.25, "tokens": {"input": 5, "output": 2}}
    )
    talk.ask()
    assert talk.events() == ["started", "text"]
    talk.clock.advance(2.0)
    outcome = talk.ready()

    assert isinstance(outcome, ThinkOutcome)
    assert (outcome.tokens, outcome.usage) == (
        7,
        UsageFacts(input_tokens=5, output_tokens=2, turns=1, cost_usd=0.25),
    )
    started, text, usage, finished = talk.lines()
    assert (started["key"], started["n"], started["attempt"], started["version"]) == ("k1", 1, 1, "scripted")
    assert "tomato" not in str(text["text"])
    assert usage["usage"] == {"input_tokens": 5, "output_tokens": 2, "turns": 1, "cost_usd": 0.25}
    assert (finished["reason"], finished["duration_s"], finished["n"]) == ("completed", 2.0, 4)
    assert talk.published == ["agent.started", "agent.text", "agent.usage", "agent.finished"]


def test_a_tool_that_the_agent_calls_is_in_the_transcript(begin: Begin) -> None:
    talk = begin({"text": "done", "call": [{"tool": "look", "arguments": {"at": "a.txt"}}]})
    talk.ask(tools=[{"name": "look"}])
    call = talk.ready()
    assert isinstance(call, ToolCall)
    talk.clock.advance(0.5)
    talk.prompts.answer(1, call.request, b"1", "")
    talk.ready()

    _, called, ended, *_ = talk.lines()
    assert (called["tool"], called["phase"], called["input"]) == ("look", "started", '{"at":"a.txt"}')
    assert (ended["id"], ended["phase"], ended["duration_s"]) == (called["id"], "finished", 0.5)
    assert talk.events() == ["started", "tool", "tool", "text", "usage", "finished"]


def test_a_reply_that_has_to_be_repaired_is_two_replies(begin: Begin) -> None:
    talk = begin({"text": "many", "usd": 0.1}, {"pattern": "not valid|integer", "text": "3", "usd": 0.2})
    talk.ask(schema=INTEGER)
    outcome = talk.ready()

    assert isinstance(outcome, ThinkOutcome)
    assert outcome.usage is not None
    assert (outcome.turns, outcome.usage.turns) == (2, 2)
    assert talk.events() == ["started", "text", "retry", "text", "usage", "finished"]
    assert talk.lines()[2]["code"] == "invalid_reply"


def test_an_agent_that_is_rate_limited_is_asked_again_in_the_same_call(begin: Begin) -> None:
    talk = begin(
        {"fail": {"outcome": "rate_limited", "message": "slow down", "until_s": 60}}, {"text": "done"}
    )
    talk.ask()
    talk.ready()
    talk.clock.advance(60.0)
    talk.prompts.take_ready()

    assert talk.events() == ["started", "rate_limit", "started", "text", "usage", "finished"]
    assert [line["attempt"] for line in talk.lines() if line["event"] == "agent.started"] == [1, 2]
    assert talk.lines()[1]["error"] == "slow down"


def test_a_call_that_fails_or_is_cancelled_ends_in_the_transcript(begin: Begin) -> None:
    talk = begin({"fail": {"message": "no credit"}}, {"text": "late", "delay_s": 60.0})
    talk.ask()
    assert isinstance(talk.ready(), AgentError)
    talk.prompts.start(StartPrompt(2, "main", "k2", 1, ThinkArgs(prompt="count", name="count")))
    talk.prompts.stop(2)
    talk.prompts.take_ready()

    assert [(line["key"], line["reason"]) for line in talk.lines() if line["event"] == "agent.finished"] == [
        ("k1", "AgentError"),
        ("k2", "AgentError"),
    ]
