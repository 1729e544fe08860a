"""What can be read of a run of the pipeline by a program outside it: receipts and snapshots."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from tests.cli.runs.stories import Begin, Story

from bartack.errors import ManifestError
from bartack.pipeline.records.records import Accepted
from bartack.pipeline.snapshot.listing import SnapshotOptions
from bartack.pipeline.snapshot.manifest import write_manifest
from bartack.pipeline.snapshot.snapshot import capture
from bartack.runtime import AsyncRun, Run
from bartack.runtime.rundir.receipts import Receipt, ReceiptAgent, ReceiptArtifact
from bartack.runtime.state import entries as e


def receipt(step: int, path: str, content: bytes) -> Receipt:
    artifact = ReceiptArtifact(path=path, sha256=f"sha256:{sha256(content).hexdigest()}", size=len(content))
    return Receipt(
        schema=1,
        run_id="r",
        task_id="T-1",
        step=step,
        action="implement",
        round=step,
        cause="start",
        idempotency_key=f"ik:{step}",
        correlation_id="c",
        command_message_id="m",
        event_message_id="e",
        agent=ReceiptAgent(agent_type="builder", agent_id="ann"),
        attempts=[],
        snapshot_id="none",
        result_snapshot_id="none",
        changes=[],
        event="builder.completed",
        artifacts=[artifact],
        clarifications=[],
        conflict_resolutions=[],
        created_at="2026-01-01T00:00:00Z",
    )


@pytest.fixture
def built(story: Begin, tmp_path: Path) -> Story:
    """A run with two receipts and two snapshots, and an answer that was refused."""
    told = story("ffff0006")
    outcomes = [
        Accepted(result_snapshot_id="none", receipt=receipt(1, "a.txt", b"1")),
        Accepted(result_snapshot_id="none", code="spec_edit", problem="no"),
        Accepted(result_snapshot_id="none", receipt=receipt(2, "b.txt", b"2")),
    ]
    for n, outcome in enumerate(outcomes, 1):
        told.tell(e.StepStarted(p="main", n=n, step="body", fp=f"f{n}", about="accept"))
        done = e.StepFinished(p="main", n=n, step="body", fp=f"f{n}", about="accept")
        told.tell(done, msgspec.json.encode(outcome))
    code = tmp_path / "code"
    code.mkdir()
    for second, name in enumerate(("z.txt", "a.txt")):
        (code / name).write_text("x")
        taken = capture(code, SnapshotOptions(source="roots"))
        write_manifest(told.run.path / "snapshots", taken, f"2026-01-01T00:00:0{second}.000000Z")
    return told.end()


def test_receipts_are_read_from_the_journal_and_compared_with_the_files(built: Story, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"1")
    (tmp_path / "b.txt").write_bytes(b"changed")

    found = list(Run.open(built.run.path).receipts())

    assert [(each.task_id, each.step) for each in found] == [("T-1", 1), ("T-1", 2)]
    assert [each.verify(tmp_path) for each in found] == [{"a.txt": "same"}, {"b.txt": "changed"}]
    assert found[0].verify() == {"a.txt": "same"}
    (tmp_path / "a.txt").unlink()
    assert found[0].verify() == {"a.txt": "missing"}


def test_snapshots_come_in_the_order_in_which_they_were_taken(built: Story) -> None:
    first, second = Run.open("latest").snapshots()

    assert repr(first) == f"Snapshot('{first.id}', source='roots')"
    assert [entry.path for entry in first.files] == [b"z.txt"]
    assert repr(first) == f"Snapshot('{first.id}', source='roots', count=1, size_bytes=1)"
    assert (second.count, second.size_bytes, second.source) == (2, 2, "roots")
    assert [(change.path, change.change) for change in first.diff(second)] == [(b"a.txt", "added")]
    assert [(change.path, change.change) for change in second.diff(first)] == [(b"a.txt", "deleted")]
    assert first.diff(first) == []


def test_the_same_can_be_awaited(built: Story) -> None:
    async def read() -> tuple[list[int], list[int]]:
        run = await AsyncRun.open("latest")
        steps = [each.step async for each in run.receipts()]
        return steps, [each.count async for each in run.snapshots()]

    assert asyncio.run(read()) == ([1, 2], [1, 2])


def test_a_run_without_a_pipeline_has_neither(completed: Story) -> None:
    run = Run.open(completed.run.path)

    assert (list(run.receipts()), list(run.snapshots())) == ([], [])


def test_a_manifest_that_is_none_is_named(built: Story) -> None:
    manifest = built.run.path / "snapshots" / "snap-000000000000.manifest.json"
    manifest.write_text("{}")

    with pytest.raises(ManifestError, match="snap-000000000000"):
        list(Run.open("latest").snapshots())
    manifest.unlink()  # what tests leave behind is looked at
