"""Which agents a project has: the section ``agents`` of ``bartack.toml``. An unknown key is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, NamedTuple, cast

import msgspec
from msgspec import Meta

from bartack.agents._permissions import Permissions
from bartack.agents._written_secrets import find_secrets
from bartack.agents.program_config import (
    AcpConfig,
    ClaudeConfig,
    CodexConfig,
    NdjsonConfig,
    Positive,
    Price,
    ProgramConfig,
    Seconds,
)
from bartack.agents.protocol.messages import DEADLINES_S, Role
from bartack.core import typed
from bartack.core.flaws import Flaw, KeyPath, find_flaws, unknown_name

PROMPT_S: Final = 3600.0
"""How long a prompt may take by default."""


class ScriptedConfig(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="scripted"
):
    """An agent whose replies are written down.

    Attributes:
        script: The file with them.
        roles: The roles it may play.
        permissions: What it may do to files.
    """

    script: Annotated[str, Meta(pattern=r"\A[^\x00]+\Z", description="the path of a file")]
    roles: list[Role] = []
    permissions: Permissions = Permissions()


AgentConfig = ScriptedConfig | NdjsonConfig | ClaudeConfig | CodexConfig | AcpConfig

KINDS: Final[dict[str, type[AgentConfig]]] = {
    "scripted": ScriptedConfig,
    "ndjson": NdjsonConfig,
    "claude": ClaudeConfig,
    "codex": CodexConfig,
    "acp": AcpConfig,
}
"""The kinds of agents there are, and the settings of each."""


class ProtocolConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The section ``protocol``: how many bad lines are accepted.

    Attributes:
        max_violations: More lines than this that cannot be used end an attempt.
        suspect_grace_s: How long an answer may be missing after a line that may have been it.
    """

    max_violations: Annotated[int, Meta(ge=0)] = 20
    suspect_grace_s: Seconds = 30.0


class AgentsConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The section ``agents``: what holds for all of them, and each by its name."""

    default: str = ""
    timeout_s: Positive = PROMPT_S
    max_parallel: Annotated[int, Meta(ge=1)] = 8
    """At most this many calls of programs are under way at a time; those that wait for a tool do not count."""
    prices: dict[str, Price] = {}
    """What models cost, by the beginning of their names; they come before the prices that are built in."""
    named: dict[str, AgentConfig] = {}

    @property
    def default_name(self) -> str:
        """The agent that is asked when none is named: the configured default, else the only agent."""
        return self.default or (next(iter(self.named)) if len(self.named) == 1 else "")

    @property
    def limits(self) -> dict[str, float]:
        """How long a prompt may take, if that is set."""
        return {} if self.timeout_s == PROMPT_S else {"prompt": self.timeout_s}

    @property
    def prompt_limits(self) -> dict[str, float]:
        """The same for each agent that has a limit of its own."""
        agents = self.named.items()
        own = {name: agent.timeouts for name, agent in agents if isinstance(agent, ProgramConfig)}
        return {name: timeouts["prompt"] for name, timeouts in own.items() if "prompt" in timeouts}

    def for_role(self, role: Role) -> list[str]:
        """The agents that list a role."""
        return [name for name, agent in self.named.items() if role in agent.roles]

    def deadline_s(self, name: str, action: str) -> float:
        """How long an action of an agent may take."""
        agent = self.named.get(name)
        if isinstance(agent, ProgramConfig) and action in agent.timeouts:
            return agent.timeouts[action]
        return self.timeout_s if action == "prompt" else DEADLINES_S.get(action, self.timeout_s)


GENERAL: Final = ("default", "timeout_s", "max_parallel", "prices")
"""Keys of the section that are not agents."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""The names of agents: they are names of directories, too."""


class AgentsReading(NamedTuple):
    """What a section ``agents`` has that can be used, and everything that is wrong with it.

    Attributes:
        config: What can be used.
        flaws: What is wrong.
        secrets: Secrets that are written down, each with its agent.
    """

    config: AgentsConfig
    flaws: list[Flaw]
    secrets: list[tuple[str, Flaw]]


def examine_agents(table: Mapping[str, object], path: KeyPath = ("agents",)) -> AgentsReading:
    """Read the section ``agents`` with everything that is wrong with it. ``path`` is where it is."""
    general = {key: table[key] for key in GENERAL if key in table}
    flaws = list(find_flaws(general, AgentsConfig, path))
    reading = AgentsReading(AgentsConfig() if flaws else typed.convert(general, AgentsConfig), flaws, [])
    for name, given in table.items():
        if name not in GENERAL:
            _examine(name, given, reading, (*path, name))
    default = general.get("default")
    if isinstance(default, str) and default and default not in table:
        agents = [name for name in table if name not in GENERAL]
        flaws.append(unknown_name((*path, "default"), default, agents, "there is no such agent"))
    return reading


