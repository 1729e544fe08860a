from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from bartack.errors import CircuitOpenError, ServiceAnswerError
from bartack.resilience import (
    CallFailed,
    CallIgnored,
    CallRejected,
    CallSucceeded,
    CircuitBreaker,
    CircuitState,
    StateStore,
)
from bartack.resilience import _circuit as circuit_module
from bartack.testing import VirtualClock


class BoomError(Exception):
    pass


def fails() -> None:
    raise BoomError("no")


async def fails_later() -> None:
    raise BoomError("no")


def works() -> str:
    return "value"


def opened(breaker: CircuitBreaker, failures: int = 3) -> CircuitBreaker:
    async def fail() -> None:
        for _ in range(failures):
            await breaker.call(fails)

    asyncio.run(fail())
    return breaker


def state_of(breaker: CircuitBreaker) -> object:
    return breaker.get_state()["state"]


@pytest.fixture(params=["private", "shared"])
def make(
    request: pytest.FixtureRequest, store: StateStore, clock: VirtualClock
) -> Callable[..., CircuitBreaker]:
    """Makes breakers of both kinds: everything below holds for both."""

    def build(
        failure_threshold: int = 3, timeout: float = 60, half_open_max_calls: int = 1, max_in_flight: int = 0
    ) -> CircuitBreaker:
        shared = request.param == "shared"
        return CircuitBreaker(
            failure_threshold,
            timeout,
            half_open_max_calls,
            name="http://x:80" if shared else None,
            store=store if shared else None,
            max_in_flight=max_in_flight,
            clock=clock,
        )

    return build


Make = Callable[..., CircuitBreaker]


@pytest.mark.parametrize("func", [fails, fails_later])
def test_the_third_failure_in_a_row_opens(make: Make, func: Callable[[], Awaitable[None] | None]) -> None:
    breaker = make()

    async def scenario() -> list[object]:
        states: list[object] = []
        for _ in range(3):
            await breaker.call(func)
            states.append(state_of(breaker))
        return states

    assert asyncio.run(scenario()) == ["closed", "closed", "open"]


def test_a_success_between_failures_starts_the_count_anew(make: Make) -> None:
    breaker = make()

    async def scenario() -> None:
        for func in (fails, fails, works, fails, fails):
            await breaker.call(func)

    asyncio.run(scenario())
    assert state_of(breaker) == "closed"
    assert breaker.get_state()["failure_count"] == 2


def test_an_open_breaker_rejects_without_calling(make: Make) -> None:
    breaker = opened(make())
    called: list[int] = []

    outcome = asyncio.run(breaker.execute(lambda: called.append(1)))

    assert isinstance(outcome, CallRejected)
    assert (outcome.state, called) == ("open", [])
    assert 0 < outcome.retry_after <= 60
    assert breaker.get_state()["is_available"] is False


def test_none_failure_and_rejection_are_distinguished(make: Make) -> None:
    breaker = make(failure_threshold=1)

    async def scenario() -> list[type]:
        return [type(await breaker.execute(func)) for func in (lambda: None, fails, works)]

    assert asyncio.run(scenario()) == [CallSucceeded, CallFailed, CallRejected]


def test_after_the_timeout_one_trial_closes_or_opens_again(make: Make, clock: VirtualClock) -> None:
    breaker = opened(make())
    clock.advance(60)
    assert asyncio.run(breaker.call(fails)) is None
    assert state_of(breaker) == "open"
    clock.advance(59)
    assert isinstance(asyncio.run(breaker.execute(works)), CallRejected)
    clock.advance(1)

    assert asyncio.run(breaker.call(works)) == "value"
    assert state_of(breaker) == "closed"


def test_half_open_lets_only_the_allowed_number_of_probes_through(make: Make, clock: VirtualClock) -> None:
    breaker = opened(make())
    clock.advance(60)

    async def scenario() -> None:
        go = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            probe = group.create_task(breaker.execute(go.wait))
            await asyncio.sleep(0)
            second = await breaker.execute(works)
            assert isinstance(second, CallRejected)
            assert (second.state, state_of(breaker)) == ("half_open", "half_open")
            assert 0 < second.retry_after <= 10
            go.set()
        assert isinstance(probe.result(), CallSucceeded)

    asyncio.run(scenario())
    assert state_of(breaker) == "closed"


def test_a_cancelled_probe_gives_its_place_back(make: Make, clock: VirtualClock) -> None:
    breaker = opened(make())
    clock.advance(60)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            probe = group.create_task(breaker.execute(asyncio.Event().wait))
            await asyncio.sleep(0)
            probe.cancel()
            await asyncio.wait([probe])
            assert probe.cancelled()
        assert await breaker.call(works) == "value"

    asyncio.run(scenario())
    assert state_of(breaker) == "closed"


