from __future__ import annotations

import errno
import fcntl
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bartack.errors import TreeLockedError
from bartack.supervision.process import cgroup as _cgroup
from bartack.supervision.process import lock as _lock
from bartack.supervision.process.cgroup import (
    SWITCH,
    Cgroup,
    CgroupTree,
    NoCgroupsError,
    find_own_group,
    kill_dead_cgroups,
    kill_dead_tree,
    open_cgroup_tree,
    remove_group,
)
from bartack.supervision.process.cgroup_probe import probe_cgroups
from bartack.supervision.process.lock import take_tree_lock

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="control groups are of Linux")

DEAD = "bartack-00000000"


def write_proc(place: Path, own: str, *mounts: tuple[str, str]) -> str:
    """Files as the kernel has them of a process in the group ``own``; of each mount its part of the groups, and where it is."""
    lines = [f"41 31 0:38 {root} {point} rw shared:9 - cgroup2 cgroup2 rw" for root, point in mounts]
    lines.append("30 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory")
    place.joinpath("mountinfo").write_text("\n".join(lines) + "\n")
    place.joinpath("cgroup").write_text(f"4:memory:/elsewhere\n{own}\n")
    return str(place)


@pytest.mark.parametrize(
    ("own", "root", "inside"),
    [
        ("/", "/", "."),
        ("/user.slice/app", "/", "user.slice/app"),
        ("/docker/abc", "/docker/abc", "."),
        ("/docker/abc/x", "/docker/abc", "x"),
    ],
)
def test_the_own_group_is_found_where_the_mount_shows_it(
    tmp_path: Path, own: str, root: str, inside: str
) -> None:
    point = tmp_path / "a b"
    point.joinpath(inside).mkdir(parents=True)
    proc = write_proc(tmp_path, f"0::{own}", (root, str(point).replace(" ", "\\040")))

    assert find_own_group(proc) == os.path.normpath(point / inside)


@pytest.mark.parametrize(
    ("own", "root"),
    [("/docker/abcd", "/docker/abc"), ("/../other", "/docker"), ("/gone", "/"), ("/gone (deleted)", "/")],
)
def test_a_group_that_no_mount_shows_is_not_used(tmp_path: Path, own: str, root: str) -> None:
    proc = write_proc(tmp_path, f"0::{own}", (root, str(tmp_path)))

    with pytest.raises(NoCgroupsError, match="cannot be seen from here"):
        find_own_group(proc)


@pytest.mark.parametrize("own", ["0::/", "1:name=systemd:/"])
def test_a_system_without_cgroup_v2_has_no_groups(tmp_path: Path, own: str) -> None:
    mounts = () if own == "0::/" else (("/", str(tmp_path)),)
    proc = write_proc(tmp_path, own, *mounts)

    with pytest.raises(NoCgroupsError, match="no cgroup v2"):
        find_own_group(proc)
    with pytest.raises(NoCgroupsError, match="does not report control groups"):
        find_own_group(str(tmp_path / "nothing"))


def fake_mkdir(monkeypatch: pytest.MonkeyPatch, *, kind: str = "domain\n", kill: bool = True) -> None:
    """Directories are made as in the file system of groups: with files in them, and a remove that does not mind these."""
    mkdir, rmdir = os.mkdir, os.rmdir

    def make(path: str) -> None:
        mkdir(path)
        Path(path, "cgroup.type").write_text(kind)
        Path(path, "cgroup.procs").write_text("")
        Path(path, "cgroup.events").write_text("populated 0\nfrozen 0\n")
        if kill:
            Path(path, "cgroup.kill").write_text("")

    def remove(path: str) -> None:
        if "populated 1" in Path(path, "cgroup.events").read_text():
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        inside = list(Path(path).iterdir())
        if not any(entry.is_dir() for entry in inside):
            for entry in inside:
                entry.unlink()
        rmdir(path)

    monkeypatch.setattr(os, "mkdir", make)
    monkeypatch.setattr(os, "rmdir", remove)


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CgroupTree]:
    fake_mkdir(monkeypatch)
    opened = open_cgroup_tree({}, str(tmp_path))
    yield opened
    opened.close()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.EAGAIN])
