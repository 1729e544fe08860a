"""The project of the demo: a small shop in a git repository of its own, and the scripts of three agents that add a feature to it.

The first change of the builder fails the tests, and the reviewer requests another one, so that every stage of the pipeline
is shown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec

from bartack.config.load import load_config
from bartack.config.problem import CONFIG_FILE
from bartack.core.git import find_git, git_command, git_environment
from bartack.errors import GitError, UsageError

TASK: Final = "discount"
TITLE: Final = "total() takes a discount"
GOAL: Final = (
    "total() in prices.py takes a discount in percent. Prices are in cents, and a customer pays whole cents: "
    "round down. Add tests."
)
BIN: Final = os.path.dirname(sys.executable)
"""Where the interpreter of the tests is; the first directory of ``PATH`` in the demo."""
TESTS: Final = (
    "python3" if shutil.which("python3", path=BIN) else sys.executable,
    "-B",
    "-m",
    "unittest",
    "-q",
)
PRICE_USD: Final = 0.12
"""What the script reports as the cost of each answer."""
LONGER_S: Final = 1.5
"""How much longer an agent works on an answer during which everything is killed."""

_BEFORE: Final = '''\
"""Prices of a small shop, in cents."""


def total(prices: list[int]) -> int:
    """Return what a customer pays."""
    return sum(prices)
'''
_HEAD: Final = '''\
"""Prices of a small shop, in cents."""


def total(prices: list[int], discount: int = 0) -> int:
    """Return what a customer pays, with a discount in percent."""
'''
_WRONG: Final = _HEAD + "    return sum(prices) * (100 - discount) / 100\n"
_RIGHT: Final = _HEAD + "    return sum(prices) * (100 - discount) // 100\n"
_SAFE: Final = (
    _HEAD
    + """\
    if not 0 <= discount <= 100:
        raise ValueError(f"a discount of {discount} percent")
    return sum(prices) * (100 - discount) // 100
"""
)
_TEST: Final = """\
import unittest

from prices import total


class Total(unittest.TestCase):
    def test_it_adds_up(self) -> None:
        self.assertEqual(total([100, 250]), 350)
"""
_TEST_DISCOUNT: Final = (
    _TEST
    + """
    def test_a_discount_leaves_whole_cents(self) -> None:
        self.assertEqual(total([999], discount=10), 899)
"""
)
_TEST_LIMITS: Final = (
    _TEST_DISCOUNT
    + """
    def test_no_customer_gets_money(self) -> None:
        with self.assertRaises(ValueError):
            total([999], discount=101)
"""
)
_SPEC: Final = """\
# Shop

## Status

{status}

## Scope

Prices of a small shop.

## Decisions

{decisions}

## Changelog

{changelog}
"""
_FILES: Final = {
    "prices.py": _BEFORE,
    "test_prices.py": _TEST,
    "SPEC.md": _SPEC.format(status="Prices are added up.", decisions="None.", changelog="None."),
    ".gitignore": ".bartack/\n__pycache__/\n",
}
_SPEC_AFTER: Final = _SPEC.format(
    status="Prices are added up, with a discount in percent.",
    decisions="A customer pays whole cents, rounded down.",
    changelog="total() takes a discount.",
)
_GIT: Final = {
    "user.name": "demo",
    "user.email": "demo@localhost",
    "commit.gpgsign": "false",
    "core.hooksPath": os.devnull,
}


def prepare(project: Path, scripts: Path, *, pause_s: float, agent: str | None, configured_in: Path) -> None:
    """Create the repository, with its settings and a first commit.

    Args:
        project: The directory of the repository.
        scripts: The directory for the scripts of the agents.
        pause_s: How long a scripted agent works on an answer.
        agent: The name of a configured agent that does the work instead.
        configured_in: The directory whose ``bartack.toml`` configures it.

    Raises:
        UsageError: There is no such agent.
    """
    project.mkdir()
    agents = _scripted(scripts, pause_s) if agent is None else _configured(agent, configured_in)
    files = {**_FILES, CONFIG_FILE: _settings(agents)}
    for name, text in files.items():
        (project / name).write_text(text, encoding="utf-8")
    git(project, "init", "--quiet", "--template=", "--initial-branch=main")
    for key, value in _GIT.items():
        git(project, "config", key, value)
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "A small shop")


def git(project: Path, *words: str) -> None:
    """Run git in the repository.

    Raises:
        GitError: It is not installed, or fails.
    """
    found = find_git()
    if found is None:
        raise GitError("git", "it is not installed, and the demo works in a git repository")
    done = subprocess.run(  # noqa: S603 - fixed words, without a shell
        git_command(found, words),
        cwd=project,
        env=git_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise GitError(f"git {words[0]}", done.stderr.strip())


def _settings(agents: Mapping[str, Mapping[str, object]]) -> str:
    """The settings of the project. A worktree of its own makes the work a branch that can be merged."""
    parts = [
        f"[tests]\ncommand = {_toml(TESTS)}\n",
        "[parallel]\ntasks = 2\n",
        f"[[tasks]]\nid = {_toml(TASK)}\ntitle = {_toml(TITLE)}\ngoal = {_toml(GOAL)}\n",
    ]
    for name, table in agents.items():
        lines = "".join(f"{_toml(key)} = {_toml(value)}\n" for key, value in table.items())
        parts.append(f"[agents.{_toml(name)}]\n{lines}")
    return "\n".join(parts)


def _toml(value: object) -> str:
    """Return a value as TOML writes it in one line; texts, numbers and lists are the same in JSON."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return "{" + ", ".join(f"{_toml(key)} = {_toml(below)}" for key, below in items) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_toml, cast("Sequence[object]", value))) + "]"
    return msgspec.json.encode(value).decode()


