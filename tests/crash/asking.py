"""Runs that ask an agent which is a program, the scripted one; and what went over the wire."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Protocol

from tests.crash.runs import RealRun


class BeginAsking(Protocol):
    """Makes a run of ``programs/asking.py`` whose agent has a script; nothing runs yet."""

    def __call__(self, worker: str, script: dict[str, object], config: str = "") -> RealRun: ...


def create(workspace: Path, worker: str, script: dict[str, object], config: str = "") -> RealRun:
    (workspace / "script.json").write_text(json.dumps(script))
    argv = [sys.executable, "-m", "bartack", "agents", "scripted", "--script", "script.json"]
    argv += ["--state", str(workspace / "state.json")]
    (workspace / "bartack.toml").write_text(
        f'[agents.stub]\nkind = "ndjson"\ncommand = {json.dumps(argv)}\nbackoff_initial_s = 0\n{config}'
    )
    return RealRun.create(workspace, "asking.py", worker)


def copies(run: RealRun) -> list[dict[str, object]]:
    """Everything that went over the wire, in both directions; a line that is still being written is none yet."""
    files = sorted((run.run.path / "agents").rglob("stream.ndjson"))
    found = [json.loads(line) for file in files for line in file.read_text().split("\n")[:-1]]
    return sorted(found, key=lambda copy: str(copy["at"]))


def lines(run: RealRun, kind: str) -> list[dict[str, object]]:
    """The messages of a kind, whoever wrote them."""
    found = [copy.get("line") for copy in copies(run)]
    return [line for line in found if isinstance(line, dict) and line["kind"] == kind]


def commands(run: RealRun) -> list[dict[str, dict[str, object]]]:
    found: list[dict[str, dict[str, object]]] = lines(run, "command")  # type: ignore[assignment]  # - as JSON has it
    return found
