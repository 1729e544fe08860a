from __future__ import annotations

import asyncio

import pytest

from bartack.resilience import HealthChecker, Phase4HealthChecker, StateStore
from bartack.testing import CountingService, VirtualClock


def check(checker: HealthChecker, *, force: bool = False) -> bool:
    return asyncio.run(checker.check_health(force=force))


def test_at_first_nothing_is_known() -> None:
    status = HealthChecker("http://127.0.0.1:9").get_health_status()

    assert (status["level"], status["is_healthy"], status["last_check"]) == ("unknown", False, None)


def test_a_service_that_answers_is_healthy(service: CountingService) -> None:
    checker = HealthChecker(service.url)

    assert check(checker) is True
    status = checker.get_health_status()
    assert (status["level"], status["consecutive_successes"]) == ("healthy", 1)
    assert status["last_health_data"] == {"status": "healthy"}


def test_a_service_that_cannot_be_reached_is_down_and_nothing_is_raised() -> None:
    checker = HealthChecker("http://127.0.0.1:9")

    assert check(checker) is False
    assert checker.get_health_status()["level"] == "down"


@pytest.mark.requirement("degraded-is-usable")
@pytest.mark.parametrize("status", [200, 503])
def test_a_degraded_service_is_usable_and_its_parts_are_kept(service: CountingService, status: int) -> None:
    service.health = (status, {"status": "degraded", "components": {"search": "down"}})
    checker = HealthChecker(service.url)

    assert check(checker) is True
    found = checker.get_health_status()
    assert (found["level"], found["is_healthy"], found["components"]) == (
        "degraded",
        True,
        {"search": "down"},
    )


@pytest.mark.parametrize(
    "answer", [(503, {"status": "unhealthy"}), (503, {}), (404, {}), (500, {"status": "degraded"})]
)
def test_any_other_answer_is_down(service: CountingService, answer: tuple[int, dict[str, object]]) -> None:
    service.health = answer

    assert check(HealthChecker(service.url)) is False


def test_an_answer_is_reused_until_it_is_too_old(service: CountingService, clock: VirtualClock) -> None:
    checker = HealthChecker(service.url, clock=clock)
    check(checker)
    check(checker)
    assert service.requests["/health"] == 1

    check(checker, force=True)
    assert service.requests["/health"] == 2

    clock.advance(30)
    check(checker)
    assert service.requests["/health"] == 3


def test_checks_at_the_same_time_share_one_request(service: CountingService) -> None:
    checker = HealthChecker(service.url)

    async def scenario() -> list[bool]:
        return list(await asyncio.gather(*(checker.check_health() for _ in range(10))))

    assert asyncio.run(scenario()) == [True] * 10
    assert service.requests["/health"] == 1


def test_a_hanging_service_is_down_after_the_timeout(service: CountingService) -> None:
    service.hang()

    assert check(HealthChecker(service.url, timeout=0.05)) is False


def test_the_record_is_shared_through_the_store(service: CountingService, store: StateStore) -> None:
    check(HealthChecker(service.url, store=store))

    other = HealthChecker(service.url, store=store)

    assert other.get_health_status()["level"] == "healthy"
    assert check(other) is True
    assert service.requests["/health"] == 1


def test_a_shared_record_that_is_too_old_is_unknown(
    service: CountingService, store: StateStore, clock: VirtualClock
) -> None:
    check(HealthChecker(service.url, store=store))

    clock.advance(31)

    assert HealthChecker(service.url, store=store).get_health_status()["level"] == "unknown"


def test_real_calls_count_as_checks(service: CountingService) -> None:
    checker = HealthChecker(service.url)

    checker.note(usable=True)

    assert check(checker) is True
    assert service.requests["/health"] == 0


def test_three_lost_calls_in_a_row_mean_down(service: CountingService) -> None:
    checker = HealthChecker(service.url)
    checker.note(usable=True)
    for _ in range(2):
        checker.note(usable=False)
    assert checker.get_health_status()["level"] == "healthy"

    checker.note(usable=False)

    assert checker.get_health_status()["level"] == "down"


def test_a_change_is_logged_once_and_kept(
    service: CountingService, store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bartack")
    checker = HealthChecker(service.url, store=store)
    check(checker)
    check(checker, force=True)
    service.go_away()
    check(checker, force=True)
    check(checker, force=True)

    log = store.read(lambda connection: connection.execute("SELECT level FROM health_log").fetchall())
    assert log == [("healthy",), ("down",)]
    assert [record.message.split(" is ")[1] for record in caplog.records if " is " in record.message] == [
        "healthy, was unknown",
        "down, was healthy",
    ]


def test_recovery_is_reported(service: CountingService) -> None:
    reported: list[str] = []
    checker = HealthChecker(service.url)
    checker.on_recovery = lambda: reported.append("back")
    service.go_away()
    check(checker, force=True)
    assert reported == []

    service.come_back()
    check(checker, force=True)

    assert reported == ["back"]


def test_the_older_name_is_the_same_class() -> None:
    assert Phase4HealthChecker is HealthChecker
