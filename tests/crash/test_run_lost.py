"""The files of a run that was killed are damaged from outside: resume refuses, says why, and executes and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests import warm
from tests.crash.runs import PATIENCE_S, RealRun, wait_until

from bartack.core.disk import RealDisk
from bartack.errors import BlobCorruptError, JournalLostError
from bartack.journal._lock import read_mark
from bartack.runtime.client.manage import cancel_run, fail_run

COUNT = 8
LARGE = 100_000

Killed = Callable[..., RealRun]


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    """A run that has finished its steps, waits for a message, and whose hub was killed."""
    with ExitStack() as stack:

        def make(size: int = 10) -> RealRun:
            run = stack.enter_context(RealRun.create(tmp_path, "counted.py", "counted", (COUNT, size)))
            run.start()
            run.wait_open("receive")
            # Written is not yet acknowledged: until then a missing line is no loss.
            wait_until(lambda: acknowledged(run) == run.last_seq())
            run.kill_hub()
            run.wait_nothing_left()
            assert len(run.effects()) == COUNT
            return run

        yield make


def acknowledged(run: RealRun) -> int:
    """How far the run knows its journal to have got."""
    mark = read_mark(RealDisk(), str(run.run.path))
    return 0 if mark is None else mark.seq


def resume(run: RealRun, *options: str) -> subprocess.CompletedProcess[str]:
    """``bartack resume`` in a process of its own."""
    return warm.run(
        [sys.executable, "-m", "bartack", "resume", run.run.id, *options],
        cwd=run.workspace,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def history(run: RealRun) -> bytes:
    return (run.run.path / "journal.ndjson").read_bytes().rstrip(b"\n") + b"\n"


def files(run: RealRun) -> dict[str, bytes]:
    """All files of the run by name, without the line of the lock that names its last owner."""
    found = {str(path): path.read_bytes() for path in run.run.path.rglob("*") if path.is_file()}
    return {**found, str(run.run.path / "lock"): (run.run.path / "lock").read_bytes()[64:]}


def damages(content: bytes) -> Iterator[tuple[str, bytes]]:
    lines = content.splitlines(keepends=True)
    third = len(content) // 3
    yield "cut at a third", content[:third]
    yield "zeroed from a third on", content[:third] + bytes(len(content) - third)
    yield "without its last line", b"".join(lines[:-1])
    yield "without its last line but one", b"".join([*lines[:-2], lines[-1]])
    yield "with its last lines swapped", b"".join([*lines[:-2], lines[-1], lines[-2]])


@pytest.mark.requirement("lost-entries-are-missed")
def test_a_journal_that_lost_entries_is_not_resumed_and_nothing_is_changed(killed: Killed) -> None:
    run = killed()
    for what, content in damages(history(run)):
        (run.run.path / "journal.ndjson").write_bytes(content)
        before = files(run)
        ended = resume(run)

        assert ended.returncode == 10, what
        assert "BT213" in ended.stderr, what
        assert files(run) == before, what
    assert len(run.effects()) == COUNT


@pytest.mark.requirement("lost-entries-are-missed")
def test_a_journal_cut_at_any_commit_is_refused_by_everything_that_would_write_to_it(killed: Killed) -> None:
    run = killed()
    lines = history(run).splitlines(keepends=True)
    for kept in range(3, len(lines)):
        (run.run.path / "journal.ndjson").write_bytes(b"".join(lines[:kept]))
        before = files(run)
        with pytest.raises(JournalLostError):
            run.api.resume()
        for act in (cancel_run, fail_run):
            with pytest.raises(JournalLostError):
                act(run.run, "enough")

        assert files(run) == before
    assert len(run.effects()) == COUNT


@pytest.mark.requirement("lost-entries-are-missed")
def test_run_json_alone_is_witness_enough_of_what_had_been_reached(killed: Killed) -> None:
    run = killed()
    lines = history(run).splitlines(keepends=True)
    (run.run.path / "lock").write_bytes(b"")
    (run.run.path / "journal.ndjson").write_bytes(b"".join(lines[:2]))

    assert resume(run).returncode == 10
    assert len(run.effects()) == COUNT


@pytest.mark.requirement("lost-entries-can-be-accepted")
def test_a_person_can_accept_the_loss_and_is_told_what_is_executed_again(killed: Killed) -> None:
    run = killed()
    content = history(run)
    cut = content[: len(content) // 2]
    (run.run.path / "journal.ndjson").write_bytes(cut)
    run.api.send("go", None)
    ended = resume(run, "--accept-loss", "--json")

    assert ended.returncode == 0, ended.stderr
    assert "are missing, and resuming without them was accepted" in ended.stderr
    assert "executing again" in ended.stderr
    event = msgspec.json.decode(ended.stdout.splitlines()[0], type=dict[str, object])
    assert event["event"] == "journal.lost"
    assert Path(str(event["kept_as"])).read_bytes() == cut
    assert COUNT < len(run.effects()) < 2 * COUNT


@pytest.mark.requirement("torn-line-is-reported")
def test_a_torn_tail_is_cut_and_reported(killed: Killed) -> None:
    run = killed()
    (run.run.path / "journal.ndjson").write_bytes(history(run) + b'{"seq":99,"c":99,"at":17')
    run.api.send("go", None)
    ended = resume(run, "--json")

    assert ended.returncode == 0, ended.stderr
    assert "the journal ended with an unfinished line: 24 bytes" in ended.stderr
    event = msgspec.json.decode(ended.stdout.splitlines()[0], type=dict[str, object])
    assert (event["event"], event["size_bytes"]) == ("journal.recovered", 24)
    assert Path(str(event["kept_as"])).read_bytes() == b'{"seq":99,"c":99,"at":17'
    assert len(run.effects()) == COUNT


@pytest.mark.requirement("damaged-blob-stops-a-resume")
@pytest.mark.parametrize("damage", [b"", b"y" * (LARGE + 2), None], ids=["cut", "changed", "missing"])
def test_a_damaged_blob_is_found_before_anything_is_executed_or_changed(
    killed: Killed, damage: bytes | None
) -> None:
    run = killed(LARGE)
    (blob,) = (path for path in (run.run.path / "blobs").rglob("*") if path.is_file())
    if damage is None:
        blob.unlink()
    else:
        blob.write_bytes(damage)
    before = files(run)
    ended = resume(run)

    assert ended.returncode == 10, ended.stderr
    assert BlobCorruptError.code in ended.stderr or "BT211" in ended.stderr
    assert files(run) == before
    assert len(run.effects()) == COUNT
