"""Which agents a project has: the section ``agents`` of ``bartack.toml``. A key that nobody knows is an error."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Final, TypeVar, cast

import msgspec
from msgspec import Meta

from bartack.agents._messages import DEADLINES_S, Role
from bartack.core import is_secret_name
from bartack.errors import AgentConfigError, ConfigError

PASSED: Final = ("PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR", "SSL_CERT_FILE", "HTTPS_PROXY", "NO_PROXY")
"""Variables that every agent gets."""

PROMPT_S: Final = 3600.0
"""How long a prompt may take where nobody says."""

Seconds = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


class ScriptedConfig(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="scripted"
):
    """An agent whose replies are written down.

    Attributes:
        script: The file with them.
        roles: The roles it may play.
    """

    script: Annotated[str, Meta(min_length=1)]
    roles: list[Role] = []


class NdjsonConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="ndjson"):
    """A program that speaks the line protocol.

    Attributes:
        command: The program and its arguments, word by word; a string is a program without arguments.
        roles: The roles it may play.
        env: Variables it gets.
        pass_env: Names of variables that are passed on to it, ``*`` standing for anything.
        keep: Whether its process serves later commands, too.
        idle_stop_s: How long it is kept with nothing to do.
        start_s: How long it may take to say its first word.
        heartbeat_s: How often it is to show that it lives; 0: never.
        missed_heartbeats: After how many of those it is given up.
        stall_s: How long it may live without getting on; 0: for ever.
        timeouts: How long each action may take.
        retries: How often a command is tried.
        max_restarts: How often its process is started again within ``restart_window_s``.
        restart_window_s: See there.
        backoff_initial_s: The longest wait before the second attempt.
        backoff_factor: By how much each further one is longer.
        backoff_max_s: The longest wait there is.
        cancel_grace_s: How long it may take to answer a cancel.
    """

    command: list[str] | str
    roles: list[Role] = []
    env: dict[str, str] = {}
    pass_env: list[str] = []
    keep: bool = True
    idle_stop_s: Seconds = 300.0
    start_s: Positive = 60.0
    heartbeat_s: Seconds = 10.0
    missed_heartbeats: Annotated[int, Meta(ge=1)] = 3
    stall_s: Seconds = 300.0
    timeouts: dict[str, Positive] = {}
    retries: Annotated[int, Meta(ge=1)] = 3
    max_restarts: Annotated[int, Meta(ge=0)] = 5
    restart_window_s: Positive = 600.0
    backoff_initial_s: Seconds = 2.0
    backoff_factor: Annotated[float, Meta(ge=1)] = 2.0
    backoff_max_s: Seconds = 60.0
    cancel_grace_s: Seconds = 10.0

    @property
    def argv(self) -> list[str]:
        """The words of the command."""
        return [self.command] if isinstance(self.command, str) else self.command

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What its process gets of our variables, and those of its own; no others."""
        names = (*PASSED, *self.pass_env)
        passed = {
            name: value
            for name, value in environ.items()
            if any(fnmatchcase(name, pattern) for pattern in names)
        }
        return {**passed, **self.env}


AgentConfig = ScriptedConfig | NdjsonConfig

KINDS: Final[dict[str, type[ScriptedConfig] | type[NdjsonConfig]]] = {
    "scripted": ScriptedConfig,
    "ndjson": NdjsonConfig,
}
"""The kinds of agents there are, and what can be said of each."""


class ProtocolConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The section ``protocol``: how much of bad lines is borne.

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
    """So many calls of programs are under way at a time; those that wait for a tool do not count."""
    named: dict[str, AgentConfig] = {}

    @property
    def default_name(self) -> str:
        """The agent that is asked when none is named: the one that is said to be, else the only one."""
        return self.default or (next(iter(self.named)) if len(self.named) == 1 else "")

    @property
    def limits(self) -> dict[str, float]:
        """How long a prompt may take, if somebody says."""
        return {} if self.timeout_s == PROMPT_S else {"prompt": self.timeout_s}

    @property
    def prompt_limits(self) -> dict[str, float]:
        """The same by agent, where one has a limit of its own."""
        agents = self.named.items()
        own = {name: agent.timeouts for name, agent in agents if isinstance(agent, NdjsonConfig)}
        return {name: timeouts["prompt"] for name, timeouts in own.items() if "prompt" in timeouts}

    def for_role(self, role: Role) -> list[str]:
        """The agents that list a role."""
        return [name for name, agent in self.named.items() if role in agent.roles]

    def deadline_s(self, name: str, action: str) -> float:
        """How long an action of an agent may take."""
        agent = self.named.get(name)
        if isinstance(agent, NdjsonConfig) and action in agent.timeouts:
            return agent.timeouts[action]
        return self.timeout_s if action == "prompt" else DEADLINES_S.get(action, self.timeout_s)


_GENERAL: Final = ("default", "timeout_s", "max_parallel")


def read_agents(table: Mapping[str, object], place: str = "agents") -> AgentsConfig:
    """Read the section ``agents``.

    Raises:
        ConfigError: A key is unknown, or has a value that cannot be used.
        AgentConfigError: A secret is written down in it.
    """
    general = {key: table[key] for key in _GENERAL if key in table}
    config = _convert(general, AgentsConfig, place)
    for name, given in table.items():
        if name not in _GENERAL:
            if not isinstance(given, Mapping):
                raise ConfigError(f"{place}.{name}", _unknown(name, _GENERAL, "an agent is a table"))
            config.named[name] = _read_agent(name, cast("Mapping[str, object]", given), f"{place}.{name}")
    if config.default and config.default not in config.named:
        raise ConfigError(
            f"{place}.default", _unknown(config.default, list(config.named), "there is no such agent")
        )
    return config


def _read_agent(name: str, given: Mapping[str, object], place: str) -> AgentConfig:
    kind = given.get("kind") or _kind_of(name, given)
    wanted = KINDS.get(kind) if isinstance(kind, str) else None
    if wanted is None:
        raise ConfigError(f"{place}.kind", _unknown(str(kind), list(KINDS), "there is no such kind of agent"))
    agent = _convert({**given, "kind": kind}, wanted, place)
    if isinstance(agent, NdjsonConfig):
        _check(name, agent, place)
    return agent


def _kind_of(name: str, given: Mapping[str, object]) -> str:
    """The kind of an agent that does not say: its name is one, or only one has what is said of it."""
    if name in KINDS:
        return name
    return "scripted" if "script" in given else "ndjson" if "command" in given else name


def _check(name: str, agent: NdjsonConfig, place: str) -> None:
    if not agent.argv or not all(agent.argv[:1]):
        raise ConfigError(f"{place}.command", "it is empty; give the program and its arguments as a list")
    for action in agent.timeouts:
        if action not in DEADLINES_S:
            raise ConfigError(
                f"{place}.timeouts.{action}", _unknown(action, list(DEADLINES_S), "no such action")
            )
    for variable in agent.env:
        if is_secret_name(variable):
            told = f"env.{variable} is a secret and must not be written down; name it in pass_env instead"
            raise AgentConfigError(name, told)


T = TypeVar("T", bound=ScriptedConfig | NdjsonConfig | AgentsConfig)


def _convert(given: Mapping[str, object], wanted: type[T], place: str) -> T:
    known = [field for field in msgspec.structs.fields(wanted) if field.name != "named"]
    names = [field.encode_name for field in known]
    for key in given:
        if key not in names and key != "kind":
            raise ConfigError(f"{place}.{key}", _unknown(key, names, "there is no such key"))
    try:
        return msgspec.convert(dict(given), type=wanted)
    except msgspec.ValidationError as error:
        raise ConfigError(place, str(error)) from None


def _unknown(given: str, known: list[str] | tuple[str, ...], problem: str) -> str:
    near = get_close_matches(given, known, 1)
    listed = f"there are: {', '.join(known)}" if known else "there are none"
    return f"{problem}; did you mean {near[0]!r}?" if near else f"{problem} ({listed})"
