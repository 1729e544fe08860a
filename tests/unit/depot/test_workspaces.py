from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from bartack.depot import Workspace, Workspaces
from bartack.errors import FileAccessError, UntrustedError


@pytest.fixture
def registry(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "home/workspaces")


def make(tmp_path: Path, name: str = "shop") -> Workspace:
    (tmp_path / name / ".bartack").mkdir(parents=True)
    return Workspace(str(tmp_path / name), str(tmp_path / name / ".bartack"))


def files(registry: Workspaces) -> list[Path]:
    return sorted(registry.directory.iterdir())


def test_a_workspace_is_kept_once_in_a_file_for_its_owner_only(registry: Workspaces, tmp_path: Path) -> None:
    shop = make(tmp_path)
    registry.add(shop)
    registry.add(shop)

    (file,) = files(registry)
    assert registry.all() == [shop]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(registry.directory.stat().st_mode) == 0o700


def test_a_workspace_that_is_kept_is_not_written_again(registry: Workspaces, tmp_path: Path) -> None:
    shop = make(tmp_path)
    registry.add(shop)
    (file,) = files(registry)
    os.utime(file, (1, 1))
    registry.add(shop)

    assert file.stat().st_mtime == 1


def test_without_a_workspace_nothing_is_made(registry: Workspaces) -> None:
    assert registry.all() == []
    assert not registry.directory.exists()


def test_the_state_directory_belongs_to_the_workspace(registry: Workspaces, tmp_path: Path) -> None:
    shop = make(tmp_path)
    other = Workspace(shop.path, make(tmp_path, "elsewhere").state_dir)
    registry.add(shop)
    registry.add(other)

    assert registry.all() == sorted([shop, other])


@pytest.mark.parametrize("gone", ["shop", "shop/.bartack"])
def test_a_workspace_that_is_gone_is_left_out_and_its_file_removed(
    registry: Workspaces, tmp_path: Path, gone: str
) -> None:
    shop, stock = make(tmp_path), make(tmp_path, "stock")
    registry.add(shop)
    registry.add(stock)
    shutil.rmtree(tmp_path / gone)

    assert registry.all() == [stock]
    assert len(files(registry)) == 1


def test_a_file_in_the_place_of_a_workspace_is_no_workspace(registry: Workspaces, tmp_path: Path) -> None:
    shop = make(tmp_path)
    registry.add(shop)
    shutil.rmtree(shop.state_dir)
    Path(shop.state_dir).write_text("")

    assert registry.all() == []


@pytest.mark.skipif(
    os.geteuid() == 0,
    reason="NOT CHECKED as root, who can look everywhere: a directory that cannot be looked at",
)
def test_a_workspace_that_cannot_be_looked_at_is_not_gone(registry: Workspaces, tmp_path: Path) -> None:
    shop = make(tmp_path, "closed/shop")
    registry.add(shop)
    (tmp_path / "closed").chmod(0)
    try:
        assert registry.all() == [shop]
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_many_workspaces_are_kept(registry: Workspaces, tmp_path: Path) -> None:
    made = [make(tmp_path, f"w{number:03}") for number in range(300)]
    for workspace in made:
        registry.add(workspace)

    assert registry.all() == made


def as_link(file: Path) -> None:
    content = file.read_bytes()
    file.unlink()
    other = file.parent.parent / "other"
    other.write_bytes(content)
    file.symlink_to(other)


def as_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def as_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def with_another_path(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"shop", b"stck"))


def with_another_name(file: Path) -> None:
    file.rename(file.with_name("0" * 32 + ".json"))


def of_a_newer_version(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"format":1', b'"format":2'))


SPOILT: dict[str, Callable[[Path], object]] = {
    "link": as_link,
    "pipe": as_pipe,
    "directory": as_directory,
    "another path": with_another_path,
    "another name": with_another_name,
    "newer": of_a_newer_version,
    "no JSON": lambda file: file.write_bytes(b"\xff{"),
    "other JSON": lambda file: file.write_bytes(b"[1]"),
    "relative": lambda file: file.write_bytes(b'{"format":1,"path":"a","state_dir":"b"}'),
    "null": lambda file: file.write_bytes(b'{"format":1,"path":"/a\\u0000","state_dir":"/b"}'),
    "large": lambda file: file.write_bytes(file.read_bytes() + b" " * 1_000_000),
    "ending": lambda file: file.rename(file.with_suffix(".tmp")),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_file_that_is_not_as_it_was_written_counts_for_nothing_and_is_left_alone(
    registry: Workspaces, tmp_path: Path, how: str
) -> None:
    shop, stock = make(tmp_path), make(tmp_path, "stck")
    registry.add(shop)
    (file,) = files(registry)
    SPOILT[how](file)
    registry.add(stock)

    assert registry.all() == [stock]
    assert len(files(registry)) == 2


@pytest.mark.parametrize("left", [b"", b'{"format":1,"path":"/'])
def test_half_a_file_is_written_again(registry: Workspaces, tmp_path: Path, left: bytes) -> None:
    shop = make(tmp_path)
    registry.add(shop)
    (file,) = files(registry)
    file.write_bytes(left)
    assert registry.all() == []
    registry.add(shop)

    assert registry.all() == [shop]


def test_a_link_is_not_written_through(registry: Workspaces, tmp_path: Path) -> None:
    shop = make(tmp_path)
    registry.add(shop)
    (file,) = files(registry)
    file.unlink()
    file.symlink_to(tmp_path / "target")
    registry.add(shop)

    assert not (tmp_path / "target").exists()


def test_a_directory_that_others_can_write_to_is_neither_read_nor_written(
    registry: Workspaces, tmp_path: Path
) -> None:
    registry.add(make(tmp_path))
    registry.directory.chmod(0o777)
    registry.add(make(tmp_path, "stock"))

    with pytest.raises(UntrustedError):
        registry.all()
    assert len(files(registry)) == 1


def test_a_registry_that_cannot_be_written_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    registry = Workspaces(tmp_path / "home/workspaces")
    registry.add(make(tmp_path))

    with pytest.raises(FileAccessError):
        registry.all()


def test_a_path_that_is_not_text_is_not_kept(registry: Workspaces) -> None:
    registry.add(Workspace("/a\udcff", "/b"))

    assert registry.all() == []
