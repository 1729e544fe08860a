"""Git is started in one way: with the options and variables of ``core/git.py``, whichever part of Bartack starts it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/bartack"
STARTERS = {
    "cli/demo/_project.py",
    "cli/project/doctor/_doctor.py",
    "cli/project/doctor/_project.py",
    "core/git_shield.py",
    "pipeline/worktree/_git.py",
    "pipeline/snapshot/listing.py",
    "runtime/copies/_git.py",
}
"""The files that start git; each has to use the one command line and the one environment."""
GIT = re.compile(r"""["']git["']|find_git""")
"""The word in quotes, or the finder: a file that has neither starts no git."""


def calls(tree: ast.AST) -> set[str]:
    """The plain names of everything that is called."""
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def names_git(tree: ast.AST) -> bool:
    """Whether git is looked for, or is the first word of a command line."""
    for node in ast.walk(tree):
        first: ast.expr | None = None
        if isinstance(node, ast.List) and node.elts:
            first = node.elts[0]
        elif isinstance(node, ast.Call) and node.args:
            named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0] if named in {"which", "run", "Popen"} else None
        if isinstance(first, ast.Constant) and first.value == "git":
            return True
    return False


@pytest.mark.requirement("git-starts-nothing")
def test_git_is_started_in_one_way() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    trees = {
        str(path.relative_to(SOURCE)): ast.parse(text) for path, text in texts.items() if GIT.search(text)
    }
    trees.pop("core/git.py")

    assert {name for name, tree in trees.items() if "find_git" in calls(tree)} == STARTERS
    for name in STARTERS:
        assert {"git_command", "git_environment"} <= calls(trees[name]), name
    assert {name for name, tree in trees.items() if names_git(tree)} == set()


def test_a_command_line_that_begins_with_git_is_seen() -> None:
    assert names_git(ast.parse('subprocess.run(["git", "status"])'))
    assert names_git(ast.parse('shutil.which("git")'))
    assert not names_git(ast.parse('source = "git"'))
