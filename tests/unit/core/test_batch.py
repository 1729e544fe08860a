from __future__ import annotations

from pathlib import Path

import pytest

from bartack.core.batch import Batch
from bartack.testing import FaultyDisk


def test_what_was_written_survives_a_power_cut_when_it_is_settled() -> None:
    disk = FaultyDisk()
    batch = Batch(disk)
    batch.make_dirs("/a/b")
    batch.write("/a/b/file", b"content")
    assert disk.after_power_cut().tree() == {}

    batch.settle()

    assert disk.after_power_cut().tree() == {"/a/b/file": b"content"}


def test_each_directory_is_synced_once() -> None:
    disk = FaultyDisk()
    batch = Batch(disk)
    batch.make_dirs("/a")
    for number in range(3):
        batch.write(f"/a/{number}", b"content")
    batch.settle()

    synced = [operation.path for operation in disk.log if operation.name.startswith("sync")]
    assert synced == ["/a/0", "/a/1", "/a/2", "/", "/a"]


def test_nothing_is_synced_where_no_power_cut_has_to_be_survived() -> None:
    disk = FaultyDisk()
    batch = Batch(disk, synced=False)
    batch.make_dirs("/a")
    batch.write("/a/file", b"content")
    batch.settle()

    assert not [operation for operation in disk.log if operation.name.startswith("sync")]


def test_a_directory_that_the_caller_syncs_is_left() -> None:
    disk = FaultyDisk()
    batch = Batch(disk)
    batch.make_dirs("/a/b")
    batch.settle(leaving=("/a",))

    assert disk.after_power_cut().folders() == {"/a"}


def test_a_file_that_exists_is_not_written_over() -> None:
    disk = FaultyDisk()
    disk.put("/file", b"old")

    with pytest.raises(FileExistsError):
        Batch(disk).write("/file", b"new")


def test_a_tree_is_settled_without_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "tree" / "below").mkdir(parents=True)
    (tmp_path / "tree" / "below" / "file").write_bytes(b"content")
    (tmp_path / "tree" / "gone").symlink_to(tmp_path / "nothing")
    batch = Batch()
    batch.include_tree(str(tmp_path / "tree"))

    batch.settle()
