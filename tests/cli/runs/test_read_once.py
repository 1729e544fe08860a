"""Commands that look at a run read its journal once, whatever they show of it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from tests.cli.runs.stories import Call, Story, an_error, finished

from bartack.cli.app._pipeline_options import PIPELINE
from bartack.core.disk import RealDisk
from bartack.mcp._follow import Cursor, Follow
from bartack.mcp._report import describe_more
from bartack.runtime.rundir.mirror import RunFile
from bartack.runtime.rundir.step_search import LARGE
from bartack.runtime.state import entries as e

STEPS = 6000
LOOKS = 3 << 16
"""Bytes that are read to find a run, and where its journal ends."""

COMMANDS = [
    "status",
    "status --json",
    "status latest",
    "status latest --json",
    "status --watch --json",
    "status --all",
    "show",
    "show --json",
    "show --all",
    "show --steps",
    "show --failed",
    "show --monitors",
    "show --verify",
    "show 5990",
    "show main:5990",
    "log",
    "log -f",
    "log --json",
    "log -f --json",
    "ps latest",
    "answer",
    "answer latest",
    "report",
    "dlq list",
    "mailbox list",
    "journal show latest",
    "journal verify latest",
]


class Count:
    """How many bytes of a file were read through the interface to the disk."""

    def __init__(self, file: Path) -> None:
        self._number = file.stat().st_ino
        self.bytes = 0

    def add(self, fd: int, count: int) -> None:
        self.bytes += count if os.fstat(fd).st_ino == self._number else 0


@pytest.fixture
def count(told: Story, monkeypatch: pytest.MonkeyPatch) -> Count:
    counted, real = Count(journal_of(told)), RealDisk.read

    def read(self: RealDisk, fd: int, size: int, offset: int) -> bytes:
        data = real(self, fd, size, offset)
        counted.add(fd, len(data))
        return data

    monkeypatch.setattr(RealDisk, "read", read)
    return counted


def journal_of(told: Story) -> Path:
    return told.run.path / "journal.ndjson"


def long(told: Story, *, ended: str) -> Story:
    """Let a run do many steps."""
    told.journal.stage(*(e.draft(finished(n), b'{"status":0,"stdout":"some text"}') for n in range(1, STEPS)))
    told.tell(e.OutputWritten(p="main", n=STEPS, channel="print"), b'"hello"')
    error = an_error()
    if ended == "failed":
        told.tell(e.WorkerEnded(path="main", error=error)).tell(e.FailureRecorded(worker="main", error=error))
    told.tell(e.RunEnded(status=ended))
    return told.end()


@pytest.fixture(params=["completed", "failed", "killed", "pipeline"])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    """A long run: one that has ended, one whose hub was killed at its end, or one of the pipeline."""
    kind: str = request.param
    told = Story(tmp_path / ".bartack/runs/run-20260101-000000-aaaa0001")
    told.begin(worker=PIPELINE if kind == "pipeline" else "")
    long(told, ended="failed" if kind == "failed" else "completed")
    if kind == "killed":
        mirror = msgspec.json.decode(told.run.summary() or b"", type=RunFile)
        mirror.status, mirror.pid = "running", 4_000_000
        told.run.mark(msgspec.json.encode(mirror))
    return told


@pytest.mark.requirement("journals-are-read-once")
def test_every_command_that_looks_at_a_run_reads_its_journal_once(
    call: Call, told: Story, count: Count
) -> None:
    size = journal_of(told).stat().st_size
    assert size > LARGE
    passes: dict[str, float] = {}

    for command in COMMANDS:
        count.bytes = 0
        done = call(*command.split())
        assert done.returncode == 0, done.stderr
        if count.bytes > size + LOOKS:
            passes[command] = count.bytes / size

    assert passes == {}


@pytest.mark.requirement("journals-are-read-once")
def test_an_mcp_client_has_a_journal_read_once(told: Story, count: Count) -> None:
    with Follow(told.run, Cursor()) as follow:
        follow.wait(1.0, lambda: False, lambda line: None)
        described = describe_more(follow)

    assert described["status"] in {"completed", "failed"}
    assert count.bytes <= journal_of(told).stat().st_size + LOOKS
