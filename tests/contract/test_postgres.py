"""The contracts of journals and of kept runs, on runs in a real PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from tests.postgres import new_database, new_database_of_other_version

from bartack.core.clock import Clock
from bartack.depot import KeptRun, RunStore
from bartack.depot.postgres._database import Database
from bartack.depot.postgres._run import PostgresRun, PostgresRuns
from bartack.errors import JournalPoisonedError
from bartack.journal import BlobRef, Journal
from bartack.journal.file import collect_blobs
from bartack.journal.mirror import MirrorReader
from bartack.journal.shared import SharedJournal
from bartack.testing import JournalContract, JournalEngine
from bartack.testing._kept_contract import KeptRunContract

LEASE_S = 60.0
"""So that no beat comes between two looks of a test."""


_numbers = count()


@cache
def journals() -> str:
    """One database for all journals: each has a run of its own."""
    return new_database()


@cache
def other_journals() -> str:
    """The same, of a server of another major version."""
    return new_database_of_other_version()


class InDatabase:
    """See ``JournalEngine``: one run in a database; each owner may have a directory of its own, as on several machines."""

    def __init__(self, url: str) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="bartack-contract-"))
        self.database = Database(url)
        self.id = f"run-20260101-000000-{next(_numbers):08x}"
        self.machines = 0
        self._first = self._run("one")

    def _run(self, machine: str) -> PostgresRun:
        directory = self.place / machine / self.id
        directory.mkdir(parents=True, exist_ok=True)
        return PostgresRun(directory, self.database, lease_s=LEASE_S)

    def open(self, *, clock: Clock | None = None) -> SharedJournal:
        run = self._first
        if not run.exists():
            run.create((), clock=clock)
        return run.open_journal(clock=clock)

    def open_reader(self) -> MirrorReader:
        return self._first.open_reader()

    def steal(self) -> SharedJournal:
        """Another machine takes the run over from one whose lease is over."""
        with self.database.session() as session:
            session.rows("UPDATE bartack.node SET until = until - interval '1 day' WHERE state = 'live'")
        self.machines += 1
        self._first = self._run(f"thief{self.machines}")
        return self._first.open_journal()

    def break_next_commit(self, journal: Journal) -> None:
        assert isinstance(journal, SharedJournal)
        carrier = journal._carrier
        before = carrier.take

        def take() -> bool:
            if not before():
                return False
            raise JournalPoisonedError("test", "broken by the test")

        monkey = pytest.MonkeyPatch()
        monkey.setattr(carrier, "take", take)

    def collect(self, keep: Iterable[str] = ()) -> int:
        return collect_blobs(self._first.path, keep=keep)

    def damage_blob(self, ref: BlobRef) -> None:
        blob = self._blob(ref)
        content = bytearray(blob.read_bytes())
        content[len(content) // 2] ^= 1
        blob.write_bytes(content)

    def remove_blob(self, ref: BlobRef) -> None:
        self._blob(ref).unlink()
        with self.database.session() as session:
            session.rows("DELETE FROM bartack.blob")
            session.rows("DELETE FROM bartack.content")

    def close(self) -> None:
        self.database.close()
        shutil.rmtree(self.place)

    def _blob(self, ref: BlobRef) -> Path:
        return self._first.path / "blobs" / ref.sha256[:2] / ref.sha256[2:]


class TestPostgresJournal(JournalContract):
    def make_engine(self) -> JournalEngine:
        return InDatabase(journals())


class TestPostgresJournalOfOtherVersion(JournalContract):
    def make_engine(self) -> JournalEngine:
        return InDatabase(other_journals())


class TestPostgresRuns(KeptRunContract):
    new_database: Callable[[], str] = staticmethod(new_database)

    def setup_method(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="bartack-contract-"))
        self._database = Database(self.new_database())
        self.store = self.make_runs()

    def teardown_method(self) -> None:
        self._database.close()
        shutil.rmtree(self._place)

    def make_runs(self) -> RunStore:
        return PostgresRuns(self._database, self._place, lease_s=LEASE_S)

    @contextmanager
    def serve(self, run: KeptRun) -> Generator[None]:
        run.beat()
        assert run.last_sign_of_life_us()
        yield

    def lose_last(self, run: KeptRun) -> None:
        assert isinstance(run, PostgresRun)
        with run.database.session() as session:
            session.rows("DELETE FROM bartack.journal WHERE seq = (SELECT max(seq) FROM bartack.journal)")


class TestPostgresRunsOfOtherVersion(TestPostgresRuns):
    new_database = staticmethod(new_database_of_other_version)
