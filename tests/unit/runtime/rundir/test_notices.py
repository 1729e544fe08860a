"""Facts from the journal to the outbox: what is durable, once, and from where the last reader came to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bartack.config.notices import NoticesConfig
from bartack.errors import StoreUnavailableError
from bartack.journal import FileJournal, open_journal
from bartack.notices import WATCH, list_notices, open_outbox
from bartack.resilience import Outbox, StateStore
from bartack.runtime.rundir import notices as of_run
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.notices import FactReader, Watched, look_after_lost, look_at, unwatch, watch
from bartack.runtime.state import entries as e

AT = 1_767_225_600_000_000


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run-1"


@pytest.fixture
def journal(run_dir: Path) -> Iterator[FileJournal]:
    with open_journal(run_dir, durability="process") as journal:
        yield journal


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with StateStore(tmp_path / "state") as store:
        yield open_outbox(store)


def watched(run_dir: Path) -> Watched:
    return Watched(run_dir=str(run_dir), project="shop", config=NoticesConfig(desktop=True))


def write(journal: FileJournal, *entries: e.EntryData) -> int:
    """Make entries durable; returns the place of the last one."""
    for data in entries:
        journal.stage(e.draft(data))
    journal.commit()
    return journal.synced_seq


def ask(number: str) -> e.QuestionAsked:
    return e.QuestionAsked(p="main", n=1, id=number, about="Ship it?")


def kept(outbox: Outbox) -> list[str]:
    return [one.id.partition(":")[2] for one in list_notices(outbox, 100)]


def test_a_fact_is_kept_only_when_its_entry_is_durable(
    run_dir: Path, journal: FileJournal, outbox: Outbox
) -> None:
    last = write(journal, e.HubStarted(hub=1), ask("q1"), ask("q2"))
    with FactReader(watched(run_dir), outbox) as facts:
        facts.read(last - 2)
        assert kept(outbox) == []
        facts.read(last - 1)
        assert kept(outbox) == ["q1:question"]
        facts.read(last)

    assert kept(outbox) == ["q1:question", "q2:question"]


@pytest.mark.requirement("one-notice-for-one-fact")
def test_the_next_reader_continues_where_the_last_one_came_to(
    run_dir: Path, journal: FileJournal, outbox: Outbox
) -> None:
    last = write(journal, e.HubStarted(hub=1), ask("q1"))
    with FactReader(watched(run_dir), outbox) as facts:
        facts.read(last)
    outbox.purge([row.event_id for row in outbox.rows()])
    last = write(journal, ask("q2"))

    with FactReader(watched(run_dir), outbox) as facts:
        facts.read(last)

    assert kept(outbox) == ["q2:question"]
    assert stat.S_IMODE(os.stat(run_dir / "notices.json").st_mode) == 0o600


@pytest.mark.requirement("notices-survive-kills")
def test_a_reader_that_is_killed_before_it_wrote_how_far_it_came_repeats_the_same_ids(
    run_dir: Path, journal: FileJournal, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = write(journal, e.HubStarted(hub=1), ask("q1"))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, FactReader(watched(run_dir), outbox) as facts:
        patch.setattr(of_run, "replace_file", die)
        with pytest.raises(KeyboardInterrupt):
            facts.read(last)
    with FactReader(watched(run_dir), outbox) as facts:
        facts.read(last)

    assert kept(outbox) == ["q1:question"]


@pytest.mark.requirement("notices-survive-kills")
def test_facts_wait_for_an_outbox_that_cannot_be_written(
    run_dir: Path, journal: FileJournal, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = write(journal, e.HubStarted(hub=1), ask("q1"))

    def refuse(*_: object) -> int:
        raise StoreUnavailableError("outbox.db", "full")

    with FactReader(watched(run_dir), outbox) as facts:
        with monkeypatch.context() as patch:
            patch.setattr(of_run, "put_facts", refuse)
            with pytest.raises(StoreUnavailableError):
                facts.read(last)
        facts.read(last)

    assert kept(outbox) == ["q1:question"]


def test_a_hub_that_is_lost_is_reported_once(run_dir: Path, journal: FileJournal, outbox: Outbox) -> None:
    write(journal, e.HubStarted(hub=1))
    for _ in range(2):
        with FactReader(watched(run_dir), outbox) as facts:
            facts.hub_is_gone(AT)
            facts.hub_is_gone(AT)
    write(journal, e.HubStarted(hub=2), e.HubStopped(reason="interrupted"))
    with FactReader(watched(run_dir), outbox) as facts:
        facts.hub_is_gone(AT)

    assert kept(outbox) == ["hub1:failed"]


def test_a_file_that_was_damaged_costs_only_time(run_dir: Path, journal: FileJournal, outbox: Outbox) -> None:
    last = write(journal, e.HubStarted(hub=1), ask("q1"))
    (run_dir / "notices.json").write_text("{")

    with FactReader(watched(run_dir), outbox) as facts:
        facts.read(last)

    assert kept(outbox) == ["q1:question"]


@pytest.mark.requirement("notices-survive-kills")
def test_a_run_without_hub_and_notifier_is_looked_after_once(
    run_dir: Path, journal: FileJournal, outbox: Outbox
) -> None:
    watch(outbox, watched(run_dir), 1)
    last = write(journal, e.HubStarted(hub=1), ask("q1"), e.RunEnded(status="completed"))

    look_after_lost(outbox)
    look_after_lost(outbox)

    assert kept(outbox) == ["q1:question", f"{last}:ended"]
    assert outbox.count(WATCH) == {"pending": 0, "leased": 0, "delivered": 1, "dead": 0}


def test_a_run_that_is_active_is_left_to_its_own_notifier(
    run_dir: Path, journal: FileJournal, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id = watch(outbox, watched(run_dir), 1)
    write(journal, e.HubStarted(hub=1), ask("q1"))

    def active(run: RunDir) -> bool:
        return str(run.path) == str(run_dir)

    monkeypatch.setattr(RunDir, "is_active", active)

    look_after_lost(outbox)

    assert kept(outbox) == []
    assert outbox.count(WATCH)["pending"] == 1
    unwatch(outbox, event_id)
    assert outbox.count(WATCH)["pending"] == 0


@pytest.mark.parametrize(
    "payload", [b"{", msgspec.json.encode({"run_dir": "/no/such", "project": "", "config": {}})]
)
def test_a_run_that_cannot_be_read_is_given_up(outbox: Outbox, run_dir: Path, payload: bytes) -> None:
    watch(outbox, watched(run_dir), 1)
    outbox.store.write(
        lambda connection: connection.execute("UPDATE outbox SET payload=?, codec=0", (payload,))
    )

    look_after_lost(outbox)

    assert outbox.count(WATCH)["dead"] == 1


def test_a_run_that_is_gone_has_no_questions(run_dir: Path) -> None:
    assert look_at(str(run_dir)) is None
