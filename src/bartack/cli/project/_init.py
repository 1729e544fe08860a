"""``bartack init``: write a commented ``bartack.toml``, with ``--example`` all files of a first run. It overwrites nothing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

import click

from bartack.agents.program.find import find_program
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen
from bartack.config.problem import CONFIG_FILE
from bartack.core.files import replace_file
from bartack.core.git_shield import make_repository
from bartack.core.trust import check_private, make_private
from bartack.errors import UsageError

IGNORED: Final = ".bartack/"
SHARED_MODE: Final = 0o644
"""Permissions of the project's files: only their owner can write to them, independent of the umask."""
AGENTS: Final = ("claude", "codex")
"""Programs that are agents without further settings: each is a kind of agent of the same name."""


@click.command(short_help="Write a commented bartack.toml, or an example that runs at once.")
@click.option(
    "--example",
    is_flag=True,
    help="Also write a task and a scripted agent, so that 'bartack run' works at once.",
)
@click.option(
    "--ci",
    is_flag=True,
    help="Also write a workflow for GitHub Actions that checks programs and recorded runs.",
)
@click.option(
    "-C",
    "--workspace",
    default=".",
    metavar="DIR",
    help="Write to this directory, and create it if it is missing.",
)
@json_option
def init(workspace: str, *, example: bool, ci: bool, as_json: bool) -> None:
    """Write a commented bartack.toml, and keep .bartack/ out of git.

    The command detects the test command of the project. It does not overwrite existing files. The directory .bartack/ becomes a
    repository of its own, so that 'git clean' in the workspace does not remove it.
    """
    place = Path(workspace).resolve()
    if place.exists() and not place.is_dir():
        raise UsageError("bartack init", f"{place} is not a directory")
    place.mkdir(parents=True, exist_ok=True)
    done = [*_write_files(place, example=example, ci=ci), *_keep_out_of_git(place)]
    if as_json:
        write_json({"workspace": str(place), "done": done})
        return
    screen = Screen(sys.stdout)
    for line in done:
        screen.line(line)
    screen.line()
    for line in _next(place, example=example):
        screen.line(line)


def _next(place: Path, *, example: bool) -> list[str]:
    """The next command to type."""
    there = _mentions(place / CONFIG_FILE, EXAMPLE_TASK)
    if example and there:
        go = "" if place == Path.cwd() else f"cd {shlex.quote(str(place))} && "
        return [
            f"Try it: {go}bartack run",
            "Then:   bartack report says what was done, bartack web shows it in the browser.",
        ]
    if example:
        return [
            f"The example is not in your {CONFIG_FILE}: use --example in an empty directory (-C DIR), then bartack run"
        ]
    named = _named_agents(place)
    if named:
        are = "is" if len(named) == 1 else "are"
        return [
            f"Next: bartack agents doctor checks that {' and '.join(named)} {are} usable, without cost.",
            'Then:  bartack run --goal "Say what is to be done."',
        ]
    return [
        f'Next: name an agent in {CONFIG_FILE}, then bartack run --goal "…"',
        "To try the pipeline without a model first: bartack init --example -C DIR",
    ]


