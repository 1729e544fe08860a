"""The settings of a project, from ``bartack.toml`` at the top of the workspace. Every key is optional."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from bartack.agents import ScriptedAgent
from bartack.errors import ConfigError, MailboxNameError
from bartack.messaging import LetterPolicy, check_name
from bartack.runtime._office import Bounds
from bartack.runtime._timeouts import DEFAULTS

FILE = "bartack.toml"


class AgentConfig(msgspec.Struct, forbid_unknown_fields=True):
    """One agent."""

    kind: Literal["scripted"] = "scripted"
    script: str = ""


class BudgetConfig(msgspec.Struct, forbid_unknown_fields=True):
    """Money."""

    max_usd: float | None = None
    reserve_usd: float = 2.0


class TelemetryConfig(msgspec.Struct, forbid_unknown_fields=True):
    """Who is told what happens."""

    otel: bool = False
    """Make spans and metrics of everything, for OpenTelemetry."""


class Config(msgspec.Struct, forbid_unknown_fields=True, rename={"directory": "state_dir"}):
    """All settings."""

    agents: dict[str, AgentConfig | str] = {}
    """Agents by name, and ``default``: the one that is asked when none is named."""
    budget: BudgetConfig = msgspec.field(default_factory=BudgetConfig)
    timeouts: dict[str, float] = {}
    mailboxes: dict[str, Bounds] = {}
    """The bounds of mailboxes, by name."""
    dead_letters: LetterPolicy = LetterPolicy()
    telemetry: TelemetryConfig = msgspec.field(default_factory=TelemetryConfig)
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
        """The agent that is asked when none is named: the one that is said to be, else the only one."""
        named = self.agents.get("default")
        if isinstance(named, str):
            return named
        names = [name for name, agent in self.agents.items() if isinstance(agent, AgentConfig)]
        return names[0] if len(names) == 1 else ""

    def state_dir(self, workspace: Path) -> Path:
        """Where the runs of a workspace are."""
        return workspace / os.environ.get("BARTACK_STATE_DIR", self.directory)

    def open_agents(self, workspace: Path, run_dir: Path) -> dict[str, ScriptedAgent]:
        """The agents that are configured.

        Raises:
            ScriptError: A script cannot be read.
        """
        opened: dict[str, ScriptedAgent] = {}
        for name, agent in self.agents.items():
            if isinstance(agent, AgentConfig):
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
    """
    file = workspace / FILE
    if not file.is_file():
        return Config()
    try:
        config = msgspec.convert(tomllib.loads(file.read_text("utf-8")), type=Config)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(FILE, str(error)) from None
    unknown = sorted(set(config.timeouts) - set(DEFAULTS))
    if unknown:
        raise ConfigError(
            f"{FILE}: timeouts.{unknown[0]}", f"there is no such limit (there are: {', '.join(DEFAULTS)})"
        )
    for name, bounds in config.mailboxes.items():
        _check_mailbox(name, bounds)
    return config


def _check_mailbox(name: str, bounds: Bounds) -> None:
    try:
        check_name(name)
    except MailboxNameError as error:
        raise ConfigError(f"{FILE}: mailboxes.{name}", error.reason) from None
    if bounds.capacity < 1 or bounds.max_bytes < 1:
        raise ConfigError(f"{FILE}: mailboxes.{name}", "capacity and max_bytes must be at least 1")