def test_where_no_group_can_be_made_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "mkdir", failing(number))

    with pytest.raises(NoCgroupsError, match=os.strerror(number)):
        open_cgroup_tree({}, str(tmp_path))


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("kind", ["domain invalid\n", "threaded\n", "domain threaded\n"])
def test_groups_of_threads_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    fake_mkdir(monkeypatch, kind=kind)

    with pytest.raises(NoCgroupsError, match="one of threads"):
        open_cgroup_tree({}, str(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_cannot_end_a_group_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mkdir(monkeypatch, kill=False)

    with pytest.raises(NoCgroupsError, match=r"Linux 5\.14"):
        open_cgroup_tree({}, str(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_who_switches_groups_off_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mkdir(monkeypatch)

    with pytest.raises(NoCgroupsError, match=SWITCH):
        open_cgroup_tree({SWITCH: "off"}, str(tmp_path))

    assert list(tmp_path.iterdir()) == []


def test_a_ground_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mkdir(monkeypatch)
    made: list[str] = []
    mkdir = os.mkdir

    def make_and_lose(path: str) -> None:
        mkdir(path)
        made.append(path)
        if len(made) < 3:
            assert kill_dead_tree(path, 0)

    monkeypatch.setattr(os, "mkdir", make_and_lose)
    opened = open_cgroup_tree({}, str(tmp_path))

    assert opened.path == made[2]
    assert [str(path) for path in tmp_path.iterdir()] == [opened.path]
    opened.close()


def test_nothing_is_left_of_a_closed_ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mkdir(monkeypatch)
    cgroups = open_cgroup_tree({}, str(tmp_path))
    group = made(cgroups, 7)
    cgroups.settle(group)
    os.mkdir(f"{group.path}/made by the tree itself")

    cgroups.close()

    assert list(tmp_path.iterdir()) == []


def made(cgroups: CgroupTree, token: int) -> Cgroup:
    group = cgroups.make(token)
    assert group is not None
    return group


@pytest.mark.parametrize(
    ("number", "again"),
    [(errno.EAGAIN, True), (errno.ENOMEM, True), (errno.ENOENT, False), (errno.EPERM, False)],
)
def test_a_group_that_cannot_be_made_is_tried_again_only_if_that_may_pass(
    cgroups: CgroupTree, monkeypatch: pytest.MonkeyPatch, number: int, again: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", failing(number))
        assert cgroups.make(1) is None

    group = cgroups.make(2)

    assert (group is not None) == again
    if group is not None:
        os.close(group.fd)


@pytest.mark.parametrize(
    ("number", "again"), [(errno.EAGAIN, True), (errno.ENOSYS, False), (errno.EBUSY, False)]
)
def test_after_a_child_that_could_not_be_born_in_its_group_there_are_no_more_unless_that_may_pass(
    cgroups: CgroupTree, number: int, again: bool
) -> None:
    group = made(cgroups, 1)
    group.problem = number
    cgroups.settle(group)
    cgroups.drop(group)

    following = cgroups.make(2)

    assert (following is not None) == again
    if following is not None:
        os.close(following.fd)


def test_a_group_that_seems_full_for_a_moment_is_removed_later(cgroups: CgroupTree) -> None:
    first = made(cgroups, 1)
    cgroups.settle(first)
    events = Path(first.path, "cgroup.events")
    events.write_text("populated 1\n")
    cgroups.drop(first)
    assert events.exists()

    events.write_text("populated 0\n")
    cgroups.settle(made(cgroups, 2))

    assert not os.path.exists(first.path)


def test_the_processes_of_a_group_are_those_of_groups_below_it_too(cgroups: CgroupTree) -> None:
    group = made(cgroups, 1)
    cgroups.settle(group)
    os.mkdir(f"{group.path}/below")
    Path(group.path, "cgroup.procs").write_text("11\n12\n0\n")
    Path(group.path, "below", "cgroup.procs").write_text("13\n")

    assert list(group.iter_pids()) == []
    Path(group.path, "cgroup.events").write_text("populated 1\n")
    assert list(group.iter_pids()) == [11, 12, 13]
    Path(group.path, "cgroup.events").write_text("populated 0\n")


def test_whose_a_process_is_stands_in_its_group(cgroups: CgroupTree, monkeypatch: pytest.MonkeyPatch) -> None:
    name = os.path.basename(cgroups.path)
    texts = {
        "/proc/1/cgroup": f"1:cpu:/\n0::/user/{name}/42\n",
        "/proc/2/cgroup": f"0::/user/{name}/42/bartack-12345678/3\n",
        "/proc/3/cgroup": f"0::/{name}\n",
        "/proc/4/cgroup": "0::/bartack-12345678/3\n",
    }

    def read(path: str) -> bytes:
        if path not in texts:
            raise FileNotFoundError
        return texts[path].encode()

    monkeypatch.setattr(_cgroup, "_read", read)

    assert [cgroups.token_of(pid) for pid in (1, 2, 3, 4, 5)] == [42, 42, None, None, None]


def test_the_kernel_freezes_all_groups_at_once_and_reports_when_they_are(cgroups: CgroupTree) -> None:
    switch, events = Path(cgroups.path, "cgroup.freeze"), Path(cgroups.path, "cgroup.events")
    switch.write_text("")

    cgroups.freeze()
    assert switch.read_text() == "1"
    assert not cgroups.is_frozen()
    events.write_text("populated 0\nfrozen 1\n")
    assert cgroups.is_frozen()
    cgroups.thaw()
    assert switch.read_text()[0] == "0"


def test_groups_that_are_gone_or_cannot_be_frozen_are_not_frozen(cgroups: CgroupTree) -> None:
    cgroups.freeze()  # there is no file for it
    cgroups.thaw()
    events = Path(cgroups.path, "cgroup.events")
    text = events.read_text()
    events.unlink()

    assert not cgroups.is_frozen()
    events.write_text(text)


def test_the_grounds_of_the_dead_go_and_those_of_the_living_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mkdir(monkeypatch)
    living = open_cgroup_tree({}, str(tmp_path))
    for name in (DEAD, f"{DEAD}/1", f"{DEAD}/1/below", "other-group"):
        os.mkdir(str(tmp_path / name))

    later = open_cgroup_tree({}, str(tmp_path))

    assert {path.name for path in tmp_path.iterdir()} == {
        "other-group",
        os.path.basename(living.path),
        os.path.basename(later.path),
    }
    living.close()
    later.close()


def test_a_dead_ground_that_holds_us_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mkdir(monkeypatch)
    os.mkdir(str(tmp_path / DEAD))
    inside = write_proc(tmp_path, f"0::/{DEAD}/1", ("/", str(tmp_path)))
    monkeypatch.setattr(_cgroup, "OWN", inside)

    assert kill_dead_tree(str(tmp_path / DEAD), 0)

    assert (tmp_path / DEAD / "cgroup.kill").read_text() == ""


def test_groups_of_dead_programs_are_killed_by_the_next_look_unless_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mkdir(monkeypatch)
    os.mkdir(str(tmp_path / DEAD))

    def here(proc: str = "") -> str:
        return str(tmp_path)

    monkeypatch.setattr(_cgroup, "find_own_group", here)
    monkeypatch.setenv(SWITCH, "off")
    kill_dead_cgroups()
    assert (tmp_path / DEAD).is_dir()

    monkeypatch.delenv(SWITCH)
    kill_dead_cgroups()

    assert not (tmp_path / DEAD).exists()


def test_a_group_with_a_process_in_it_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mkdir(monkeypatch)
    os.mkdir(str(tmp_path / DEAD))
    (tmp_path / DEAD / "cgroup.events").write_text("populated 1\n")

    assert not remove_group(str(tmp_path / DEAD), 0.01)
    assert remove_group(str(tmp_path / "not there"))


def test_the_lock_of_a_tree_is_had_only_when_the_grounds_written_in_it_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mkdir(monkeypatch)
    monkeypatch.setattr(_lock, "KILL_TIMEOUT_S", 0.01)
    for name in (DEAD, "bartack-11111111"):
        os.mkdir(str(tmp_path / name))
    lock = tmp_path / "lock.tree"
    lock.write_text(f"{tmp_path / DEAD}\n{tmp_path}\n{tmp_path}/bartack-11111111\n/nowhere\n")
    (tmp_path / DEAD / "cgroup.events").write_text("populated 1\n")

    with pytest.raises(TreeLockedError):
        take_tree_lock(str(lock), 0)
    assert not (tmp_path / "bartack-11111111").exists()
    assert (tmp_path / DEAD / "cgroup.kill").read_text() == "1"

    (tmp_path / DEAD / "cgroup.events").write_text("populated 0\n")
    os.close(take_tree_lock(str(lock), 0))

    assert [path.name for path in tmp_path.iterdir()] == ["lock.tree"]
    assert lock.read_text() == ""


def test_another_process_that_kills_the_groups_is_waited_for_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mkdir(monkeypatch)
    path = str(tmp_path / DEAD)
    os.mkdir(path)
    other = os.open(path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    rounds: list[float] = []

    def wait(*arguments: object) -> None:
        rounds.append(1.0)
        os.close(other)

    monkeypatch.setattr(select, "select", wait)

    assert kill_dead_tree(path, 30.0)
    assert (os.path.isdir(path), len(rounds)) == (True, 0)
    assert kill_dead_tree(path, 30.0, patient=True)
    assert (os.path.isdir(path), len(rounds)) == (False, 1)


def test_a_child_that_cannot_be_born_in_its_group_is_born_where_we_are() -> None:
    code = (
        "import os\n"
        "from bartack.supervision.parent import _spawn\n"
        "from bartack.supervision.process.cgroup import Cgroup\n"
        "no_group = Cgroup('/', os.open('/', os.O_RDONLY))\n"
        "pid = _spawn._fork(no_group)\n"
        "if not pid: os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), no_group.problem > 0)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "7 True\n"


def test_a_probe_that_cannot_be_made_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 10)

    monkeypatch.setattr(subprocess, "run", refuse)

    assert probe_cgroups().startswith("trying it failed: ")
