"""Every command of the command line in a hostile clone: what the list on the security page does not name is not executed.

A new command fails these tests until it has a line in that list and a call in ``CALLS``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import pytest

from bartack.cli.app._app import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/security.md"
HEADING: Final = "## What each command can execute"
TIMEOUT_S: Final = 60.0
BLOCKS_S: Final = 4.0

CALLS: Final[dict[str, list[str]]] = {
    "resume": ["RUN"],
    "answer": ["RUN", "q1", "true"],
    "cancel": ["RUN"],
    "fail": ["RUN", "because"],
    "fork": ["RUN", "--at", "1", "--update"],
    "status": [],
    "show": ["RUN"],
    "report": ["RUN"],
    "diff": ["RUN"],
    "log": ["RUN"],
    "ps": ["RUN"],
    "journal show": ["RUN"],
    "journal verify": ["RUN"],
    "journal export": ["RUN"],
    "check": ["."],
    "fmt": ["."],
    "compile": ["evil.pw"],
    "plugin build": ["evil.pw", "-o", "out"],
    "plugin validate": ["."],
    "plugin install": ["."],
    "plugin uninstall": ["evil"],
    "plugin verify": ["evil"],
    "plugin dev": ["evil.pw"],
    "init": ["--example"],
    "snapshot": [],
    "snapshot diff": [".", "."],
    "snapshot verify": ["RUNDIR/run.json"],
    "agents list": [],
    "agents record": ["RUN", "-o", "recorded.json"],
    "agents scripted": ["--script", "script.json"],
    "mailbox list": ["RUN"],
    "mailbox peek": ["RUN", "box"],
    "mailbox send": ["RUN", "box", "1"],
    "mailbox publish": ["RUN", "topic", "1"],
    "mailbox receive": ["RUN", "box", "--timeout", "1"],
    "dlq list": ["RUN"],
    "dlq show": ["RUN", "1"],
    "dlq retry": ["RUN", "--all"],
    "dlq purge": ["RUN", "--all", "--yes"],
    "dlq export": ["RUN"],
    "attach": ["RUN"],
    "watch": ["RUN"],
    "detach": ["RUN"],
    "queue list": [],
    "queue add": ["RUN"],
    "queue remove": ["RUN"],
    "queue priority": ["RUN", "1"],
    "node run": ["--idle", "0"],
    "node start": [],
    "node status": [],
    "node stop": [],
    "notices list": [],
    "notices test": [],
    "schedule add": ["0 0 29 2 *", "--", "evil.py"],
    "schedule list": [],
    "schedule remove": ["unknown"],
    "schedule run": ["unknown"],
    "node install": [],
    "node uninstall": [],
    "db init": ["--on", "postgresql://127.0.0.1:1/none"],
    "db check": ["--on", "postgresql://127.0.0.1:1/none"],
    "db stats": ["--on", "postgresql://127.0.0.1:1/none"],
    "nodes list": ["--on", "postgresql://127.0.0.1:1/none"],
    "db migrate": ["--on", "postgresql://127.0.0.1:1/none"],
    "db restored": ["--on", "postgresql://127.0.0.1:1/none"],
    "teams list": ["--on", "postgresql://127.0.0.1:1/none"],
    "teams set": ["a", "--max-running", "1", "--on", "postgresql://127.0.0.1:1/none"],
    "schedules add": ["a", "--on", "postgresql://127.0.0.1:1/none", "--cron", "0 0 29 2 *", "--", "evil.py"],
    "schedules list": ["--on", "postgresql://127.0.0.1:1/none"],
    "schedules remove": ["a", "--on", "postgresql://127.0.0.1:1/none"],
    "nodes drain": ["a", "--on", "postgresql://127.0.0.1:1/none"],
    "move": ["RUN", "--on", "postgresql://127.0.0.1:1/none"],
    "pull": ["RUN", "--on", "postgresql://127.0.0.1:1/none", "--whole"],
    "clean": ["--yes", "--worktrees"],
    "mcp": [],
    "web": ["--no-open", "--port", "0"],
    "bundle": ["RUN"],
    "doctor": [],
    "trust": ["--list"],
    "schema": [],
    "explain": ["BT107"],
    "completion": ["bash"],
    "track write": ["evil.py"],
    "track edit": ["evil.py"],
    "track apply": ["p", "evil.py"],
    "track merge": ["a", "b"],
    "track sync": [],
    "track status": [],
    "track import": ["."],
    "track outbox list": [],
    "track outbox stats": [],
    "track outbox retry": [],
    "track outbox purge": ["--yes"],
    "track breaker status": [],
    "track breaker reset": [],
    "hook install": [],
    "hook uninstall": [],
    "hook status": [],
    "hook guard": ["--explain", "rm -rf /"],
    "hook record": ["PostToolUse"],
    "daemon run": [],
    "daemon start": [],
    "daemon status": [],
    "daemon stop": [],
    "daemon restart": [],
    "lineage serve": [],
    "lineage show": ["x"],
    "lineage search": ["x"],
    "lineage stats": [],
    "lineage validate": [],
    "demo": [],
}
"""How each command is called. Three are not here, because they are for executing what the project names."""
PURPOSE: Final = {"run", "replay", "agents doctor"}
BLOCKING: Final = {"daemon run", "lineage serve", "web"}


def commands() -> list[str]:
    """Every command that can be typed, with its groups."""
    return list(_leaves(app, click.Context(app), ()))


def _leaves(command: click.Command, context: click.Context, path: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    if path and command.invoke_without_command:
        yield " ".join(path)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _leaves(below, context, (*path, name))


def listed() -> list[str]:
    """The commands in the list of the security page."""
    _, _, rest = PAGE.read_text("utf-8").partition(HEADING)
    section = rest.partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


@pytest.mark.requirement("starts-only-what-is-listed")
def test_the_list_names_every_command_once() -> None:
    assert sorted(listed()) == sorted(commands())
    assert sorted({*CALLS, *PURPOSE}) == sorted(commands())


class Clone:
    """A directory that came from elsewhere, full of traps.

    Attributes:
        place: The directory.
        run: The id of a run that it brought.
        proof: Grows when anything of it is executed.
        outside: What its links lead to.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.place = base / "clone"
        self.proof = base / "executed"
        self.outside = base / "outside"
        self.home = base / "home"
        self.home.mkdir()
        self.trap = base / "trap"
        self.trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {self.proof}\nexit 1\n', "utf-8")
        self.trap.chmod(0o755)
        self._make_outside()
        self.run = self._make_run()
        self._fill()
        self._make_repository()
        self.proof.unlink(missing_ok=True)

    def _make_outside(self) -> None:
        (self.outside / "claude").mkdir(parents=True)
        for name in ("gitignore", "spec.md", "claude/settings.local.json"):
            (self.outside / name).write_text("{}\n", "utf-8")
        (self.outside / "other.pw").write_text("worker   main() {\n}\n", "utf-8")

    def _make_run(self) -> str:
        """A run of another machine, with a program that shows when it is imported."""
        theirs = self.base / "theirs"
        theirs.mkdir()
        text = f"from bartack import worker\nopen({str(self.proof)!r}, 'a').write('program')\n\n\n"
        text += "@worker\nasync def main(ctx):\n    await ctx.now()\n    await ctx.ask('yes?', type=bool)\n"
        (theirs / "team.py").write_text(text, "utf-8")
        made = self.call("run", "team.py", at=theirs, home=self.base / "their-home")
        assert made.returncode == 3, made.stderr
        shutil.copytree(theirs, self.place)
        (found,) = (self.place / ".bartack/runs").iterdir()
        return found.name

    def _fill(self) -> None:
        evil = f"open({str(self.proof)!r}, 'a').write(__name__)\n"
        for name in ("evil", "click", "msgspec", "json", "sitecustomize", "usercustomize", "conftest"):
            (self.place / f"{name}.py").write_text(evil, "utf-8")
        (self.place / "evil.pw").write_text(f'worker main() {{\n  run "{self.trap}"\n}}\n', "utf-8")
        (self.place / "script.json").write_text('{"version": 1, "responses": {}}', "utf-8")
        (self.place / "Makefile").write_text(f"test:\n\t{self.trap}\n", "utf-8")
        command = f'["{self.trap}"]'
        settings = f'[tests]\ncommand = {command}\n[agents.a]\ncommand = {command}\nroles = ["builder"]\n'
        settings += f'[parallel]\ntasks = 2\nsetup = {command}\n[[tasks]]\nid = "t"\ngoal = "g"\n'
        settings += (
            f'[agents.claude]\ncommand = {command}\n[agents.codex]\nenv = {{ PATH = "{self.place}/bin" }}\n'
        )
        (self.place / "bin").mkdir()
        (self.place / "bin" / "codex").symlink_to(self.trap)
        (self.place / "bartack.toml").write_text(settings, "utf-8")
        links = {
            ".gitignore": "gitignore",
            "SPEC.md": "spec.md",
            ".claude": "claude",
            "linked.pw": "other.pw",
        }
        for name, target in links.items():
            (self.place / name).symlink_to(self.outside / target)

    def _make_repository(self) -> None:
        git = ["git", "-c", "user.name=A", "-c", "user.email=a@localhost"]
        for words in (["init", "-q"], ["add", "--all", "--force"], ["commit", "-q", "-m", "one"]):
            subprocess.run([*git, *words], cwd=self.place, check=True, capture_output=True)
        (self.place / ".gitattributes").write_text("* filter=trap diff=trap\n", "utf-8")
        names = (
            "core.fsmonitor",
            "core.sshCommand",
            "core.editor",
            "core.pager",
            "gpg.program",
            "credential.helper",
            "filter.trap.clean",
            "filter.trap.smudge",
            "diff.trap.textconv",
            "diff.external",
        )
        for name in names:
            subprocess.run(["git", "config", name, str(self.trap)], cwd=self.place, check=True)
        hooks = self.place / ".git/hooks"
        for name in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction"):
            (hooks / name).unlink(missing_ok=True)
            (hooks / name).symlink_to(self.trap)
        (self.place / "evil.pw").touch()

    def call(
        self, *words: str, at: Path | None = None, home: Path | None = None, timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Call the installed program in the clone; one that does not end is ended."""
        home = home or self.home
        environ = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "bartack"), *words],
            cwd=at or self.place,
            env={
                **environ,
                "HOME": str(home),
                "XDG_CONFIG_HOME": str(home / "c"),
                "XDG_STATE_HOME": str(home / "s"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, err = process.communicate(timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def read_outside(self) -> dict[str, bytes]:
        """Everything that its links lead to."""
        return {str(path): path.read_bytes() for path in sorted(self.outside.rglob("*")) if path.is_file()}

    def run_files(self) -> dict[str, bytes]:
        """Everything in the run that it brought."""
        files = sorted((self.place / ".bartack/runs").rglob("*"))
        return {str(path): path.read_bytes() for path in files if path.is_file()}

    def end(self) -> None:
        """End the daemons that commands have started: a hook starts one after it has returned."""
        self.call("daemon", "stop")
        wanted = f"XDG_STATE_HOME={self.home}/s".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    made = Clone(tmp_path_factory.mktemp("hostile"))
    try:
        yield made
    finally:
        made.end()


@pytest.mark.requirement("starts-only-what-is-listed")
@pytest.mark.parametrize("command", sorted(CALLS))
def test_no_command_executes_what_a_clone_brought_or_writes_outside_of_it(
    pattern: Clone, command: str
) -> None:
    brought, outside = pattern.run_files(), pattern.read_outside()
    given = {"RUN": pattern.run, "RUNDIR": f".bartack/runs/{pattern.run}"}
    words = [re.sub(r"^(RUNDIR|RUN)\b", lambda found: given[found[1]], word) for word in CALLS[command]]

    ended = pattern.call(*command.split(), *words, timeout_s=BLOCKS_S if command in BLOCKING else TIMEOUT_S)
    # The tests of the demo's project fail once, and the view cuts their output: a whole line is one of ours.
    assert "Traceback (most recent call last):" not in ended.stderr
    assert not pattern.proof.exists(), (ended, pattern.proof.read_text("utf-8"))
    assert pattern.read_outside() == outside
    assert pattern.run_files() == brought


@pytest.mark.requirement("links-are-not-followed")
@pytest.mark.parametrize(
    "command",
    ["check", "clean --yes", "doctor", "init", "run team.py", "snapshot", "status", "track write team.py"],
)
def test_a_state_directory_that_is_a_link_is_not_written_to(
    pattern: Clone, tmp_path: Path, command: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "cache").mkdir(parents=True)
    place = tmp_path / "clone"
    place.mkdir()
    (place / "team.py").write_text(
        "from bartack import worker\n\n\n@worker\nasync def main(ctx):\n    pass\n", "utf-8"
    )
    (place / ".bartack").symlink_to(elsewhere)

    pattern.call(*command.split(), at=place)

    assert [str(path.relative_to(elsewhere)) for path in elsewhere.rglob("*")] == ["cache"]


@pytest.mark.requirement("starts-only-what-is-listed")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_executes_nothing(pattern: Clone, shell: str) -> None:
    words = {"COMP_WORDS": "bartack resume run", "COMP_CWORD": "2", "_BARTACK_COMPLETE": f"{shell}_complete"}

    shown = subprocess.run(
        [str(Path(sys.executable).parent / "bartack")],
        cwd=pattern.place,
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert "Traceback" not in shown.stderr
    assert not pattern.proof.exists()
