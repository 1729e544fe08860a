"""What a node of a database reports to telemetry."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bartack.depot import Verdict
from bartack.depot.taken import Taken
from bartack.node._reports import FleetEvents
from bartack.telemetry import Telemetry

Heard = list[tuple[str, Mapping[str, int], Mapping[str, object]]]


@pytest.fixture
def heard() -> Heard:
    return []


@pytest.fixture
def events(heard: Heard) -> FleetEvents:
    telemetry = Telemetry()

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        heard.append((name, dict(measurements), dict(metadata)))

    telemetry.attach("test", "*", note)
    return FleetEvents(telemetry, "alpha", 4)


@pytest.mark.requirement("fleet-events")
def test_the_life_of_a_node_is_reported(events: FleetEvents, heard: Heard) -> None:
    events.joined(7)
    events.look("live", 0, 0.0)
    events.look("holding", 2, 1.0)
    events.look("waiting", 2, 2.0)
    events.look("live", 2, 4.0)
    events.look("ending", 2, 5.0)
    events.look("joining", 0, 6.0)
    events.look("ended", 0, 7.0)

    assert [(name, measured) for name, measured, _ in heard] == [
        ("node.joined", {"slots": 4}),
        ("node.held", {"runs": 2}),
        ("node.freed", {"runs": 2, "duration_ns": 3_000_000_000}),
        ("node.dead", {"runs": 2}),
        ("node.left", {}),
    ]
    assert heard[0][2] == {"node": "alpha", "number": 7}


@pytest.mark.requirement("fleet-events")
def test_what_becomes_of_runs_is_reported(events: FleetEvents, heard: Heard) -> None:
    first, second = Taken(1, "run-1", "default", 2, 0), Taken(2, "run-2", "default", 5, 1)
    events.begun(first, 1.0)
    events.begun(second, 1.0)
    events.given_back(first, Verdict(state="over", reason="it has ended"), "over", 3.5)
    events.given_back(second, Verdict(state="queued", reason="no such workspace"), "held", 2.0)
    events.given_back(first, Verdict(state="queued"), None, 9.0)

    assert heard == [
        ("run.claimed", {}, {"node": "alpha", "run": "run-1", "fence": 2}),
        ("run.taken_over", {"strikes": 1}, {"node": "alpha", "run": "run-2", "fence": 5}),
        (
            "run.released",
            {"duration_ns": 2_500_000_000},
            {"node": "alpha", "run": "run-1", "state": "over", "reason": "it has ended"},
        ),
        (
            "run.held",
            {"duration_ns": 1_000_000_000},
            {"node": "alpha", "run": "run-2", "reason": "no such workspace"},
        ),
    ]


@pytest.mark.requirement("fleet-events")
def test_workspaces_and_lost_entries_are_reported(events: FleetEvents, heard: Heard) -> None:
    events.restored(Taken(1, "run-1", "default", 2, 0), 1.5)
    events.rewound("run-1", 3)

    assert heard == [
        ("copy.restored", {"duration_ns": 1_500_000_000}, {"node": "alpha", "run": "run-1"}),
        ("depot.rewound", {"entries": 3}, {"run": "run-1"}),
    ]


@pytest.mark.requirement("fleet-events")
def test_a_database_that_is_away_is_reported_once(events: FleetEvents, heard: Heard) -> None:
    events.answered(0.0)
    events.away("cut", 1.0)
    events.away("refused", 2.0)
    events.answered(4.0)
    events.answered(5.0)

    assert [(name, measured) for name, measured, _ in heard] == [
        ("depot.away", {}),
        ("depot.back", {"duration_ns": 3_000_000_000}),
    ]
