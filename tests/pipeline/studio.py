"""A git repository with an agent of one's own, as a person has it: an editor may be open, a log may be written, a cache may grow.

The agent is a program that executes ``ACTION.py`` of a test, in the directory in which it was started; what that leaves in
``answer`` becomes part of its answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests import warm
from tests.unit.pipeline.repository import make

AGENT: Final = """\
import json, pathlib, sys
home = pathlib.Path(__file__).parent
print('{"kind":"hello","protocol":[1],"name":"own","version":"1"}', flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if command["kind"] != "command":
        continue
    action = command["action"]
    with open(home / "calls", "a") as file:
        file.write(action + chr(10))
    done = {"review": ("review.completed", {"status": "approved"}), "update_spec": ("spec.no_changes_needed", {})}
    event, answer = done.get(action, ("builder.completed", {"payload": {"tests": {"status": "pass"}}}))
    act = home / (action + ".py")
    if act.exists():
        exec(act.read_text(), {"answer": answer, "command": command, "home": home})
    print(json.dumps({
        "kind": "event",
        "message_id": command["message_id"] + "-answer",
        "correlation_id": command["correlation_id"],
        "task_id": command["task_id"],
        "from": {"agent_type": command["to"]["agent_type"]},
        "event": event,
        "occurred_at": "2026-01-01T00:00:00Z",
        **answer,
    }), flush=True)
"""
REPORT: Final = """
import hashlib, pathlib
def artifact(path):
    data = pathlib.Path(path).read_bytes()
    return {"path": path, "sha256": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}
"""
"""For acts that report a file."""
SETTINGS: Final = """\
durability = "process"
[agents.own]
kind = "ndjson"
command = [{python}, {agent}]
roles = ["builder", "reviewer", "spec_maintainer"]
"""


class Studio:
    """One workspace; ``home`` is beside it, with the agent and what it is to do."""

    def __init__(
        self, folder: Path, settings: str = "", files: Mapping[str, str] | None = None, **acts: str
    ) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "agent.py").write_text(AGENT)
        for action, text in acts.items():
            self.act(action, text)
        words = {"python": json.dumps(sys.executable), "agent": json.dumps(str(self.home / "agent.py"))}
        self.settings = SETTINGS.format(**words)
        found = {"README.md": "hello\n", ".gitignore": ".bartack/\n", **(files or {})}
        self.place = make(folder / "work", {**found, "bartack.toml": f"{self.settings}{settings}"})
        self.config = folder / "gitconfig"
        self.config.touch()

    def act(self, action: str, text: str) -> None:
        """What the agent does from now on."""
        (self.home / f"{action}.py").write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "GIT_CONFIG_GLOBAL": str(self.config), "GIT_CONFIG_NOSYSTEM": "1"}

    def sh(self, line: str, before: str = "") -> subprocess.CompletedProcess[str]:
        """Have a shell read a line in which ``$B`` is the command ``bartack``."""
        return subprocess.run(
            ["sh", "-c", f'B="{sys.executable} -m bartack"; {before}{line}'],
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def bartack(self, *words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(
            [sys.executable, "-m", "bartack", *words],
            cwd=self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command, with its diagnostics on a pipe."""
        return subprocess.Popen(
            [sys.executable, "-m", "bartack", *words],
            cwd=self.place,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def calls(self) -> list[str]:
        """The actions that the agent was asked for, in order."""
        return (self.home / "calls").read_text().split()

    @property
    def run_dir(self) -> Path:
        return max((self.place / ".bartack/runs").iterdir())

    @property
    def transcript(self) -> str:
        return (self.run_dir / "transcript.txt").read_text()

    def wait_here(self) -> str:
        """For an act: says that it has begun, and waits until the test lets it continue. See ``meanwhile``."""
        for name in ("begun", "continue"):
            path = self.home / name
            if not path.exists():
                os.mkfifo(path)
        return f"open({str(self.home / 'begun')!r}, 'w').close(); open({str(self.home / 'continue')!r}).close()\n"

    def meanwhile(self) -> Meanwhile:
        """The time between the beginning of an act that waits, and its end."""
        return Meanwhile(self.home)


class Meanwhile:
    def __init__(self, home: Path) -> None:
        self._home = home

    def __enter__(self) -> None:
        (self._home / "begun").open().close()

    def __exit__(self, *_: object) -> None:
        (self._home / "continue").open("w").close()
