"""Nothing is lost or paid twice: processes of a run are killed at every point of a call to a real agent.

Each case stops a call at one point from outside, kills something with SIGKILL, lets everything continue, and then looks at the
outcome, at the processes, at what the model server was asked, and at what the step was charged with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from tests.realcli.crew import KINDS, Kind, price
from tests.realcli.kill_points import DONE, POINTS, VICTIMS, Scene, Victim, all_scripts
from tests.realcli.programs import require_program

from bartack.journal import Entry
from bartack.testing import ClaudeSandbox, ModelRequest, ModelServer

pytestmark = [
    pytest.mark.requirement("calls-survive-kills"),
    pytest.mark.requirement("codex-harvest"),
]

Case = tuple[Kind, str, Victim]
IMPOSSIBLE: Final[dict[tuple[str, Victim], str]] = {
    ("before_start", "cli"): "the process of the agent is not there yet",
    ("journaled", "cli"): "the process of the agent has ended",
}
"""What cannot be killed at a point, with the reason."""
CASES: Final[list[Case]] = [
    (kind, point, victim)
    for kind, point, victim in product(KINDS, POINTS, VICTIMS)
    if (point, victim) not in IMPOSSIBLE
]
PICKED: Final[set[Case]] = {
    ("claude", "started", "cli"),
    ("claude", "asked", "worker"),
    ("claude", "tool_open", "cli"),
    ("claude", "tool_open", "hub and keeper"),
    ("claude", "own_reply_on_its_way", "cli"),
    ("claude", "result_written", "hub"),
    ("codex", "before_start", "hub and keeper"),
    ("codex", "asked", "keeper"),
    ("codex", "decision_open", "hub"),
    ("codex", "own_tool_runs", "hub"),
    ("codex", "result_written", "hub"),
    ("codex", "result_read", "cli"),
    ("codex", "journaled", "keeper"),
    ("acp", "question_open", "cli"),
    ("acp", "own_tool_runs", "worker"),
    ("acp", "result_written", "hub"),
}
"""Cases that other scenarios rest on."""


def each_point_of_each_agent() -> Iterator[Case]:
    """One case for each point of each agent, with another victim each time."""
    for (row, kind), (column, point) in product(enumerate(KINDS), enumerate(POINTS)):
        possible: list[Victim] = [victim for victim in VICTIMS if (point, victim) not in IMPOSSIBLE]
        yield kind, point, possible[(row + column) % len(possible)]


ALWAYS: Final = {*PICKED, *each_point_of_each_agent()}
"""What ``make test`` tries. ``make soak`` tries all cases."""
PAID: Final = {"result_written", "result_read", "journaled"}
"""Points at which all is paid: whatever is killed there costs no further request."""
CALLS_A_TOOL: Final = {"own_tool_runs", "own_reply_on_its_way"}
LAG_S: Final = 0.1
"""An agent may have lost a reply that is not older than this when it is killed: it writes its conversation down a little later."""
NOT_REPORTED: Final = 0.01
"""The part of a cost that may be missing: Claude Code reports the output of a reply with the end of its turn."""


@pytest.fixture
def model_server(tmp_path: Path) -> Iterator[ModelServer]:
    """A server whose commands know the gates of this test."""
    with ModelServer(all_scripts(tmp_path / "sandbox" / "gates")) as server:
        yield server


def name_of(case: Case) -> str:
    return "-".join(case).replace(" ", "-")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name_of(case), marks=() if case in ALWAYS else pytest.mark.soak)
        for case in CASES
    ],
)
def test_a_call_survives(sandbox: ClaudeSandbox, model_server: ModelServer, case: Case) -> None:
    kind, point, victim = case
    require_program(kind)
    scene = Scene(kind, sandbox, model_server, victim)
    at_point = POINTS[point](scene)
    try:
        next(at_point)
        scene.kill()
        with suppress(StopIteration):
            next(at_point)
        out, err = scene.finish()
    finally:
        scene.end()

    assert out == f"{DONE}\n", err
    check_journal(scene, calls=int(point in CALLS_A_TOOL))
    check_requests(scene)
    check_charge(scene)
    assert sandbox.processes() == []
    if point in PAID:
        further = len(model_server.requests_of(scene.script)) - len(of(scene.before, scene.script))
        assert further == 0


def of(requests: list[ModelRequest], script: str) -> list[ModelRequest]:
    """The requests that a script answered."""
    return [one for one in requests if one.script == script]


def check_journal(scene: Scene, *, calls: int) -> None:
    """Check that the step has one outcome in one conversation, and that each function of the program was called once."""
    assert [entry.kind for entry in outcomes(scene)] == ["step.finished"]
    if replies_of(scene.before):  # else there is no conversation that could be continued
        assert len(list(scene.crew.streams())) == 1
    assert (scene.crew.count("tool.called"), scene.crew.count("tool.finished")) == (calls, calls)


def outcomes(scene: Scene) -> list[Entry]:
    """What the journal says about the end of the prompt."""
    found = [entry for entry in scene.crew.journal() if entry.data.get("step") == "think"]
    return [entry for entry in found if entry.kind != "step.started"]


def check_requests(scene: Scene) -> None:
    """Check that no reply was asked for again, but the newest one if it was not older than the lag of the agent."""
    replies = replies_of(scene.before)
    lost = {place(one) for one in replies[-1:] if scene.killed_at - one.ended_at < LAG_S}
    later = scene.server.requests[len(scene.before) :]
    again = {place(one) for one in later} & {place(one) for one in replies}
    assert again <= lost


def replies_of(requests: list[ModelRequest]) -> list[ModelRequest]:
    """The requests about the prompt that have their reply; an agent also asks for other things, such as a title."""
    return [one for one in requests if one.script and one.outcome == "sent"]


def place(request: ModelRequest) -> tuple[str, int]:
    return request.script, request.step


def check_charge(scene: Scene) -> None:
    """Check that the step was charged with what the server counted, and that an estimate is marked.

    A reply that was under way to an agent that was killed did not arrive, and its cost is unknown. So is that of a reply that an
    agent, or a process below it, asked for after the kill and before it was terminated itself. An ACP agent reports the cost of a
    turn at its end, so what a turn that was killed has cost is unknown. It also asks for a title, which is of no script, and does
    not report the cost of that if the turn ends first.
    """
    (finished,) = outcomes(scene)
    charged = float(str(finished.data["usd"]))
    is_estimated = finished.data.get("usd_estimated", False)
    requests = scene.server.requests
    lost = {one.number for one in scene.before if one.outcome == "open" and scene.ends_the_agent}
    later = sum(price(one) for one in requests[len(scene.before) :] if one.script)
    counted = sum(price(one) for one in requests if one.number not in lost)
    titles = sum(price(one) for one in requests if not one.script) if scene.crew.kind == "acp" else 0.0
    if charged == pytest.approx(counted):
        return
    assert is_estimated
    if charged == pytest.approx(counted - titles):
        return
    assert scene.ends_the_agent
    started_again = scene.resumed_at or scene.gate("starts").stat().st_mtime
    dying = sum(price(one) for one in requests if scene.killed_at < one.started_at < started_again)
    least = (later if scene.crew.kind == "acp" else counted * (1 - NOT_REPORTED)) - dying
    assert least - 1e-9 <= charged <= counted + 1e-9, requests


def test_every_point_every_victim_and_every_agent_is_tried_each_time() -> None:
    assert {case[1] for case in ALWAYS} == set(POINTS)
    assert {case[2] for case in ALWAYS} == set(VICTIMS)
    assert {case[0] for case in ALWAYS} == set(KINDS)
    assert set(CASES) >= ALWAYS


def test_only_an_agent_that_is_not_there_cannot_be_killed() -> None:
    assert {victim for _, victim in IMPOSSIBLE} == {"cli"}
    assert {point for point, _ in IMPOSSIBLE} <= set(POINTS)
    assert len(CASES) == len(KINDS) * (len(POINTS) * len(VICTIMS) - len(IMPOSSIBLE))
