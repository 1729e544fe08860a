"""The environment of a program: with which versions it was started, and what a node needs to install them.

A run records versions when it is created. ``RunCreated.environment_rule`` decides what they are for where the run continues:

- ``same``: other versions are noted.
- ``strict``: other versions are refused.
- ``uv``: ``pyproject.toml`` and ``uv.lock`` of the project are kept with the program, and nodes install what the lock names.
  ``node/_environments.py`` does that. Where no node runs the run, other versions are noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from bartack._version import __version__
from bartack.core.accounts import Account
from bartack.errors import ConfigError, EnvironmentMismatchError
from bartack.runtime.program.pin import read_sources

Rule = Literal["same", "strict", "uv"]
LOCK: Final = "uv.lock"
PROJECT: Final = "pyproject.toml"
_SETTING: Final = "bartack.toml: run.environment"
_PYTHON: Final = "python:"
_CREDENTIAL: Final = re.compile(rb"[a-z+]://[^/\s\"'@:]*:[^/\s\"'@]+@")


def installed_version(name: str) -> str:
    """The version of a package that this process can import; empty if it has none."""
    match name:
        case "python":
            import platform  # noqa: PLC0415 - a run that begins here is not compared with anything

            return platform.python_version()
        case "bartack":
            return __version__
        case _:
            from importlib import metadata  # noqa: PLC0415 - likewise

            try:
                return metadata.version(name)
            except (metadata.PackageNotFoundError, ValueError):
                return ""


def find_differences(recorded: Mapping[str, str]) -> tuple[str, ...]:
    """How the environment of this process differs from versions that were recorded, for people."""
    found = {name: installed_version(name) for name in recorded}
    return tuple(
        f"{name} is {here} and was {recorded[name]}" if here else f"{name} {recorded[name]} is not installed"
        for name, here in sorted(found.items())
        if here != recorded[name]
    )


def check_environment(run_id: str, recorded: Mapping[str, str]) -> None:
    """Raise unless this process has the versions that a run has recorded.

    Raises:
        EnvironmentMismatchError: It has others.
    """
    differences = find_differences(recorded)
    if differences:
        raise EnvironmentMismatchError(run_id, differences)


def labels_of(rule: Rule, recorded: Mapping[str, str]) -> list[str]:
    """The labels that a node must have to continue a run with these versions: others than its Python would be refused there.

    Nodes have ``python:3.11`` by themselves. Which packages they have, they find out when they begin the run.
    """
    version = recorded.get("python", "")
    return [python_label(version)] if rule == "strict" and version else []


def python_label(version: str) -> str:
    """The label of a node with this version of Python, of which the last part does not matter."""
    return f"{_PYTHON}{'.'.join(version.split('.')[:2])}"


def is_of_version(label: str) -> bool:
    """Whether it is a label for a version of Python."""
    return label.startswith(_PYTHON)


def read_lock(rule: Rule, root: Path, account: Account | None = None) -> dict[str, bytes]:
    """The files from which uv makes the environment of a project, by their names; none unless the rule is ``uv``.

    Args:
        rule: What the versions of a run are for.
        root: The root of the project.
        account: See ``read_sources``.

    Raises:
        ConfigError: One of them is missing, or has a password in it.
        ProgramImportError: One of them cannot be read.
    """
    if rule != "uv":
        return {}
    missing = [name for name in (PROJECT, LOCK) if not (root / name).is_file()]
    if missing:
        problem = (
            f"'uv' needs {PROJECT} and {LOCK} in {root}, and there is no {missing[0]}; run 'uv lock' there"
        )
        raise ConfigError(_SETTING, problem)
    files = read_sources([PROJECT, LOCK], root, account)
    for name, content in files.items():
        if _CREDENTIAL.search(content):
            problem = (
                f"{root / name} has a URL with a password, which would be kept with the run; remove it, and let each node have its "
                "own (UV_INDEX_NAME_PASSWORD, or a netrc file)"
            )
            raise ConfigError(_SETTING, problem)
    return files
