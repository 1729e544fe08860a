"""Labels by which runs find nodes that have their agents: ``agent:claude``, ``agent:codex``.

They name the programs, whatever a project calls its agents. A program that a project names by a path may be anywhere, and agents of
other kinds too: for these a run needs what its settings say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from bartack.agents.config import AgentsConfig
from bartack.agents.program_config import ClaudeConfig, CodexConfig

PREFIX: Final = "agent:"


def needed_labels(config: AgentsConfig, names: Iterable[str]) -> list[str]:
    """The labels that a machine must have for these agents, as far as that can be known elsewhere.

    Args:
        config: The agents of a project.
        names: Which of them a run may ask.
    """
    agents = [config.named[name] for name in names]
    kinds = {
        str(type(agent).__struct_config__.tag): agent.argv
        for agent in agents
        if isinstance(agent, ClaudeConfig | CodexConfig)
    }
    return sorted(f"{PREFIX}{kind}" for kind, argv in kinds.items() if argv == [kind])


def find_labels(place: Path, environ: Mapping[str, str]) -> list[str]:
    """The labels of this machine: of the agents that could be used here, as ``bartack agents doctor`` finds out.

    Args:
        place: A directory of ours, in which there are no programs.
        environ: The variables that agents get some of.
    """
    from bartack.agents.doctor.doctor import check_agents  # noqa: PLC0415 - only nodes look for all agents

    config = AgentsConfig(named={"claude": ClaudeConfig(), "codex": CodexConfig()})
    return [f"{PREFIX}{report.name}" for report in check_agents(config, place, environ) if report.usable]
