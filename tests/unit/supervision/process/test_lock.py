from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bartack.errors import TreeLockedError
from bartack.supervision.parent.guardian import hold_tree_lock
from bartack.supervision.process.lock import take_tree_lock

BOUND_S = 60.0

HOLDER = (
    "import sys\nfrom bartack.supervision.parent.guardian import hold_tree_lock\n"
    "hold_tree_lock(sys.argv[1]); print('.', flush=True); sys.stdin.read()\n"
)


@contextmanager
def holder(path: Path) -> Generator[subprocess.Popen[bytes]]:
    """Another process that holds the shared lock."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_free_lock_is_taken_at_once(tmp_path: Path) -> None:
    fd = take_tree_lock(str(tmp_path / "lock.tree"), 0)

    other = os.open(tmp_path / "lock.tree", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(fd)
    fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(other)


def test_a_lock_that_others_hold_is_waited_for_no_longer_than_allowed(tmp_path: Path) -> None:
    with holder(tmp_path / "lock.tree"):
        for timeout_s in (0, 0.1):
            began = time.monotonic()
            with pytest.raises(TreeLockedError) as caught:
                take_tree_lock(str(tmp_path / "lock.tree"), timeout_s)

            assert timeout_s <= time.monotonic() - began < BOUND_S
            assert caught.value.path == str(tmp_path / "lock.tree")


def test_a_lock_is_there_as_soon_as_the_last_holder_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "lock.tree"
    killer = "import os, signal, sys; sys.stdin.read(1); [os.kill(int(pid), 9) for pid in sys.argv[1:]]"
    with holder(path) as one, holder(path) as other:
        pids = [str(one.pid), str(other.pid)]
        with subprocess.Popen([sys.executable, "-c", killer, *pids], stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(b".")
            process.stdin.close()

            fd = take_tree_lock(str(path), BOUND_S)

        assert [holder.wait(BOUND_S) for holder in (one, other)] == [-9, -9]
    with pytest.raises(TreeLockedError):
        take_tree_lock(str(path), 0)
    os.close(fd)


def test_a_failed_try_leaves_nothing(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/fd"))
    with holder(tmp_path / "lock.tree"), pytest.raises(TreeLockedError):
        take_tree_lock(str(tmp_path / "lock.tree"), 0.05)

    assert set(os.listdir("/dev/fd")) <= before  # others of this process may close what is theirs
    os.close(take_tree_lock(str(tmp_path / "lock.tree"), 0))


def test_the_lock_of_a_file_that_was_replaced_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock.tree"
    real = fcntl.flock

    def replace_first(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        path.unlink()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", replace_first)
    fd = take_tree_lock(str(path), 1)

    assert os.path.samestat(os.fstat(fd), path.stat())
    os.close(fd)


def test_the_shared_lock_is_for_many(tmp_path: Path) -> None:
    held = [hold_tree_lock(str(tmp_path / "lock.tree")) for _ in range(2)]

    with pytest.raises(TreeLockedError):
        take_tree_lock(str(tmp_path / "lock.tree"), 0)
    for fd in held:
        os.close(fd)
    os.close(take_tree_lock(str(tmp_path / "lock.tree"), 0))
