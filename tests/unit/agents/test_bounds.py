"""What agents may not do, see or fill: tools they cannot call, limits that others set, secrets of others, disks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.unit.agents.loop import Loop
from tests.unit.agents.stage import ANSWERS, Stage, request_for

from bartack.agents import AgentRequest, AgentResult
from bartack.agents import _transcript as transcript
from bartack.agents.config import ProtocolConfig
from bartack.agents.contract import AgentEvent, CallFinished, CallNotice, CallRateLimit, CallRetry
from bartack.agents.ndjson.agent import open_line_agent, program_config
from bartack.agents.process.process import Host
from bartack.agents.program._agent import ProgramAgent
from bartack.agents.program.adapter import Surroundings
from bartack.agents.protocol.ids import moment
from bartack.agents.protocol.lines import BadLine, Read, read_line, write_line
from bartack.agents.protocol.messages import Abilities, Command, Hello, ToolSpec
from bartack.core.clock import SystemClock
from bartack.core.redact import SecretRule
from bartack.errors import AgentCapabilityError, ArtifactMismatchError

SECRETS = SecretRule()
TOOL = ToolSpec("do_1", "does it", {"type": "object"})
SILENT = {"inject": [{"do": "hang", "heartbeats": True, "times": 0, "at": "start"}], "times": 0}


def hello(*, tools: bool) -> Hello:
    return Hello(protocol=[1], name="stub", version="1", capabilities=Abilities(tools=tools))


def introduced(tmp_path: Path, *, tools: bool, request: AgentRequest) -> Stage:
    """An agent that got a command and then said whether it can call tools."""
    stage = Stage(tmp_path, {"responses": {"implement": SILENT}})
    stage.begin(request)
    while stage.process is None or not stage.heard:
        stage.turn()
    stage.hear(read_line(write_line(hello(tools=tools)).rstrip(b"\n")))
    stage._reap()
    return stage


@pytest.mark.requirement("tools-are-not-forced-on-agents")
def test_an_agent_that_says_it_cannot_call_tools_is_refused_where_there_are_some(tmp_path: Path) -> None:
    stage = introduced(tmp_path, tools=False, request=request_for("implement", tmp_path, tools=[TOOL]))

    assert isinstance(stage.outcome, AgentCapabilityError)
    assert stage.process is None
    assert len(stage.sent) == 1


@pytest.mark.parametrize(("tools", "needed"), [(True, [TOOL]), (False, [])])
def test_an_agent_that_can_do_what_is_needed_goes_on(
    tmp_path: Path, needed: list[ToolSpec], *, tools: bool
) -> None:
    stage = introduced(tmp_path, tools=tools, request=request_for("implement", tmp_path, tools=needed))

    assert stage.outcome is None
    assert stage.process is not None


def test_an_agent_that_said_so_before_is_not_even_sent_the_command(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": {"events": [ANSWERS["implement"]]}}})
    stage.result(request_for("implement", tmp_path))
    assert stage.process is not None
    stage.process.link.take_hello(hello(tools=False))

    outcome = stage.ask(request_for("implement", tmp_path, key="ik:" + "0" * 64, tools=[TOOL]))

    assert isinstance(outcome, AgentCapabilityError)
    assert len([message for message in stage.sent if isinstance(message, Command)]) == 1


def test_the_moment_of_a_limit_is_told_before_it_is_waited_for(tmp_path: Path) -> None:
    resets = moment(Stage(tmp_path, {"responses": {}}).clock.now_us() + 120_000_000)
    limited = {"error": {"code": "rate_limited", "message": "slow down", "resets_at": resets}}
    script: dict[str, object] = {"responses": {"implement": [limited, {"events": [ANSWERS["implement"]]}]}}
    stage = Stage(tmp_path, script, config={"retries": 1})

    stage.result(request_for("implement", tmp_path))

    [told] = [event for event in stage.events if isinstance(event, CallRateLimit)]
    assert (told.status, told.resets_at, told.error) == ("rate_limited", resets, "slow down")


# Transcripts.


def quiet(tmp_path: Path, secrets: SecretRule = SECRETS) -> ProgramAgent[Read]:
    """An agent that is never started."""
    around = Surroundings(
        run={}, folder=tmp_path / "agents", environ={}, protocol=ProtocolConfig(), secrets=secrets
    )
    host = cast("Host", SimpleNamespace(clock=SystemClock()))  # nothing is started
    return open_line_agent("stub", program_config(["stub"]), host, around)


def lines_of(tmp_path: Path) -> list[dict[str, object]]:
    text = (tmp_path / "agents" / "stub" / "transcript.ndjson").read_text()
    return [json.loads(line) for line in text.splitlines()]


def notice(n: int) -> AgentEvent:
    return CallNotice(key="k", at="2026-01-01T00:00:00Z", n=n, level="info", text="x" * 100)


def test_a_transcript_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "TRANSCRIPT_BYTES", 10_000)
    agent = quiet(tmp_path)

    for n in range(1, 1001):
        agent.transcript.add(notice(n))
    agent.transcript.add(
        CallFinished(key="k", at="2026-01-01T00:00:00Z", n=1001, reason="completed", duration_s=1)
    )
    left_out = agent.transcript.take_left_out()
    agent.close()

    told = lines_of(tmp_path)
    assert told[-1]["event"] == "agent.finished"
    assert 50 < len(told) < 80
    assert left_out == 1001 - len(told)
    assert agent.transcript.take_left_out() == 0


def test_a_transcript_that_is_full_stays_so_for_the_next_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "TRANSCRIPT_BYTES", 1000)
    for _ in range(3):
        agent = quiet(tmp_path)
        for n in range(1, 101):
            agent.transcript.add(notice(n))
        agent.close()

    assert len(lines_of(tmp_path)) < 12


# Secrets.


@pytest.mark.requirement("unknown-secrets-are-hidden")
def test_whatever_stands_behind_a_secret_name_is_hidden_also_if_nobody_knows_it(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    log = {
        "kind": "log",
        "level": "warn",
        "message": "DEPLOY_TOKEN=tok-4711 used",
        "timestamp": "2026-01-01T00:00:00Z",
    }
    code = (
        f"import sys; sys.stderr.write('login DB_PASSWORD=hunter2 ok\\n'); sys.stderr.flush(); "
        f"print({json.dumps(log)!r}, flush=True); sys.exit(3)"
    )
    agent = loop.agent([sys.executable, "-S", "-c", code], retries=1)

    loop.ask(agent, request_for("implement", tmp_path))

    for each in loop.agents:
        each.close()
    loop.keeper.close()
    kept = {path.name: path.read_bytes() for path in (tmp_path / "agents").rglob("*") if path.is_file()}
    assert b"login DB_PASSWORD=*** ok" in kept["stderr.txt"]
    assert b"DEPLOY_TOKEN=*** used" in kept["transcript.ndjson"]
    assert [name for name, content in kept.items() if b"hunter2" in content or b"tok-4711" in content] == []
    assert [text for text in loop.warnings if "tok-4711" in text] == []


def test_settings_decide_which_names_are_secret(tmp_path: Path) -> None:
    plain = quiet(tmp_path)
    told = quiet(tmp_path, secrets=SecretRule(("LOGIN",), ("PUBLIC_KEY",), 8))

    line = b"LOGIN=anna PUBLIC_KEY=abc API_KEY=def"

    assert plain.redact(line) == b"LOGIN=anna PUBLIC_KEY=*** API_KEY=***"
    assert told.redact(line) == b"LOGIN=*** PUBLIC_KEY=abc API_KEY=***"


def test_an_agent_knows_the_trace_that_it_works_in(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    report = tmp_path / "env.json"
    code = f"import json, os; json.dump(dict(os.environ), open({str(report)!r}, 'w'))"
    trace = f"00-{'1' * 32}-{'2' * 16}-01"

    for wanted in (trace, ""):
        agent = loop.agent([sys.executable, "-S", "-c", code], retries=1)
        request = msgspec.structs.replace(request_for("implement", tmp_path), trace=wanted)
        loop.ask(agent, request)
        agent.close()
        assert json.loads(report.read_text()).get("TRACEPARENT", "") == wanted
        os.unlink(report)
    loop.keeper.close()


# Waits and restarts.

CRASH = {"inject": [{"do": "crash", "at": "start", "times": 0}], "times": 0}


def delays(tmp_path: Path, **config: object) -> list[float]:
    """How long is waited before each further attempt, on average."""
    busy = {"error": {"code": "overloaded"}, "times": 0}
    stage = Stage(tmp_path, {"responses": {"implement": busy}}, config={"retries": 4, **config})
    stage.ask(request_for("implement", tmp_path))
    return [event.delay_s for event in stage.events if isinstance(event, CallRetry)]


@pytest.mark.parametrize(
    ("config", "waits"),
    [
        ({}, [1.0, 2.0, 4.0]),
        ({"backoff_initial_s": 10.0}, [5.0, 10.0, 20.0]),
        ({"backoff_factor": 3.0}, [1.0, 3.0, 9.0]),
        ({"backoff_max_s": 3.0}, [1.0, 1.5, 1.5]),
        ({"retries": 2}, [1.0]),
    ],
)
def test_attempts_are_as_far_apart_as_the_settings_say(
    tmp_path: Path, config: dict[str, object], waits: list[float]
) -> None:
    assert delays(tmp_path, **config) == waits


@pytest.mark.parametrize(("window_s", "starts"), [(600.0, 2), (0.5, 4)])
def test_restarts_count_only_for_so_long(tmp_path: Path, window_s: float, starts: int) -> None:
    config: dict[str, object] = {
        "retries": 4,
        "max_restarts": 1,
        "restart_window_s": window_s,
        "backoff_initial_s": 8.0,
    }
    stage = Stage(tmp_path, {"responses": {"implement": CRASH}}, config=config)

    stage.ask(request_for("implement", tmp_path))

    assert stage.starts == starts


@pytest.mark.parametrize("grace_s", [5.0, 50.0])
def test_an_answer_that_cannot_be_used_is_waited_for_as_long_as_the_settings_say(
    tmp_path: Path, grace_s: float
) -> None:
    script: dict[str, object] = {"responses": {"implement": SILENT}}
    stage = Stage(tmp_path, script, protocol=ProtocolConfig(suspect_grace_s=grace_s))
    stage.begin(request_for("implement", tmp_path))
    while not stage.heard:
        stage.turn()

    stage.hear(BadLine("malformed", b'{"kind":"event"', 20, suspect=True, detail="no JSON"))
    while not any(isinstance(event, CallRetry) for event in stage.events):
        stage.turn()

    assert stage.now() == pytest.approx(grace_s, abs=0.5)


def test_a_file_that_is_larger_than_the_settings_allow_is_refused(tmp_path: Path) -> None:
    answer = {"type": "builder.completed", "artifacts": [{"path": "a.txt"}]}
    reply = {"write": [{"path": "a.txt", "content": "0123456789"}], "events": [answer]}
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"version": 1, "responses": {"implement": reply}}))
    loop = Loop(tmp_path)
    agent = loop.scripted(script, retries=1)

    whole = loop.ask(agent, request_for("implement", tmp_path))
    agent.surroundings = msgspec.structs.replace(agent.surroundings, max_artifact_bytes=5)
    refused = loop.ask(agent, request_for("implement", tmp_path, key="ik:" + "0" * 64))
    agent.close()
    loop.keeper.close()

    assert isinstance(whole, AgentResult)
    assert isinstance(refused, ArtifactMismatchError)
    assert "10 bytes, at most 5 are allowed" in refused.message
