"""Watches on a directory, by every means this machine has."""

from __future__ import annotations

import errno
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.core import watch as watching
from bartack.core.watch import WatchKind, open_watch

NATIVE: WatchKind = "inotify" if sys.platform == "linux" else "kqueue"
KINDS = pytest.mark.parametrize("kind", [NATIVE, "poll"])


def _create(root: Path) -> None:
    (root / "made").touch()


def _append(root: Path) -> None:
    with (root / "file").open("ab") as file:
        file.write(b"more")


def _overwrite(root: Path) -> None:
    fd = os.open(root / "file", os.O_WRONLY)
    os.pwrite(fd, b"X", 0)
    os.close(fd)


def _truncate(root: Path) -> None:
    os.truncate(root / "file", 1)


def _remove(root: Path) -> None:
    (root / "file").unlink()


def _rename(root: Path) -> None:
    (root / "file").rename(root / "renamed")


def _replace(root: Path) -> None:
    (root.parent / "other").write_bytes(b"content")
    (root.parent / "other").rename(root / "file")


def _make_directory(root: Path) -> None:
    (root / "directory").mkdir()


CHANGES = [_create, _append, _overwrite, _truncate, _remove, _rename, _replace, _make_directory]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    (made / "file").write_bytes(b"content")
    os.utime(made / "file", ns=(1, 1))
    return made


@KINDS
@pytest.mark.parametrize("change", CHANGES)
def test_sees_a_change_once(root: Path, kind: WatchKind, change: Callable[[Path], None]) -> None:
    with open_watch(str(root), kind=kind) as watch:
        assert watch.wait(0) is False

        change(root)

        assert watch.wait(60) is True
        assert watch.wait(0) is False


@KINDS
def test_sees_the_change_after_a_change(root: Path, kind: WatchKind) -> None:
    with open_watch(str(root), kind=kind) as watch:
        _create(root)
        assert watch.wait(60)

        (root / "made").write_bytes(b"content")
        assert watch.wait(60)


@KINDS
@pytest.mark.parametrize("timeout_s", [60.0, None])
def test_wakes_up_when_a_change_comes_while_it_waits(
    root: Path, kind: WatchKind, timeout_s: float | None
) -> None:
    with open_watch(str(root), kind=kind) as watch:
        timer = threading.Timer(0.02, _append, (root,))
        timer.start()

        assert watch.wait(timeout_s) is True

        timer.join()


@KINDS
def test_gives_up_after_the_timeout(root: Path, kind: WatchKind) -> None:
    with open_watch(str(root), kind=kind) as watch:
        before = time.monotonic()

        assert watch.wait(0.03) is False
        assert time.monotonic() - before >= 0.03
        assert watch.wait(-1) is False


@KINDS
def test_reports_once_that_the_directory_is_gone(root: Path, kind: WatchKind) -> None:
    with open_watch(str(root), kind=kind) as watch:
        shutil.rmtree(root)

        assert watch.wait(60) is True
        with pytest.raises(FileNotFoundError):
            watch.wait(60)


@KINDS
def test_refuses_what_is_not_a_directory(root: Path, kind: WatchKind) -> None:
    with pytest.raises(FileNotFoundError):
        open_watch(str(root / "none"), kind=kind)
    with pytest.raises(NotADirectoryError):
        open_watch(str(root / "file"), kind=kind)


def test_has_a_descriptor_that_is_readable_after_a_change(root: Path) -> None:
    with open_watch(str(root), kind=NATIVE) as watch:
        fd = watch.fileno()
        assert fd is not None
        assert select.select([fd], [], [], 0)[0] == []

        _append(root)

        assert select.select([fd], [], [], 60)[0] == [fd]
        assert watch.wait(0)
        assert select.select([fd], [], [], 0)[0] == []


def test_has_no_descriptor_where_it_has_to_look(root: Path) -> None:
    with open_watch(str(root), kind="poll") as watch:
        assert watch.fileno() is None


@KINDS
def test_lets_go_of_its_descriptor(root: Path, kind: WatchKind) -> None:
    before = set(os.listdir("/dev/fd"))

    watch = open_watch(str(root), kind=kind)
    watch.close()
    watch.close()
    with pytest.raises(FileNotFoundError):
        open_watch(str(root / "none"), kind=kind)

    assert set(os.listdir("/dev/fd")) <= before  # others of this process may close what is theirs


def test_takes_the_best_means_there_is(root: Path) -> None:
    with open_watch(str(root)) as watch:
        assert watch.kind == NATIVE


def test_looks_for_itself_where_the_system_allows_no_more_watches(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(path: str) -> int:
        raise OSError(errno.EMFILE, "too many", path)

    monkeypatch.setattr(watching, "_open_inotify", exhausted)
    monkeypatch.setattr(watching, "_best_kind", lambda: "inotify")

    with open_watch(str(root)) as watch:
        assert watch.kind == "poll"
    with pytest.raises(OSError, match="too many"):
        open_watch(str(root), kind="inotify")


def test_does_not_look_for_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_watch(str(tmp_path / "none"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        open_watch(str(tmp_path / "file"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a system without kqueue")
def test_refuses_a_means_that_is_not_there(root: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        open_watch(str(root), kind="kqueue")
