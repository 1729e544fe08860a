"""The command line of Codex: its app server, with the settings that it always gets and those of the agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bartack.agents.program_config import CodexConfig

ALWAYS: Final = ("features.plugins=false", "features.apps=false", "analytics.enabled=false")
"""Settings without which Codex asks servers of the network for lists before it ends."""
IN_MEMORY: Final = ('cli_auth_credentials_store="ephemeral"',)
"""A credential that it logs in with is not written down."""


def command_line(
    program: str, config: CodexConfig, more: Iterable[str] = (), *, logs_in: bool = False
) -> list[str]:
    """The words of the command.

    Args:
        program: Where the program is.
        config: The settings of the agent.
        more: Further settings of Codex, as ``key=value``; those of the agent win.
        logs_in: It is logged in with a credential, for this process only.
    """
    own = (f"{key}={toml(value)}" for key, value in config.config.items())
    settings = [*ALWAYS, *(IN_MEMORY if logs_in else ()), *more, *own]
    return [program, *config.argv[1:], "app-server", *(word for one in settings for word in ("-c", one))]


def toml(value: str | float | bool) -> str:
    """A value as the settings of Codex have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    escaped = "".join(_escape(letter) for letter in value)
    return f'"{escaped}"'


def _escape(letter: str) -> str:
    if letter in {'"', "\\"}:
        return f"\\{letter}"
    return f"\\u{ord(letter):04x}" if ord(letter) < 32 or ord(letter) == 127 else letter
