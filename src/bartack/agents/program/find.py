"""Where the program of an agent is: on ``PATH``, or in a package that carries it, which is never imported."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = {
    "claude": ("claude_agent_sdk", "_bundled/claude"),
    "codex": ("codex_cli_bin", "bin/codex"),
}
"""The package of each program, and its place in that."""


def find_program(program: str, workspace: Path, path: str) -> str:
    """Where a program is, as it would be started; empty if it is nowhere. A path with a slash is below the workspace."""
    if "/" in program:
        whole = workspace / program
        return str(whole) if whole.is_file() and os.access(whole, os.X_OK) else ""
    return shutil.which(program, path=path) or _in_package(program)


def explain_missing(agent: str, program: str, workspace: Path, path: str, install: Sequence[str] = ()) -> str:
    """Why a program is not there for ``find_program``, and what to do about it.

    Args:
        agent: The agent, for the name of the setting.
        program: What its command names.
        workspace: Where it would be started.
        path: The ``PATH`` it was looked for in.
        install: The ways to get it.
    """
    whole = workspace / program
    setting = f"set agents.{agent}.command in bartack.toml"
    if "/" not in program:
        ways = "".join(f"{way}, or " for way in install)
        return f"{program!r} is not found in PATH ({path or 'it is empty'}); {ways}{setting}"
    if whole.is_dir():
        return f"{program!r} is a directory, not a program; {setting}"
    if not whole.exists():
        return f"{program!r} does not exist (looked for {whole}); {setting}"
    return f"{program!r} is not executable; make it executable with chmod +x, or {setting}"


def _in_package(program: str) -> str:
    if program not in PACKAGES:
        return ""
    package, place = PACKAGES[program]
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return ""
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = (os.path.join(folder, place) for folder in folders)
    return next((whole for whole in found if os.path.isfile(whole) and os.access(whole, os.X_OK)), "")
