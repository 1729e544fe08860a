"""A small project whose agent is Claude Code, run through the real command line in a sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bartack.errors import JournalError
from bartack.journal import Entry, open_reader
from bartack.testing import ClaudeSandbox

PROGRAM = """
from bartack import Context, worker
from typing import TypedDict


class Level(TypedDict):
    level: int


@worker
async def main(ctx: Context) -> object:
{body}
"""
WAITS = 3
"""The exit code of a run that waits for a person."""
MOST_QUESTIONS = 10
Result = subprocess.CompletedProcess[str]


class Team:
    """A workspace with one program and one agent."""

    def __init__(self, sandbox: ClaudeSandbox, settings: str = "", more: str = "") -> None:
        self.sandbox = sandbox
        self.root = sandbox.work
        (self.root / "bartack.toml").write_text(
            f'[agents]\ndefault = "claude"\n[agents.claude]\nbackoff_initial_s = 0.01\n{settings}\n{more}\n',
            encoding="utf-8",
        )

    def program(self, *lines: str) -> None:
        """Write the program: the lines of its only worker."""
        body = "\n".join(f"    {line}" for line in lines)
        (self.root / "team.py").write_text(PROGRAM.format(body=body), encoding="utf-8")

    def call(self, *words: str, timeout_s: float = 60.0) -> Result:
        """Run a command of bartack to its end."""
        return self.sandbox.run([sys.executable, "-m", "bartack", *words], timeout_s=timeout_s)

    def run(self, *lines: str, words: tuple[str, ...] = (), timeout_s: float = 60.0) -> Result:
        """Run a program with these lines."""
        self.program(*lines)
        return self.call("run", "team.py", "--no-input", *words, timeout_s=timeout_s)

    def start(self, *lines: str) -> subprocess.Popen[str]:
        """Start it, and return at once."""
        self.program(*lines)
        return self.sandbox.start([sys.executable, "-m", "bartack", "run", "team.py", "--no-input"])

    def answer_all(self, answer: Callable[[str], str]) -> Result:
        """Run the program, and answer its questions while nothing runs, until it ends.

        A model that was interrupted may ask the same again, so nobody knows how many questions there are.
        """
        done, given = self.call("run", "team.py"), set[str]()
        while done.returncode == WAITS:
            asked = [entry for entry in self.journal() if entry.kind == "question.asked"]
            (last,) = [entry for entry in asked if str(entry.data["id"]) not in given][-1:]
            given.add(str(last.data["id"]))
            assert len(given) < MOST_QUESTIONS, done.stderr
            answered = self.call("answer", self.folder.name, str(last.data["id"]), answer(done.stderr))
            assert answered.returncode == 0, answered.stderr
            done = self.call("resume", self.folder.name)
        return done

    @staticmethod
    def decode(done: Result) -> list[Any]:
        """What a program returned: a list."""
        found: list[Any] = json.loads(done.stdout)
        return found

    @property
    def folder(self) -> Path:
        """The directory of the only run."""
        (found,) = [path for path in (self.root / ".bartack" / "runs").iterdir() if path.is_dir()]
        return found

    @property
    def events(self) -> list[dict[str, object]]:
        """The transcript of the agent."""
        path = self.folder / "agents" / "claude" / "transcript.ndjson"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def named(self, name: str) -> list[dict[str, object]]:
        """Its events of one kind."""
        return [event for event in self.events if event["event"] == name]

    def has(self, name: str) -> bool:
        """Whether there is such an event by now."""
        try:
            return bool(self.named(name))
        except (OSError, ValueError):  # the run, or its transcript, is being made
            return False

    def journal(self) -> list[Entry]:
        """The entries of the journal so far."""
        try:
            with open_reader(self.folder) as reader:
                return list(reader.read())
        except (OSError, ValueError, JournalError):  # it is being made
            return []

    def count(self, kind: str) -> int:
        """How many entries of a kind the journal has."""
        return sum(entry.kind == kind for entry in self.journal())

    def streams(self) -> Iterator[Path]:
        """The streams of its conversations."""
        yield from (self.folder / "agents" / "claude").glob("*/stream.ndjson")
