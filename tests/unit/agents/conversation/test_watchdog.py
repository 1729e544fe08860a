"""When the limits of a call pass."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.stage import request_for

from bartack.agents._record import Link
from bartack.agents.conversation._watchdog import Expired, Watchdog
from bartack.agents.program_config import NdjsonConfig
from bartack.agents.protocol.messages import Budget
from bartack.testing import VirtualClock


class Watched:
    """A call under way, with a process that has written something."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.clock = VirtualClock()
        settings = {"kind": "ndjson", "command": "x", "stall_s": 100, "heartbeat_s": 0}
        config = msgspec.convert(settings, type=NdjsonConfig)
        self.dog = Watchdog(config.limits, request_for("implement", root, **changes), self.clock, None)
        link = Link(pid=17)
        link.has_written = True
        self.dog.begin()
        self.dog.attached(link)
        self.dog.attempt_began()

    def after(self, seconds: float) -> Expired | None:
        self.clock.advance(seconds)
        return self.dog.tick("running")


def test_progress_starts_a_stall_anew(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    assert watched.after(99) is None

    watched.dog.progress()

    assert watched.after(99) is None
    assert watched.after(2) == Expired("attempt", "stalled", "it made no progress for 100 s")


def test_no_limit_passes_while_a_tool_runs(tmp_path: Path) -> None:
    watched = Watched(tmp_path, timeout_s=50.0)
    watched.clock.advance(10)
    watched.dog.hold("t1")

    assert watched.after(1000) is None
    assert watched.dog.next_due("running") is None

    watched.dog.release("t1")
    assert watched.dog.deadline_in_s == pytest.approx(40.0)
    assert watched.after(39) is None
    assert watched.after(2) == Expired("deadline")


def test_a_machine_that_slept_is_not_the_fault_of_the_agent(tmp_path: Path) -> None:
    watched = Watched(tmp_path, timeout_s=200.0)
    watched.dog.expect("running")

    assert watched.after(5000) is None

    assert watched.dog.deadline_in_s == pytest.approx(100.0), (
        "only the time until the tick was expected counts"
    )
    assert watched.after(99) is None


def test_the_first_suspicion_counts_until_there_is_a_good_line(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.dog.suspect(30.0, "malformed", "half a line")
    watched.dog.suspect(90.0, "schema", "another")
    unusable = "a line that may have been the answer cannot be used: half a line"
    assert watched.after(31) == Expired("attempt", "malformed", unusable)

    watched.dog.trust()

    assert watched.after(1) is None


@pytest.mark.parametrize(
    ("state", "limit"), [("waiting", "retry"), ("cancelling", "grace"), ("starting", "wall")]
)
def test_each_state_has_its_own_limits(tmp_path: Path, state: str, limit: str) -> None:
    watched = Watched(tmp_path, budget=Budget(wall_s=60.0))
    watched.dog.cancel_sent()
    watched.dog.retry_in(20.0)
    watched.clock.advance(61)

    expired = watched.dog.tick(state)  # type: ignore[arg-type]  # - one of the states

    assert expired is not None
    assert expired.limit == limit
    assert watched.dog.tick("done") is None
