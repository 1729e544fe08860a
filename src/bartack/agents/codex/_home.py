"""The directory in which Codex keeps its settings and its threads: one for each conversation in the run, or that of the user."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bartack.agents.program_config import CodexConfig
from bartack.core.files import write_file
from bartack.core.trust import make_private

CREDENTIALS: Final = ("OPENAI_API_KEY", "CODEX_API_KEY")
"""Variables by which Codex can be used without a login."""
HOME: Final = "home"
SESSIONS: Final = "sessions"


class CodexHome(NamedTuple):
    """Where it is, and whether it is the run's own."""

    path: Path
    is_own: bool
    credential: str = ""
    """The key by which Codex is to log in there, for one process. It is kept in memory only."""

    def hint(self, name: str) -> str:
        """Where the credentials of an agent were looked for."""
        names = " and ".join(CREDENTIALS)
        return f"its home is {self.path}; {names} were looked for, as agents.{name}.pass_env names them"

    def variables(self) -> dict[str, str]:
        """What Codex finds it by. ``SHELL`` is the one whose commands can be read."""
        bash = shutil.which("bash")
        return {"CODEX_HOME": str(self.path), **({"SHELL": bash} if bash else {})}


def codex_home(config: CodexConfig, environ: Mapping[str, str], folder: Path) -> CodexHome:
    """The home for a conversation, whose directory is ``folder``; made if it is the run's own.

    A conversation that has begun in the run stays there, whatever the variables are now.
    """
    own = folder / HOME
    passed = config.environment(environ)
    credential = next((passed[name] for name in CREDENTIALS if passed.get(name)), "")
    if config.home == "run" or (config.home == "auto" and (credential or own.is_dir())):
        make_private(own)
        return CodexHome(own, is_own=True, credential=credential)
    return CodexHome(user_home(environ), is_own=False)


def user_home(environ: Mapping[str, str]) -> Path:
    """The home of the person who is logged in."""
    given = environ.get("CODEX_HOME")
    return Path(given) if given else Path(environ.get("HOME", "/")) / ".codex"


def find_rollouts(home: Path, thread: str) -> list[Path]:
    """The files of a thread."""
    return sorted(home.glob(pattern_of(thread)))


def pattern_of(thread: str) -> str:
    """Where the files of a thread are, seen from a home."""
    return f"{SESSIONS}/*/*/*/rollout-*{thread}.jsonl"


def bring_rollout(parent: Path, home: Path, thread: str) -> None:
    """Copy the file of a thread from one home to another: Codex finds threads in its own home only."""
    for found in find_rollouts(parent, thread):
        place = home / found.relative_to(parent)
        if not place.exists():
            make_private(place.parent)
            write_file(place, found.read_bytes())
