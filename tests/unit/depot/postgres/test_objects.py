"""Large values that are objects: written before a commit names them, deleted after nothing does, through every death in between."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.s3 import S3, s3
from tests.unit.depot.yard import Yard
from tests.waiting import until

from bartack.depot._object_store import Folder, ObjectStore
from bartack.depot.chores import Chore, do_due
from bartack.depot.fleet import Fleet
from bartack.depot.postgres import _objects
from bartack.depot.postgres._content import download
from bartack.depot.postgres._database import Database
from bartack.depot.postgres._objects import PIECE, check_size, delete_orphans, keep_objects
from bartack.depot.postgres._run import PostgresRun
from bartack.depot.taken import Taken
from bartack.depot.team import Team
from bartack.errors import (
    BartackError,
    BlobCorruptError,
    BlobMissingError,
    BlobTooLargeError,
    DepotError,
    ObjectStoreUnavailableError,
)
from bartack.journal import BlobRef, Draft
from bartack.journal.shared import Commit

LARGE = b'"%s"' % (b"large" * (PIECE // 4))
SMALL = b"small" * 50_000


WRITER = """
import hashlib, sys
from bartack.depot.postgres._database import Database
from bartack.depot.postgres._objects import keep_objects
from bartack.journal import BlobRef

content = bytes(2_000_000)
ref = BlobRef(hashlib.sha256(content).hexdigest(), len(content))
keep_objects(Database(sys.argv[1], blobs="s3://team/runs").shared, "default", [ref], lambda _: content)
"""


class KilledError(BaseException):
    """The process that does it is killed here."""


class Faulty:
    """An object store before or after whose acts the process is killed."""

    def __init__(self, within: ObjectStore, moment: str) -> None:
        self._within = within
        self._moment = moment
        self.name = within.name

    def put(self, key: str, content: bytes) -> None:
        self._act("put", partial(self._within.put, key, content))

    def get(self, key: str, size: int = 0) -> bytes | None:
        return self._within.get(key, size)

    def delete(self, key: str) -> None:
        self._act("delete", partial(self._within.delete, key))

    def _act(self, name: str, act: Callable[[], None]) -> None:
        if self._moment == f"before {name}":
            raise KilledError
        act()
        if self._moment == f"after {name}":
            raise KilledError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "objects"
    made.mkdir()
    return made


@pytest.fixture
def yard(tmp_path: Path, folder: Path) -> Iterator[Yard]:
    made = Yard(tmp_path, f"file://{folder}")
    yield made
    made.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    with s3() as made:
        made.set_environ(monkeypatch)
        yield made


@pytest.fixture
def bucket_yard(tmp_path: Path, server: S3) -> Iterator[Yard]:
    made = Yard(tmp_path, "s3://team/runs")
    yield made
    made.close()


def ref_of(content: bytes) -> BlobRef:
    return BlobRef(hashlib.sha256(content).hexdigest(), len(content))


def keep(yard: Yard, content: bytes = LARGE, database: Database | None = None) -> BlobRef:
    """Keep a value of the default team as an object."""
    ref = ref_of(content)
    keep_objects((database or yard.database).shared, "default", [ref], lambda _: content)
    return ref


def owned(yard: Yard, fleet: Fleet) -> tuple[Taken, Path]:
    """A run that the node owns, and its directory."""
    run_id = yard.submit()
    (taken,) = fleet.claim(1)
    assert taken.id == run_id
    return taken, yard.folder / run_id


def send(fleet: Fleet, run: Taken, directory: Path, *contents: bytes) -> list[BartackError | None]:
    """Send the second commit of a run, with large values; its outcome comes into the list."""
    blobs = PostgresRun(directory, fleet.database).open_blobs()
    refs = tuple(blobs.put(content) for content in contents)
    outcome: list[BartackError | None] = []
    fleet.take(run, directory, Commit(2, 2, run.fence, 1, b"{}\n", refs), outcome.append)
    return outcome


def contents(yard: Yard) -> list[tuple[int, bool]]:
    """The sizes of all kept values but programs, and whether they are objects."""
    rows = yard.rows("SELECT size, key IS NOT NULL FROM bartack.content WHERE size <> 10240 ORDER BY size")
    return [(int(str(size)), bool(is_object)) for size, is_object in rows]


def pass_a_day(yard: Yard) -> None:
    yard.rows("UPDATE bartack.content SET touched = touched - interval '25 hours'")
    yard.rows("UPDATE bartack.orphan SET since = since - interval '25 hours'")
    yard.rows("UPDATE bartack.chore SET due = clock_timestamp()")


def orphans(yard: Yard) -> int:
    ((found,),) = yard.rows("SELECT count(*) FROM bartack.orphan")
    return int(str(found))


# Keeping and reading.


@pytest.mark.requirement("objects-are-a-store")
def test_values_of_more_than_a_piece_are_objects_and_others_stay_in_the_database(
    bucket_yard: Yard, server: S3, tmp_path: Path
) -> None:
    fleet = bucket_yard.node()
    run, directory = owned(bucket_yard, fleet)

    outcome = send(fleet, run, directory, LARGE, SMALL)
    until(lambda: outcome, "the outcome")

    assert outcome == [None]
    assert contents(bucket_yard) == [(len(SMALL), False), (len(LARGE), True)]
    assert list(server.objects.values()) == [LARGE]
    ((key,),) = bucket_yard.rows("SELECT key FROM bartack.content WHERE key IS NOT NULL")
    assert list(server.objects) == [f"/team/runs/{key}"]
    elsewhere = tmp_path / "elsewhere" / run.id
    elsewhere.mkdir(parents=True)
    there = PostgresRun(elsewhere, bucket_yard.database).open_blobs()
    assert (there.get(ref_of(LARGE)), there.get(ref_of(SMALL))) == (LARGE, SMALL)
    assert orphans(bucket_yard) == 0


@pytest.mark.requirement("objects-are-durable-first")
def test_a_commit_is_written_after_its_objects(bucket_yard: Yard, server: S3) -> None:
    fleet = bucket_yard.node()
    run, directory = owned(bucket_yard, fleet)
    server.answers.clear()

    outcome = send(fleet, run, directory, LARGE)
    assert server.has_kept.wait(30)

    lines = "SELECT count(*) FROM bartack.journal WHERE seq = 2"
    assert (bucket_yard.rows(lines), contents(bucket_yard), outcome) == ([(0,)], [], [])
    assert orphans(bucket_yard) == 1
    server.answers.set()
    until(lambda: outcome, "the outcome")
    assert outcome == [None]
    assert (bucket_yard.rows(lines), contents(bucket_yard)) == ([(1,)], [(len(LARGE), True)])


@pytest.mark.requirement("objects-are-durable-first")
def test_a_run_is_submitted_with_large_values_and_a_large_program_as_objects(
    yard: Yard, folder: Path, tmp_path: Path
) -> None:
    run = PostgresRun(yard.folder / "run-20260101-000000-ffffffff", yard.database)
    run.path.mkdir()
    program = os.urandom(2 * PIECE)

    run.create([[Draft("run.created", {}, value=LARGE)]], program=program)

    assert contents(yard) == [(len(LARGE), True), (len(program), True)]
    assert len(list(folder.iterdir())) == 2
    assert run.load_program() == program
    other = PostgresRun(tmp_path / "other" / run.path.name, yard.database)
    other.path.mkdir(parents=True)
    assert other.open_blobs().get(ref_of(LARGE)) == LARGE


def test_a_value_that_is_kept_already_is_not_sent_again(bucket_yard: Yard, server: S3) -> None:
    keep(bucket_yard)
    keep(bucket_yard)

    assert len(server.requests) == 1


@pytest.mark.requirement("objects-two-writers")
def test_of_two_objects_with_the_same_value_one_is_named_and_the_other_one_deleted(
    yard: Yard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, failures = threading.Barrier(2), list[BaseException]()
    put = Folder.put

    def put_together(self: Folder, key: str, content: bytes) -> None:
        put(self, key, content)
        both.wait(30)

    def write(database: Database) -> None:
        try:
            keep(yard, database=database)
        except BaseException as error:  # noqa: BLE001 - for the thread of the test
            failures.append(error)

    monkeypatch.setattr(Folder, "put", put_together)
    databases = [Database(yard.team.where.on, blobs=yard.team.where.blobs) for _ in range(2)]
    threads = [threading.Thread(target=write, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert failures == []
    assert contents(yard) == [(len(LARGE), True)]
    assert len(list(folder.iterdir())) == 2
    yard.rows("UPDATE bartack.orphan SET since = since - interval '25 hours'")
    assert delete_orphans(yard.database.shared, yard.node().node.id) == ("", False)
    ((key,),) = yard.rows("SELECT key FROM bartack.content WHERE key IS NOT NULL")
    assert [path.name for path in folder.iterdir()] == [key]
    assert download(yard.database.shared, "default", ref_of(LARGE)) == LARGE
    for database in databases:
        database.close()


# The object store is away.


@pytest.mark.requirement("objects-away")
def test_a_commit_waits_for_an_object_store_that_is_away_and_others_do_not(
    bucket_yard: Yard, server: S3
) -> None:
    said: list[str] = []
    fleet = bucket_yard.node(say=said.append)
    waiting, directory = owned(bucket_yard, fleet)
    other, other_directory = owned(bucket_yard, fleet)
    server.refusal = 503

    outcome = send(fleet, waiting, directory, LARGE)
    until(lambda: said, "the commit to wait")
    others = send(fleet, other, other_directory, SMALL)
    until(lambda: others, "the commit of the other run")

    assert others == [None]
    assert outcome == []
    assert said[0].startswith(f"{waiting.id} waits for its object store: s3://team/runs: ")
    server.refusal = 0
    until(lambda: outcome, "the commit that waited")
    assert outcome == [None]
    assert len(said) == 1


@pytest.mark.requirement("objects-away")
def test_a_commit_waits_for_the_object_store_no_longer_than_it_may(bucket_yard: Yard, server: S3) -> None:
    fleet = bucket_yard.node(hold_s=0.0)
    run, directory = owned(bucket_yard, fleet)
    server.refusal = 503

    outcome = send(fleet, run, directory, LARGE)
    until(lambda: outcome, "the outcome")

    (error,) = outcome
    assert isinstance(error, ObjectStoreUnavailableError)
    assert bucket_yard.rows("SELECT count(*) FROM bartack.journal WHERE seq = 2") == [(0,)]


@pytest.mark.requirement("objects-away")
def test_a_command_that_needs_the_object_store_fails_and_can_be_repeated(
    bucket_yard: Yard, server: S3
) -> None:
    server.refusal = 503
    with pytest.raises(ObjectStoreUnavailableError, match="s3://team/runs") as caught:
        keep(bucket_yard)

    assert caught.value.retryable
    server.refusal = 0
    assert download(bucket_yard.database.shared, "default", keep(bucket_yard)) == LARGE


def test_a_node_that_ends_does_not_wait_for_the_object_store(bucket_yard: Yard, server: S3) -> None:
    said: list[str] = []
    fleet = bucket_yard.node(say=said.append)
    run, directory = owned(bucket_yard, fleet)
    server.refusal = 503
    outcome = send(fleet, run, directory, LARGE)
    until(lambda: said, "the commit to wait")

    assert fleet._courier.close()

    (error,) = outcome
    assert error is not None
    assert error.code == "BT203"


# Killed in between.


@pytest.mark.requirement("objects-are-not-left")
@pytest.mark.parametrize("moment", ["before put", "after put"])
def test_an_object_whose_writer_was_killed_before_its_row_is_deleted_after_a_day(
    yard: Yard, folder: Path, moment: str
) -> None:
    fleet, store = yard.node(), Folder(folder)
    store.put("0" * 32, b"of another database")
    yard.database.objects = Faulty(store, moment)
    with pytest.raises(KilledError):
        keep(yard)
    yard.database.objects = store
    assert orphans(yard) == 1
    assert len(list(folder.iterdir())) == (2 if moment == "after put" else 1)

    fleet.do_chores(yard.team)
    assert orphans(yard) == 1, "it may still be being written"
    pass_a_day(yard)
    fleet.do_chores(yard.team)

    assert orphans(yard) == 0
    assert [path.name for path in folder.iterdir()] == ["0" * 32]
    assert contents(yard) == []


@pytest.mark.requirement("objects-are-not-left")
def test_an_object_of_a_process_that_was_killed_while_it_wrote_is_deleted(
    bucket_yard: Yard, server: S3
) -> None:
    server.answers.clear()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, bucket_yard.team.where.on])
    assert server.has_kept.wait(30)
    writer.kill()
    writer.wait()
    server.answers.set()
    assert (len(server.objects), orphans(bucket_yard), contents(bucket_yard)) == (1, 1, [])

    pass_a_day(bucket_yard)
    bucket_yard.node().do_chores(bucket_yard.team)

    assert (server.objects, orphans(bucket_yard)) == ({}, 0)


@pytest.mark.requirement("objects-are-not-left")
@pytest.mark.parametrize("moment", ["before delete", "after delete"])
def test_an_object_is_deleted_a_day_after_its_row_also_if_the_node_is_killed_in_between(
    yard: Yard, folder: Path, moment: str
) -> None:
    fleet, store, ref = yard.node(), Folder(folder), keep(yard)
    pass_a_day(yard)
    fleet.do_chores(yard.team)
    assert contents(yard) == []
    assert len(list(folder.iterdir())) == 1, "a backup of a moment ago names it"
    pass_a_day(yard)

    yard.team.database.objects = Faulty(store, moment)
    with pytest.raises(KilledError):
        fleet.do_chores(yard.team)
    assert orphans(yard) == 1
    yard.team.database.objects = store
    pass_a_day(yard)
    fleet.do_chores(yard.team)

    assert orphans(yard) == 0
    assert list(folder.iterdir()) == []
    assert download(yard.database.shared, "default", ref) is None


@pytest.mark.requirement("objects-are-not-left")
def test_a_value_that_is_kept_again_while_its_object_is_deleted_has_another_object(
    yard: Yard, folder: Path
) -> None:
    fleet, ref = yard.node(), keep(yard)
    pass_a_day(yard)
    fleet.do_chores(yard.team)
    (former,) = folder.iterdir()

    assert keep(yard) == ref
    yard.rows("UPDATE bartack.orphan SET since = since - interval '25 hours'")
    assert delete_orphans(yard.database.shared, fleet.node.id) == ("", False)

    assert not former.exists()
    assert download(yard.database.shared, "default", ref) == LARGE


@pytest.mark.requirement("objects-are-not-left")
def test_an_object_that_is_being_deleted_is_not_named_any_more(
    yard: Yard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, put, keys = yard.node(), Folder.put, list[str]()

    def put_late(self: Folder, key: str, content: bytes) -> None:
        put(self, key, content)
        keys.append(key)
        if len(keys) == 1:
            pass_a_day(yard)
            assert yard.rows("SELECT bartack.take_orphans(%s, 9)", fleet.node.id) == [(key,)]

    monkeypatch.setattr(Folder, "put", put_late)
    ref = keep(yard)

    assert len(keys) == 2
    assert yard.rows("SELECT key FROM bartack.content WHERE key IS NOT NULL") == [(keys[1],)]
    assert delete_orphans(yard.database.shared, fleet.node.id) == ("", False)
    assert [path.name for path in folder.iterdir()] == [keys[1]]
    assert download(yard.database.shared, "default", ref) == LARGE


def test_a_value_that_a_run_holds_is_not_deleted(yard: Yard, folder: Path) -> None:
    fleet = yard.node()
    run, directory = owned(yard, fleet)
    outcome = send(fleet, run, directory, LARGE)
    until(lambda: outcome, "the outcome")
    pass_a_day(yard)

    fleet.do_chores(yard.team)

    assert contents(yard) == [(len(LARGE), True)]
    assert len(list(folder.iterdir())) == 1


def test_objects_that_cannot_be_deleted_are_reported_and_tried_again(bucket_yard: Yard, server: S3) -> None:
    fleet = bucket_yard.node()
    keep(bucket_yard)
    pass_a_day(bucket_yard)
    fleet.do_chores(bucket_yard.team)
    pass_a_day(bucket_yard)
    server.keeps_all = True

    done = do_due(bucket_yard.team.database.shared, fleet.node.id)

    (chore,) = [chore for chore in done if chore.name == "objects"]
    assert "s3://team/runs" in chore.problem
    assert bucket_yard.rows("SELECT problem FROM bartack.chore WHERE name = 'objects'") == [(chore.problem,)]
    server.keeps_all = False
    pass_a_day(bucket_yard)
    assert Chore("objects") in do_due(bucket_yard.team.database.shared, fleet.node.id)
    assert (server.objects, orphans(bucket_yard)) == ({}, 0)


def test_a_node_without_the_object_store_reports_what_is_to_be_deleted(yard: Yard) -> None:
    keep(yard)
    fleet = yard.node()
    pass_a_day(yard)
    fleet.do_chores(yard.team)
    pass_a_day(yard)
    yard.team.database.objects = None

    fleet.do_chores(yard.team)

    assert yard.rows("SELECT problem FROM bartack.chore WHERE name = 'objects'") == [
        ("1 objects are to be deleted, and depot.blobs names no object store",)
    ]


# What was kept is not what is read.


def changed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


@pytest.mark.requirement("objects-are-checked")
@pytest.mark.parametrize(("damage", "error"), [(changed, BlobCorruptError), (Path.unlink, BlobMissingError)])
def test_a_damaged_or_missing_object_is_found_wherever_it_is_read(
    yard: Yard, folder: Path, damage: Callable[[Path], None], error: type[BartackError]
) -> None:
    run = PostgresRun(yard.folder / "run-20260101-000000-ffffffff", yard.database)
    run.path.mkdir()
    run.create([[Draft("run.created", {}, value=LARGE)]])
    assert yard.team.verify(run.id).ok
    (path,) = folder.iterdir()
    damage(path)

    with pytest.raises(error, match=ref_of(LARGE).sha256) as caught:
        download(yard.database.shared, "default", ref_of(LARGE))
    assert "backup of the object store" in str(caught.value.remedy)
    for team in (yard.team, Team(yard.team.where)):
        (problem,) = team.verify(run.id).blob_problems
        assert ref_of(LARGE).sha256 in problem


def test_a_machine_that_does_not_know_the_object_store_says_so(yard: Yard) -> None:
    ref = keep(yard)
    with Database(yard.team.where.on) as other, pytest.raises(DepotError, match="object store") as caught:
        download(other.shared, "default", ref)

    assert "depot.blobs" in str(caught.value.remedy)


# Without an object store.


@pytest.mark.requirement("objects-limit")
def test_a_value_that_is_too_large_for_the_database_is_refused_before_it_is_part_of_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_objects, "MOST_BYTES", 16 << 20)
    yard = Yard(tmp_path)
    content = bytes((16 << 20) + 1)
    run = PostgresRun(tmp_path / yard.submit(), yard.database)

    with pytest.raises(BlobTooLargeError, match=r"16777217 bytes.*16777216") as caught:
        run.open_blobs().put(content)
    assert "depot.blobs" in str(caught.value.remedy)
    with pytest.raises(BlobTooLargeError):
        keep(yard, content)
    assert contents(yard) == []
    yard.close()


@pytest.mark.requirement("objects-limit")
def test_with_an_object_store_a_value_may_be_larger(yard: Yard) -> None:
    with pytest.raises(BlobTooLargeError):
        check_size(Database(yard.team.where.on), (256 << 20) + 1)

    check_size(yard.database, (256 << 20) + 1)


# For people.


def test_stats_and_doctor_say_where_large_values_are_and_whether_the_store_answers(
    bucket_yard: Yard, server: S3
) -> None:
    keep(bucket_yard)

    def of_doctor() -> tuple[str, str]:
        remark = bucket_yard.team.examine()[-1]
        return remark.level, remark.sentence

    stats = bucket_yard.team.stats()
    assert (stats.store, stats.store_problem) == ("s3://team/runs", "")
    assert (stats.objects, stats.object_bytes, stats.orphans) == (1, len(LARGE), 0)
    assert of_doctor() == ("ok", "those of more than 1 MiB are in s3://team/runs, which answers")
    assert len(server.objects) == 1, "a check leaves nothing"
    server.refusal = 403
    assert "403" in bucket_yard.team.stats().store_problem
    level, sentence = of_doctor()
    assert (level, "403" in sentence) == ("fail", True)
    bucket_yard.team.database.objects = None
    assert bucket_yard.team.stats().store == ""
    assert of_doctor() == ("fail", "1 are in an object store, and none is set here")
