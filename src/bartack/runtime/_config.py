"""The settings of a project, from ``bartack.toml`` at the top of the workspace. Every key is optional."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Literal, cast

import msgspec

from bartack.agents import AgentsConfig, ProtocolConfig, ScriptedAgent, ScriptedConfig, read_agents
from bartack.errors import ConfigError
from bartack.runtime._timeouts import DEFAULTS

FILE = "bartack.toml"


class BudgetConfig(msgspec.Struct, forbid_unknown_fields=True):
    """Money."""

    max_usd: float | None = None
    reserve_usd: float = 2.0


class Config(msgspec.Struct, forbid_unknown_fields=True, rename={"directory": "state_dir"}):
    """All settings."""

    agents: AgentsConfig = msgspec.field(default_factory=AgentsConfig)
    protocol: ProtocolConfig = msgspec.field(default_factory=ProtocolConfig)
    budget: BudgetConfig = msgspec.field(default_factory=BudgetConfig)
    timeouts: dict[str, float] = {}
    durability: Literal["power", "process"] = "power"
    directory: str = ".bartack"
    """Where runs are kept."""

    @property
    def max_usd(self) -> float | None:
        """What a run may cost."""
        return self.budget.max_usd

    @property
    def reserve_usd(self) -> float:
        """What is reserved for a call before it is made."""
        return self.budget.reserve_usd

    @property
    def default_agent(self) -> str:
        """The agent that is asked when none is named."""
        return self.agents.default_name

    def state_dir(self, workspace: Path) -> Path:
        """Where the runs of a workspace are."""
        return workspace / os.environ.get("BARTACK_STATE_DIR", self.directory)

    def open_scripted(self, workspace: Path, run_dir: Path) -> dict[str, ScriptedAgent]:
        """The agents that answer prompts from a script, in the process of the hub.

        Raises:
            ScriptError: A script cannot be read.
        """
        opened: dict[str, ScriptedAgent] = {}
        for name, agent in self.agents.named.items():
            if isinstance(agent, ScriptedConfig):
                folder = run_dir / "agents" / name
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                opened[name] = ScriptedAgent.load(
                    workspace / agent.script, name=name, memory=folder / "used.json"
                )
        return opened


def load_config(workspace: Path) -> Config:
    """The settings of a workspace; the defaults if it has none.

    Raises:
        ConfigError: A setting is unknown or has an unusable value.
        AgentConfigError: A secret is written down.
    """
    file = workspace / FILE
    if not file.is_file():
        return Config()
    try:
        table = tomllib.loads(file.read_text("utf-8"))
        agents = table.pop("agents", {})
        config = msgspec.convert(table, type=Config)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(FILE, str(error)) from None
    if not isinstance(agents, dict):
        raise ConfigError(f"{FILE}: agents", "it is no table")
    config.agents = read_agents(cast("dict[str, object]", agents), f"{FILE}: agents")
    unknown = sorted(set(config.timeouts) - set(DEFAULTS))
    if unknown:
        raise ConfigError(
            f"{FILE}: timeouts.{unknown[0]}", f"there is no such limit (there are: {', '.join(DEFAULTS)})"
        )
    return config
