"""The promises of whatever keeps runs, as tests that run on any engine; ``_depot_contract.py`` says how."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

import msgspec

from bartack.depot import KeptRun, RunStore
from bartack.errors import JournalLockedError, JournalLostError, JournalNotFoundError
from bartack.journal import Draft, Entry, JournalReader
from bartack.journal.contract import INLINE_LIMIT
from bartack.journal.veil import Secrets, Veil
from bartack.testing._clock import VirtualClock
from bartack.testing._journal_harness import PATIENCE_S, own_kinds, raised

FIRST = ((Draft("first"), Draft("second", {"n": 1})), (Draft("third"),))
LARGE = b'"' + b"large " * (INLINE_LIMIT // 3) + b'"'
"""A value too long to be kept in its entry."""
LONG_AGO_US = 1_700_000_000_000_000
SECRET = "a-secret-of-this-run"  # noqa: S105 - of no use
VEIL = Veil(Secrets({"KEY": SECRET}, ("KEY",)))


def summary_at(seq: int, text: str = "") -> bytes:
    """What is known of a run at one entry."""
    return msgspec.json.encode({"seq": seq, "text": text})


class KeptRunContract(ABC):
    """What everything that keeps runs promises; part of ``DepotContract``."""

    store: RunStore

    @abstractmethod
    def make_runs(self) -> RunStore:
        """A place without runs. Called before each test."""

    @abstractmethod
    def serve(self, run: KeptRun) -> AbstractContextManager[object]:
        """Stand in for the hub of a run as long as the block is executed."""

    @abstractmethod
    def lose_last(self, run: KeptRun) -> None:
        """Take the last entry of a journal back without the engine, as a disk may that did not sync what it was given."""

    def made(self, *, alive_us: int | None = None) -> KeptRun:
        """A run that is there."""
        run = self.store.new_run()
        run.create(FIRST, alive_us=alive_us)
        return run

    def read(self, run: KeptRun) -> list[Entry]:
        """The entries of a run."""
        with run.open_reader() as reader:
            return list(reader.read())

    # Finding and reading.

    def test_a_run_is_there_when_its_journal_is_created(self) -> None:
        run = self.store.new_run()
        assert not run.exists()
        assert list(self.store.runs()) == []
        raised(JournalNotFoundError, run.open_reader)
        raised(JournalNotFoundError, run.check_readable)

        run.create(FIRST)

        assert run.exists()
        run.check_readable()
        assert own_kinds(self.read(run)) == ["first", "second", "third"]
        assert self.read(self.store.run(run.id)) == self.read(run)

    def test_runs_are_listed_the_newest_first(self) -> None:
        runs = [self.made() for _ in range(3)]
        self.store.new_run()

        assert [run.id for run in self.store.runs()] == [run.id for run in reversed(runs)]

    def test_entries_keep_the_time_that_they_are_given(self) -> None:
        run = self.store.new_run()
        clock = VirtualClock()
        now_us = clock.now_us()
        run.create(FIRST, clock=clock)

        assert {entry.at for entry in self.read(run)} == {now_us}

    def test_a_reader_follows_what_an_owner_writes(self) -> None:
        run = self.made()
        seen: list[str] = []
        with run.open_reader() as reader, run.open_journal() as journal:
            following = threading.Thread(target=_follow, args=(reader, seen))
            following.start()
            journal.append("later")
            following.join(PATIENCE_S)

        assert seen[-1] == "later"

    def test_a_change_wakes_every_watch(self) -> None:
        run = self.made()
        with run.open_journal() as journal, run.watch() as one, run.watch() as other:
            _drain(one.wait)
            _drain(other.wait)
            seq = journal.append("later")
            assert one.wait(PATIENCE_S)
            assert other.wait(PATIENCE_S)
            _drain(one.wait)
            run.mark(summary_at(seq))
            assert one.wait(PATIENCE_S)

    def test_a_run_that_was_deleted_is_gone(self) -> None:
        run, other = self.made(), self.made()
        run.delete()

        assert not run.exists()
        assert [found.id for found in self.store.runs()] == [other.id]
        raised(JournalNotFoundError, run.open_reader)

    # Owning.

    def test_a_run_has_one_owner_at_a_time(self) -> None:
        run = self.made()
        with run.open_journal() as journal:
            raised(JournalLockedError, run.open_journal)
            raised(JournalLockedError, lambda: run.own().__enter__())
            fence = journal.fence
        with run.own() as journal:
            raised(JournalLockedError, run.open_journal)
            assert journal.fence > fence
            fence = journal.fence
        with run.open_journal() as journal:
            assert journal.fence > fence

    def test_an_owner_gets_every_entry_and_adds_to_them(self) -> None:
        run = self.made()
        with run.own() as journal:
            journal.append("in.between")
        seen: list[Entry] = []
        with run.open_journal(each=seen.append) as journal:
            assert own_kinds(seen) == ["first", "second", "third", "in.between"]
            assert seen == list(journal.read())[: len(seen)]
            journal.append("later")

        assert own_kinds(self.read(run)) == ["first", "second", "third", "in.between", "later"]

    def test_an_owner_dates_entries_by_its_clock(self) -> None:
        run, clock = self.made(), VirtualClock()
        with run.open_journal(clock=clock) as journal:
            journal.append("later")

        assert [entry.at for entry in self.read(run)][-1] == clock.now_us()

    def test_what_an_owner_has_not_committed_is_not_there(self) -> None:
        run = self.made()
        with run.own() as journal:
            journal.stage(Draft("never"))

        assert own_kinds(self.read(run)) == ["first", "second", "third"]

    # Large values and secrets.

    def test_large_values_are_reached_without_owning_the_run(self) -> None:
        run = self.made()
        left = run.open_blobs().put(LARGE)
        with run.open_journal() as journal:
            journal.append("large", {}, LARGE.upper())
            journal.stage(Draft("refers", ref=left))
            journal.commit()
            with run.open_reader() as reader:
                found = [entry for entry in reader.read() if entry.ref is not None]
                refs = [entry.ref for entry in found if entry.ref is not None]

                assert [reader.load_value(entry) for entry in found] == [LARGE.upper(), LARGE]
                assert [run.open_blobs().get(ref) for ref in refs] == [LARGE.upper(), LARGE]

    def test_secrets_are_hidden_in_what_is_kept_and_put_back_for_those_that_know_them(self) -> None:
        run = self.store.new_run()
        text = msgspec.json.encode(SECRET)
        large = msgspec.json.encode([SECRET, "x" * INLINE_LIMIT])
        run.create([(Draft("known", {"key": SECRET}, text),)], veil=VEIL)
        with run.open_journal(veil=VEIL) as journal:
            journal.append("large", {}, large)
            ref = run.open_blobs(veil=VEIL).put(text)

        with run.open_reader() as plain, run.open_reader(veil=VEIL) as restoring:
            stored = b"".join(bytes(entry.raw) + (plain.load_value(entry) or b"") for entry in plain.read())
            known = [entry for entry in restoring.read() if not entry.kind.startswith("journal.")]

            assert SECRET.encode() not in stored + run.open_blobs().get(ref)
            assert known[0].data == {"key": SECRET}
            assert [restoring.load_value(entry) for entry in known] == [text, large]
            assert run.open_blobs(veil=VEIL).get(ref) == text

    # The summary.

    def test_the_summary_at_a_run_are_kept_as_they_were_marked(self) -> None:
        run = self.made()
        assert run.summary() is None
        with run.open_journal() as journal:
            run.mark(summary_at(1, "old"))
            run.mark(summary_at(journal.synced_seq, "new"))

        assert self.store.run(run.id).summary() == summary_at(journal.synced_seq, "new")

    def test_a_journal_that_ends_before_its_summary_has_lost_entries(self) -> None:
        run = self.made()
        with run.open_journal() as journal:
            seq = journal.append("acknowledged")
            run.mark(summary_at(seq))
        run.check_kept()
        self.lose_last(run)
        before = self.read(run)

        raised(JournalLostError, run.check_kept)
        raised(JournalLostError, run.open_journal)
        raised(JournalLostError, lambda: run.own().__enter__())
        assert self.read(run) == before
        with run.open_journal(accept_loss=True) as journal:
            assert journal.loss is not None
            assert (journal.loss.held, journal.loss.acknowledged) == (seq - 1, seq)

    # The owner, as others see it.

    def test_a_run_is_active_while_a_hub_runs_it(self) -> None:
        run = self.made()
        assert not run.is_active()
        with run.own():
            assert not self.store.run(run.id).is_active()
        with run.open_journal(), self.serve(run):
            assert self.store.run(run.id).is_active()

        assert not run.is_active()

    def test_only_a_hub_gives_signs_of_life(self) -> None:
        run = self.made(alive_us=LONG_AGO_US)
        with run.own() as journal:
            journal.append("changed")
        assert run.last_sign_of_life_us() == LONG_AGO_US
        with run.open_journal():
            assert run.last_sign_of_life_us() == LONG_AGO_US
            run.beat()
            alive_us = run.last_sign_of_life_us()
            assert alive_us is not None
            assert alive_us > LONG_AGO_US
        with run.own() as journal:
            journal.append("changed")

        assert self.store.run(run.id).last_sign_of_life_us() == alive_us


def _follow(reader: JournalReader, seen: list[str]) -> None:
    for entry in reader.follow(timeout_s=PATIENCE_S):
        seen.append(entry.kind)
        if entry.kind == "later":
            return


def _drain(wait: object) -> None:
    assert callable(wait)
    while wait(0):
        pass
