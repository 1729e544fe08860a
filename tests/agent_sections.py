"""The section ``agents`` of settings, for tests: read as a whole, or refused with the first thing that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping

from bartack.agents.config import AgentsConfig, examine_agents
from bartack.core.flaws import dotted
from bartack.errors import AgentConfigError, ConfigError


def read_agents(table: Mapping[str, object]) -> AgentsConfig:
    """Read the section ``agents``.

    Raises:
        ConfigError: A key is unknown, or has a value that cannot be used.
        AgentConfigError: A secret is written down in it.
    """
    reading = examine_agents(table)
    for flaw in reading.flaws:
        raise ConfigError(dotted(flaw.path), flaw.problem)
    for name, flaw in reading.secrets:
        raise AgentConfigError(name, flaw.problem)
    return reading.config