def _named_agents(place: Path) -> list[str]:
    """The agents in the settings, which may be older than this command; none if the settings cannot be read."""
    try:
        text = (place / CONFIG_FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return list(dict.fromkeys(re.findall(r"^\[agents\.([\w-]+)[\].]", text, re.MULTILINE)))


def _write_files(place: Path, *, example: bool, ci: bool) -> list[str]:
    found = find_test_command(place)
    files = {CONFIG_FILE: _config(place, example=example)}
    if example:
        files |= EXAMPLE
    if ci:
        files[WORKFLOW_FILE] = WORKFLOW
        (place / WORKFLOW_FILE).parent.mkdir(parents=True, exist_ok=True)
    done: list[str] = []
    for name, content in files.items():
        try:
            _write_new(place / name, content)
        except FileExistsError:
            done.append(f"{name} exists and was not changed")
        else:
            done.append(f"wrote {name}")
            if name == CONFIG_FILE and not example and not found:
                done.append(
                    f"found no test command: set tests.command in {CONFIG_FILE}, or the agent's test results are accepted unchecked"
                )
    return done


def _write_new(path: Path, content: str) -> None:
    """Write a file that does not exist yet, not even as a link. Only its owner can write to it, or it would be refused."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, SHARED_MODE)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(content)


def _keep_out_of_git(place: Path) -> list[str]:
    ignore = place / ".gitignore"
    lines = ignore.read_text("utf-8").splitlines() if ignore.is_file() else []
    done: list[str] = []
    if ignore.is_symlink():
        done.append(f".gitignore is a symbolic link and was not changed; add {IGNORED} to it")
    elif IGNORED not in lines and IGNORED.rstrip("/") not in lines:
        mode = ignore.stat().st_mode & 0o777 if ignore.exists() else SHARED_MODE
        replace_file(ignore, ("\n".join([*lines, IGNORED]) + "\n").encode(), mode=mode)
        done.append(f"added {IGNORED} to .gitignore")
    folder = place / ".bartack"
    check_private(folder)
    make_private(folder)
    if not (folder / ".git").exists() and make_repository(str(folder)):
        done.append("made .bartack/ a repository of its own, so that 'git clean' does not remove it")
    return done


def find_test_command(place: Path) -> list[str]:
    """Guess the test command of a project; empty if there is no evidence."""
    if _mentions(place / "Makefile", "\ntest:"):
        return ["make", "test"]
    if (place / "pyproject.toml").is_file() or (place / "pytest.ini").is_file():
        return ["python" if shutil.which("python") else "python3", "-m", "pytest", "-q"]
    if _mentions(place / "package.json", '"test"'):
        return ["npm", "test"]
    if (place / "Cargo.toml").is_file():
        return ["cargo", "test"]
    return ["go", "test", "./..."] if (place / "go.mod").is_file() else []


def _mentions(path: Path, text: str) -> bool:
    try:
        return text in "\n" + path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _config(place: Path, *, example: bool) -> str:
    found = find_test_command(place)
    words = ", ".join(f'"{word}"' for word in found)
    tests = f"command = [{words}]" if found else '# command = ["make", "test"]'
    return TEMPLATE.format(
        tests='command = "grep -q 53 weeks.txt"' if example else tests,
        agents=EXAMPLE_AGENT if example else _agents(found_agents(place)),
        tasks=EXAMPLE_TASK if example else TASK_COMMENT,
    )


def found_agents(place: Path) -> list[str]:
    """The programs on this machine that are agents without further settings."""
    path = os.environ.get("PATH", "")
    return [name for name in AGENTS if find_program(name, place, path)]


def _agents(there: list[str]) -> str:
    """The agents that were found: the first one plays every role, the others are there to be chosen."""
    if not there:
        return AGENT_COMMENT
    roles = 'roles = ["builder", "reviewer", "spec_maintainer"]'
    first = f'[agents]\ndefault = "{there[0]}"\n\n[agents.{there[0]}]\n{roles}\n{AGENT_CHOICES}'
    others = "".join(f"# [agents.{name}]\n# {roles}\n" for name in there[1:])
    return FOUND_COMMENT + first + (f"\n# This one was found, too:\n{others}" if others else "")


WORKFLOW_FILE: Final = ".github/workflows/bartack.yml"
WORKFLOW: Final = """\
# Checks the settings and programs of Bartack, and replays recorded runs. No agent is asked, and no key is needed.
name: bartack
on: [push, pull_request]
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install bartack
      - run: bartack check
      - name: replay recorded runs
        if: hashFiles('tests/recorded/**') != ''
        run: bartack replay tests/recorded
"""

TEMPLATE: Final = """\
# Settings of Bartack. Every key is optional. 'bartack check' checks this file, 'bartack schema config' prints all keys.

[tests]
# Bartack runs this command after every change. Without it the agent's own test results are accepted unchecked.
{tests}
# timeout_s = 900
# protect = ["tests/**"]        # files that the builder must not change

[pipeline]
# review = true                 # false skips the review
# spec = true                   # false skips the spec
# max_fix_rounds = 2
# max_review_rounds = 3

[spec]
# file = "SPEC.md"
# sections = ["Status", "Decisions", "Changelog"]   # sections that the maintainer can edit

# [parallel]
# tasks = 3                     # work on 3 tasks at a time, each in a git worktree of its own

# [budget]
# usd = 10.0

{agents}
{tasks}"""

FOUND_COMMENT: Final = """\
# The agent that was found on this machine. 'bartack agents doctor' checks that it is usable, without cost.
"""
AGENT_CHOICES: Final = """\
# model = "…"                   # default: the agent's own choice
# permissions = { mode = "ask" } # default by role: the builder edits and runs commands, the reviewer reads
"""
AGENT_COMMENT: Final = """\
# Claude Code or Codex: pip install "bartack[claude-cli]" or "bartack[codex-cli]", or the vendor's installer; then
# [agents.claude]
# roles = ["builder", "reviewer", "spec_maintainer"]
#
# An agent is a program that reads commands from stdin and writes events to stdout, one JSON object a line, or a script of
# replies. 'bartack schema command' and 'bartack schema event' print the format; 'bartack init --example' writes a script.
# [agents.builder]
# command = ["my-agent", "--serve"]
# roles = ["builder", "reviewer", "spec_maintainer"]
"""
TASK_COMMENT: Final = """\
# [[tasks]]
# id = "T-1"
# goal = "Describe the task in your own words."
"""
EXAMPLE_AGENT: Final = """\
# This agent answers from a file, without a model and without cost.
[agents.example]
kind = "scripted"
script = "example-agent.json"
roles = ["builder", "reviewer", "spec_maintainer"]
"""
EXAMPLE_TASK: Final = """\
[[tasks]]
id = "weeks"
title = "Know that a year may have 53 weeks"
goal = "Write into weeks.txt how many weeks a year may have."
"""
EXAMPLE: Final = {
    "SPEC.md": "# Weeks\n\n## Status\n\nNothing is done yet.\n\n## Scope\n\nWeeks of a year.\n\n"
    "## Decisions\n\nNone.\n\n## Changelog\n\nNone.\n",
    "example-agent.json": """\
{
  "version": 1,
  "responses": {
    "implement": {
      "write": [{"path": "weeks.txt", "content": "52\\n"}],
      "events": [{"type": "builder.completed", "payload": {"tests": {"status": "pass"}}, "artifacts": [{"path": "weeks.txt"}]}]
    },
    "implement_changes": [
      {
        "when": {"cause": "tests"},
        "write": [{"path": "weeks.txt", "content": "53\\n"}],
        "events": [{"type": "builder.completed", "payload": {"tests": {"status": "pass"}}, "artifacts": [{"path": "weeks.txt"}]}]
      },
      {
        "times": 0,
        "write": [{"path": "weeks.txt", "content": "52 or 53\\n"}],
        "events": [{"type": "builder.completed", "payload": {"tests": {"status": "pass"}}, "artifacts": [{"path": "weeks.txt"}]}]
      }
    ],
    "review": [
      {
        "events": [{"type": "review.completed", "status": "changes_requested",
                    "payload": {"findings": [{"path": "weeks.txt", "message": "most years have 52 weeks: name both"}]}}]
      },
      {"events": [{"type": "review.completed", "status": "approved"}]}
    ],
    "update_spec": {
      "write": [
        {"path": "SPEC.md", "content": "# Weeks\\n\\n## Status\\n\\nDone: see weeks.txt.\\n\\n"},
        {"path": "SPEC.md", "append": true, "content": "## Scope\\n\\nWeeks of a year.\\n\\n"},
        {"path": "SPEC.md", "append": true, "content": "## Decisions\\n\\nNone.\\n\\n## Changelog\\n\\nNone.\\n"}
      ],
      "events": [{"type": "spec.updated"}]
    }
  }
}
""",
}
