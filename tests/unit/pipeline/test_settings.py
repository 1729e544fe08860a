"""Settings of the pipeline whose effect no other test shows."""

from __future__ import annotations

import concurrent.futures
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tests.agent_sections import read_agents
from tests.pipeline.team import Team, order, receipts, settings

from bartack.config.load import Config
from bartack.config.sections import RedactionConfig, TaskConfig, TestsConfig
from bartack.pipeline.request import choose_tasks
from bartack.pipeline.settings import make_settings
from bartack.pipeline.snapshot.listing import SnapshotOptions
from bartack.pipeline.snapshot.snapshot import capture
from bartack.runtime.protocol.frames import Step


@pytest.mark.parametrize(("threads", "used"), [(1, []), (3, [3])])
def test_so_many_threads_read_files_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, used: list[int]
) -> None:
    pools: list[int] = []

    class Counted(ThreadPoolExecutor):
        def __init__(self, workers: int) -> None:
            pools.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Counted)
    for n in range(70):
        (tmp_path / f"{n}.txt").write_text(str(n))

    found = capture(tmp_path, SnapshotOptions(source="roots", threads=threads))

    assert (pools, found.count) == (used, 70)


def test_the_test_command_gets_the_variables_of_the_settings(tmp_path: Path) -> None:
    using = settings(tests=TestsConfig(command=["make", "test"], env={"SEED": "7"}))

    run = Team(tmp_path).run(order("T-1", using=using))

    asked = [
        msgspec.json.decode(frame.a)
        for frame in run.outside.frames
        if isinstance(frame, Step) and frame.step == "shell"
    ]
    assert [args.get("env") for args in asked] == [{"SEED": "7"}]


def test_each_action_may_take_as_long_as_the_settings_of_its_agent_say() -> None:
    table = {"ann": {"command": "ann", "roles": ["builder", "reviewer"], "timeouts": {"review": 11.0}}}
    made = make_settings(Config(agents=read_agents(table)), ["builder", "reviewer"], asks=False)

    assert (made.deadlines["review"], made.deadlines["implement"]) == (11.0, 3600.0)


@pytest.mark.parametrize(
    ("redaction", "marked"),
    [
        (RedactionConfig(), False),
        (RedactionConfig(names=["LOGIN"]), True),
        (RedactionConfig(names=["LOGIN"], min_length=20), False),
        (RedactionConfig(names=["LOGIN"], exempt=["LOGIN"]), False),
    ],
)
def test_an_artifact_is_marked_for_what_the_settings_call_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redaction: RedactionConfig, *, marked: bool
) -> None:
    monkeypatch.setenv("LOGIN", "A = 1 or so")
    written = {"path": "src/a.py", "content": "A = 1 or so\n"}
    answer = {"type": "builder.completed", "artifacts": [{"path": "src/a.py"}]}
    team = Team(tmp_path, {"implement": {"write": [written], "events": [answer]}})

    run = team.run(order("T-1", using=settings(redaction=redaction)))

    assert receipts(run)[0].artifacts[0].contains_secret is marked


@pytest.mark.parametrize(("source", "found"), [("git", ["a.txt"]), ("roots", ["a.txt", "ignored.txt"])])
def test_files_are_found_as_the_settings_say(
    tmp_path: Path, source: Literal["git", "roots"], found: list[str]
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "ignored.txt").write_text("i")
    (tmp_path / ".gitignore").write_text("ignored.txt\n.gitignore\n")

    files = [entry.path.decode() for entry in capture(tmp_path, SnapshotOptions(source=source)).files]

    assert [path for path in files if path != ".gitignore"] == found


def test_a_task_has_the_title_and_the_files_of_the_settings(tmp_path: Path) -> None:
    task = TaskConfig(id="T-1", goal="do it", title="The one", files=["src/a.py"])
    team = Team(tmp_path)

    team.run(order(tasks=choose_tasks(Config(tasks=[task]), "", ())))

    told = team.commands[0].inputs
    assert (told["task_title"], told["task_files"]) == ("The one", ["src/a.py"])
