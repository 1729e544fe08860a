"""What a supervisor decides, compared with a small model of OTP's rules, and its behaviour in time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.supervision.playground import ERROR, KILLED, NORMAL, Playground, child

from bartack.errors import (
    ChildNotFoundError,
    ChildSpecError,
    ChildStartError,
    ChildStateError,
    SupervisorExhaustedError,
    SupervisorNotRunningError,
)
from bartack.resilience import Backoff
from bartack.supervision.supervisor._child import TRANSITIONS, ChildState
from bartack.supervision.supervisor._report import ChildEnd
from bartack.supervision.supervisor.spec import Restart, Strategy
from bartack.telemetry import Telemetry

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
RESTARTS: tuple[Restart, ...] = get_args(Restart)
ENDS = {"normal": NORMAL, "error": ERROR, "signal": KILLED}
SECOND = 1_000_000_000


def longest(_: float, high: float) -> float:
    return high


class Otp:
    """The rules of OTP's supervisor in the words of its documentation: a list of children, and what is done with them.

    It knows no backoff and no time that something takes. ``+a`` is a start, ``-a`` a stop.
    """

    def __init__(
        self, strategy: str, intensity: int, period_ns: int, children: list[tuple[str, str]]
    ) -> None:
        self.strategy = strategy
        self.intensity = intensity
        self.period_ns = period_ns
        self.specs = children
        self.pids: set[str] = {name for name, _ in children}
        self.restarts: list[int] = []
        self.alive = True
        self.done = [f"+{name}" for name, _ in children]

    def exit(self, name: str, *, normal: bool, now: int) -> None:
        kind = dict(self.specs)[name]
        self.pids.remove(name)
        if kind == "temporary" or (kind == "transient" and normal):
            return
        self.restarts = [stamp for stamp in self.restarts if now - stamp <= self.period_ns] + [now]
        if len(self.restarts) > self.intensity:
            self.shutdown()
            return
        names = [known for known, _ in self.specs]
        if self.strategy == "one_for_one":
            self._start([name])
        elif self.strategy == "one_for_all":
            self._stop(names)
            self._start(names)
        else:
            rest = names[names.index(name) :]
            self._stop(rest)
            self._start(rest)

    def shutdown(self) -> None:
        self._stop([name for name, _ in self.specs])
        self.alive = False

    def _stop(self, names: list[str]) -> None:
        for name in reversed(names):
            if name in self.pids:
                self.pids.remove(name)
                self.done.append(f"-{name}")

    def _start(self, names: list[str]) -> None:
        for name in names:
            if dict(self.specs)[name] != "temporary":
                self.pids.add(name)
                self.done.append(f"+{name}")


SCENARIOS = list(product(STRATEGIES, RESTARTS, ["a", "b", "c"], ENDS, [0, 1]))


@pytest.mark.parametrize(("strategy", "restart", "dying", "how", "intensity"), SCENARIOS)
@pytest.mark.requirement("restarts-follow-otp")
def test_a_death_has_the_consequences_it_has_in_otp(
    strategy: Strategy, restart: Restart, dying: str, how: str, intensity: int
) -> None:
    siblings: list[tuple[str, Restart]] = [("a", "permanent"), ("b", "transient"), ("c", "temporary")]
    kinds: list[tuple[str, Restart]] = [(name, restart if name == dying else kind) for name, kind in siblings]
    model = Otp(strategy, intensity, 5 * SECOND, [*kinds])
    play = Playground(*(child(name, kind) for name, kind in kinds), strategy=strategy, max_restarts=intensity)
    play.start()

    play.die(dying, ENDS[how])
    model.exit(dying, normal=how == "normal", now=0)

    assert play.log == model.done
    assert set(play.alive) == model.pids
    assert (play.ended is None) is model.alive


def test_there_are_enough_scenarios_and_they_differ() -> None:
    logs: set[tuple[str, ...]] = set()
    for strategy, restart, dying, how, intensity in SCENARIOS:
        model = Otp(strategy, intensity, 5 * SECOND, [(name, restart) for name in "abc"])
        model.exit(dying, normal=how == "normal", now=0)
        logs.add((strategy, *model.done))

    assert len(SCENARIOS) >= 60
    assert len(logs) >= 15


class ComparedWithOtp(RuleBasedStateMachine):
    """Any history of deaths, with any time between them, has the same consequences as in the model."""

    def __init__(self) -> None:
        super().__init__()
        self.play: Playground | None = None
        self.model: Otp | None = None

    @precondition(lambda self: self.play is None)
    @rule(
        strategy=st.sampled_from(STRATEGIES),
        kinds=st.lists(st.sampled_from(RESTARTS), min_size=1, max_size=5),
        intensity=st.integers(0, 4),
    )
    def start(self, strategy: Strategy, kinds: list[Restart], intensity: int) -> None:
        named: list[tuple[str, Restart]] = [(f"c{number}", kind) for number, kind in enumerate(kinds)]
        self.play = Playground(
            *(child(name, kind) for name, kind in named), strategy=strategy, max_restarts=intensity
        )
        self.model = Otp(strategy, intensity, 5 * SECOND, [*named])
        self.play.start()

    @precondition(lambda self: self.play is not None and bool(self.play.alive))
    @rule(data=st.data(), end=st.sampled_from([NORMAL, ERROR, KILLED]))
    def die(self, data: st.DataObject, end: ChildEnd) -> None:
        assert self.play is not None
        assert self.model is not None
        name = data.draw(st.sampled_from(sorted(self.play.alive)))
        self.play.die(name, end)
        self.model.exit(name, normal=end.normal, now=self.play.clock.monotonic_ns())

    @precondition(lambda self: self.play is not None)
    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5, 5.0, 5.001, 60.0]))
    def wait(self, seconds: float) -> None:
        assert self.play is not None
        self.play.advance(seconds)

    @precondition(lambda self: self.play is not None and self.play.ended is None)
    @rule()
    def stop(self) -> None:
        assert self.play is not None
        assert self.model is not None
        self.play.stop()
        self.model.shutdown()

    @invariant()
    def they_agree(self) -> None:
        if self.play is not None and self.model is not None:
            assert self.play.log == self.model.done
            assert set(self.play.alive) == self.model.pids
            assert (self.play.ended is None) is self.model.alive


class AnythingMayHappen(RuleBasedStateMachine):
    """Children that take their time, requests and deaths in any order: what always has to hold, holds."""

    def __init__(self) -> None:
        super().__init__()
        self.play: Playground | None = None
        self.strategy: Strategy = "one_for_one"
        self.asked = 0

    @precondition(lambda self: self.play is None)
    @rule(
        strategy=st.sampled_from(STRATEGIES),
        kinds=st.lists(st.sampled_from(RESTARTS), min_size=1, max_size=4),
        slow=st.sets(st.integers(0, 4)),
        stubborn=st.sets(st.integers(0, 4)),
        deaf=st.sets(st.integers(0, 4)),
    )
    def start(
        self,
        strategy: Strategy,
        kinds: list[Restart],
        slow: set[int],
        stubborn: set[int],
        deaf: set[int],
    ) -> None:
        children = [
            child(f"c{number}", kind, backoff=Backoff(0.05, 1.0)) for number, kind in enumerate(kinds)
        ]
        self.strategy = strategy
        self.play = Playground(*children, strategy=strategy)
        self.play.slow = {f"c{number}" for number in slow}
        self.play.stubborn = {f"c{number}" for number in stubborn}
        self.play.deaf = {f"c{number}" for number in deaf}
        self.play.start()

    @precondition(lambda self: self.play is not None and bool(self.play.alive))
    @rule(data=st.data(), end=st.sampled_from([NORMAL, ERROR]))
    def die(self, data: st.DataObject, end: ChildEnd) -> None:
        assert self.play is not None
        self.play.die(data.draw(st.sampled_from(sorted(self.play.alive))), end)

    @precondition(lambda self: self.play is not None and bool(self.play.alive))
    @rule(data=st.data())
    def get_ready(self, data: st.DataObject) -> None:
        assert self.play is not None
        self.play.ready(data.draw(st.sampled_from(sorted(self.play.alive))))

    @precondition(lambda self: self.play is not None)
    @rule(order=st.sampled_from(["terminate", "restart", "delete"]), number=st.integers(0, 4))
    def ask(self, order: str, number: int) -> None:
        assert self.play is not None
        getattr(self.play.core, f"{order}_child")(f"c{number}", self.asked)
        self.asked += 1
        self.play.do()

    @precondition(lambda self: self.play is not None)
    @rule(number=st.integers(0, 4), kind=st.sampled_from(RESTARTS))
    def add(self, number: int, kind: Restart) -> None:
        assert self.play is not None
        self.play.core.start_child(child(f"c{number}", kind), self.asked)
        self.asked += 1
        self.play.do()

    @precondition(lambda self: self.play is not None)
    @rule(seconds=st.sampled_from([0.01, 1.0, 6.0, 11.0]))
    def wait(self, seconds: float) -> None:
        assert self.play is not None
        self.play.advance(seconds)

    @precondition(lambda self: self.play is not None)
    @rule(kill=st.booleans())
    def stop(self, *, kill: bool) -> None:
        assert self.play is not None
        self.play.stop(kill=kill)

    @invariant()
    def what_lives_is_known(self) -> None:
        if self.play is not None:
            alive = {name for name, state in self.play.states().items() if state in {"starting", "stopping"}}
            assert alive <= set(self.play.alive)
            assert self.play.ended is None or not self.play.alive

    @invariant()
    def siblings_that_depend_on_each_other_start_and_stop_one_by_one(self) -> None:
        if self.play is not None and self.strategy != "one_for_one" and self.play.core.state != "running":
            moving = [state for state in self.play.states().values() if state in {"starting", "stopping"}]
            assert len(moving) <= 2  # a child that was terminated may be on its way out besides

    def teardown(self) -> None:
        """However it got there: it can be stopped, all children are reported, and nothing is left."""
        if self.play is None:
            return
        self.play.stop()
        self.play.deaf.clear()
        self.play.stubborn.clear()
        self.play.stop(kill=True)
        for name in list(self.play.alive):
            if name in self.play.alive:
                self.play.die(name, KILLED)
        assert self.play.alive == {}
        assert self.play.ended is not None
        assert sorted(answer.request for answer in self.play.answers) == list(range(self.asked))


ComparedWithOtp.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
AnythingMayHappen.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestComparedWithOtp = ComparedWithOtp.TestCase
TestAnythingMayHappen = AnythingMayHappen.TestCase


# -- order ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("children-start-in-order")
def test_a_child_is_started_when_the_one_before_is_ready() -> None:
    play = Playground(child("a"), child("b"), child("c"))
    play.slow = {"a", "b"}

    play.start()
    assert play.log == ["+a"]
    play.ready("a")
    assert play.log == ["+a", "+b"]
    assert not play.started
    play.ready("b")

    assert play.log == ["+a", "+b", "+c"]
    assert play.started


@pytest.mark.requirement("children-start-in-order")
def test_a_child_is_stopped_when_the_one_after_it_is_gone() -> None:
    play = Playground(child("a"), child("b"), child("c"))
    play.deaf = {"b"}
    play.start()
    play.take_log()

    play.stop()
    assert play.log == ["-c", "-b"]
    play.die("b", ERROR)

    assert play.log == ["-c", "-b", "-a"]
    assert play.ended == ("shutdown", None)
    assert set(play.states().values()) == {"stopped"}


def test_a_child_that_does_not_start_stops_those_before_it_in_reverse() -> None:
    play = Playground(child("a"), child("b"), child("c"), child("d"))
    play.slow = {"c"}
    play.start()

    play.die("c", ChildEnd(reason="exit:3"))

    assert play.log == ["+a", "+b", "+c", "-b", "-a"]
    assert play.ended is not None
    assert play.ended.reason == "start_failed"
    assert isinstance(play.ended.error, ChildStartError)
    assert (play.ended.error.child, play.ended.error.reason) == ("top/c", "exit:3")
    assert play.reports[0].decision == "escalate"


def test_a_child_that_is_not_ready_in_time_is_killed_and_has_not_started() -> None:
    play = Playground(child("a"), child("b", start_timeout=3.0))
    play.slow = {"b"}
    play.start()

    play.advance(2.999)
    assert play.log == ["+a", "+b"]
    play.advance(0.001)

    assert play.log == ["+a", "+b", "!b", "-a"]
    assert play.reports[0].reason == "start_timeout"


def test_a_child_that_ends_while_others_start_is_judged_when_all_have_started() -> None:
    play = Playground(child("a"), child("b"))
    play.slow = {"b"}
    play.start()

    play.die("a")
    assert play.log == ["+a", "+b"]
    play.ready("b")

    assert play.log == ["+a", "+b", "+a"]


def test_children_of_one_for_one_do_not_wait_for_each_other() -> None:
    play = Playground(child("a"), child("b"), max_seconds=50)
    play.start()
    play.slow = {"a"}
    play.take_log()

    play.die("a")
    play.die("b")

    assert play.log == ["+a", "+b"]
    assert play.states() == {"a": "starting", "b": "running"}


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_sibling_that_dies_while_it_is_about_to_be_stopped_is_not_stopped_and_starts_with_the_others(
    strategy: Strategy,
) -> None:
    play = Playground(child("a"), child("b"), child("c"), strategy=strategy)
    play.deaf = {"c"}
    play.start()
    play.take_log()

    play.die("a")
    play.die("b")
    play.die("c", KILLED)

    assert play.log == ["-c", "+a", "+b", "+c"]
    assert [(report.child, report.decision) for report in play.reports] == [
        ("a", "restart"),
        ("b", "restart"),
    ]


def test_a_death_before_the_rest_waits_until_the_rest_has_started() -> None:
    play = Playground(child("a"), child("b"), child("c"), strategy="rest_for_one")
    play.start()
    play.slow = {"b"}
    play.take_log()

    play.die("b")
    play.die("a")
    assert play.log == ["-c", "+b"]
    play.slow = set()
    play.ready("b")

    assert play.log == ["-c", "+b", "+c", "-c", "-b", "+a", "+b", "+c"]


def test_a_temporary_sibling_that_was_stopped_with_the_others_is_not_started_again() -> None:
    play = Playground(child("a"), child("b", "temporary"), child("c"), strategy="one_for_all")
    play.start()
    play.take_log()

    play.die("a")

    assert play.log == ["-c", "-b", "+a", "+c"]
    assert play.states()["b"] == "stopped"
    assert play.downs == [("b", "shutdown")]


# -- intensity and backoff ------------------------------------------------------------------------------------------


@pytest.mark.requirement("too-many-restarts-escalate")
def test_the_fourth_restart_in_the_window_is_too_many() -> None:
    play = Playground(child("a"), child("b"))
    play.start()
    for _ in range(3):
        play.advance(1.0)
        play.die("b")
    assert set(play.alive) == {"a", "b"}

    play.advance(1.0)
    play.die("b", KILLED)

    assert play.ended is not None
    assert play.ended.reason == "intensity_exceeded"
    assert isinstance(play.ended.error, SupervisorExhaustedError)
    assert play.log[-1] == "-a"
    assert play.states() == {"a": "stopped", "b": "escalated"}
    assert [report.decision for report in play.reports] == ["restart"] * 3 + ["escalate"]


@pytest.mark.parametrize(("last", "ended"), [(5.0, True), (5.001, False)])
def test_a_restart_older_than_the_window_is_not_counted(last: float, *, ended: bool) -> None:
    play = Playground(child("a"))
    play.start()
    play.die("a")
    play.advance(last - 2)
    play.die("a")
    play.die("a")
    play.advance(2)

    play.die("a")

    assert (play.ended is not None) is ended


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_restart_of_many_counts_once(strategy: Strategy) -> None:
    play = Playground(*(child(f"c{number}") for number in range(9)), strategy=strategy)
    play.start()

    for _ in range(3):
        play.die("c0")
    assert play.ended is None
    play.die("c0")

    assert play.ended is not None


def test_an_end_that_is_not_the_childs_own_doing_is_not_counted_and_has_no_delay() -> None:
    play = Playground(child("a", backoff=Backoff(0.5, 1.0, uniform=longest)))
    play.start()

    for _ in range(10):
        play.die("a", ChildEnd(reason="lost", counted=False))

    assert play.log == ["+a"] * 11
    assert play.ended is None


@pytest.mark.requirement("restarts-wait-longer-each-time")
def test_each_restart_waits_longer_and_a_long_life_begins_anew() -> None:
    backoff = Backoff(0.25, 1.0, uniform=longest)
    play = Playground(child("a", backoff=backoff), max_restarts=9, max_seconds=10)
    play.start()
    waits: list[float] = []
    for life in (0.0, 0.0, 0.0, 9.9, 10.0):
        play.advance(life)
        play.die("a")
        waits.append(((play.core.next_due_ns() or 0) - play.clock.monotonic_ns()) / 1e9)
        assert play.states() == {"a": "waiting"}
        play.advance(waits[-1])
        assert play.states() == {"a": "running"}

    assert waits == [0.25, 0.5, 1.0, 1.0, 0.25]


@pytest.mark.parametrize(("end", "reason"), [(NORMAL, "normal"), (ERROR, "error")])
def test_a_child_that_ends_before_it_can_be_terminated_stays_where_it_is(end: ChildEnd, reason: str) -> None:
    play = Playground(child("a"), child("b"))
    play.slow = {"b"}
    play.start()
    assert play.ask("terminate", "a") is None, "nothing is done before all have started"

    play.die("a", end)
    play.ready("b")

    assert play.states() == {"a": "stopped", "b": "running"}
    assert play.answers == [(0, None)]
    assert play.downs == [("a", reason)]
    assert [report.decision for report in play.reports] == ([] if end.normal else ["none"])
    assert play.log == ["+a", "+b"]


def test_stopping_cancels_a_restart_that_waits() -> None:
    play = Playground(child("a", backoff=Backoff(1.0, 1.0, uniform=longest)))
    play.start()
    play.die("a")

    play.stop()
    play.advance(10)

    assert play.log == ["+a"]
    assert play.ended is not None


def test_all_are_stopped_at_once_and_started_after_the_delay() -> None:
    backoff = Backoff(1.0, 1.0, uniform=longest)
    play = Playground(child("a", backoff=backoff), child("b", backoff=backoff), strategy="one_for_all")
    play.start()
    play.take_log()

    play.die("b")
    assert play.take_log() == ["-a"]
    play.advance(0.999)
    assert play.take_log() == []
    play.advance(0.001)

    assert play.take_log() == ["+a", "+b"]


def test_a_restart_that_takes_too_long_is_tried_again() -> None:
    play = Playground(child("a", start_timeout=1.0))
    play.start()
    play.slow = {"a"}
    play.die("a")
    play.advance(1.0)
    play.ready("a")

    assert play.log == ["+a", "+a", "!a", "+a"]
    assert play.states() == {"a": "running"}
    assert [report.reason for report in play.reports] == ["error", "start_timeout"]


def test_a_restart_that_fails_counts_and_is_tried_again() -> None:
    play = Playground(child("a"), child("b"), child("c"), strategy="rest_for_one")
    play.start()
    play.slow = {"b"}
    play.take_log()
    play.die("b")
    play.die("b", ChildEnd(reason="exit:1"))
    play.slow = set()
    play.ready("b")

    assert play.log == ["-c", "+b", "+b", "+c"]
    assert [report.restarts_in_window for report in play.reports] == [1, 2]


# -- stopping -------------------------------------------------------------------------------------------------------


def test_a_child_that_does_not_end_in_its_time_is_killed() -> None:
    play = Playground(child("a"), child("b", shutdown=2.0), child("c", shutdown="kill"))
    play.stubborn = {"b"}
    play.start()
    play.take_log()

    play.stop()
    play.advance(1.999)
    assert play.log == ["!c", "-b"]
    play.advance(0.001)

    assert play.log == ["!c", "-b", "!b", "-a"]


def test_a_supervisor_that_is_killed_asks_no_child() -> None:
    play = Playground(child("a"), child("b"), child("c"))
    play.stubborn = {"c"}
    play.start()
    play.take_log()
    play.stop()

    play.stop(kill=True)

    assert play.log == ["-c", "!c", "!b", "!a"]
    assert play.ended == ("shutdown", None)


def test_what_is_said_of_an_earlier_incarnation_is_ignored() -> None:
    play = Playground(child("a"))
    play.start()
    play.die("a")
    play.take_log()

    play.core.ended("a", 1, ERROR)
    play.core.ready("a", 1)
    play.core.ended("nobody", 1, ERROR)
    play.do()

    assert play.log == []
    assert play.alive == {"a": 2}


def test_an_end_that_is_said_twice_is_one_end() -> None:
    play = Playground(child("a", backoff=Backoff(1.0, 1.0, uniform=longest)), child("b"))
    play.slow = {"b"}
    play.start()
    play.core.ended("a", 1, ERROR)
    play.core.ended("a", 1, NORMAL)
    play.alive.pop("a")
    play.ready("b")

    play.core.ended("a", 1, ERROR)
    play.do()

    assert [(report.child, report.reason) for report in play.reports] == [("a", "error")]
    assert play.states()["a"] == "waiting"


# -- requests -------------------------------------------------------------------------------------------------------


def test_a_child_can_be_added_stopped_started_again_and_deleted() -> None:
    play = Playground(child("a"))
    play.start()

    assert play.ask("start", child("b")) == (0, None)
    assert play.ask("terminate", "b") == (1, None)
    assert play.states() == {"a": "running", "b": "stopped"}
    assert play.ask("restart", "b") == (2, None)
    assert play.alive == {"a": 1, "b": 2}
    assert play.ask("terminate", "b") == (3, None)
    assert play.ask("delete", "b") == (4, None)
    assert play.states() == {"a": "running"}
    assert play.log == ["+a", "+b", "-b", "+b", "-b"]
    assert play.reports == []


def test_an_added_child_that_does_not_start_is_forgotten() -> None:
    play = Playground(child("a"), strategy="one_for_all")
    play.slow = {"b"}
    play.start()

    assert play.ask("start", child("b")) is None
    play.die("b", ChildEnd(reason="exit:2", exception="broken"))

    (answer,) = play.answers
    assert isinstance(answer.error, ChildStartError)
    assert play.states() == {"a": "running"}
    assert play.log == ["+a", "+b"]
    assert play.core.state == "running"
    assert play.ended is None


@pytest.mark.parametrize(
    ("order", "name", "error"),
    [
        ("terminate", "nobody", ChildNotFoundError),
        ("restart", "nobody", ChildNotFoundError),
        ("delete", "nobody", ChildNotFoundError),
        ("restart", "a", ChildStateError),
        ("delete", "a", ChildStateError),
        ("terminate", "leaving", ChildStateError),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(order: str, name: str, error: type[Exception]) -> None:
    play = Playground(child("a"), child("leaving"))
    play.deaf = {"leaving"}
    play.start()
    play.ask("terminate", "leaving")

    answer = play.ask(order, name)

    assert answer is not None
    assert type(answer.error) is error


def test_a_name_is_taken_once_and_a_child_too_patient_for_its_supervisor_is_refused() -> None:
    play = Playground(child("a"))
    play.start()

    taken = play.ask("start", child("a"))
    patient = play.ask("start", child("b", backoff=Backoff(1.0, 2.0)))

    assert taken is not None
    assert isinstance(taken.error, ChildSpecError)
    assert taken.error.field == "name"
    assert patient is not None
    assert isinstance(patient.error, ChildSpecError)
    assert patient.error.field == "backoff"
    assert play.states() == {"a": "running"}


def test_requests_wait_for_a_sequence_and_are_refused_when_the_supervisor_stops() -> None:
    play = Playground(child("a"), child("b"), strategy="one_for_all")
    play.slow = {"b"}
    play.start()

    assert play.ask("terminate", "a") is None
    play.ready("b")
    assert play.answers == [(0, None)]
    play.slow = {"a"}
    play.die("b")
    assert play.ask("terminate", "b") is None
    play.stop()

    assert isinstance(play.answers[-1].error, SupervisorNotRunningError)
    refused = play.ask("start", child("c"))
    assert refused is not None
    assert isinstance(refused.error, SupervisorNotRunningError)


def test_terminating_a_child_that_waits_cancels_its_restart() -> None:
    play = Playground(child("a", backoff=Backoff(1.0, 1.0, uniform=longest)))
    play.start()
    play.die("a")

    assert play.ask("terminate", "a") == (0, None)
    play.advance(10)

    assert play.states() == {"a": "stopped"}
    assert play.downs == [("a", "shutdown")]


def test_terminating_a_child_that_starts_answers_both_who_asked() -> None:
    play = Playground()
    play.slow = {"a"}
    play.start()
    play.ask("start", child("a"))

    play.core.terminate_child("a", 7)
    play.do()

    assert isinstance(play.answers[0].error, ChildStartError)
    assert play.answers[1] == (7, None)
    assert play.states() == {"a": "stopped"}


# -- reports --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("crash-reports-are-complete")
def test_a_crash_report_has_all_fields() -> None:
    play = Playground(child("a", backoff=Backoff(0.5, 1.0, uniform=longest), metadata={"team": "red"}))
    play.start()
    play.advance(2.5)

    play.die("a", ChildEnd(reason="exit:3", pid=77, stderr_tail="oh", peak_memory_bytes=4096))

    (report,) = play.reports
    assert {name: getattr(report, name) for name in report.__struct_fields__} == {
        "supervisor": "top",
        "child": "a",
        "path": "top/a",
        "incarnation": 1,
        "pid": 77,
        "reason": "exit:3",
        "exception": "",
        "stack": (),
        "last_step": "",
        "last_message": "",
        "stderr_tail": "oh",
        "uptime_s": 2.5,
        "peak_memory_bytes": 4096,
        "restarts_in_window": 1,
        "decision": "restart",
        "next_start_us": play.clock.now_us() + 500_000,
        "metadata": {"team": "red"},
    }


def test_a_normal_end_is_not_a_crash() -> None:
    play = Playground(child("a"), child("b", "transient"), child("c", "temporary"))
    play.start()

    for name in "abc":
        play.die(name, NORMAL)
    assert play.reports == []
    assert play.downs == [("b", "normal"), ("c", "normal")]
    play.ask("restart", "c")
    play.die("c", KILLED)

    assert [(report.child, report.decision) for report in play.reports] == [("c", "none")]
    assert play.states() == {"a": "running", "b": "ended", "c": "ended"}


@pytest.mark.requirement("supervisors-tell-what-happens")
def test_starts_ends_restarts_and_escalations_are_reported() -> None:
    telemetry = Telemetry()
    received: list[tuple[str, dict[str, int], dict[str, object]]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        received.append((name.removeprefix("supervisor."), dict(measurements), dict(metadata)))

    telemetry.attach("test", "supervisor.*", note)
    backoff = Backoff(1.0, 1.0, uniform=longest)
    play = Playground(child("a", backoff=backoff), max_restarts=1, telemetry=telemetry)
    play.slow = {"a"}
    play.start()
    play.advance(0.25)
    play.ready("a")
    play.slow = set()
    play.die("a")
    play.advance(1.0)
    play.die("a")

    about: dict[str, object] = {"supervisor": "top", "child": "a", "run": ""}
    reported = {"reason": "error", "strategy": "one_for_one"}
    assert received == [
        ("child_started", {"duration_ns": SECOND // 4}, {**about, "incarnation": 1}),
        (
            "child_ended",
            {"duration_ns": 0},
            {**about, "incarnation": 1, "reason": "error", "normal": False},
        ),
        ("child_restarted", {"restarts": 1, "delay_ns": SECOND}, {**about, "incarnation": 1, **reported}),
        ("child_started", {"duration_ns": 0}, {**about, "incarnation": 2}),
        (
            "child_ended",
            {"duration_ns": 0},
            {**about, "incarnation": 2, "reason": "error", "normal": False},
        ),
        ("escalated", {"restarts": 2}, {**about, **reported}),
    ]


def test_every_state_is_in_the_table_and_can_be_left_or_is_the_last() -> None:
    states = set(get_args(ChildState))

    assert set(TRANSITIONS) == states
    assert set().union(*TRANSITIONS.values()) == states - {"idle"}
    assert [state for state, following in TRANSITIONS.items() if not following] == ["escalated"]