def test_a_probe_that_never_comes_back_is_given_up(make: Make, clock: VirtualClock) -> None:
    breaker = opened(make())
    clock.advance(60)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(breaker.execute(asyncio.Event().wait, call_timeout=2.0))
            await asyncio.sleep(0)
            assert isinstance(await breaker.execute(works), CallRejected)
            clock.advance(10.1)
            assert isinstance(await breaker.execute(works), CallSucceeded)
            lost.cancel()

    asyncio.run(scenario())
    assert state_of(breaker) == "closed"


def test_a_slow_success_from_before_the_opening_does_not_close(make: Make) -> None:
    breaker = make()

    async def scenario() -> None:
        go = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(breaker.execute(go.wait))
            await asyncio.sleep(0)
            for _ in range(3):
                await breaker.call(fails)
            go.set()
        assert isinstance(slow.result(), CallSucceeded)

    asyncio.run(scenario())
    assert state_of(breaker) == "open"
    assert breaker.details()["stale_results"] == 1


@pytest.mark.parametrize("status", [400, 404, 409, 422])
def test_a_refusal_of_the_request_changes_no_counter(make: Make, status: int) -> None:
    breaker = make()

    async def scenario() -> list[type]:
        return [type(await breaker.execute(refusing(status))) for _ in range(5)]

    assert set(asyncio.run(scenario())) == {CallIgnored}
    assert breaker.get_state()["failure_count"] == 0
    assert state_of(breaker) == "closed"


def refusing(status: int, retry_after: float | None = None) -> Callable[[], None]:
    def call() -> None:
        raise ServiceAnswerError("http://x", status, retry_after)

    return call


@pytest.mark.parametrize(("status", "reason"), [(401, "auth"), (403, "auth"), (302, "redirect")])
def test_a_fault_of_the_endpoint_trips_at_once(make: Make, status: int, reason: str) -> None:
    breaker = make()

    asyncio.run(breaker.execute(refusing(status)))

    assert (state_of(breaker), breaker.details()["reason"]) == ("open", reason)


def test_health_does_not_open_the_way_to_an_endpoint_at_fault(make: Make) -> None:
    breaker = make()
    asyncio.run(breaker.execute(refusing(401)))

    breaker.note_healthy()

    assert state_of(breaker) == "open"


def test_retry_after_keeps_it_open_longer_than_the_timeout(make: Make, clock: VirtualClock) -> None:
    breaker = make()
    asyncio.run(breaker.execute(refusing(503, retry_after=300.0)))

    clock.advance(299)
    assert isinstance(asyncio.run(breaker.execute(works)), CallRejected)
    clock.advance(2)

    assert asyncio.run(breaker.call(works)) == "value"


def test_health_turned_good_lets_the_next_call_probe(make: Make) -> None:
    breaker = opened(make())

    breaker.note_healthy()

    assert state_of(breaker) == "half_open"
    assert asyncio.run(breaker.call(works)) == "value"
    assert state_of(breaker) == "closed"


def test_a_clock_set_back_a_day_changes_no_wait(make: Make, clock: VirtualClock) -> None:
    breaker = opened(make())

    clock.set_back(86_400)
    clock.advance(60)

    assert asyncio.run(breaker.call(works)) == "value"


def test_reset_closes_and_forgets(make: Make) -> None:
    breaker = opened(make())

    breaker.reset()

    state = breaker.get_state()
    assert (state["state"], state["failure_count"], state["is_available"]) == ("closed", 0, True)


def test_limits_set_later_hold_from_the_next_call_on(make: Make, clock: VirtualClock) -> None:
    breaker = make()
    breaker.failure_threshold = 1
    opened(breaker, 1)
    assert state_of(breaker) == "open"

    breaker.timeout = 5
    clock.advance(5)

    assert asyncio.run(breaker.call(works)) == "value"


def test_ignored_exceptions_say_nothing_about_the_service(make: Make) -> None:
    breaker = make(failure_threshold=1)
    breaker.ignore = (BoomError,)

    assert isinstance(asyncio.run(breaker.execute(fails)), CallIgnored)
    assert state_of(breaker) == "closed"


def test_more_calls_at_once_than_allowed_are_rejected(make: Make) -> None:
    breaker = make(max_in_flight=2)

    async def scenario() -> list[type]:
        go = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(breaker.execute(go.wait)) for _ in range(3)]
            await asyncio.sleep(0)
            go.set()
        return [type(call.result()) for call in calls]

    assert asyncio.run(scenario()) == [CallSucceeded, CallSucceeded, CallRejected]


def test_unwrap_gives_the_value_or_raises() -> None:
    assert CallSucceeded(5).unwrap() == 5
    with pytest.raises(BoomError):
        CallFailed(BoomError()).unwrap()
    with pytest.raises(BoomError):
        CallIgnored(BoomError()).unwrap()
    with pytest.raises(CircuitOpenError) as raised:
        CallRejected(12.5, "open", "http://x:80").unwrap()
    assert raised.value.retry_after == 12.5


