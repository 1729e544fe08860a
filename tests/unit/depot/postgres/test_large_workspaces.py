"""Workspaces whose packs are larger than a value can be that a database keeps without an object store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.depot.yard import Yard

from bartack.config.sections import WorkspaceConfig
from bartack.depot.elsewhere import write_elsewhere
from bartack.depot.postgres import _objects
from bartack.errors import BlobTooLargeError
from bartack.runtime.copies.copies import PART_BYTES
from bartack.runtime.hub.carried import Carried, bring_workspace, carry_workspace
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.run_state import State

PART = 1 << 20
RUN = "run-20260101-000000-00000000"


def run_of(yard: Yard, folder: Path) -> RunDir:
    run = RunDir(folder / RUN)
    run.make()
    write_elsewhere(run.path, yard.team.where)
    return run


def submit(run: RunDir, workspace: Path, part_bytes: int) -> Carried:
    carried = carry_workspace(run, workspace, WorkspaceConfig(), part_bytes)
    run.create([carried.drafts()])
    return carried


@pytest.mark.requirement("fleet-copy-parts")
def test_a_workspace_travels_through_a_database_that_keeps_no_value_of_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PART_BYTES <= _objects.MOST_BYTES // 2
    monkeypatch.setattr(_objects, "MOST_BYTES", 2 * PART)
    yard = Yard(tmp_path)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "large.bin").write_bytes(os.urandom(5 * PART))
    with pytest.raises(BlobTooLargeError):
        submit(run_of(yard, tmp_path / "whole"), workspace, 6 * PART)
    submit(run_of(yard, tmp_path / "submitted"), workspace, PART)

    elsewhere, state = run_of(yard, tmp_path / "elsewhere"), State()
    with elsewhere.open_reader() as reader:
        apply_all(state, reader.read())
    place = Path(bring_workspace(elsewhere, state.copies, tmp_path / "work", elsewhere.open_blobs().get))

    assert (place / "large.bin").read_bytes() == (workspace / "large.bin").read_bytes()
    yard.close()
