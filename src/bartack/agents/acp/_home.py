"""The environment of an agent that speaks ACP, and where its configuration and its sessions are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bartack.agents.program_config import AcpConfig
from bartack.core.redact import is_secret_name
from bartack.core.trust import make_private

HOME: Final = "home"
"""The directory of a conversation that is the home of its agent."""

HOME_VARIABLES: Final = {
    "CLAUDE_CONFIG_DIR": "",
    "CODEX_HOME": "",
    "GEMINI_CLI_HOME": "",
    "XDG_CONFIG_HOME": "config",
    "XDG_DATA_HOME": "data",
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
}
"""Variables by which the agents that are known find their configuration and sessions, each with its place below the home."""

QUIET: Final = {
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "MCP_TOOL_TIMEOUT": "86400000",
    "ENABLE_TOOL_SEARCH": "false",
}
"""What makes the agents that are known work for a run: our tools are offered at once and may take long, and nothing updates itself.
Settings of the agent win."""

SHELLS: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")


def agent_environment(config: AcpConfig, environ: Mapping[str, str], home: Path | None) -> dict[str, str]:
    """All variables of an agent, beside those of its call. ``home``: its own home; without one, that of the user."""
    own = {} if home is None else {name: str(home / place) for name, place in HOME_VARIABLES.items()}
    shell = next((path for path in SHELLS if os.access(path, os.X_OK)), "")
    return {**({"SHELL": shell} if shell else {}), **QUIET, **own, **config.environment(environ)}


def choose_home(config: AcpConfig, environ: Mapping[str, str], folder: Path) -> Path | None:
    """The home of a conversation; ``None``: that of the user. What was chosen once is kept."""
    home = folder / HOME
    if config.home == "run" or (config.home == "auto" and (home.is_dir() or _has_secret(config, environ))):
        return home
    return None


def make_home(home: Path, parent: Path | None = None) -> None:
    """Make a home; the one of a conversation that is continued is copied into it."""
    if parent is not None and parent.is_dir() and not home.exists():
        shutil.copytree(parent, home, symlinks=True)
    make_private(home)


def _has_secret(config: AcpConfig, environ: Mapping[str, str]) -> bool:
    """Whether a credential is passed on to the agent in a variable."""
    return any(is_secret_name(name) for name in config.environment(environ))
