"""A database that has lost what it had acknowledged, as a standby may have that took over: sent again, or refused and held."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.history import check_history, rows_of
from tests.postgres import new_database
from tests.unit.depot.postgres.history import commit_after
from tests.waiting import until

from bartack.depot.postgres._database import Database
from bartack.depot.postgres._run import PostgresRun
from bartack.errors import JournalOwnershipLostError, JournalPoisonedError
from bartack.journal import Draft
from bartack.journal.mirror import End
from bartack.journal.rewound import MOST_BYTES, missing_commits
from bartack.journal.shared import Commit, SharedJournal
from bartack.supervision.process.lease import LeasePage
from bartack.telemetry import Telemetry

LARGE = 200_000


class Place:
    """A run in a database, and its owner."""

    def __init__(self, folder: Path, lease_s: float = 60.0, page: LeasePage | None = None) -> None:
        self.database = Database(new_database())
        path = folder / "run-20260101-000000-00000001"
        self.run = PostgresRun(path, self.database, page=page, lease_s=lease_s)
        self.run.create(())
        self.again: list[int] = []
        telemetry = Telemetry()
        telemetry.attach("again", "depot.rewound", self._note)
        self.journal: SharedJournal = self.run.open_journal(telemetry=telemetry)
        self.number = int(str(self.rows("SELECT no FROM bartack.run")[0][0]))

    def _note(
        self, name: str, counts: Mapping[str, int], facts: Mapping[str, object], config: object
    ) -> None:
        self.again.append(counts["entries"])

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        return self.database.shared.rows(statement)

    def add(self, text: str, value: bytes | None = None) -> None:
        self.journal.stage(Draft("test", {"text": text}, value))
        self.journal.commit()

    def fail_over(self, *lost: str) -> None:
        """Lose what these statements say, and all connections."""
        for statement in lost:
            self.rows(statement)
        with Database(self.database_url).session() as other:
            other.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    @property
    def database_url(self) -> str:
        ((place,), *_) = self.rows("SELECT current_setting('unix_socket_directories')")
        ((name,),) = self.rows("SELECT current_database()")
        return f"postgresql://bartack@/{name}?host={place}"

    def owner(self) -> tuple[object, ...]:
        return self.rows("SELECT state, fence, reason FROM bartack.owner")[0]

    def check_whole(self) -> None:
        """The database has what the owner has, byte for byte."""
        kept = rows_of(self.database.shared, self.number)
        check_history(kept)
        assert b"".join(row.lines for row in kept) == (self.run.path / "journal.ndjson").read_bytes()

    def close(self) -> None:
        self.journal.close()
        self.database.close()


LOSE_LAST = "DELETE FROM bartack.journal WHERE seq > (SELECT max(seq) - {} FROM bartack.journal)"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("db-rewound")
@pytest.mark.parametrize("lost", [1, 3])
def test_entries_that_the_database_has_lost_are_sent_again(place: Place, lost: int) -> None:
    for number in range(5):
        place.add(str(number))
    place.fail_over(LOSE_LAST.format(lost))

    place.add("after")

    place.check_whole()
    assert place.again == [lost]
    assert place.owner()[0] == "owned"


def test_large_values_that_were_lost_are_sent_again(place: Place, tmp_path: Path) -> None:
    value = b'"%b"' % random.Random(1).randbytes(LARGE // 2).hex().encode()
    place.add("large", value)
    place.add("small")
    place.fail_over(
        LOSE_LAST.format(2), "DELETE FROM bartack.blob", "DELETE FROM bartack.content WHERE size > 0"
    )

    place.add("after")

    place.check_whole()
    (tmp_path / "other").mkdir()
    with PostgresRun(tmp_path / "other" / place.run.id, place.database).open_reader() as reader:
        (large,) = [entry for entry in reader.read() if entry.ref is not None]
        assert reader.load_value(large) == value


def test_the_loss_is_found_while_the_run_appends_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, lease_s=3.0)
    place.add("acknowledged")
    place.fail_over(LOSE_LAST.format(1))

    until(lambda: place.again == [1], "the lost entry to be sent again")

    place.check_whole()
    place.close()


@pytest.mark.requirement("fleet-lost-claim")
def test_a_process_whose_ownership_was_lost_stands_still_for_good_though_it_appends_nothing(
    tmp_path: Path,
) -> None:
    page, fd = LeasePage.create()
    place = Place(tmp_path, lease_s=3.0, page=page)
    place.add("acknowledged")

    place.fail_over("UPDATE bartack.owner SET state = 'resting', node = NULL, fence = fence - 1")

    until(lambda: page.is_over, "the end of its right to run the run")
    place.rows("SELECT 1")  # on a new connection
    place.rows(
        "UPDATE bartack.owner SET state = 'owned', node = (SELECT max(id) FROM bartack.node), fence = fence + 1"
    )
    place.journal.close()
    assert place.owner()[0] == "owned", "the fence was given to another owner, whose run it is"
    place.database.close()
    os.close(fd)


@pytest.mark.requirement("db-rewound")
@pytest.mark.parametrize(
    "lost",
    [
        "UPDATE bartack.owner SET state = 'resting', node = NULL, fence = fence - 1",
        "UPDATE bartack.owner SET state = 'resting', node = NULL; DELETE FROM bartack.node",
        "UPDATE bartack.node SET joined = clock_timestamp()",
        "UPDATE bartack.journal SET crc = crc + 1",
    ],
    ids=["ownership", "node", "number of the node given again", "another history"],
)
def test_a_run_whose_ownership_is_lost_too_is_held(place: Place, lost: str) -> None:
    for number in range(3):
        place.add(str(number))
    fence = place.journal.fence
    place.fail_over(LOSE_LAST.format(2), *lost.split(";"))
    before = rows_of(place.database.shared, place.number)

    with pytest.raises(JournalPoisonedError, match=r"has lost entries 4 to 5.*it is held"):
        place.add("after")

    state, new_fence, reason = place.owner()
    assert (state, new_fence) == ("held", fence + 1)
    assert "has lost entries 4 to 5" in str(reason)
    assert rows_of(place.database.shared, place.number) == before
    assert place.again == []


def test_a_run_that_another_node_continues_is_left_to_that(place: Place) -> None:
    for number in range(3):
        place.add(str(number))
    place.fail_over(
        LOSE_LAST.format(2),
        "INSERT INTO bartack.node (name, seat, boot, version, slots, lease, until) "
        "SELECT 'other', gen_random_uuid(), 'boot', '', 0, lease, until FROM bartack.node",
        "UPDATE bartack.owner SET fence = fence + 5, node = (SELECT max(id) FROM bartack.node)",
    )

    with pytest.raises(JournalPoisonedError, match="another node continues it without them"):
        place.add("after")

    assert place.owner()[0] == "owned"


def test_an_owner_that_was_buried_without_a_loss_has_lost_the_run(place: Place) -> None:
    place.add("one")
    place.fail_over("UPDATE bartack.owner SET state = 'resting', node = NULL, fence = fence + 1")

    with pytest.raises(JournalOwnershipLostError):
        place.add("after")

    assert place.owner()[0] == "resting"


def test_missing_lines_are_joined_up_to_a_limit(tmp_path: Path) -> None:
    text = "x" * (MOST_BYTES // 3)
    commits: list[Commit] = []
    last, crc = 0, 0
    for number in range(7):
        commits.append(commit_after(last, crc, 4, f"{number}{text}"))
        last, crc = commits[-1].last, commits[-1].crc
    (tmp_path / "journal.ndjson").write_bytes(b"".join(commit.lines for commit in commits[:-1]) + b"{torn")

    missing = missing_commits(str(tmp_path), End(commits[0].last, commits[0].crc), commits[-1])

    assert missing is not None
    assert [(commit.seq, commit.last) for commit in missing] == [(2, 4), (5, 7)]
    assert b"".join(one.lines for one in missing) == b"".join(one.lines for one in commits[1:])
    assert missing_commits(str(tmp_path), End(commits[0].last, 1), commits[-1]) is None
    (tmp_path / "journal.ndjson").write_bytes(commits[0].lines)
    assert missing_commits(str(tmp_path), End(commits[0].last, commits[0].crc), commits[-1]) is None, "a gap"
