"""What is known of the programs for coding before they are started: versions, credentials, logins, and how they are installed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bartack.agents.program_config import ClaudeConfig, CliConfig, CodexConfig


class CliFacts(NamedTuple):
    """See the module.

    Attributes:
        oldest: The oldest version that is known to work.
        tested: The version that Bartack is tested with.
        credentials: Variables with a credential, each of which is enough.
        home: The variable that names the directory of its configuration, and that directory below the home of a user.
        login: The file in it that a login leaves.
        install: How people get it.
        instructions: Files of a project that it reads, the first that is there.
    """

    oldest: str = ""
    tested: str = ""
    credentials: tuple[str, ...] = ()
    home: tuple[str, str] = ("", "")
    login: str = ""
    install: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ("AGENTS.md",)


CLAUDE: Final = CliFacts(
    oldest="2.1.248",
    tested="2.1.325",
    credentials=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    home=("CLAUDE_CONFIG_DIR", ".claude"),
    login=".credentials.json",
    install=('install it with pip install "bartack[claude-cli]"', "use the installer of Claude Code"),
    instructions=("CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md"),
)
CODEX: Final = CliFacts(
    oldest="0.150.0",
    tested="0.163.0",
    credentials=("OPENAI_API_KEY", "CODEX_API_KEY"),
    home=("CODEX_HOME", ".codex"),
    login="auth.json",
    install=('install it with pip install "bartack[codex-cli]"', "use the installer of Codex"),
)
OTHER: Final = CliFacts(install=("install it as its documentation says",))

_VERSION: Final = re.compile(r"\d+(?:\.\d+)+")


def facts_of(config: CliConfig) -> CliFacts:
    """What is known of the program of an agent."""
    match config:
        case ClaudeConfig():
            return CLAUDE
        case CodexConfig():
            return CODEX
        case _:
            return OTHER


def read_version(text: str) -> str:
    """The version in what a program prints; empty if there is none."""
    found = _VERSION.search(text)
    return found[0] if found else ""


def is_older(version: str, than: str) -> bool:
    """Whether a version comes before another one."""
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def credentials_in(facts: CliFacts, environ: Mapping[str, str]) -> list[str]:
    """The variables that have a credential. Their values are never shown."""
    return [name for name in facts.credentials if environ.get(name)]


def login_of(facts: CliFacts, environ: Mapping[str, str]) -> Path | None:
    """The file that a login has left; ``None`` if there is none."""
    home = home_of(facts, environ)
    if home is None or not facts.login:
        return None
    path = home / facts.login
    return path if path.is_file() else None


def home_of(facts: CliFacts, environ: Mapping[str, str]) -> Path | None:
    """Where it keeps its configuration and its sessions for a user; of an unknown program, the home of the user."""
    variable, below = facts.home
    given = environ.get(variable) if variable else ""
    if given:
        return Path(given)
    return Path(environ["HOME"], below) if environ.get("HOME") else None


def find_unwritable(place: Path) -> str:
    """Why no file can be made in a directory, or in one that is still to be made; empty if one can. It leaves no trace."""
    try:
        found = next(folder for folder in (place, *place.parents) if folder.exists())
        if not found.is_dir():
            return f"{found} is not a directory"
        if found == place:
            with tempfile.TemporaryFile(dir=place):
                return ""
    except OSError as error:
        return error.strerror or str(error)
    return "" if os.access(found, os.W_OK | os.X_OK) else f"{found} is not writable"


def read_in_project(config: CliConfig, workspace: Path) -> list[str]:
    """What the program reads in a project besides its prompt: each in words."""
    if isinstance(config, ClaudeConfig) and "project" not in config.setting_sources:
        return ["it does not read the instructions and settings of the project"]
    names = facts_of(config).instructions
    read = [f"it reads {name}" for name in names if (workspace / name).is_file()][:1]
    settings = ".claude/settings.json"
    if isinstance(config, ClaudeConfig) and (workspace / settings).is_file():
        read.append(f"it reads {settings}, which may name hooks")
    return read