def _configured(name: str, place: Path) -> dict[str, dict[str, object]]:
    """The section of a configured agent, with all roles of the pipeline.

    Raises:
        ConfigError: The settings are invalid.
        UsageError: They have no such agent.
    """
    known = load_config(place).agents.named
    if name not in known:
        there = (
            f"has {', '.join(sorted(known))}"
            if known
            else "configures no agent; bartack init finds those of this machine"
        )
        raise UsageError("bartack demo", f"there is no agent {name!r}: {CONFIG_FILE} {there}")
    tables = cast(
        "dict[str, dict[str, object]]", tomllib.loads((place / CONFIG_FILE).read_text("utf-8"))["agents"]
    )
    return {
        name: {
            **_without_relative_paths(tables[name], place),
            "roles": ["builder", "reviewer", "spec_maintainer"],
        }
    }


def _without_relative_paths(table: Mapping[str, object], place: Path) -> dict[str, object]:
    """A section that means the same in another directory: its script and its program are named in full."""
    moved = dict(table)
    script, command = moved.get("script"), moved.get("command")
    if isinstance(script, str):
        moved["script"] = str(place.resolve() / script)
    if isinstance(command, list) and command and "/" in str(cast("list[object]", command)[0]):
        first, *rest = map(str, cast("list[object]", command))
        moved["command"] = [str(place.resolve() / first), *rest]
    return moved


def _scripted(scripts: Path, pause_s: float) -> dict[str, dict[str, object]]:
    """Write the scripts of three agents, and return their sections."""
    scripts.mkdir()
    found: dict[str, dict[str, object]] = {}
    for name, responses in _responses(pause_s).items():
        script = scripts / f"{name}.json"
        script.write_bytes(msgspec.json.encode({"version": 1, "responses": responses}))
        found[name] = {"kind": "scripted", "script": str(script), "roles": [name]}
    return found


def _responses(pause_s: float) -> dict[str, dict[str, object]]:
    finding = {
        "path": "prices.py",
        "line": 6,
        "message": "a discount above 100 percent pays the customer: refuse it",
    }
    requested = {"status": "changes_requested", "payload": {"findings": [finding]}}
    fixed = _built(_RIGHT, _TEST_DISCOUNT, pause_s + LONGER_S, "the tests want whole cents: rounding down")
    again = "the limits are checked, and tested; looking for anything else"
    approved = _answer("review.completed", pause_s + LONGER_S, again, status="approved")
    return {
        "builder": {
            "implement": _built(_WRONG, _TEST_DISCOUNT, pause_s, "reading prices.py, then its tests"),
            "implement_changes": [
                {**fixed, "when": {"cause": "tests"}, "times": 0},
                {**_built(_SAFE, _TEST_LIMITS, pause_s, "refusing discounts above 100 percent"), "times": 0},
            ],
        },
        "reviewer": {
            "review": [
                {
                    **_answer(
                        "review.completed", pause_s, "what if the discount is 200 percent?", **requested
                    ),
                    "when": {"round": 1},
                    "times": 0,
                },
                {**approved, "times": 0},
            ]
        },
        "spec_maintainer": {
            "update_spec": {
                **_answer("spec.updated", pause_s, "writing the decision into SPEC.md"),
                "write": [{"path": "SPEC.md", "content": _SPEC_AFTER}],
            }
        },
    }


def _built(code: str, tests: str, pause_s: float, says: str) -> dict[str, object]:
    files = {"prices.py": code, "test_prices.py": tests}
    answer = _answer(
        "builder.completed",
        pause_s,
        says,
        payload={"tests": {"status": "pass"}},
        artifacts=[{"path": path} for path in files],
    )
    return {**answer, "write": [{"path": path, "content": text} for path, text in files.items()]}


def _answer(event: str, pause_s: float, says: str, **more: object) -> dict[str, object]:
    usage = {"turns": 1, "cost_usd": PRICE_USD}
    return {"says": says, "delay_s": pause_s, "events": [{"type": event, "usage": usage, **more}]}
