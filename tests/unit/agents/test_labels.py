"""Labels by which runs find nodes that have their agents."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.agents.doctor.test_coding import fake

from bartack.agents.config import AgentConfig, AgentsConfig, ScriptedConfig
from bartack.agents.labels import find_labels, needed_labels
from bartack.agents.program_config import AcpConfig, ClaudeConfig, CodexConfig, NdjsonConfig


@pytest.mark.requirement("agent-labels")
def test_a_run_needs_the_programs_of_its_agents_whatever_they_are_called() -> None:
    named: dict[str, AgentConfig] = {
        "builder": ClaudeConfig(),
        "reviewer": ClaudeConfig(model="opus"),
        "second": CodexConfig(),
    }

    assert needed_labels(AgentsConfig(named=named), ["builder", "reviewer"]) == ["agent:claude"]
    assert needed_labels(AgentsConfig(named=named), [*named]) == ["agent:claude", "agent:codex"]


def test_programs_that_may_be_anywhere_need_no_label() -> None:
    named: dict[str, AgentConfig] = {
        "claude": ClaudeConfig(command=["./tools/claude"]),
        "scripted": ScriptedConfig(script="agent.toml"),
        "lines": NdjsonConfig(command=["agent"]),
        "gemini": AcpConfig(command=["gemini", "--acp"]),
    }

    assert needed_labels(AgentsConfig(named=named), [*named]) == []


@pytest.mark.requirement("agent-labels")
def test_a_machine_has_the_labels_of_agents_that_can_be_used_there(tmp_path: Path) -> None:
    programs, seat = tmp_path / "bin", tmp_path / "seat"
    programs.mkdir()
    environ = {"PATH": str(programs), "HOME": str(tmp_path)}
    fake(programs, "claude")
    fake(programs, "codex")

    assert find_labels(seat, environ) == [], "neither is logged in"
    assert find_labels(seat, {**environ, "ANTHROPIC_API_KEY": "key"}) == ["agent:claude"]
    both = {**environ, "ANTHROPIC_API_KEY": "key", "CODEX_API_KEY": "key"}
    assert find_labels(seat, both) == ["agent:claude", "agent:codex"]