def agent_settings(table: Mapping[str, object]) -> Iterator[KeyPath]:
    """Every setting that a section ``agents`` may have: those of all agents, and those of each that is in it."""
    yield from (("agents", key) for key in GENERAL)
    for name, given in table.items():
        if name not in GENERAL and isinstance(given, Mapping):
            agent = cast("Mapping[str, object]", given)
            kind = agent.get("kind") or _kind_of(name, agent)
            wanted = KINDS.get(kind) if isinstance(kind, str) else None
            if wanted is not None:
                yield from (("agents", name, key) for key in ("kind", *wanted.__struct_encode_fields__))


def _examine(name: str, given: object, reading: AgentsReading, path: KeyPath) -> None:
    if not isinstance(given, Mapping):
        reading.flaws.append(unknown_name(path, name, GENERAL, "an agent is a table"))
        return
    table = cast("Mapping[str, object]", given)
    kind = table.get("kind") or _kind_of(name, table)
    wanted = KINDS.get(kind) if isinstance(kind, str) else None
    flaws = list(_flaws_of_name(name, path))
    if wanted is None:
        problem = "there is no such kind of agent"
        flaws.append(unknown_name((*path, "kind"), str(kind), list(KINDS), problem))
        known = list(dict.fromkeys(key for other in KINDS.values() for key in other.__struct_encode_fields__))
        strange = [key for key in table if key not in known and key != "kind"]
        flaws += [unknown_name((*path, key), key, known, "there is no such key") for key in strange]
    else:
        foreign = _keys_of_other_kinds(table, wanted)
        own = {key: value for key, value in table.items() if key not in foreign}
        flaws += [Flaw((*path, key), problem) for key, problem in foreign.items()]
        flaws += find_flaws({**own, "kind": kind}, wanted, path)
    if not flaws and wanted is not None:
        agent = typed.convert({**table, "kind": kind}, type=wanted)
        flaws += _flaws_of(agent, path) if isinstance(agent, ProgramConfig) else _flaws_of_script(agent, path)
        reading.config.named[name] = agent
    reading.flaws.extend(flaws)
    reading.secrets.extend((name, flaw) for flaw in find_secrets(table, path))


def _flaws_of_name(name: str, path: KeyPath) -> Iterator[Flaw]:
    if not _NAME.fullmatch(name) or name.endswith("."):
        yield Flaw(
            path,
            "the name of an agent is up to 64 letters, digits and '.', '_', '-', a letter or digit first",
        )


def _kind_of(name: str, given: Mapping[str, object]) -> str:
    """The kind of an agent without the key: its name is a kind, or only one kind has its other keys."""
    if name in KINDS:
        return name
    return "scripted" if "script" in given else "ndjson" if "command" in given else name


def _keys_of_other_kinds(table: Mapping[str, object], wanted: type[AgentConfig]) -> dict[str, str]:
    """The keys that this kind of agents does not have and another one has, each with what is wrong about it."""
    own, found = str(wanted.__struct_config__.tag), dict[str, str]()
    for key in table:
        others = [kind for kind, config in KINDS.items() if key in config.__struct_encode_fields__]
        if key != "kind" and key not in wanted.__struct_encode_fields__ and others:
            kinds = " and ".join(repr(kind) for kind in others)
            found[key] = f"it is a setting of agents of kind {kinds}, and this one is of kind {own!r}"
    return found


def _flaws_of_script(agent: ScriptedConfig, path: KeyPath) -> Iterator[Flaw]:
    if agent.permissions.mode == "ask" and agent.permissions.on_ask == "question":
        problem = 'a scripted agent cannot ask a person; with mode = "ask" it has to be "deny"'
        yield Flaw((*path, "permissions", "on_ask"), problem)


def _flaws_of(agent: ProgramConfig, path: KeyPath) -> Iterator[Flaw]:
    if not agent.argv or not all(agent.argv[:1]):
        yield Flaw((*path, "command"), "it is empty; give the program and its arguments as a list")
    if any("\0" in word for word in agent.argv):
        yield Flaw((*path, "command"), "it has a NUL character in it")
    for action in agent.timeouts:
        if action not in DEADLINES_S:
            yield unknown_name((*path, "timeouts", action), action, list(DEADLINES_S), "no such action")
