"""Packs: each has what the copy before lacks, and a chain of them, or one instead, makes the same copy elsewhere."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.unit.runtime.copies.places import Host, git, listing, make_repository

from bartack.errors import WorkspaceKeepError
from bartack.runtime.copies._facts import UnchangedFolders
from bartack.runtime.copies._watched import Scanned
from bartack.runtime.copies.copies import open_copies


def write_many(place: Path, chance: random.Random) -> None:
    for number in range(60):
        (place / f"{number}.txt").write_text(chance.randbytes(400).hex())


def test_a_chain_of_forty_thin_packs_is_restored_and_replaced_by_one(
    here: Host, there: Host, tmp_path: Path
) -> None:
    chance = random.Random(7)
    make_repository(here.workspace)
    write_many(here.workspace, chance)
    base = here.copies.take(here.sources, "").commit
    packs = [b"".join(here.copies.pack(base))]
    last = middle = base
    for number in range(40):
        (here.workspace / f"{number}.txt").write_text(f"changed {number}")
        (here.run / "work" / f"{number}.json").write_text("{}")
        if number % 10 == 9:
            git(here.workspace, "add", "-A")
            git(here.workspace, "commit", "--quiet", "-m", f"work {number}")
        copy = here.copies.take(here.sources, last)
        packs.append(b"".join(here.copies.pack(copy.commit, last)))
        last, middle = copy.commit, last
    one = b"".join(here.copies.pack(last, base))

    for pack in packs:
        there.copies.add_pack([pack])
    there.copies.restore(last, there.sources)

    assert listing(there.workspace) == listing(here.workspace)
    assert git(there.workspace, "log", "--format=%s").split("\n") == [
        *(f"work {number}" for number in (39, 29, 19, 9)),
        "begin",
    ]
    assert max(map(len, packs[1:])) < len(packs[0]) / 4
    assert len(one) < sum(map(len, packs[1:]))
    third = Host(tmp_path / "third")
    third.copies.add_pack([packs[0]])
    third.copies.add_pack([one])
    third.copies.restore(last, third.sources)
    assert listing(third.workspace) == listing(here.workspace)
    assert not third.copies.has(middle)
    assert third.copies.take(third.sources, last).is_same


def test_a_pack_of_one_change_is_small(here: Host) -> None:
    write_many(here.workspace, random.Random(8))
    first = here.copies.take(here.sources, "").commit
    (here.workspace / "1.txt").write_text("changed")
    second = here.copies.take(here.sources, first).commit

    assert len(b"".join(here.copies.pack(second, first))) < 2000


def test_copies_of_another_host_can_be_the_parent(here: Host, there: Host) -> None:
    make_repository(here.workspace)
    first = here.copies.take(here.sources, "").commit
    here.send(there, first)
    (there.workspace / "made.txt").write_text("there")
    git(there.workspace, "add", "-A")
    git(there.workspace, "commit", "--quiet", "-m", "there")
    second = there.copies.take(there.sources, first).commit

    there.send(here, second, first)

    assert listing(here.workspace) == listing(there.workspace)
    assert git(here.workspace, "log", "--format=%s") == "there\nbegin"


def test_a_pack_without_what_it_builds_on_is_refused(here: Host, there: Host) -> None:
    (here.workspace / "file").write_text("one" * 100)
    first = here.copies.take(here.sources, "").commit
    (here.workspace / "file").write_text("one" * 100 + "two")
    second = here.copies.take(here.sources, first).commit

    with pytest.raises(WorkspaceKeepError):
        there.copies.add_pack(here.copies.pack(second, first))
    with pytest.raises(WorkspaceKeepError):
        there.copies.add_pack([b"not a pack"])
    with pytest.raises(WorkspaceKeepError, match="no such copy"):
        list(there.copies.pack(second))
    assert not there.copies.has(second)
    assert not there.copies.has("")
    assert here.copies.has(second)


def test_copies_are_found_again_by_another_process(here: Host, there: Host) -> None:
    make_repository(here.workspace)
    first = here.copies.take(here.sources, "").commit

    again = open_copies(here.copies.directory)

    assert again.has(first)
    assert again.take(here.sources, first).is_same
    there.copies.add_pack(again.pack(first))
    assert there.copies.has(first)


def test_a_lock_of_a_killed_git_does_not_stop_the_next_copy(here: Host) -> None:
    (here.workspace / "file").write_text("one")
    first = here.copies.take(here.sources, "").commit
    lock = here.copies.directory / "watched/workspace/index.lock"
    lock.write_text("")
    (here.workspace / "file").write_text("two")

    assert not here.copies.take(here.sources, first).is_same
    assert not lock.exists()


def test_a_lost_index_is_made_again(here: Host) -> None:
    (here.workspace / "file").write_text("one")
    first = here.copies.take(here.sources, "").commit
    for file in (here.copies.directory / "watched/workspace").iterdir():
        file.write_bytes(b"") if file.name == "memory.json" else file.unlink()

    assert here.copies.take(here.sources, first).is_same


def test_a_place_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "copies.git").mkdir()
    (tmp_path / "copies.git/file").write_text("x")

    with pytest.raises(WorkspaceKeepError, match="not a repository of copies"):
        open_copies(tmp_path / "copies.git")


def test_files_of_a_run_that_are_as_they_were_are_not_given_to_git(
    here: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time_ns() + 10**10
    monkeypatch.setattr("bartack.runtime.copies._facts.time.time_ns", lambda: later)
    file = here.run / "work/file"
    file.write_text("one")
    first = here.copies.take(here.sources, "")
    (here.copies.directory / "watched/run/index").unlink()

    assert here.copies.take(here.sources, first.commit).is_same
    assert not (here.copies.directory / "watched/run/index").exists()
    file.write_text("two")
    second = here.copies.take(here.sources, first.commit)
    assert not second.is_same
    file.chmod(0o755)
    assert not here.copies.take(here.sources, second.commit).is_same


def test_files_of_a_run_that_changed_a_moment_ago_are_given_to_git(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    known = UnchangedFolders(tmp_path, ("work", "agents"))

    assert known.recall() is None
    known.remember(Scanned("tree", (), ()))
    assert known.recall() is None
