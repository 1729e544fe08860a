"""Copies beside the loop of the hub: real ones, made in a thread."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.runtime.stage import Puppet, Stage, shell

from bartack.runtime.hub.copier import Copier
from bartack.runtime.kernel import actions as act
from bartack.runtime.kernel.copies.core import CopyingCore
from bartack.runtime.rundir.layout import RunDir

LIMIT_S = 30.0


class Copying(Stage):
    """A stage whose copies are real."""

    def __init__(self, folder: Path) -> None:
        super().__init__(keeps_copies=True)
        self.run = RunDir(folder / "run-20260101-000000-00000000")
        self.run.make()
        self.elsewhere: dict[str, str] = {}
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        assert isinstance(self.core, CopyingCore)
        self.copier = Copier(self.run, self.core, self.workspace, prepare=self.prepare)

    def prepare(self) -> None:
        """What is brought into the directory of the run for the next copy."""
        for name, content in self.elsewhere.items():
            file = self.run.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, "utf-8")

    def keep_copy(self, action: act.KeepCopy | act.PackCopy) -> None:
        if isinstance(action, act.KeepCopy):
            self.copier.keep(action)
        else:
            self.copier.pack(action)

    def take(self) -> None:
        """Take what became of a copy."""
        assert select.select([self.copier], [], [], LIMIT_S)[0]
        # A stage keeps its values in memory; those of the run are in its directory.
        self.store.blobs.update(
            {path.parent.name + path.name: path.read_bytes() for path in self.run.path.glob("blobs/*/*")}
        )
        self.copier.take_outcomes()
        self.hub.finish_turn()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Copying]:
    made = Copying(tmp_path)
    yield made
    made.copier.close()


def command(stage: Copying, main: Puppet, n: int) -> int:
    i = shell(main, n)
    stage.end_shell()
    return i


def test_a_copy_is_made_beside_the_loop_and_is_a_value_of_the_run(stage: Copying) -> None:
    main = stage.begin()
    (stage.workspace / "a.txt").write_text("a\n", "utf-8")
    i = command(stage, main, 1)
    assert main.answer(i) is None
    stage.take()
    assert main.answer(i) is not None

    same = command(stage, main, 2)
    stage.take()

    assert main.answer(same) is not None
    assert len(stage.core.state.copies.packs) == 1
    assert stage.kinds().count("workspace.kept") == 1
    assert stage.core.state.copies.latest is not None
    assert stage.core.state.copies.latest.took_us > 0


def test_a_hub_that_is_to_stop_waits_for_the_copy_that_a_step_needs(stage: Copying) -> None:
    main = stage.begin()
    assert not stage.copier.wait_for_held(), "no step needs one"
    i = command(stage, main, 1)

    assert stage.copier.wait_for_held()
    stage.take()

    assert main.answer(i) is not None


def test_a_copy_that_cannot_be_made_is_reported(stage: Copying) -> None:
    main = stage.begin()
    stage.run.copies.write_text("not a directory", "utf-8")
    i = command(stage, main, 1)
    stage.take()
    assert main.answer(i) is None
    stage.run.copies.unlink()

    stage.wait(1.1)
    stage.take()

    assert main.answer(i) is not None


def test_an_error_that_nobody_expected_is_reported_and_the_next_copy_is_made(
    stage: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*words: object, **more: object) -> None:
        raise ValueError("a mistake")

    main = stage.begin()
    with monkeypatch.context() as broken:
        broken.setattr("bartack.runtime.hub.copier.open_copies", fail)
        i = command(stage, main, 1)
        stage.take()
    assert main.answer(i) is None

    stage.wait(1.1)
    stage.take()

    assert main.answer(i) is not None


@pytest.mark.requirement("fleet-conversations")
def test_a_copy_has_what_is_brought_into_the_directory_of_the_run_for_it(stage: Copying) -> None:
    main = stage.begin()
    for n in (1, 2):
        stage.elsewhere["agents/claude/c1/copies/x.jsonl"] = f"turn {n}"
        command(stage, main, n)
        stage.take()

        latest = stage.core.state.copies.latest
        assert latest is not None
        shown = subprocess.run(
            ["git", "show", f"{latest.copy}:run/agents/claude/c1/copies/x.jsonl"],
            cwd=stage.run.copies,
            check=True,
            timeout=LIMIT_S,
            capture_output=True,
            text=True,
        )
        assert shown.stdout == f"turn {n}"
