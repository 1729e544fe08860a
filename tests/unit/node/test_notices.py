"""What a person learns from the node: one notice of each run that it holds, and of each reason why a schedule starts none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import pytest

from bartack.config.notices import NoticesConfig
from bartack.core.user_home import user_home
from bartack.depot import Job, MemoryDepot, Schedule, Verdict
from bartack.node import NodeNotices
from bartack.notices import Delivered, Fact, Subject, list_notices, open_outbox, put_facts

NOW = 1_000_000_000_000_000
DAY_US = 24 * 3600 * 1_000_000


class Sender:
    """Stands for the process that sends notices."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.is_over = False

    def poll(self) -> int | None:
        self.returncode = 0 if self.is_over else None
        return self.returncode


class Senders:
    """Starts senders and remembers them."""

    def __init__(self) -> None:
        self.started: list[Sender] = []

    def __call__(self) -> subprocess.Popen[bytes]:
        self.started.append(Sender())
        return cast("subprocess.Popen[bytes]", self.started[-1])


@pytest.fixture
def depot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryDepot:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    user_home().mkdir(parents=True, mode=0o700)
    (user_home() / "bartack.toml").write_text('[notices]\ncommand = ["ring"]\n', encoding="utf-8")
    return MemoryDepot()


def hold(depot: MemoryDepot, now_us: int = NOW, reason: str = "its workspace is gone") -> None:
    """The depot has a run that is held; the run itself cannot be read."""
    depot.submit(Job(run="run-1", path="/nowhere/run-1", workspace="/nowhere/shop"), now_us)
    (claim,) = depot.claim("node-1", 1, now_us)
    depot.release(claim, Verdict(state="held", reason=reason), now_us)


def notices() -> list[Delivered]:
    return list_notices(open_outbox(), 100)


@pytest.mark.requirement("held-runs-are-noticed-once")
def test_a_held_run_is_one_notice_however_many_nodes_look(depot: MemoryDepot) -> None:
    senders = Senders()
    hold(depot)
    for _ in range(3):
        node = NodeNotices(depot, print, senders)
        for minute in range(3):
            node.look(NOW + minute * 60_000_000)

    (notice,) = notices()
    assert notice.id == f"run-1:held{NOW}:failed"
    assert (notice.kind, notice.run, notice.title) == ("failed", "run-1", "shop: the run is held")
    assert notice.text == "its workspace is gone"


@pytest.mark.requirement("held-runs-are-noticed-once")
def test_a_run_that_is_held_once_more_is_one_more_notice(depot: MemoryDepot) -> None:
    node = NodeNotices(depot, print, Senders())
    hold(depot)
    node.look(NOW)
    hold(depot, NOW + 1, "its process died 5 times")
    node.look(NOW + 2)

    assert [one.text for one in notices()] == ["its workspace is gone", "its process died 5 times"]


def test_what_was_held_long_ago_was_reported_then(depot: MemoryDepot) -> None:
    hold(depot)

    NodeNotices(depot, print, Senders()).look(NOW + 6 * DAY_US)

    assert notices() == []


def test_a_run_that_is_not_held_is_no_notice(depot: MemoryDepot) -> None:
    depot.submit(Job(run="run-1", path="/nowhere/run-1", workspace="/nowhere"), NOW)

    NodeNotices(depot, print, Senders()).look(NOW)

    assert notices() == []


def failing(problem: str, *, last_us: int = 0, next_us: int = NOW) -> tuple[Schedule, str]:
    schedule = Schedule(
        name="nightly",
        cron="0 3 * * *",
        zone="UTC",
        workspace="/nowhere/shop",
        words=(),
        next_us=next_us,
        last_us=last_us,
    )
    return schedule, problem


@pytest.mark.requirement("held-runs-are-noticed-once")
def test_a_schedule_that_starts_nothing_is_one_notice_for_each_reason_until_it_has_started_a_run(
    depot: MemoryDepot,
) -> None:
    gone = "its workspace /nowhere/shop is gone"
    for day in range(3):
        NodeNotices(depot, print, Senders()).schedule_failed(
            *failing(f"2026-01-0{day + 1} was skipped: {gone}", next_us=NOW + day * DAY_US)
        )
    node = NodeNotices(depot, print, Senders())
    node.schedule_failed(*failing("no such program"))
    node.schedule_failed(*failing(gone, last_us=NOW))

    first, *others = notices()
    assert len(others) == 2
    assert first.title == "shop: the schedule nightly started no run"
    assert (first.run, first.kind) == ("", "failed")
    assert first.id.startswith("schedule-nightly:0-")


def test_what_an_earlier_boot_has_left_is_sent_when_the_node_starts(depot: MemoryDepot) -> None:
    config = NoticesConfig(command=["ring"])
    fact = Fact(kind="ended", place="7", at=NOW)
    put_facts(open_outbox(), config, Subject(run="run-1"), [(fact, 1)], str)
    senders = Senders()

    node = NodeNotices(depot, print, senders)
    node.look(NOW)
    node.look(NOW + 1)

    assert len(senders.started) == 1


def test_nothing_is_started_or_made_if_there_is_nothing_to_send(depot: MemoryDepot) -> None:
    senders = Senders()

    NodeNotices(depot, print, senders).look(NOW)

    assert senders.started == []
    assert not (user_home() / "outbox.db").exists()


def test_what_is_kept_while_a_sender_works_is_sent_by_another_one(depot: MemoryDepot) -> None:
    senders = Senders()
    node = NodeNotices(depot, print, senders)
    hold(depot)
    node.look(NOW)
    hold(depot, NOW + 1)
    node.look(NOW + 2)
    assert len(senders.started) == 1

    senders.started[0].is_over = True
    node.look(NOW + 3)

    assert len(senders.started) == 2


def test_settings_that_cannot_be_read_are_said_once_and_the_notice_is_kept_later(
    depot: MemoryDepot,
) -> None:
    said: list[str] = []
    own = user_home() / "bartack.toml"
    good = own.read_text(encoding="utf-8")
    own.write_text("[notices", encoding="utf-8")
    node = NodeNotices(depot, said.append, Senders())
    hold(depot)
    node.look(NOW)
    node.look(NOW + 1)
    assert (len(said), notices()) == (1, [])

    own.write_text(good, encoding="utf-8")
    node.look(NOW + 2)

    assert len(notices()) == 1
