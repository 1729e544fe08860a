"""The guard of a project, from its ``bartack.toml``: read without any library, because a hook has no time for one."""

from __future__ import annotations

import os
from typing import Final

from bartack.agents.guard._places import STATE
from bartack.agents.guard.guard import Guard
from bartack.agents.guard.policy import GuardPolicy, PolicyFlawError, read_policy

SETTINGS: Final = "bartack.toml"
_OF_OTHERS: Final = 0o002


def find_project(start: str) -> str:
    """The nearest directory upwards that has settings or a git repository; else the directory itself.

    The home directory, and one in which other users can make files, is a project only for who starts there.
    """
    here = first = os.path.realpath(start)
    home = os.path.realpath(os.path.expanduser("~"))
    while True:
        if os.path.isfile(os.path.join(here, SETTINGS)) or os.path.exists(os.path.join(here, ".git")):
            return here
        above = os.path.dirname(here)
        if above in {here, home} or _is_shared(above):
            return first
        here = above


def _is_shared(folder: str) -> bool:
    try:
        return bool(os.stat(folder).st_mode & _OF_OTHERS)
    except OSError:
        return True


def open_guard(root: str, cwd: str = "", vital: tuple[str, ...] = ()) -> tuple[Guard, str]:
    """The guard of a project, and its state directory. ``vital``: further directories that must not be deleted.

    Raises:
        PolicyFlawError: The settings cannot be read, another user can change them, or the policy in them cannot be used.
    """
    policy, state_dir = _settings(os.path.join(root, SETTINGS))
    return Guard(policy, root, cwd=cwd, state_dir=state_dir, vital=vital), os.path.join(root, state_dir)


def _settings(file: str) -> tuple[GuardPolicy, str]:
    try:
        with open(file, "rb") as opened:
            facts = os.fstat(opened.fileno())
            text = opened.read().decode("utf-8")
    except FileNotFoundError:
        return GuardPolicy(), STATE
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyFlawError(SETTINGS, f"it cannot be read ({type(error).__name__})") from None
    if facts.st_uid not in {0, os.geteuid()} or facts.st_mode & _OF_OTHERS:
        raise PolicyFlawError(SETTINGS, "another user can change it")
    table = _parsed(text)
    state_dir = table.get("state_dir", STATE)
    if not isinstance(state_dir, str) or not state_dir.strip() or "\0" in state_dir:
        raise PolicyFlawError("state_dir", "it is not a path")
    return read_policy(table.get("guard", {})), state_dir


def _parsed(text: str) -> dict[str, object]:
    import tomllib  # noqa: PLC0415 - a project without settings does not need it

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyFlawError(SETTINGS, f"it is not TOML ({error})") from None
