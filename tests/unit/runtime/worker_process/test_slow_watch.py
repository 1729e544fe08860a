"""Workers that compute for long."""

from __future__ import annotations

import threading

from tests.unit.runtime.stage import Stage, fields

from bartack.runtime.protocol import frames as f
from bartack.runtime.worker_process.slow_watch import SlowWatch
from bartack.testing import VirtualClock


def test_a_turn_that_takes_too_long_is_reported_once() -> None:
    clock, reports = VirtualClock(), list[f.Slow]()
    clock.advance(1)
    watch = SlowWatch(reports.append, 10.0, lambda: clock.monotonic_ns() / 1e9)
    watch.begin_turn()
    clock.advance(9)
    watch.check()
    assert not reports

    clock.advance(2)
    watch.check()
    watch.check()

    assert [report.seconds for report in reports] == [11.0]
    assert reports[0].stack[-1].function == "test_a_turn_that_takes_too_long_is_reported_once"
    watch.begin_turn()
    watch.end_turn()
    clock.advance(100)
    watch.check()
    assert len(reports) == 1


def test_the_watch_looks_from_a_thread_of_its_own() -> None:
    reported = threading.Event()

    def report(slow: f.Slow) -> None:
        assert "test_the_watch_looks" in str(slow.stack)
        reported.set()

    watch = SlowWatch(report, 0.01)
    watch.begin_turn()
    watch.start()

    assert reported.wait(60)
    watch.stop()


def test_the_hub_keeps_where_a_worker_is_and_takes_it_for_no_step() -> None:
    stage = Stage()
    main = stage.begin()
    stack = [f.StackLine("prog.py", 7, "main", "while True: pass")]

    main.say(f.Slow(seconds=11.5, stack=stack))

    (entry,) = stage.entries("wait.slow")
    assert fields(entry.data)["path"] == "main"
    assert fields(entry.data)["seconds"] == 11.5
    assert stage.core.turn.by_worker["main"].replaying


def test_a_process_that_was_stopped_is_not_reported_as_slow() -> None:
    clock, computed, reports = VirtualClock(), [0.0], list[f.Slow]()
    clock.advance(1)
    watch = SlowWatch(reports.append, 10.0, lambda: clock.monotonic_ns() / 1e9, lambda: computed[0])
    watch.begin_turn()
    clock.advance(4)
    watch.look()
    clock.advance(300)
    watch.look()
    assert not reports

    clock.advance(5)
    watch.look()

    assert [report.seconds for report in reports] == [14.0]


def test_a_process_that_computes_and_lets_no_other_thread_run_is_reported_as_slow() -> None:
    clock, computed, reports = VirtualClock(), [0.0], list[f.Slow]()
    clock.advance(1)
    watch = SlowWatch(reports.append, 10.0, lambda: clock.monotonic_ns() / 1e9, lambda: computed[0])
    watch.begin_turn()
    clock.advance(300)
    computed[0] += 299
    watch.look()

    assert [report.seconds for report in reports] == [300.0]
