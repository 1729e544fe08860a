"""A pipeline in memory: agents by a script, test commands by a function, the workspace in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from tests.wire import faults_below, faults_of_ledger, faults_of_pipeline

from bartack.agents import ScriptedAgent
from bartack.agents.protocol.messages import Command
from bartack.agents.scripted.scripted import read_script
from bartack.config.load import Config
from bartack.config.sections import PipelineConfig, SnapshotConfig, TestsConfig
from bartack.journal import Entry
from bartack.pipeline import main
from bartack.pipeline.records.facts import Fact, make_facts
from bartack.pipeline.records.ledger import iter_ledger
from bartack.pipeline.records.records import Accepted, Gate, PipelineOrder, Settings, Summary, TaskRecord
from bartack.runtime import ShellResult
from bartack.runtime.rundir.receipts import Receipt
from bartack.testing import TestRun

AGENTS = {role: role for role in ("builder", "reviewer", "spec_maintainer", "orchestration")}
GREEN = ShellResult(["make", "test"], 0, "ok\n")
RED = ShellResult(["make", "test"], 1, "1 failed\n", "boom\n")

T = TypeVar("T")

Shell = Callable[[list[str]], ShellResult | None]
Reply = Mapping[str, object]


def green(argv: list[str]) -> ShellResult:
    """Tests that pass."""
    return GREEN


def wrote(path: str, content: str, status: str = "pass", **more: object) -> Reply:
    """A builder that writes a file and reports its tests."""
    return {
        "write": [{"path": path, "content": content}],
        "events": [
            {
                "type": "builder.completed",
                "payload": {"tests": {"status": status, **more}},
                "artifacts": [{"path": path}],
            }
        ],
    }


def built(**tests: object) -> Reply:
    """A builder that changes nothing."""
    return {"events": [{"type": "builder.completed", "payload": {"tests": tests} if tests else {}}]}


APPROVED: Reply = {"events": [{"type": "review.completed", "status": "approved"}]}


def wants(*messages: str) -> Reply:
    """A reviewer that wants changes."""
    findings = [{"message": message} for message in messages]
    return {
        "events": [
            {"type": "review.completed", "status": "changes_requested", "payload": {"findings": findings}}
        ]
    }


UNCHANGED: Reply = {"events": [{"type": "spec.no_changes_needed"}]}


def spec_wants(*messages: str) -> Reply:
    """A spec maintainer that wants changes."""
    findings = [{"message": message} for message in messages]
    return {"events": [{"type": "spec.changes_requested", "payload": {"findings": findings}}]}


def edits(content: str, path: str = "SPEC.md", event: str = "spec.updated") -> Reply:
    """A spec maintainer that writes a file."""
    return {"write": [{"path": path, "content": content}], "events": [{"type": event}]}


PLAIN: dict[str, object] = {
    "implement": wrote("src/a.py", "A = 1\n"),
    "implement_changes": wrote("src/a.py", "A = 2\n"),
    "review": APPROVED,
    "update_spec": UNCHANGED,
}


def settings(config: Config | None = None, **sections: object) -> Settings:
    """Settings of a run whose agents are called like their roles."""
    config = config or Config(
        pipeline=PipelineConfig(on_limit="fail"),
        tests=TestsConfig(command=["make", "test"]),
        snapshot=SnapshotConfig(source="roots"),
    )
    made = Settings(
        pipeline=config.pipeline,
        tests=config.tests,
        review=config.review,
        spec=config.spec,
        snapshot=config.snapshot,
        intake=config.intake,
        questions=config.questions,
        budget=config.budget.of_run,
        agents=AGENTS,
    )
    return msgspec.structs.replace(made, **sections)


def order(*ids: str, using: Settings | None = None, **more: object) -> PipelineOrder:
    """Tasks of these ids."""
    tasks = [TaskRecord(id=id_, goal=f"do {id_}") for id_ in ids]
    return msgspec.structs.replace(PipelineOrder(settings=using or settings(), tasks=tasks), **more)


class Team:
    """One run after the other in a fresh workspace."""

    def __init__(
        self,
        workspace: Path,
        responses: Mapping[str, object] | None = None,
        tests: Shell | None = None,
        files: Mapping[str, str] | None = None,
        answers: Mapping[str, object] | None = None,
    ) -> None:
        self.workspace = workspace
        self.responses = {**PLAIN, **(responses or {})}
        self.shell: Shell = tests or green
        self.files = files if files is not None else {"README.md": "hello\n"}
        self.answers = answers
        self.dedupe = True
        self.agent = self._make_agent()

    def _make_agent(self) -> ScriptedAgent:
        content = {"dedupe": self.dedupe, "responses": self.responses}
        return ScriptedAgent.of(read_script(content, "team"), name="team")

    def reset(self) -> None:
        """The workspace as it was, and an agent that remembers nothing."""
        for child in self.workspace.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()
        for path, content in self.files.items():
            file = self.workspace / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        self.agent = self._make_agent()

    @contextlib.contextmanager
    def start(self, what: PipelineOrder, dies_after: int | None = None) -> Generator[TestRun[Summary]]:
        """Begin a run."""
        self.reset()
        before = os.getcwd()
        os.chdir(self.workspace)
        run = TestRun(
            main(what), agent=self.agent, shell=self.shell, answers=self.answers, dies_after=dies_after
        )
        try:
            yield run
            assert faults(run) == []
        finally:
            run.close()
            os.chdir(before)

    @contextlib.contextmanager
    def running(self, what: PipelineOrder) -> Generator[TestRun[Summary]]:
        """A run that has come to its end, and can be resumed."""
        with self.start(what) as run:
            run.start()
            run.finish()
            yield run

    def run(self, what: PipelineOrder) -> TestRun[Summary]:
        """A run from its beginning to its end."""
        with self.running(what) as run:
            return run

    @property
    def commands(self) -> list[Command]:
        """What the agents were told."""
        return self.agent.commands

    @property
    def actions(self) -> list[tuple[str, str, int, str]]:
        """Task, action, round and cause of each command."""
        rounds = [(command, iteration_of(command)) for command in self.commands]
        return [(command.task_id, command.action, it.round, it.cause) for command, it in rounds]


class Iteration(msgspec.Struct):
    """What a command says about its round."""

    round: int
    cause: str
    findings: list[dict[str, object]]
    findings_file: dict[str, object] | None = None


def iteration_of(command: Command) -> Iteration:
    """The round of a command."""
    return msgspec.convert(command.inputs["iteration"], type=Iteration)


def outcomes(run: TestRun[T], about: str) -> list[bytes]:
    """The outcomes of the finished steps of this name."""
    seqs = [step.seq for step in run.steps if step.about == about and step.status == "finished"]
    entries = {entry.seq: entry for entry in run.journal}
    found: list[bytes] = []
    for seq in seqs:
        entry = entries[seq]
        data = run._run.store.get(entry.ref) if entry.ref is not None else entry.value
        found.append(bytes(data or b"null"))
    return found


def gates(run: TestRun[Summary]) -> list[Gate]:
    """The verdicts of a run."""
    return [msgspec.json.decode(data, type=Gate) for data in outcomes(run, "gate")]


def receipts(run: TestRun[T]) -> list[Receipt]:
    """The receipts of a run."""
    found = [msgspec.json.decode(data, type=Accepted).receipt for data in outcomes(run, "accept")]
    return [receipt for receipt in found if receipt is not None]


def statuses(run: TestRun[Summary]) -> list[tuple[str, str]]:
    """How the tasks of a run ended."""
    return [(task.id, task.status) for task in run.result.tasks]


def begin(run: TestRun[Summary]) -> None:
    """Run it from its beginning to its end, or until it is killed."""
    run.start()
    run.finish()


def facts_of(run: TestRun[T], entries: int | None = None) -> list[Fact]:
    """The facts of a run, or of its first entries."""

    def load(entry: Entry) -> bytes | None:
        data = run._run.store.get(entry.ref) if entry.ref is not None else entry.value
        return None if data is None else bytes(data)

    return make_facts(run.journal[:entries], load)


def faults(run: TestRun[T]) -> list[str]:
    """What a run has written that is not what our own schemas want."""
    ledger = (msgspec.json.encode(line) for line in iter_ledger(facts_of(run)))
    folder = Path(run._scratch.name)
    return [*faults_below(folder), *faults_of_pipeline(folder), *faults_of_ledger(ledger)]
