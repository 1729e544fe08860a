"""Runs of the pipeline in real processes, through the command line: killed, cut, resumed, and looked at."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from tests.crash.runs import kill
from tests.pipeline.team import APPROVED, Reply, edits, wrote

from bartack.core.trust import add_trusted
from bartack.journal import Entry, open_reader
from bartack.runtime.client.run import Run
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.receipts import Receipt, iter_receipts, load_receipt
from bartack.runtime.state.timeline import Timeline
from bartack.supervision.process.tree import descendants

PATIENCE_S: Final = 180.0
SPEC: Final = "# Spec\n\n## Status\n\n{}\n"
REPLIES: Final[dict[str, Reply]] = {
    "implement": wrote("src/a.py", "A = 1\n"),
    "implement_changes": wrote("src/a.py", "A = 2\n"),
    "review": APPROVED,
    "update_spec": edits(SPEC.format("new")),
}
SETTINGS: Final = """\
durability = "process"
[tests]
command = "grep -q 2 src/a.py"
[snapshot]
source = "roots"
[protocol]
suspect_grace_s = 0.5
[agents.team]
kind = "ndjson"
command = {command}
roles = ["builder", "reviewer", "spec_maintainer"]
backoff_initial_s = 0.05
"""

MEASURE: Final = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code if code >= 0 else 128 - code)
"""
"""Runs a command and tells how large it became, with what it started. (What we start ourselves counts as large as we are.)"""


class Shop:
    """A workspace with an agent by a script, and one run in it."""

    def __init__(
        self, folder: Path, replies: Mapping[str, object] | None = None, *, dedupe: bool = True
    ) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        script = {"version": 1, "dedupe": dedupe, "responses": {**REPLIES, **(replies or {})}}
        (folder / "script.json").write_text(json.dumps(script))
        argv = [sys.executable, "-m", "bartack", "agents", "scripted", "--script", "../script.json"]
        argv += ["--state", "../memory.json"]
        (self.workspace / "bartack.toml").write_text(SETTINGS.format(command=json.dumps(argv)))
        (self.workspace / "SPEC.md").write_text(SPEC.format("old"))
        self._log = folder / "log.txt"
        self.largest_kib = 0
        """The most memory that any process of the runs had."""

    # Running.

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, before: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a command; does not wait for anything."""
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*before, sys.executable, "-m", "bartack", *words],
                cwd=self.workspace,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    def run(self, *, env: Mapping[str, str] | None = None) -> int:
        measured = self.workspace.parent / "largest"
        try:
            before = [sys.executable, "-c", MEASURE, str(measured)]
            return self._wait(self.start("run", "--goal", "do it", env=env, before=before))
        finally:
            self.largest_kib = max(self.largest_kib, int(measured.read_text()))

    def resume(self) -> int:
        return self._wait(self.start("resume"))

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                kill(process.pid, *(facts.pid for facts in descendants(process.pid)))
                process.wait()

    def run_and_kill(self, wanted: Callable[[Entry], bool], *, all_of_it: bool) -> bool:
        """Run until an entry is there, then kill the hub, or everything of it; whether that cut the run short."""
        process = self.start("run", "--goal", "do it")
        try:
            while not self._has_begun():
                if process.poll() is not None:
                    raise AssertionError(self.story())
                select.select([], [], [], 0.001)
            if self._wait_for(wanted):
                below = [facts.pid for facts in descendants(process.pid)] if all_of_it else []
                kill(process.pid, *below)
        finally:
            code = self._wait(process)
        return code == -signal.SIGKILL and self.status() == "interrupted"

    def _has_begun(self) -> bool:
        runs = self.workspace / ".bartack/runs"
        return runs.is_dir() and any((run / "journal.ndjson").exists() for run in runs.iterdir())

    def _wait_for(self, wanted: Callable[[Entry], bool]) -> bool:
        with open_reader(self.run_dir) as reader:
            for entry in reader.follow(timeout_s=PATIENCE_S):
                if wanted(entry):
                    return True
                if entry.kind == "run.ended":
                    return False
        raise AssertionError(f"the run does not go on\n{self.story()}")

    def copy(self, folder: Path, size: int) -> Shop:
        """The same shop elsewhere, as it was when so many bytes of its journal were written."""
        shutil.copytree(self.workspace.parent, folder)
        copy = object.__new__(Shop)
        copy.__dict__.update(self.__dict__, workspace=folder / "workspace", _log=folder / "log.txt")
        with copy.journal.open("rb+") as file:
            file.truncate(size)
        add_trusted(copy.run_dir)
        for witness in ("run.json", "lock"):
            (copy.run_dir / witness).unlink()
        kept = copy.journaled()
        for path in copy.run_dir.glob("receipts/*/*.json"):
            if load_receipt(path) not in kept:
                path.unlink()
        copy._set_back(copy._answered())
        return copy

    def _answered(self) -> set[str]:
        """The actions whose answers are in the journal: their work was done by then."""
        timeline = Timeline()
        with open_reader(self.run_dir) as reader:
            timeline.add_all(list(reader.read()))
        finished = [step for step in timeline.steps if step.kind == "think" and step.status == "finished"]
        return {step.about.partition(" ")[0] for step in finished}

    def _set_back(self, done: set[str]) -> None:
        """The workspace as it was when only this was done."""
        if "update_spec" not in done:
            (self.workspace / "SPEC.md").write_text(SPEC.format("old"))
        if "implement" not in done:
            (self.workspace / "src/a.py").unlink()
        elif "implement_changes" not in done:
            (self.workspace / "src/a.py").write_text("A = 1\n")

    # What became of it.

    @property
    def run_dir(self) -> Path:
        [run] = (self.workspace / ".bartack/runs").iterdir()
        return run

    @property
    def journal(self) -> Path:
        return self.run_dir / "journal.ndjson"

    def last_seq(self) -> int:
        """The place of the last entry."""
        with open_reader(self.run_dir) as reader:
            return max(entry.seq for entry in reader.read())

    def journaled(self) -> list[Receipt]:
        """The receipts that the journal tells of."""
        return list(iter_receipts(self.run_dir))

    def receipts(self) -> list[Receipt]:
        """The receipts, as files."""
        paths = sorted(self.run_dir.glob("receipts/*/*.json"), key=lambda path: (len(path.name), path.name))
        return [load_receipt(path) for path in paths]

    def facts(self) -> tuple[object, ...]:
        """What has to be the same, whatever was killed."""
        shown = self.receipts()
        files = (
            path for path in self.workspace.rglob("*") if path.is_file() and ".bartack" not in path.parts
        )
        return (
            [(r.task_id, r.action, r.round, r.step, r.cause, r.event, r.status) for r in shown],
            [(a.path, a.sha256, a.size) for r in shown for a in r.artifacts],
            {path.name: path.read_text() for path in sorted(files)},
            self.status(),
        )

    def status(self) -> str:
        """How the run stands, also if it was killed before it could write that down."""
        return Run(RunDir(self.run_dir)).state().status

    def commands(self) -> list[str]:
        """The keys of the commands that were sent, each time."""
        found: list[str] = []
        for file in (self.run_dir / "agents").rglob("stream.ndjson"):
            for line in file.read_bytes().splitlines():
                copied: dict[str, dict[str, str]] = msgspec.json.decode(line)
                message = copied.get("line")
                if message is not None and message["kind"] == "command":
                    found.append(message["idempotency_key"])
        return found

    def story(self) -> str:
        """What there is to know when a test fails."""
        return self._log.read_text()[-4000:]
