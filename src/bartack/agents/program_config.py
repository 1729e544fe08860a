"""The settings of agents that are programs, by kind. ``config.py`` reads them from ``bartack.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal, Self

import msgspec
from msgspec import Meta

from bartack.agents._permissions import Permissions
from bartack.agents.conversation._limits import Limits
from bartack.agents.protocol.messages import Role

PASSED: Final = ("PATH", "HOME", "LANG", "LC_*", "TZ", "TMPDIR", "SSL_CERT_FILE", "HTTPS_PROXY", "NO_PROXY")
"""Variables that every agent gets."""

FAR: Final = 1e9
"""The longest time, in seconds: thirty years."""
Seconds = Annotated[float, Meta(ge=0, le=FAR)]
Positive = Annotated[float, Meta(gt=0, le=FAR)]
Word = Annotated[str, Meta(pattern=r"\A[^\x00]*\Z", description="a text without a NUL character")]
"""What can be a word of a command line, or the value of a variable."""
DirectoryPath = Annotated[
    str, Meta(pattern=r"\A[^\x00]+\Z", description="the path of a directory, without a NUL character")
]
VariableName = Annotated[
    str, Meta(pattern=r"\A[^\x00=]+\Z", description="the name of a variable, without '=' in it")
]


class ProgramConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An agent that is a program: how it is started, how long it may take and how often it is asked.

    Attributes:
        command: The program and its arguments, word by word; a string is a program without arguments.
        roles: The roles it may play.
        env: Variables it gets.
        pass_env: Names of variables that are passed on to it, ``*`` standing for anything.
        start_s: How long it may take to write its first message.
        stall_s: How long it may make no progress; 0: for ever.
        timeouts: How long each action may take.
        retries: How often a command is tried.
        max_restarts: How often its process is started again within ``restart_window_s``.
        restart_window_s: See ``max_restarts``.
        backoff_initial_s: The longest wait before the second attempt.
        backoff_factor: By how much each further one is longer.
        backoff_max_s: The longest wait there is.
        cancel_grace_s: How long it may take to answer a cancel.
    """

    command: list[Word] | str
    roles: list[Role] = []
    env: dict[VariableName, Word] = {}
    pass_env: list[str] = []
    start_s: Positive = 60.0
    stall_s: Seconds = 300.0
    timeouts: dict[str, Positive] = {}
    retries: Annotated[int, Meta(ge=1)] = 3
    max_restarts: Annotated[int, Meta(ge=0)] = 5
    restart_window_s: Positive = 600.0
    backoff_initial_s: Seconds = 2.0
    backoff_factor: Annotated[float, Meta(ge=1, le=FAR)] = 2.0
    backoff_max_s: Seconds = 60.0
    cancel_grace_s: Seconds = 10.0

    @property
    def limits(self) -> Limits:
        """What a conversation with it has to respect."""
        names = set(Limits.__struct_fields__) & set(self.__struct_fields__)
        return Limits(**{name: getattr(self, name) for name in names})

    @property
    def argv(self) -> list[str]:
        """The words of the command."""
        return [self.command] if isinstance(self.command, str) else self.command

    def kept_at_most(self, idle_s: float) -> Self:
        """The same for an agent whose processes are not to be idle for longer than this."""
        return self

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What its process gets of our variables, and those of its own; no others."""
        names = (*PASSED, *self.pass_env)
        passed = {
            name: value
            for name, value in environ.items()
            if any(fnmatchcase(name, pattern) for pattern in names)
        }
        return {**passed, **self.env}


class NdjsonConfig(ProgramConfig, kw_only=True, tag_field="kind", tag="ndjson"):
    """A program that speaks the line protocol.

    Attributes:
        keep: Whether its process serves later commands, too.
        idle_stop_s: How long it is kept with nothing to do.
        heartbeat_s: How often it has to send a heartbeat; 0: never.
        missed_heartbeats: After how many missing heartbeats its process is stopped.
    """

    keep: bool = True
    idle_stop_s: Seconds = 300.0
    heartbeat_s: Seconds = 10.0
    missed_heartbeats: Annotated[int, Meta(ge=1)] = 3

    def kept_at_most(self, idle_s: float) -> Self:
        """See ``ProgramConfig.kept_at_most``."""
        return msgspec.structs.replace(self, idle_stop_s=min(self.idle_stop_s, idle_s))


Home = Literal["auto", "run", "user"]
"""``run``: the agent has a configuration directory in the run. ``user``: it uses that of the person who is logged in. ``auto``: the
first if a variable has a credential, else the second."""


class CliConfig(ProgramConfig, kw_only=True):
    """What the programs for coding have in common: Claude Code, Codex, and those that speak ACP.

    Attributes:
        model: The model it uses; empty: its own choice.
        permissions: What it may do.
        ask: Whether it may ask people.
        home: Where its configuration and its sessions are.
        min_version: An older version is refused; empty: the oldest that is known to work.
        tool_s: How long one of its own tools may run without a sign of progress.
        retry_s: How long it may do nothing but repeat its own requests.
        extra_dirs: Directories that it may use beside its working directory; relative ones begin in the workspace.
    """

    model: Word = ""
    extra_dirs: list[DirectoryPath] = []
    permissions: Permissions = Permissions()
    ask: bool = True
    home: Home = "auto"
    min_version: Annotated[str, Meta(pattern=r"\A([0-9]+(\.[0-9]+)*)?\Z", description="a version")] = ""
    cancel_grace_s: Seconds = 3.0
    tool_s: Seconds = 1800.0
    retry_s: Seconds = 600.0

    @property
    def limits(self) -> Limits:
        """See ``ProgramConfig.limits``: each attempt has a process of its own, and rate limits are waited for."""
        return msgspec.structs.replace(super().limits, keep=False, rate_limit_s=60.0)


SettingSource = Literal["user", "project", "local"]


def _claude_variables() -> list[str]:
    return ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL"]


def _project_only() -> list[SettingSource]:
    return ["project"]


class ClaudeConfig(CliConfig, kw_only=True, tag_field="kind", tag="claude"):
    """Claude Code.

    Attributes:
        command: The program; by default ``claude``, found on ``PATH`` or in the package ``claude_agent_sdk``.
        effort: How much effort the model makes; empty: its own choice.
        setting_sources: Which of its settings files it reads.
        background: Whether it may leave work in the background while it ends a turn.
        background_s: How long that work may take after the turn.
        disallowed_tools: Tools of its own that it does not get at all; by default those that outlive a step.
        plugin_dirs: Directories of plugins that it loads.
    """

    command: list[Word] | str = "claude"
    pass_env: list[str] = msgspec.field(default_factory=_claude_variables)
    effort: Word = ""
    setting_sources: list[SettingSource] = msgspec.field(default_factory=_project_only)
    background: bool = False
    background_s: Seconds = 600.0
    disallowed_tools: list[Word] | None = None
    plugin_dirs: list[Word] = []


def _codex_variables() -> list[str]:
    return ["OPENAI_API_KEY", "CODEX_API_KEY"]


class CodexConfig(CliConfig, kw_only=True, tag_field="kind", tag="codex"):
    """Codex, through its app server.

    Attributes:
        command: The program; by default ``codex``, found on ``PATH`` or in the package ``codex_cli_bin``.
        effort: How much effort the model makes; empty: its own choice.
        config: Settings of its own, each passed on as ``-c key=value``.
        pass_env: See ``ProgramConfig``; by default the variables by which it can be used without a login.
    """

    command: list[Word] | str = "codex"
    pass_env: list[str] = msgspec.field(default_factory=_codex_variables)
    effort: Word = ""
    config: dict[VariableName, str | int | float | bool] = {}


class AcpConfig(CliConfig, kw_only=True, tag_field="kind", tag="acp"):
    """A program that speaks the Agent Client Protocol, version 1."""


Usd = Annotated[float, Meta(ge=0, le=1e6)]


class Price(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a model costs: USD for a million tokens of each kind."""

    input: Usd = 0.0
    output: Usd = 0.0
    cache_read: Usd = 0.0
    cache_write: Usd = 0.0
