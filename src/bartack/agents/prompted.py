"""Which agents take actions, and which take prompts only. ``in_words.py`` has how those are given a command."""

from __future__ import annotations

from pathlib import Path

from bartack.agents.config import AgentConfig, ScriptedConfig
from bartack.agents.program_config import CliConfig
from bartack.agents.scripted._script import load_script
from bartack.agents.scripted.scripted import read_script


def takes_actions(name: str, agent: AgentConfig, workspace: Path) -> bool:
    """Whether an agent takes actions; one that does not gets a prompt instead.

    Programs that speak the line protocol do; programs for coding do not. A script does that has replies to actions, or no rules for
    prompts at all.

    Raises:
        ScriptError: Its script cannot be read.
    """
    if not isinstance(agent, ScriptedConfig):
        return not isinstance(agent, CliConfig)
    path = workspace / agent.script
    script = read_script(load_script(path, name), name, path)
    return bool(script.responses) or not script.prompts
