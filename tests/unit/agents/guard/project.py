"""A project for the tests of the guard: directories, links, a home directory that is not that of the tester."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bartack.agents.guard.guard import Guard
from bartack.agents.guard.policy import GuardPolicy, read_policy
from bartack.agents.guard.verdict import GuardVerdict
from bartack.agents.tool_use import ToolUse


class Project(NamedTuple):
    """Where the project and the home directory are."""

    root: Path
    home: Path

    def guard(self, settings: dict[str, object] | None = None) -> Guard:
        """The guard of the project, with some settings."""
        policy = read_policy(settings) if settings else GuardPolicy()
        return Guard(policy, str(self.root), home=str(self.home))

    def judge(self, command: str, *, strict: bool = False, **settings: object) -> GuardVerdict:
        """The verdict about a command in the root of the project."""
        return self.guard(settings).judge(ToolUse.of_command(command), strict=strict)


def make_project(base: Path) -> Project:
    """Make the project."""
    home = base.resolve() / "home"
    root = home / "work/project"
    for folder in (
        "build/cache",
        "logs",
        "sub",
        "src/__pycache__",
        ".git/objects",
        ".git/hooks",
        ".claude",
        "secrets",
    ):
        (root / folder).mkdir(parents=True)
    for name in ("notes.txt", "file.txt", ".env", "secrets/key", "README.md", "src/a.py"):
        (root / name).write_text("x", encoding="utf-8")
    (root / "to-root").symlink_to("/")
    (root / "to-home").symlink_to(home)
    return Project(root, home)