def test_a_state_from_before_a_restart_waits_at_most_one_timeout(tmp_path: Path, clock: VirtualClock) -> None:
    with StateStore(tmp_path, clock=clock, boot="before") as store:
        opened(CircuitBreaker(3, 60, name="n", store=store))
    clock.set_back(86_400)
    with StateStore(tmp_path, clock=clock, boot="after") as store:
        rejected = asyncio.run(CircuitBreaker(3, 60, name="n", store=store).execute(works))

    assert isinstance(rejected, CallRejected)
    assert rejected.retry_after == 60


def test_a_database_that_cannot_be_used_makes_the_breaker_private(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    breaker = CircuitBreaker(3, 60, name="n", store=StateStore(tmp_path / "file" / "x"))

    assert asyncio.run(breaker.call(works)) == "value"
    opened(breaker)
    assert state_of(breaker) == "open"


OPENER = """
import asyncio, sys
from bartack.resilience import CircuitBreaker, StateStore
async def main():
    breaker = CircuitBreaker(3, 60, name="n", store=StateStore(sys.argv[1]))
    for _ in range(3):
        await breaker.call(lambda: 1 / 0)
asyncio.run(main())
"""


@pytest.mark.requirement("breaker-is-shared")
def test_a_breaker_opened_by_one_process_rejects_in_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", OPENER, str(tmp_path)], check=True, timeout=120)

    with StateStore(tmp_path) as store:
        outcome = asyncio.run(CircuitBreaker(3, 60, name="n", store=store).execute(works))

    assert isinstance(outcome, CallRejected)


PROBER = """
import asyncio, sys
from bartack.resilience import CircuitBreaker, StateStore
async def main():
    breaker = CircuitBreaker(3, 0, name="n", store=StateStore(sys.argv[1]))
    def probe():
        print("probing", flush=True)
        return asyncio.Event().wait()
    await breaker.execute(probe, call_timeout=300)
asyncio.run(main())
"""


def test_the_breaker_recovers_from_a_prober_that_was_killed(tmp_path: Path) -> None:
    with StateStore(tmp_path) as store:
        opened(CircuitBreaker(3, 0, name="n", store=store))
        prober = subprocess.Popen([sys.executable, "-c", PROBER, str(tmp_path)], stdout=subprocess.PIPE)
        assert prober.stdout is not None
        assert prober.stdout.readline() == b"probing\n"
        prober.send_signal(signal.SIGKILL)
        prober.wait()
        prober.stdout.close()
        assert isinstance(
            asyncio.run(CircuitBreaker(3, 0, name="n", store=store).execute(works)), CallRejected
        )

        # The lease of the dead ends; no process has to be there for that.
        store.write(lambda connection: connection.execute("UPDATE leases SET until=until-600"))

        assert asyncio.run(CircuitBreaker(3, 0, name="n", store=store).call(works)) == "value"


ROUNDS = 100
RACERS = 8


def race(directory: str, barrier: Barrier, probes: str) -> None:
    store = StateStore(directory)
    breaker = CircuitBreaker(1, 0, name="n", store=store)

    async def one_round(number: int) -> None:
        called: list[int] = []

        async def hold() -> None:
            called.append(number)
            fd = os.open(probes, os.O_WRONLY | os.O_APPEND)
            os.write(fd, b"%d\n" % number)
            os.close(fd)
            # Until all have asked: none must find the breaker closed again.
            await asyncio.to_thread(barrier.wait, 120)

        outcome = await breaker.execute(hold, call_timeout=120)
        if not called:
            assert isinstance(outcome, CallRejected)
            barrier.wait(120)

    async def main() -> None:
        for number in range(ROUNDS):
            barrier.wait(120)
            await one_round(number)
            if barrier.wait(120) == 0:
                breaker.reset()
                breaker.trip("failures", 0.0)
            barrier.wait(120)

    asyncio.run(main())


@pytest.mark.requirement("one-probe")
def test_exactly_one_of_eight_processes_probes_a_hundred_times_in_a_row(tmp_path: Path) -> None:
    probes = tmp_path / "probes"
    probes.touch()
    with StateStore(tmp_path) as store:
        CircuitBreaker(1, 0, name="n", store=store).trip("failures", 0.0)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(RACERS)
    racers = [context.Process(target=race, args=(str(tmp_path), barrier, str(probes))) for _ in range(RACERS)]

    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(300)

    assert [racer.exitcode for racer in racers] == [0] * RACERS
    assert probes.read_text().split() == [str(number) for number in range(ROUNDS)]


def test_the_table_in_the_docs_is_the_table_of_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/tracking.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(closed|open|half_open|any)` \| ([^|]+?) \| `(\w+)` \|", page, re.MULTILINE)
    table = circuit_module.__doc__ or ""
    drawn = re.findall(r"^(closed|open|half_open|any)\s{2,}(.+?)\s{2,}(\w+)\s{2,}", table, re.MULTILINE)

    assert [(start, end) for start, _, end in drawn] == [(start, end) for start, _, end in rows]
    assert {CircuitState(start) for start, _, _ in drawn if start != "any"} == set(CircuitState)
