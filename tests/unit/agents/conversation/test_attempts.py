"""Which attempts there are, and what all of them used."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.stage import request_for

from bartack.agents.conversation._attempts import Attempts
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.codes import OWN_CODES, judge_agent_code
from bartack.agents.protocol.messages import Usage


def attempts(root: Path, retries: int = 3, **changes: object) -> Attempts:
    config = msgspec.convert({"kind": "ndjson", "command": "x", "retries": retries}, type=NdjsonConfig)
    return Attempts("stub", request_for("implement", root, **changes), config.limits, lambda low, high: high)


def test_an_attempt_that_is_excused_does_not_count(tmp_path: Path) -> None:
    made = attempts(tmp_path, retries=2)
    again: list[bool] = []
    for excused in (True, False, False):
        made.begin()
        made.fail("overloaded", "busy")
        if excused:
            made.excuse()
        again.append(made.may_repeat("overloaded", judge_agent_code("overloaded", retryable=None)))

    assert again == [True, True, False]
    assert made.failed == ["1 overloaded", "2 overloaded", "3 overloaded"]
    assert (made.number, made.most) == (3, 3)


def test_attempts_of_earlier_hubs_and_steps_are_counted_on(tmp_path: Path) -> None:
    made = attempts(tmp_path, attempt=3, attempts_before=4)
    assert made.cause == "resend"

    made.begin()

    assert (made.number, made.made, made.most) == (7, 3, 9)


def test_a_code_that_is_tried_once_more_is_not_tried_twice_more(tmp_path: Path) -> None:
    made = attempts(tmp_path, retries=5)
    made.begin()

    assert [made.may_repeat("stalled", OWN_CODES["stalled"]) for _ in range(2)] == [True, False]
    assert made.may_repeat("heartbeat_lost", OWN_CODES["heartbeat_lost"]), "each code by itself"
    assert not made.may_repeat("budget_exceeded", OWN_CODES["budget_exceeded"])


def test_waits_grow_to_their_bound_and_are_never_shorter_than_the_agent_asks(tmp_path: Path) -> None:
    made = attempts(tmp_path, retries=9)
    waits: list[float] = []
    for _ in range(7):
        made.begin()
        waits.append(made.backoff_s(3.0))

    assert waits == [3.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_the_last_total_of_each_attempt_counts(tmp_path: Path) -> None:
    made = attempts(tmp_path)
    made.begin()
    for usd in (0.1, 0.3):
        made.used(Usage(cost_usd=usd))
    made.fail("overloaded", "busy")
    made.begin()
    made.used(Usage(cost_usd=0.2, turns=1))

    assert made.usage().cost_usd == pytest.approx(0.5)
    assert made.usage(Usage(cost_usd=1.0)) == Usage(cost_usd=1.3)
