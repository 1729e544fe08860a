"""The queue of notices: what is sent when, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.unit.notices.receiver import answer, open_receiver

from bartack.config.notices import NoticesConfig
from bartack.notices import (
    NOTICE,
    Delivery,
    Fact,
    Notice,
    RunNow,
    Sent,
    Subject,
    Way,
    list_notices,
    open_outbox,
    put_facts,
)
from bartack.resilience import Outbox, StateStore
from bartack.testing import VirtualClock

SUBJECT = Subject(run="run-1", run_dir="/runs/run-1", project="shop")
START_US = 1_768_044_600_000_000
"""2026-01-10 12:30 in Berlin."""


class World:
    """An outbox, a run as others would find it, and what was sent."""

    def __init__(self, home: Path) -> None:
        self.clock = VirtualClock(START_US)
        self.home = home
        self.outbox = self.open()
        self.now: RunNow | None = RunNow(frozenset({"q1", "q2"}), 1)
        self.sent: list[str] = []
        self.problems: list[Sent] = []
        self.delivery = self.deliverer()

    def open(self) -> Outbox:
        return open_outbox(StateStore(self.home, clock=self.clock, boot="boot"))

    def deliverer(self) -> Delivery:
        return Delivery(
            self.outbox, lambda _: self.now, environ={}, zone=ZoneInfo("Europe/Berlin"), send=self.send
        )

    def send(self, way: Way, notice: Notice, attempts: int, environ: Mapping[str, str], wall: float) -> Sent:
        self.sent.append(notice.id)
        return self.problems.pop(0) if self.problems else Sent()

    def put(self, *facts: Fact, hub: int = 1, **settings: object) -> int:
        config = NoticesConfig(**{"desktop": True, **settings})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - settings of a test
        return put_facts(self.outbox, config, SUBJECT, [(fact, hub) for fact in facts], str)

    def wait(self, seconds: float) -> list[str]:
        """What is sent within this time, with a look every few seconds or minutes."""
        before = len(self.sent)
        steps = min(max(int(seconds // 10), 1), 300)
        for _ in range(steps):
            self.delivery.deliver_due()
            self.clock.advance(seconds / steps)
        self.delivery.deliver_due()
        return self.sent[before:]

    def fact(self, kind: str = "ended", place: str = "7", **more: object) -> Fact:
        facts: dict[str, object] = {"kind": kind, "place": place, "at": self.clock.now_us(), **more}
        return Fact(**facts)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - facts of a test

    def question(self, number: str = "q1") -> Fact:
        return self.fact("question", number, question=number)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state")
    yield made
    made.outbox.store.close()


def test_a_fact_is_sent_by_each_way(world: World) -> None:
    assert world.put(world.fact(), command=["x"], webhook="http://localhost", secret_env="X") == 3  # noqa: S106 - a name

    assert world.wait(1) == ["run-1:7:ended"] * 3
    assert [(one.way, one.state) for one in list_notices(world.outbox, 10)] == [
        ("desktop", "sent"),
        ("command x", "sent"),
        ("webhook localhost", "sent"),
    ]


@pytest.mark.requirement("one-notice-for-one-fact")
def test_a_fact_that_is_observed_again_is_not_sent_again(world: World) -> None:
    world.put(world.fact())
    world.wait(1)

    assert world.put(world.fact()) == 0
    assert world.wait(100) == []


def test_only_what_the_settings_name_is_sent(world: World) -> None:
    assert world.put(world.fact(), world.question(), on=["question"]) == 1


@pytest.mark.requirement("answered-questions-send-nothing")
def test_a_question_that_is_answered_in_time_sends_nothing(world: World) -> None:
    world.put(world.question("q1"), world.question("q2"), after_s=30.0)

    assert world.wait(20) == []
    world.now = RunNow(frozenset({"q2"}), 1)
    assert world.wait(20) == ["run-1:q2:question"]
    assert [one.id for one in list_notices(world.outbox, 10)] == ["run-1:q2:question"]


@pytest.mark.parametrize("gone", [None, RunNow(frozenset(), 1)])
def test_a_question_of_a_run_that_is_gone_or_over_sends_nothing(world: World, gone: RunNow | None) -> None:
    world.put(world.question())
    world.now = gone

    assert world.wait(60) == []
    assert world.outbox.count(NOTICE)["pending"] == 0


def test_a_pause_that_is_over_sends_nothing(world: World) -> None:
    soon, later = world.clock.now_us() + 5_000_000, world.clock.now_us() + 3_600_000_000
    world.put(world.fact("paused", "8", until=soon), world.fact("paused", "9", until=later), after_s=10.0)

    assert world.wait(30) == ["run-1:9:paused"]


@pytest.mark.parametrize("kind", ["failed", "budget"])
def test_a_failure_of_a_run_that_was_resumed_sends_nothing(world: World, kind: str) -> None:
    world.now = RunNow(frozenset(), 2)
    world.put(world.fact(kind, "8"), hub=1)
    world.put(world.fact(kind, "9"), hub=2)

    assert world.wait(10) == [f"run-1:9:{kind}"]


# Quiet hours.


@pytest.mark.requirement("quiet-hours-hold-notices")
def test_quiet_hours_hold_notices_until_their_end_and_then_only_what_still_matters_is_sent(
    world: World,
) -> None:
    world.put(world.fact(), world.question("q1"), world.question("q2"), quiet="12:00-13:00")

    assert world.wait(29 * 60) == []
    world.now = RunNow(frozenset({"q2"}), 1)
    assert world.wait(180) == ["run-1:7:ended", "run-1:q2:question"]


def test_urgent_notices_pass_in_quiet_hours(world: World) -> None:
    world.put(world.fact(), world.fact("failed", "8"), quiet="12:00-13:00", urgent=["failed"])

    assert world.wait(10) == ["run-1:8:failed"]


def test_a_clock_that_is_set_in_quiet_hours_counts(world: World) -> None:
    world.put(world.fact(), quiet="12:00-13:00")
    world.wait(10)

    world.clock.set_back(-1800)

    assert world.wait(120) == ["run-1:7:ended"]


@pytest.mark.requirement("quiet-hours-follow-the-wall-clock")
def test_the_night_in_which_the_clock_is_set_back_is_held_to_its_end(world: World) -> None:
    evening = datetime(2026, 10, 24, 22, tzinfo=ZoneInfo("Europe/Berlin"))
    world.clock.set_back(START_US / 1e6 - evening.timestamp())
    world.put(world.fact(), quiet="22:00-07:00")

    assert world.wait(9.9 * 3600) == []
    assert world.wait(12 * 60) == ["run-1:7:ended"]


# Failures.


@pytest.mark.requirement("notices-wait-for-receivers")
def test_a_receiver_that_is_away_for_days_gets_the_notice_when_it_comes_back(world: World) -> None:
    world.problems = [Sent("ConnectError")] * 5000
    world.put(world.fact())

    world.wait(36 * 3600)
    assert world.outbox.count(NOTICE)["pending"] == 1
    world.problems.clear()

    assert world.wait(310)[-1:] == ["run-1:7:ended"]
    assert world.wait(3600) == []
    assert len(set(world.sent)) == 1


def test_a_receiver_that_asks_for_time_gets_it(world: World) -> None:
    world.problems = [Sent("the receiver answered 503", wait_s=600.0)]
    world.put(world.fact())

    assert len(world.wait(590)) == 1
    assert len(world.wait(20)) == 1


def test_a_final_refusal_is_listed_as_failed_with_its_reason(world: World) -> None:
    world.problems = [Sent("the receiver answered 410\x1b[2J\n", final=True)]
    world.put(world.fact())

    world.wait(600)

    [found] = list_notices(world.outbox, 10)
    assert (found.state, found.problem) == ("failed", "the receiver answered 410\\x1b[2J")
    assert len(world.sent) == 1


@pytest.mark.requirement("notices-survive-kills")
def test_a_process_that_dies_while_it_sends_leaves_the_notice_to_the_next_one(world: World) -> None:
    world.put(world.fact())
    gone = Outbox(world.outbox.store, owner="999999999@0-dead")
    assert gone.claim(kind=NOTICE, lease_s=600.0)
    assert world.wait(10) == []

    assert world.wait(600) == ["run-1:7:ended"]


def test_a_row_that_cannot_be_read_is_given_up(world: World) -> None:
    world.put(world.fact())
    world.outbox.store.write(
        lambda connection: connection.execute("UPDATE outbox SET payload=X'7b', codec=0")
    )

    assert world.wait(10) == []
    assert world.outbox.count(NOTICE)["dead"] == 1


@pytest.mark.requirement("notices-wait-for-receivers")
def test_a_webhook_that_misbehaves_in_every_way_gets_one_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack.notices._send.POST_S", 0.3)
    world.delivery = Delivery(world.outbox, lambda _: world.now, environ={"HOOK": "secret-of-a-test"})
    behaviour = (answer(500), answer(302, "Location: /"), b"HTTP/1.1 200", b"", answer(200))
    with open_receiver(*behaviour) as receiver:
        world.put(world.fact(), desktop=False, webhook=receiver.url, secret_env="HOOK")  # noqa: S106 - the name of a variable
        world.wait(600)

    assert len(receiver.requests) == len(behaviour)
    assert {headers["bartack-id"] for headers, _ in receiver.requests} == {"run-1:7:ended"}
    assert [one.state for one in list_notices(world.outbox, 10)] == ["sent"]


# Runs that the node has.


@pytest.mark.requirement("resumed-runs-send-no-failure")
@pytest.mark.parametrize(
    ("now", "sent"),
    [
        (RunNow(frozenset(), 1), ["run-1:hub1:failed"]),
        (RunNow(frozenset(), 2), []),
        (RunNow(frozenset(), 1, is_held=True), []),
        (None, ["run-1:hub1:failed"]),
    ],
    ids=["not resumed", "resumed", "held, which is a notice of its own", "unreadable"],
)
def test_a_lost_hub_of_a_run_that_the_node_has_is_sent_if_the_node_does_nothing(
    world: World, now: RunNow | None, sent: list[str]
) -> None:
    world.put(world.fact("failed", "hub1", is_of_node=True))

    assert world.wait(40) == []
    world.now = now
    assert world.wait(10) == sent


@pytest.mark.parametrize(
    ("now", "count"),
    [(RunNow(frozenset(), 1, is_held=True), 1), (RunNow(frozenset(), 1), 0), (None, 1)],
    ids=["held", "queued again", "unreadable"],
)
def test_a_held_run_is_sent_if_it_is_still_held(world: World, now: RunNow | None, count: int) -> None:
    world.put(world.fact("failed", "held7", status="held"))
    world.now = now

    assert len(world.wait(1)) == count
