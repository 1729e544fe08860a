"""The promises of a journal, as tests that run on any engine.

An engine is checked by a test class of its own::

    class TestMyJournal(JournalContract):
        def make_engine(self) -> JournalEngine:
            return MyEngine()

pytest finds the tests in it. ``JournalEngine`` is what they need to do to a journal from outside its owner: open it, read it,
take it away, break it. ``pytest.register_assert_rewrite("bartack.testing")`` in a ``conftest.py`` gives failures that show
their values.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from functools import partial

import msgspec

from bartack.errors import (
    BlobCorruptError,
    BlobMissingError,
    EntryError,
    JournalClosedError,
    JournalError,
    JournalLockedError,
    JournalOwnershipLostError,
    JournalPoisonedError,
)
from bartack.journal import BlobRef, Bookmark, Draft, wait_for_commit
from bartack.journal.contract import INLINE_LIMIT
from bartack.journal.group import GroupCommit
from bartack.testing._clock import VirtualClock
from bartack.testing._journal_harness import (
    PATIENCE_S,
    Following,
    InterruptingClock,
    JournalEngine,
    Notices,
    Order,
    Pair,
    append_from_many_tasks,
    own_kinds,
    raised,
    start_and_let_run,
)

LARGE = b'"' + b"large " * (INLINE_LIMIT // 3) + b'"'
"""A value too long to be kept in its entry."""


# Long because a contract suite has one test per promise, and an engine inherits the suite as one class.
class JournalContract(ABC):
    """What every journal engine promises. Subclass it and give it the engine; see the module's text for how."""

    engine: JournalEngine

    @abstractmethod
    def make_engine(self) -> JournalEngine:
        """An engine with no journal yet. Called before each test."""

    def setup_method(self) -> None:
        """Called by pytest before each test."""
        self.engine = self.make_engine()

    def teardown_method(self) -> None:
        """Called by pytest after each test."""
        self.engine.close()

    # Acknowledged means kept.

    def test_an_acknowledged_entry_is_there_when_the_journal_is_opened_again(self) -> None:
        with self.engine.open() as journal:
            seq = journal.append("order.taken", {"table": 4}, b'{"dish":"soup"}')
        with self.engine.open() as journal:
            entry = next(journal.read(seq))

            assert (entry.seq, entry.kind, entry.data) == (seq, "order.taken", {"table": 4})
            assert journal.load_value(entry) == b'{"dish":"soup"}'

    def test_everything_of_an_entry_comes_back_unchanged(self) -> None:
        data: dict[str, object] = {
            "text": "zażółć 𝄞 \u2028\0",
            "number": -(2**53),
            "real": 0.1,
            "nothing": None,
            "list": [[], {}],
        }
        values = [
            None,
            b"null",
            b'""',
            b"0",
            '"zażółć 𝄞"'.encode(),
            b'"line\\nbreak"',
            b'"' + b"x" * 60_000 + b'"',
        ]
        with self.engine.open() as journal:
            first = journal.stage(*(Draft("a.b_c.d9", data, value) for value in values))
            journal.commit()
        with self.engine.open() as journal:
            entries = [entry for entry in journal.read(first) if entry.kind == "a.b_c.d9"]

            assert [entry.data for entry in entries] == [data] * len(values)
            assert [journal.load_value(entry) for entry in entries] == values

    def test_a_struct_can_be_the_data_of_an_entry(self) -> None:
        with self.engine.open() as journal:
            seq = journal.append("order.taken", Order(4, "soup"))

            assert next(journal.read(seq)).decode(Order) == Order(4, "soup")

    def test_places_have_no_gaps_across_commits_groups_and_owners(self) -> None:
        with self.engine.open() as journal:
            journal.append("one")
            journal.stage(Draft("two"), Draft("three"))
            journal.stage(Draft("four"))
            journal.commit()
        with self.engine.open() as journal:
            journal.append("five")
            entries = list(journal.read())

            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert own_kinds(entries) == ["one", "two", "three", "four", "five"]

    def test_reading_begins_at_any_place(self) -> None:
        with self.engine.open() as journal:
            for number in range(4):
                journal.append("single", {"n": number})
                journal.stage(*(Draft("grouped", {"n": number}) for _ in range(3)))
                journal.commit()
            entries = list(journal.read())

            for start in range(1, len(entries) + 3):
                assert list(journal.read(start)) == entries[start - 1 :]
            assert list(journal.read(0)) == entries

    def test_entries_are_fetched_by_their_places(self) -> None:
        with self.engine.open() as journal:
            for number in range(40):
                journal.append("single", {"n": number}, b'"' + b"x" * 9000 + b'"')
                journal.stage(*(Draft("grouped", {"n": number}) for _ in range(3)))
                journal.stage(Draft("single", {"n": number}))
                journal.commit()
        with self.engine.open() as journal:
            journal.append("last")
            entries = list(journal.read())

            for wanted in (entries, entries[::7], entries[1:60:2], entries[-2:], entries[100:101], []):
                assert list(journal.fetch(entry.seq for entry in wanted)) == wanted
            for entry in entries:
                assert list(journal.fetch([entry.seq])) == [entry]

    def test_fetching_an_entry_that_is_not_acknowledged_is_refused(self) -> None:
        with self.engine.open() as journal:
            last = journal.append("acknowledged")
            journal.stage(Draft("staged"))
            for place in (0, -1, last + 1, last + 100):
                raised(ValueError, partial(next, journal.fetch([place])))

            fetched = journal.fetch([last, last + 1])
            assert next(fetched).kind == "acknowledged"
            raised(ValueError, partial(next, fetched))

    def test_an_entry_has_the_time_at_which_it_was_staged(self) -> None:
        clock = VirtualClock()
        with self.engine.open(clock=clock) as journal:
            clock.advance(1)
            staged = clock.now_us()
            seq = journal.stage(Draft("noted"))
            clock.advance(60)
            journal.commit()

            assert next(journal.read(seq)).at == staged

    def test_entries_of_one_commit_say_so(self) -> None:
        with self.engine.open() as journal:
            first = journal.stage(Draft("a"), Draft("b"))
            journal.stage(Draft("c"))
            journal.commit()
            last = journal.append("d")

            assert [entry.commit for entry in journal.read(first)] == [first, first, first, last]

    # Staged is not yet kept.

    def test_a_group_is_not_seen_before_its_commit(self) -> None:
        with self.engine.open() as journal:
            before = list(journal.read())
            seq = journal.stage(Draft("a"), Draft("b"))

            assert list(journal.read()) == before
            assert (journal.last_seq, journal.synced_seq) == (seq + 1, seq - 1)
            assert journal.commit() == seq + 1
            assert (journal.last_seq, journal.synced_seq) == (seq + 1, seq + 1)
            assert own_kinds(journal.read()) == ["a", "b"]

    def test_what_was_staged_and_not_committed_is_gone_with_its_owner(self) -> None:
        with self.engine.open() as journal:
            journal.append("kept")
            journal.stage(Draft("dropped"))
        with self.engine.open() as journal:
            journal.append("later")

            assert own_kinds(journal.read()) == ["kept", "later"]

    def test_a_commit_of_nothing_changes_nothing(self) -> None:
        with self.engine.open() as journal:
            before = list(journal.read())

            assert journal.commit() == journal.synced_seq == before[-1].seq
            assert list(journal.read()) == before

    def test_nothing_is_left_of_a_refused_group(self) -> None:
        with self.engine.open() as journal:
            last = journal.last_seq
            raised(EntryError, lambda: journal.stage(Draft("good"), Draft("BAD")))
            raised(EntryError, journal.stage)

            assert journal.last_seq == last
            journal.append("next")
            assert own_kinds(journal.read()) == ["next"]

    def test_kinds_are_lower_case_words_joined_by_dots_and_not_the_engines_own(self) -> None:
        with self.engine.open() as journal:
            for kind in (
                "",
                "Big",
                "a b",
                "a..b",
                ".a",
                "a.",
                'quo"te',
                "line\n",
                "x" * 65,
                "journal.opened",
                "journal.x",
            ):
                error = raised(EntryError, partial(journal.stage, Draft(kind)))
                assert error.kind == kind

            journal.append("x" * 64)
            journal.append("journals.are_fine")
            assert len(own_kinds(journal.read())) == 2

    def test_data_must_be_a_json_object_of_moderate_size(self) -> None:
        bad: list[dict[str, object] | msgspec.Struct] = [
            {"what": object()},
            {"lone surrogate": "\ud800"},
            {"big": "x" * (1024 * 1024)},
            {"raw": msgspec.Raw(b"1\n")},
            {"raw": msgspec.Raw(b"}{")},
            {"deep": [{"no number": float("nan")}]},
            {"endless": float("inf")},
            Pair(1, 2),
        ]
        with self.engine.open() as journal:
            for data in bad:
                raised(EntryError, partial(journal.append, "bad", data))

            journal.append("good", {"big": "x" * (1024 * 1024 - 10)})
            journal.append("good", {"nothing": None, "raw": msgspec.Raw(b"null"), "number": 1.5})
        with self.engine.open() as journal:
            assert own_kinds(journal.read()) == ["good", "good"]

    def test_a_value_must_be_one_line_of_json(self) -> None:
        with self.engine.open() as journal:
            for value in (
                b"",
                b"{",
                b"1 2",
                b"{}}",
                b"[1,\n2]",
                b'"\xff"',
                b"nul",
                b'"' + b"\xff" * INLINE_LIMIT + b'"',
            ):
                raised(EntryError, partial(journal.append, "bad", {}, value))

            journal.append("good", {}, b"[1, 2]")
        with self.engine.open() as journal:
            assert own_kinds(journal.read()) == ["good"]

    def test_data_that_looks_like_the_engines_own_is_only_data(self) -> None:
        own: dict[str, object] = {
            "a": 1,
            "kind": "journal.opened",
            "format": 99,
            "fence": 99,
            "pid": 1,
            "by": "",
        }
        with self.engine.open() as journal:
            first = journal.append("x", {"a": 1, "kind": "journal.opened", "z": 1})
            journal.append("x", own, msgspec.json.encode(own))
            fence = journal.fence
        with self.engine.open() as journal:
            assert fence < journal.fence < 99
            assert own_kinds(journal.read(first)) == ["x", "x"]

    # One owner at a time.

    def test_a_second_owner_is_refused(self) -> None:
        with self.engine.open() as journal:
            error = raised(JournalLockedError, self.engine.open)

            assert error.pid in {None, os.getpid()}
            journal.append("undisturbed")
        with self.engine.open() as journal:
            assert own_kinds(journal.read()) == ["undisturbed"]

    def test_each_owner_has_a_higher_fence_than_the_one_before(self) -> None:
        fences: list[int] = []
        for _ in range(3):
            with self.engine.open() as journal:
                fences.append(journal.fence)

        assert fences[0] >= 1
        assert fences[0] < fences[1] < fences[2]

    def test_an_owner_that_lost_the_journal_acknowledges_nothing_more(self) -> None:
        with self.engine.open() as first:
            first.append("before")
            lost_before = first.lost
            first.stage(Draft("too.late"))
            with self.engine.steal() as second:
                raised(JournalOwnershipLostError, first.commit)
                assert (lost_before, first.lost) == (False, True)
                raised(JournalOwnershipLostError, lambda: first.append("too.late"))
                second.append("after")

                assert second.fence > first.fence
                assert own_kinds(second.read()) == ["before", "after"]
        with self.engine.open() as journal:
            assert own_kinds(journal.read()) == ["before", "after"]

    def test_a_lost_owner_that_closes_leaves_the_next_one_alone(self) -> None:
        first = self.engine.open()
        with self.engine.steal() as second:
            first.close()

            raised(JournalLockedError, self.engine.open)
            second.append("still.mine")

    # A commit that fails.

    def test_a_broken_commit_poisons_the_journal(self) -> None:
        with self.engine.open() as journal:
            journal.append("safe")
            synced = journal.synced_seq
            journal.stage(Draft("doubtful"))
            self.engine.break_next_commit(journal)
            first = raised(JournalPoisonedError, journal.commit)

            assert journal.synced_seq == synced
            calls: list[Callable[[], object]] = [
                journal.commit,
                lambda: journal.stage(Draft("more")),
                lambda: journal.append("more"),
                lambda: journal.put_blob(b"more"),
            ]
            for call in calls:
                again = raised(JournalPoisonedError, call)
                assert (type(again), again.problem) == (type(first), first.problem)

    def test_what_was_acknowledged_is_read_from_a_poisoned_journal(self) -> None:
        with self.engine.open() as journal:
            journal.append("safe")
            journal.stage(Draft("doubtful"))
            self.engine.break_next_commit(journal)
            raised(JournalPoisonedError, journal.commit)

            assert own_kinds(journal.read()) == ["safe"]

    def test_after_a_broken_commit_a_group_is_there_whole_or_not_at_all(self) -> None:
        with self.engine.open() as journal:
            journal.append("safe")
            journal.stage(Draft("pair.one"), Draft("pair.two"))
            self.engine.break_next_commit(journal)
            raised(JournalPoisonedError, journal.commit)
        with self.engine.open() as journal:
            journal.append("later")
            found = own_kinds(journal.read())
        with self.engine.open() as journal:
            assert own_kinds(journal.read()) == found

        assert found in (["safe", "later"], ["safe", "pair.one", "pair.two", "later"])

    def test_what_joins_a_group_is_there_with_it_or_not_at_all(self) -> None:
        with self.engine.open() as journal:
            journal.append("safe")
            first = journal.stage(Draft("group.one"))
            assert journal.stage(Draft("group.two"), Draft("group.three", {}, b"3"), join=True) == first + 1
            assert journal.last_seq == first + 2
            self.engine.break_next_commit(journal)
            raised(JournalPoisonedError, journal.commit)
        with self.engine.open() as journal:
            journal.stage(Draft("later.one"))
            journal.stage(Draft("later.two"), join=True)
            journal.commit()
            found = own_kinds(journal.read())

        later = ["later.one", "later.two"]
        assert found in (["safe", *later], ["safe", "group.one", "group.two", "group.three", *later])

    def test_nothing_joins_a_group_whose_commit_has_begun_or_that_would_be_too_large(self) -> None:
        with self.engine.open() as journal:
            raised(EntryError, lambda: journal.stage(Draft("alone"), join=True))
            last = journal.append("committed")
            raised(EntryError, lambda: journal.stage(Draft("late"), join=True))
            journal.stage(Draft("group"))
            raised(EntryError, lambda: journal.stage(Draft("BAD"), join=True))
            many = [Draft("large", {}, b'"' + b"x" * 60_000 + b'"')] * 300
            raised(EntryError, lambda: journal.stage(*many, join=True))

            assert journal.commit() == last + 1
            assert own_kinds(journal.read()) == ["committed", "group"]

    # A commit in two halves.

    def test_a_started_commit_is_acknowledged_when_it_is_finished(self) -> None:
        with self.engine.open() as journal:
            seq = journal.stage(Draft("one"), Draft("two"))
            journal.start_commit()
            wait_for_commit(journal)

            assert journal.synced_seq == seq + 1 == journal.last_seq
            assert own_kinds(journal.read()) == ["one", "two"]
        with self.engine.open() as journal:
            assert own_kinds(journal.read()) == ["one", "two"]

    def test_what_is_staged_after_the_start_of_a_commit_belongs_to_the_next(self) -> None:
        with self.engine.open() as journal:
            first = journal.stage(Draft("first"))
            journal.start_commit()
            second = journal.stage(Draft("second"))
            wait_for_commit(journal)

            assert (first, second) == (journal.synced_seq, journal.last_seq)
            assert own_kinds(journal.read()) == ["first"]
            raised(ValueError, lambda: list(journal.fetch([second])))

            journal.start_commit()
            wait_for_commit(journal)

            assert [entry.commit for entry in journal.fetch([first, second])] == [first, second]

    def test_a_commit_finishes_the_one_that_is_under_way(self) -> None:
        with self.engine.open() as journal:
            journal.stage(Draft("first"))
            journal.start_commit()
            last = journal.stage(Draft("second"))

            assert journal.commit() == last == journal.synced_seq
            assert own_kinds(journal.read()) == ["first", "second"]

    def test_finishing_without_a_start_and_a_commit_of_nothing_in_halves_change_nothing(self) -> None:
        with self.engine.open() as journal:
            last = journal.append("only")
            assert journal.finish_commit()
            journal.start_commit()
            wait_for_commit(journal)

            assert journal.finish_commit()
            assert journal.synced_seq == journal.last_seq == last

    def test_a_started_commit_that_breaks_poisons_the_journal_and_loses_what_was_staged_after_it(
        self,
    ) -> None:
        with self.engine.open() as journal:
            journal.append("before")
            journal.stage(Draft("doubtful"))
            self.engine.break_next_commit(journal)

            def commit_in_halves() -> None:
                journal.start_commit()
                journal.stage(Draft("late"))
                wait_for_commit(journal)

            raised(JournalPoisonedError, commit_in_halves)
            raised(JournalPoisonedError, journal.finish_commit)
            raised(JournalPoisonedError, journal.start_commit)
            raised(JournalPoisonedError, lambda: journal.stage(Draft("later")))
        with self.engine.open() as journal:
            assert own_kinds(journal.read())[:1] == ["before"]
            assert set(own_kinds(journal.read())) <= {"before", "doubtful"}

    def test_a_commit_under_way_when_its_owner_ends_is_there_whole_or_not_at_all(self) -> None:
        journal = self.engine.open()
        journal.stage(Draft("one"), Draft("two"))
        journal.stage(Draft("three"))
        journal.start_commit()
        journal.stage(Draft("late"))
        journal.close()
        with self.engine.open() as journal:
            assert own_kinds(journal.read()) in ([], ["one", "two", "three"])
            journal.append("next")
        with self.engine.open() as journal:
            assert own_kinds(journal.read())[-1] == "next"
            assert "late" not in own_kinds(journal.read())

    def test_an_owner_that_lost_the_journal_finishes_no_commit(self) -> None:
        with self.engine.open() as journal, self.engine.steal() as thief:
            thief.append("of.the.thief")

            def commit_in_halves() -> None:
                journal.stage(Draft("late"))
                journal.start_commit()
                wait_for_commit(journal)

            raised(JournalOwnershipLostError, commit_in_halves)
            assert own_kinds(thief.read()) == ["of.the.thief"]

    def test_a_closed_journal_refuses_everything(self) -> None:
        journal = self.engine.open()
        ref = journal.put_blob(b"content")
        journal.close()
        journal.close()

        calls: list[Callable[[], object]] = [
            journal.commit,
            journal.start_commit,
            journal.finish_commit,
            lambda: journal.stage(Draft("more")),
            lambda: journal.append("more"),
            lambda: list(journal.read()),
            lambda: list(journal.fetch([1])),
            lambda: journal.put_blob(b"more"),
            lambda: journal.get_blob(ref),
        ]
        for call in calls:
            raised(JournalClosedError, call)

    # Readers.

    def test_a_reader_sees_what_the_owner_sees(self) -> None:
        with self.engine.open() as journal:
            large = journal.append("large", {}, LARGE)
            journal.stage(Draft("a"), Draft("b"))
            journal.commit()
            with self.engine.open_reader() as reader:
                entries = list(reader.read())

                assert entries == list(journal.read())
                assert list(reader.read(3)) == entries[2:]
                assert list(reader.read(len(entries) + 1)) == []
                assert reader.load_value(entries[large - 1]) == LARGE

    def test_reading_on_returns_each_entry_once(self) -> None:
        with self.engine.open() as journal, self.engine.open_reader() as reader:
            journal.append("one")
            seen = list(reader.read_on())
            assert list(reader.read_on()) == []
            journal.append("two")
            journal.append("three")

            assert [*seen, *reader.read_on()] == list(journal.read())
            reader.check_read()

    def test_a_bookmark_is_where_reading_on_stands_and_reading_continues_from_it(self) -> None:
        with self.engine.open() as journal, self.engine.open_reader() as reader:
            bookmarks, first = [reader.bookmark()], journal.last_seq + 1
            for number in range(6):
                journal.stage(
                    *(Draft("grouped", {"n": number}, LARGE if number == 3 else None) for _ in range(3))
                )
                journal.commit()
                list(reader.read_on())
                bookmarks.append(reader.bookmark())
            entries = list(journal.read())

            assert [mark.seq for mark in bookmarks] == [1, *range(first + 3, first + 3 * 7, 3)]
            for mark in bookmarks:
                assert list(reader.read_from(mark)) == entries[mark.seq - 1 :]
                for start in range(1, len(entries) + 3):
                    assert list(reader.read_from(mark, start)) == entries[max(mark.seq, start) - 1 :]

    def test_a_bookmark_of_one_reader_serves_another_and_later_entries_follow(self) -> None:
        with self.engine.open() as journal, self.engine.open_reader() as reader:
            journal.append("one")
            list(reader.read_on())
            mark = reader.bookmark()
        with self.engine.open() as journal, self.engine.open_reader() as other:
            journal.append("two", {}, LARGE)
            found = list(other.read_from(mark))

            assert own_kinds(found) == ["two"]
            assert other.load_value(found[-1]) == LARGE

    def test_the_last_entries_are_read_without_the_others(self) -> None:
        with self.engine.open() as journal, self.engine.open_reader() as reader:
            for number in range(4):
                journal.stage(
                    *(Draft("grouped", {"n": number}, LARGE if number == 3 else None) for _ in "ab")
                )
                journal.commit()
            entries = list(journal.read())

            assert [reader.read_last(most) for most in range(1, 12)] == [
                entries[-most:] for most in range(1, 12)
            ]
            assert reader.load_value(reader.read_last(1)[0]) == LARGE

    def test_entries_are_found_by_a_text_in_them_and_read_from_the_bookmark_before_them(self) -> None:
        with self.engine.open() as journal, self.engine.open_reader() as reader:
            for number in range(20):
                journal.stage(Draft(f"kind.of_{number % 4}", {"n": number}, b'"value %d"' % number))
                journal.commit()
            entries = list(journal.read())
            wanted = [entry for entry in entries if entry.kind == "kind.of_2" or entry.data.get("n") == 7]

            marks: list[Bookmark] = []
            found = list(reader.search([b'"kind":"kind.of_2"', b'{"n":7}', b'"value 7"'], marks))

            assert [entry for entry in found if entry in wanted] == wanted
            assert found == [entry for entry in entries if entry in found]
            for entry in wanted:
                before = max(mark for mark in marks if mark.seq <= entry.seq)
                assert next(reader.read_from(before, entry.seq)) == entry
            assert list(reader.search([b"nothing has this"])) == []

    def test_a_reader_knows_which_part_of_the_journal_it_has_read(self) -> None:
        with self.engine.open() as journal, self.engine.open_reader() as reader:
            for _ in range(20):
                journal.append("one", {"text": "x" * 100})
            assert reader.read_bytes == 0 < reader.size_bytes
            list(reader.read_on())
            read = reader.read_bytes
            assert 2000 < read <= reader.size_bytes
            journal.append("two")

            assert read == reader.read_bytes < reader.size_bytes
            assert reader.name

    def test_a_follower_sees_entries_as_they_are_acknowledged_by_one_owner_after_the_other(self) -> None:
        journal = self.engine.open()
        with self.engine.open_reader() as reader, Following(reader) as following:
            for kind in ("one", "two"):
                journal.append(kind)
                following.wait_for(kind)
            journal.close()
            with self.engine.open() as journal:
                journal.stage(Draft("three"), Draft("four"))
                journal.commit()
                following.wait_for("four")

                assert following.seen == list(journal.read())

    def test_a_follower_ends_when_nothing_comes(self) -> None:
        with self.engine.open() as journal:
            journal.append("only")
            with self.engine.open_reader() as reader:
                assert own_kinds(reader.follow(timeout_s=0.01)) == ["only"]

    def test_a_follower_begins_at_any_place_also_one_that_is_not_there_yet(self) -> None:
        with self.engine.open() as journal:
            last = journal.append("earlier")
            with self.engine.open_reader() as reader:
                assert [entry.seq for entry in reader.follow(last, timeout_s=0)] == [last]
                with Following(reader, last + 2) as following:
                    journal.append("skipped")
                    journal.append("wanted")
                    following.wait_for("wanted")

                    assert own_kinds(following.seen) == ["wanted"]

    # Large values.

    def test_a_large_value_is_kept_beside_its_entry(self) -> None:
        with self.engine.open() as journal:
            seq = journal.append("large", {}, LARGE)
        with self.engine.open() as journal:
            entry = next(journal.read(seq))

            assert entry.value is None
            expected = BlobRef(hashlib.sha256(LARGE).hexdigest(), len(LARGE))
            assert entry.ref == expected
            assert journal.load_value(entry) == journal.get_blob(expected) == LARGE

    def test_a_value_at_the_limit_is_kept_in_its_entry(self) -> None:
        at_limit = b'"' + b"x" * (INLINE_LIMIT - 2) + b'"'
        with self.engine.open() as journal:
            seq = journal.append("at.limit", {}, at_limit)
            entry = next(journal.read(seq))

            assert (entry.ref, journal.load_value(entry)) == (None, at_limit)

    def test_the_same_content_is_kept_once(self) -> None:
        with self.engine.open() as journal:
            refs = {journal.put_blob(b"same"), journal.put_blob(b"same"), journal.put_blob(b"other")}
        with self.engine.open() as journal:
            refs.add(journal.put_blob(b"same"))

        assert len(refs) == 2
        assert self.engine.collect() == 2

    def test_an_entry_can_refer_to_a_blob_that_is_stored(self) -> None:
        with self.engine.open() as journal:
            ref = journal.put_blob(b'"any bytes \xff"')
            journal.stage(Draft("refers", ref=ref), Draft("refers.too", ref=ref))
            journal.commit()
        with self.engine.open() as journal:
            entries = [entry for entry in journal.read() if entry.ref is not None]

            assert [entry.ref for entry in entries] == [ref, ref]
            assert journal.load_value(entries[1]) == b'"any bytes \xff"'

    def test_an_entry_cannot_refer_to_a_blob_that_is_not_stored(self) -> None:
        with self.engine.open() as journal:
            ref = journal.put_blob(b"content")
            raised(BlobMissingError, lambda: journal.stage(Draft("refers", ref=BlobRef("0" * 64, 7))))
            raised(BlobMissingError, lambda: journal.stage(Draft("refers", ref=BlobRef("../../lock", 7))))
            raised(BlobCorruptError, lambda: journal.stage(Draft("refers", ref=BlobRef(ref.sha256, 8))))
            raised(EntryError, lambda: journal.stage(Draft("refers", {}, b"1", ref)))

            assert journal.last_seq == journal.synced_seq

    def test_a_damaged_blob_is_noticed_when_it_is_read(self) -> None:
        with self.engine.open() as journal:
            seq = journal.append("large", {}, LARGE)
            entry = next(journal.read(seq))
            ref = entry.ref
            assert ref is not None
            self.engine.damage_blob(ref)

            assert raised(BlobCorruptError, lambda: journal.get_blob(ref)).sha256 == ref.sha256
            raised(BlobCorruptError, lambda: journal.load_value(entry))

    def test_a_missing_blob_is_noticed_when_it_is_read(self) -> None:
        with self.engine.open() as journal:
            ref = journal.put_blob(b"content")
            self.engine.remove_blob(ref)

            assert raised(BlobMissingError, lambda: journal.get_blob(ref)).sha256 == ref.sha256

    def test_collecting_removes_what_nothing_refers_to(self) -> None:
        with self.engine.open() as journal:
            seq = journal.append("large", {}, LARGE)
            kept, gone = journal.put_blob(b"kept"), journal.put_blob(b"gone")

        assert self.engine.collect([kept.sha256]) == 1
        with self.engine.open() as journal:
            assert journal.load_value(next(journal.read(seq))) == LARGE
            assert journal.get_blob(kept) == b"kept"
            raised(BlobMissingError, lambda: journal.get_blob(gone))

    def test_nothing_is_collected_while_the_journal_has_an_owner(self) -> None:
        with self.engine.open() as journal:
            ref = journal.put_blob(b"not yet referred to")
            raised(JournalLockedError, self.engine.collect)

            assert journal.get_blob(ref) == b"not yet referred to"

    # Many appenders.

    def test_many_appenders_share_commits_and_keep_their_order(self) -> None:
        with self.engine.open() as journal:
            places = asyncio.run(append_from_many_tasks(journal, tasks=64, times=8))
            entries = [entry for entry in journal.read() if entry.kind == "task"]

        assert [(entry.data["task"], entry.data["time"]) for entry in entries] == [
            key for key, _ in sorted(places.items(), key=lambda item: item[1])
        ]
        assert all(places[task, time] < places[task, time + 1] for task in range(64) for time in range(7))
        assert len({entry.commit for entry in entries}) <= len(entries) // 8

    def test_a_writer_thread_keeps_every_entry_and_its_order(self) -> None:
        notices = Notices()
        with self.engine.open() as journal, closing(GroupCommit(journal, slow_s=-1.0)) as group:
            for number in range(200):
                group.append((Draft("n", {"n": number}),), partial(notices.note, number))
                group.flush()
                group.collect()
            notices.drain(group, 200)
        with self.engine.open() as journal:
            assert [entry.data["n"] for entry in journal.read() if entry.kind == "n"] == list(range(200))

        assert notices.answers == [(number, None) for number in range(200)]

    def test_an_entry_staged_while_another_thread_commits_is_not_lost(self) -> None:
        clock = InterruptingClock()
        with self.engine.open(clock=clock) as journal:
            journal.stage(Draft("first"))
            thread = threading.Thread(target=journal.commit, daemon=True)
            clock.interruption = lambda: start_and_let_run(thread)
            journal.stage(Draft("second"))
            thread.join(PATIENCE_S)
            journal.commit()
            journal.append("third")
        with self.engine.open() as journal:
            assert own_kinds(journal.read()) == ["first", "second", "third"]

    def test_closing_a_group_commits_what_waits_and_notifies_all_appenders(self) -> None:
        for slow_s in (1.0, -1.0):
            notices = Notices()
            with self.engine.open() as journal:
                group = GroupCommit(journal, slow_s=slow_s)
                for number in range(4):
                    group.append((Draft("waiting"),), partial(notices.note, number))
                    if number < 3:
                        group.flush()
                group.close()
                group.close()

                assert notices.answers == [(number, None) for number in range(4)]
                assert journal.synced_seq == journal.last_seq
                raised(JournalClosedError, partial(group.append, (Draft("late"),), partial(notices.note, 4)))

    def test_an_appender_that_raises_does_not_keep_others_from_being_notified(self) -> None:
        notices = Notices()

        def fail(_: JournalError | None) -> None:
            raise LookupError

        with self.engine.open() as journal, closing(GroupCommit(journal)) as group:
            group.append((Draft("one"),), fail)
            group.append((Draft("two"),), partial(notices.note, 2))
            raised(LookupError, group.flush)

        assert notices.answers == [(2, None)]

    def test_all_appenders_learn_that_their_commit_broke(self) -> None:
        notices = Notices()
        with self.engine.open() as journal, closing(GroupCommit(journal)) as group:
            for number in range(3):
                group.append((Draft("doubtful"),), partial(notices.note, number))
            self.engine.break_next_commit(journal)
            group.flush()

            assert [number for number, _ in notices.answers] == [0, 1, 2]
            assert all(isinstance(error, JournalPoisonedError) for _, error in notices.answers)
