from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent_sections import read_agents

from bartack.agents.config import ScriptedConfig
from bartack.agents.doctor.doctor import check_agents
from bartack.agents.program_config import NdjsonConfig
from bartack.errors import AgentConfigError, ConfigError

STUB: dict[str, object] = {"kind": "ndjson", "command": ["stub", "--fast"]}


def test_agents_are_read_with_their_defaults() -> None:
    config = read_agents(
        {"default": "stub", "stub": STUB, "scripted": {"script": "a.toml", "roles": ["reviewer"]}}
    )

    stub, scripted = config.named["stub"], config.named["scripted"]
    assert isinstance(stub, NdjsonConfig)
    assert isinstance(scripted, ScriptedConfig)
    assert stub.argv == ["stub", "--fast"]
    assert (stub.keep, stub.idle_stop_s, stub.start_s, stub.heartbeat_s) == (True, 300.0, 60.0, 10.0)
    assert (stub.missed_heartbeats, stub.stall_s, stub.retries, stub.max_restarts) == (3, 300.0, 3, 5)
    assert (stub.restart_window_s, stub.cancel_grace_s) == (600.0, 10.0)
    assert (stub.backoff_initial_s, stub.backoff_factor, stub.backoff_max_s) == (2.0, 2.0, 60.0)
    assert config.default_name == "stub"
    assert config.for_role("reviewer") == ["scripted"]


@pytest.mark.parametrize(
    ("given", "kind"), [({"script": "a.toml"}, ScriptedConfig), ({"command": "stub"}, NdjsonConfig)]
)
def test_the_kind_need_not_be_written_where_it_is_clear(given: dict[str, object], kind: type) -> None:
    config = read_agents({"someone": given})

    assert isinstance(config.named["someone"], kind)
    assert config.default_name == "someone"


@pytest.mark.parametrize(
    ("table", "setting", "hint"),
    [
        ({"stub": {**STUB, "stal_s": 1}}, "agents.stub.stal_s", "did you mean 'stall_s'"),
        ({"stub": {**STUB, "colour": 1}}, "agents.stub.colour", "there are: command"),
        ({"stub": {"kind": "ndjso", "command": "x"}}, "agents.stub.kind", "did you mean 'ndjson'"),
        ({"stub": {}}, "agents.stub.kind", "no such kind"),
        ({"timeout": 3}, "agents.timeout", "did you mean 'timeout_s'"),
        ({"stub": STUB, "default": "stab"}, "agents.default", "did you mean 'stub'"),
        ({"stub": {**STUB, "timeouts": {"reviw": 3}}}, "agents.stub.timeouts.reviw", "did you mean 'review'"),
        ({"stub": {"kind": "ndjson", "command": []}}, "agents.stub.command", "empty"),
        ({"stub": {"kind": "ndjson"}}, "agents.stub.command", "missing"),
        ({"stub": {**STUB, "stall_s": -1}}, "agents.stub.stall_s", ">= 0"),
        ({"stub": {**STUB, "retries": 0}}, "agents.stub.retries", ">= 1"),
        ({"stub": {**STUB, "roles": ["boss"]}}, "agents.stub.roles[0]", "boss"),
        ({"scripted": {"script": ""}}, "agents.scripted.script", "path"),
        ({"timeout_s": "long"}, "agents.timeout_s", "float"),
    ],
)
@pytest.mark.requirement("settings-of-agents-are-checked")
def test_what_cannot_be_used_is_named_with_what_was_meant(
    table: dict[str, object], setting: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_agents(table)

    assert caught.value.setting == setting
    assert hint in caught.value.message


@pytest.mark.requirement("settings-of-agents-are-checked")
def test_a_secret_is_not_written_down() -> None:
    with pytest.raises(AgentConfigError, match="pass_env"):
        read_agents({"stub": {**STUB, "env": {"API_KEY": "x"}}})


def test_deadlines_go_by_action_then_by_agent() -> None:
    config = read_agents({"stub": {**STUB, "timeouts": {"review": 5}}, "timeout_s": 77})

    assert config.deadline_s("stub", "review") == 5
    assert config.deadline_s("stub", "implement") == 3600
    assert config.deadline_s("stub", "prompt") == 77
    assert config.deadline_s("stub", "something") == 77


def test_what_is_missing_is_found_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "bad.toml").write_text("versoin = 1")
    config = read_agents(
        {
            "here": {"command": "./tool", "pass_env": ["NOT_SET"]},
            "gone": {"command": "no-such-program"},
            "bad": {"script": "bad.toml"},
            "unread": {"script": "gone.toml"},
        }
    )

    reports = {report.name: report for report in check_agents(config, tmp_path, {"PATH": "/usr/bin"})}

    assert [name for name, report in reports.items() if report.usable] == ["here"]
    assert reports["here"].notes == ["NOT_SET is not set"]
    assert "agents.gone.command" in reports["gone"].problems[0]
    assert "versoin" in reports["bad"].problems[0]
    assert [report.name for report in check_agents(config, tmp_path, {}, ["bad"])] == ["bad"]
