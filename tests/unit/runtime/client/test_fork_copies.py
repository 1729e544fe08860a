"""Forks of runs that keep copies of their workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.config.load import load_config
from bartack.depot.port import open_blob_port
from bartack.journal import Draft
from bartack.runtime.client.manage import fork_run
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.rundir.find import load_state
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.state import entries as e

PROGRAM = (
    "from bartack import Context, worker\n\n@worker\nasync def main(ctx: Context) -> int:\n    return 1\n"
)


@pytest.mark.requirement("fleet-copy-parts")
def test_a_fork_has_all_parts_of_the_copy_of_its_step_and_none_of_another_pack(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(PROGRAM, "utf-8")
    run = create_run(RunRequest(program="main.py"), tmp_path, load_config(tmp_path), is_carried=True)
    blobs = open_blob_port(run.blob_port())

    def part(data: e.EntryData, content: bytes) -> Draft:
        return e.draft(data, ref=blobs.put(content))

    with own_journal(run) as journal:
        journal.stage(e.draft(e.StepFinished(p="main", n=1, step="read", fp="1")))
        first = load_state(run, journal).copies.latest
        assert first is not None
        journal.stage(part(e.WorkspacePart(), b"all"), part(e.WorkspacePacked(copy=first.copy), b"of it"))
        finished = e.draft(e.StepFinished(p="main", n=2, step="shell", fp="2"))
        journal.stage(finished, part(e.WorkspacePart(), b"what"), part(e.WorkspaceKept(copy="c"), b"changed"))
        journal.commit()

    for step in ("main:1", "main:2"):
        fork = fork_run(run, step)
        with fork.open_reader() as reader:
            latest = load_state(fork, reader).copies.packs[-1]

        assert latest.copy == "c"
        assert [fork.open_blobs().get(one) for one in latest.parts] == [b"what", b"changed"]
