from __future__ import annotations

import threading
import timeit
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from bartack.telemetry import CATALOGUE, NO_TELEMETRY, Telemetry
from bartack.telemetry.catalogue import (
    JournalCommitted,
    JournalPoisoned,
    JournalRecovered,
    TelemetryHandlerFailed,
)

COMMITTED = JournalCommitted(entries=3, size_bytes=412, duration_ns=150_000)
POISONED = JournalPoisoned(reason="no space left")

Call = tuple[str, dict[str, int], dict[str, object], object]


class Recorder:
    """A handler that keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(
        self, name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], config: object
    ) -> None:
        self.calls.append((name, dict(measurements), dict(metadata), config))

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


def failing(*_: object) -> None:
    raise RuntimeError("listener broke")


def test_a_handler_gets_name_measurements_metadata_and_its_config() -> None:
    telemetry = Telemetry()
    received = Recorder()
    telemetry.attach("log", "journal.recovered", received, config={"level": "info"})

    telemetry.emit(JournalRecovered(size_bytes=17, seq=5, kept_as="journal.torn-5"))

    assert received.calls == [
        ("journal.recovered", {"size_bytes": 17}, {"seq": 5, "kept_as": "journal.torn-5"}, {"level": "info"})
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("journal.committed", ["journal.committed"]),
        ("journal.*", ["journal.committed", "journal.poisoned"]),
        ("*", ["journal.committed", "journal.poisoned"]),
        ("*.poisoned", ["journal.poisoned"]),
        ("telemetry.*", []),
    ],
)
def test_a_handler_receives_the_events_its_pattern_matches(pattern: str, expected: list[str]) -> None:
    telemetry = Telemetry()
    received = Recorder()
    telemetry.attach("log", pattern, received)

    telemetry.emit(COMMITTED)
    telemetry.emit(POISONED)

    assert received.names == expected


def test_patterns_are_case_sensitive() -> None:
    with pytest.raises(ValueError, match=r"no event matches 'Journal\.\*'"):
        Telemetry().attach("log", "Journal.*", Recorder())


def test_a_pattern_that_matches_no_event_is_refused_and_attaches_nothing() -> None:
    telemetry = Telemetry()

    with pytest.raises(ValueError, match=r"no event matches 'journal\.comitted'"):
        telemetry.attach("log", "journal.comitted", Recorder())

    assert telemetry.handlers() == ()


def test_a_taken_id_is_refused_and_the_first_handler_stays() -> None:
    telemetry = Telemetry()
    first, second = Recorder(), Recorder()
    telemetry.attach("log", "journal.*", first)

    with pytest.raises(ValueError, match="'log' is attached already"):
        telemetry.attach("log", "journal.*", second)
    telemetry.emit(COMMITTED)

    assert (first.names, second.names) == (["journal.committed"], [])


def test_a_detached_handler_receives_nothing_more_and_frees_its_id() -> None:
    telemetry = Telemetry()
    received = Recorder()
    telemetry.attach("log", "*", received)

    assert telemetry.detach("log") is True
    telemetry.emit(COMMITTED)
    assert telemetry.detach("log") is False
    assert received.calls == []
    telemetry.attach("log", "*", received)


def test_handlers_are_listed_and_called_in_the_order_they_were_attached() -> None:
    telemetry = Telemetry()
    order: list[str] = []

    def note(_name: str, _measured: Mapping[str, int], _about: Mapping[str, object], config: object) -> None:
        order.append(str(config))

    for handler_id in ("c", "a", "b"):
        telemetry.attach(handler_id, "journal.*", note, config=handler_id)
    telemetry.emit(COMMITTED)

    assert order == ["c", "a", "b"]
    assert [handler.handler_id for handler in telemetry.handlers()] == ["c", "a", "b"]


def test_an_event_is_wanted_exactly_while_a_handler_matches_it() -> None:
    telemetry = Telemetry()
    before = telemetry.wanted(JournalCommitted)
    telemetry.attach("log", "journal.committed", Recorder())
    during, other = telemetry.wanted(JournalCommitted), telemetry.wanted(JournalPoisoned)
    telemetry.detach("log")

    assert (before, during, other, telemetry.wanted(JournalCommitted)) == (False, True, False, False)


@pytest.mark.requirement("handler-cannot-harm")
def test_a_failing_handler_is_detached_reported_and_not_noticed_by_the_emitter() -> None:
    telemetry = Telemetry()
    received = Recorder()
    telemetry.attach("broken", "journal.*", failing)
    telemetry.attach("log", "*", received)

    telemetry.emit(COMMITTED)
    telemetry.emit(COMMITTED)

    assert received.names == ["telemetry.handler_failed", "journal.committed", "journal.committed"]
    assert received.calls[0][2] == {
        "handler": "broken",
        "event": "journal.committed",
        "error": "RuntimeError: listener broke",
    }
    assert [handler.handler_id for handler in telemetry.handlers()] == ["log"]


def test_a_handler_that_fails_on_the_report_of_another_is_detached_too() -> None:
    telemetry = Telemetry()
    received = Recorder()
    telemetry.attach("one", "*", failing)
    telemetry.attach("two", "telemetry.*", failing)
    telemetry.attach("log", "telemetry.*", received)

    telemetry.emit(COMMITTED)

    assert sorted(str(call[2]["handler"]) for call in received.calls) == ["one", "two"]
    assert [handler.handler_id for handler in telemetry.handlers()] == ["log"]


def test_an_interrupt_in_a_handler_reaches_the_emitter() -> None:
    telemetry = Telemetry()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    telemetry.attach("log", "*", interrupted)
    with pytest.raises(KeyboardInterrupt):
        telemetry.emit(COMMITTED)

    assert [handler.handler_id for handler in telemetry.handlers()] == ["log"]


def test_a_handler_cannot_change_what_the_next_one_gets() -> None:
    telemetry = Telemetry()
    received = Recorder()

    def meddle(_name: str, measurements: Mapping[str, int], *_: object) -> None:
        measurements["entries"] = 0  # type: ignore[index]  # pyright: ignore[reportIndexIssue] - the point of the test

    telemetry.attach("meddler", "*", meddle)
    telemetry.attach("log", "journal.*", received)
    telemetry.emit(COMMITTED)

    assert received.calls[0][1]["entries"] == 3
    assert [handler.handler_id for handler in telemetry.handlers()] == ["log"]


def test_a_handler_may_detach_itself_while_it_is_called() -> None:
    telemetry = Telemetry()
    seen: list[str] = []

    def once(name: str, *_: object) -> None:
        seen.append(name)
        telemetry.detach("once")

    telemetry.attach("once", "*", once)
    telemetry.emit(COMMITTED)
    telemetry.emit(COMMITTED)

    assert seen == ["journal.committed"]


def test_a_handler_runs_in_the_thread_that_emits() -> None:
    telemetry = Telemetry()
    threads: list[int] = []

    def note_thread(*_: object) -> None:
        threads.append(threading.get_ident())

    telemetry.attach("log", "*", note_thread)

    def emit_and_return() -> int:
        telemetry.emit(COMMITTED)
        return threading.get_ident()

    with ThreadPoolExecutor(1) as pool:
        emitter = pool.submit(emit_and_return).result(timeout=60)

    assert threads == [emitter]


def test_a_handler_that_fails_in_two_threads_at_once_is_reported_once() -> None:
    telemetry = Telemetry()
    received = Recorder()
    both_inside = threading.Barrier(2, timeout=60)

    def fail_together(*_: object) -> None:
        both_inside.wait()
        raise RuntimeError("listener broke")

    telemetry.attach("broken", "journal.*", fail_together)
    telemetry.attach("log", "telemetry.*", received)
    _in_two_threads(lambda: telemetry.emit(COMMITTED))

    assert received.names == ["telemetry.handler_failed"]


def test_a_late_failure_does_not_detach_a_later_handler_of_the_same_id() -> None:
    telemetry = Telemetry()
    successor = Recorder()

    def replaced(*_: object) -> None:
        telemetry.detach("log")
        telemetry.attach("log", "*", successor)
        raise RuntimeError("listener broke")

    telemetry.attach("log", "*", replaced)
    telemetry.emit(COMMITTED)
    telemetry.emit(POISONED)

    assert successor.names == ["journal.poisoned"]


def test_attaching_and_detaching_from_many_threads_loses_no_handler() -> None:
    telemetry = Telemetry()

    def work(worker: int) -> None:
        for turn in range(50):
            telemetry.attach(f"{worker}.{turn}", "journal.*", Recorder())
            telemetry.emit(COMMITTED)
            if turn % 2:
                telemetry.detach(f"{worker}.{turn}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    left = {handler.handler_id for handler in telemetry.handlers()}
    assert left == {f"{worker}.{turn}" for worker in range(4) for turn in range(0, 50, 2)}


def test_two_buses_do_not_receive_events_of_each_other() -> None:
    one, two = Telemetry(), Telemetry()
    received = Recorder()
    one.attach("log", "*", received)

    two.emit(COMMITTED)

    assert received.calls == []


def test_nothing_can_be_attached_to_no_telemetry() -> None:
    with pytest.raises(ValueError, match="no event matches"):
        NO_TELEMETRY.attach("log", "*", Recorder())

    assert not any(NO_TELEMETRY.wanted(event_type) for event_type in CATALOGUE.values())


def test_an_event_without_a_handler_reaches_no_handler() -> None:
    telemetry = Telemetry()
    received = Recorder()
    telemetry.attach("log", "journal.poisoned", received)

    telemetry.emit(TelemetryHandlerFailed(handler="h", event="e", error="x"))

    assert received.calls == []


@pytest.mark.requirement("silence-is-cheap")
def test_an_event_that_no_handler_wants_costs_under_a_microsecond() -> None:
    telemetry = Telemetry()
    telemetry.attach("log", "journal.poisoned", Recorder())

    def ask() -> None:
        if telemetry.wanted(JournalCommitted):
            telemetry.emit(COMMITTED)

    assert min(timeit.repeat(ask, number=1_000, repeat=20)) / 1_000 < 1e-6


def _in_two_threads(work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work) for _ in range(2)]:
            done.result(timeout=60)
