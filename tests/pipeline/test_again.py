"""The way out of a run that is stuck at a value in its journal, and odd answers of agents, both through the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests import warm
from tests.pipeline.team import APPROVED, built, wrote

from bartack.journal import open_reader

SETTINGS: Final = """\
durability = "process"
[tests]
mode = "off"
[snapshot]
source = "roots"
[pipeline]
spec = false
[agents.team]
kind = "ndjson"
command = {command}
roles = ["builder", "reviewer", "orchestration"]
backoff_initial_s = 0.05
"""
OLDER: Final = """\
import bartack.agents.replies, bartack.pipeline._proposal
bartack.agents.replies.find_unsound = lambda *args, **kwargs: ""
bartack.pipeline._proposal.RESERVED = frozenset()
"""
"""What every interpreter does first that plays an earlier version, which took in whatever it was told."""
ODD_LINE: Final = {"events": [{"type": "review.completed", "status": "changes_requested", "payload": {
    "findings": [{"message": "no", "line": 2**53}]}}]}  # fmt: skip


def proposal(name: str) -> dict[str, object]:
    payload = {"plan_candidates": [{"path": "plan.md"}], "derived_tasks": [{"id": name, "title": "the one"}]}
    return {"events": [{"type": "orchestration.proposed_tasks", "payload": payload}]}


class Place:
    """A workspace with an agent by a script."""

    def __init__(self, folder: Path, replies: dict[str, object]) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (self.workspace / "plan.md").write_text("# Plan\n")
        given = {"implement": wrote("src/a.py", "A = 1\n"), "review": APPROVED, **replies}
        (folder / "script.json").write_text(json.dumps({"version": 1, "responses": given}))
        argv = [sys.executable, "-m", "bartack", "agents", "scripted", "--script", "../script.json"]
        argv += ["--state", "../memory.json"]
        (self.workspace / "bartack.toml").write_text(SETTINGS.format(command=json.dumps(argv)))
        (folder / "older").mkdir()
        (folder / "older" / "sitecustomize.py").write_text(OLDER)
        self.older = {"PYTHONPATH": str(folder / "older")}

    def bartack(self, *words: str, older: bool = False) -> tuple[int, str]:
        """Exit code and what was written to stderr."""
        done = warm.run(
            [sys.executable, "-m", "bartack", *words],
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **(self.older if older else {})},
            check=False,
        )
        return done.returncode, done.stderr

    @property
    def run_dir(self) -> Path:
        return next((self.workspace / ".bartack/runs").glob("run-*"))

    def commands(self) -> list[tuple[str, str, str | None]]:
        """Action, cause and code of every command that was sent."""
        found: list[tuple[str, str, str, str | None]] = []
        for stream in self.run_dir.glob("agents/*/*/stream.ndjson"):
            for line in map(json.loads, stream.read_text().splitlines()):
                said = line.get("line")
                if line["dir"] == "out" and said["kind"] == "command":
                    found.append(
                        (line["at"], said["action"], said["retry"]["cause"], said["retry"].get("code"))
                    )
        return [(action, cause, code) for _, action, cause, code in sorted(found)]


def test_odd_answers_are_refused_and_asked_for_again(tmp_path: Path) -> None:
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    odd = [built(status="pass", passed=2**70), built(status="pass", more=deep), wrote("src/a.py", "A = 1\n")]
    place = Place(tmp_path, {"implement": odd, "review": [ODD_LINE, APPROVED]})

    code, told = place.bartack("run", "--goal", "do it")

    assert code == 0, told
    assert place.commands() == [
        ("implement", "first", None),
        ("implement", "rejected", "invalid_reply"),
        ("implement", "rejected", "invalid_reply"),
        ("review", "first", None),
        ("review", "rejected", "invalid_reply"),
    ]


@pytest.mark.requirement("stuck-run-has-a-way-out")
def test_a_run_that_is_stuck_at_an_answer_goes_on_when_that_is_set_aside(tmp_path: Path) -> None:
    place = Place(tmp_path, {"review": [ODD_LINE, APPROVED]})
    assert place.bartack("run", "--goal", "do it", older=True)[0] == 1
    code, told = place.bartack("resume")
    assert code == 1, "the value is in the journal, and no resume changes that"
    hint = re.search(r"bartack (resume run-\S+ --again \S+)", told)
    assert hint is not None, told

    code, told = place.bartack(*hint[1].split())

    assert code == 0, told
    assert "set aside: the outcome of main/" in told
    assert place.commands()[-1] == ("review", "rejected", "set_aside")
    kinds = [entry.kind for entry in _entries(place)]
    assert kinds.count("step.set_aside") == 1
    code, told = place.bartack("resume", place.run_dir.name, "--again", "main:1")
    assert code == 0, "a completed run has nothing left to do"


def test_a_run_whose_task_has_a_reserved_name_is_rescued(tmp_path: Path) -> None:
    place = Place(tmp_path, {"intake": [proposal("intake"), proposal("one")]})
    code, told = place.bartack("run", "--instruction", "ship it", "--yes", older=True)
    assert code == 1, told
    assert "ReceiptConflictError" in told
    assert place.bartack("resume")[0] != 0
    step = next(e for e in _entries(place) if e.kind == "step.finished" and e.data["step"] == "think")

    code, told = place.bartack("resume", "--again", f"{step.data['p']}:{step.data['n']}")

    assert code == 0, told
    receipts = sorted(
        str(file.relative_to(place.run_dir)) for file in place.run_dir.glob("receipts/*/*.json")
    )
    assert receipts == ["receipts/intake/step-1.json", "receipts/one/step-1.json", "receipts/one/step-2.json"]
    assert len(list(place.run_dir.glob("receipts/intake/set-aside/*.json"))) == 1


def test_a_step_is_not_set_aside_if_a_message_came_after_it(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(
        "from bartack import worker, Context\n\n"
        "@worker\n"
        "async def main(ctx: Context) -> None:\n"
        "    await ctx.shell('true')\n"
        "    await ctx.mailbox.box.send(1)\n"
        "    await ctx.shell('false')\n"
    )

    def bartack(*words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "bartack", *words]
        done = warm.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr

    assert bartack("run", "team.py")[0] == 1

    code, told = bartack("resume", "--again", "main:1")

    assert code == 1
    assert (
        "step main:1 cannot be set aside: step main:2 (send) came after it and cannot be taken back" in told
    )
    code, told = bartack("resume", "--again", "main:9")
    assert code == 7, told


class _Entry(msgspec.Struct):
    kind: str
    data: dict[str, object]


def _entries(place: Place) -> list[_Entry]:
    with open_reader(place.run_dir) as reader:
        return [_Entry(entry.kind, dict(entry.data)) for entry in reader.read()]


ASKS: Final = {
    "events": [{"type": "orchestration.needs_clarification", "payload": {"questions": ["Which one?"]}}]
}


def test_a_run_that_waits_for_an_answer_is_waiting_and_without_input_it_fails(tmp_path: Path) -> None:
    place = Place(tmp_path, {"intake": [ASKS, proposal("one")]})

    code, told = place.bartack("run", "--instruction", "ship it", "--yes")
    assert code == 3, told
    run = place.run_dir.name
    assert json.loads((place.run_dir / "run.json").read_text())["status"] == "waiting"
    assert _status(place) == "waiting"
    code, told = place.bartack("answer", run, "q1", "the first")
    assert code == 0, told
    code, told = place.bartack("resume")
    assert code == 0, told
    modes = {
        str(folder.relative_to(place.run_dir)): folder.stat().st_mode & 0o777
        for top in ("agents", "receipts")
        for folder in (place.run_dir / top, *(place.run_dir / top).rglob("*"))
        if folder.is_dir()
    }
    assert len(modes) > 4
    assert set(modes.values()) == {0o700}, modes

    (tmp_path / "memory.json").unlink()
    code, told = place.bartack("run", "--instruction", "ship it", "--yes", "--no-input")
    assert code == 1, told
    assert "NoAnswerError" in told


def _status(place: Place) -> str:
    done = warm.run(
        [sys.executable, "-m", "bartack", "status", place.run_dir.name, "--json"],
        cwd=place.workspace,
        capture_output=True,
        check=True,
    )
    return str(json.loads(done.stdout)["status"])
