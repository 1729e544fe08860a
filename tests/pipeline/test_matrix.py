"""Every action of an agent, with every fault, killed anywhere: the run ends as it has to, and nothing is done twice.

``make test`` kills every second case at one place, another one for each; ``make soak`` all of them at every line of the journal,
just before the next one, and at every line of the wire: with an agent that honours keys, with one that ignores them (at every
third place), and with one that never mends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

import pytest
from tests.pipeline.matrix import ACTIONS, FAULTS, Case, Cut, Facts, Fault, Played, Sizes, smaller

Record = Callable[[str, object], None]

SOAK: Final = "BARTACK_CHAOS_SOAK" in os.environ
MODES: Final = {
    "once": {"always": False, "dedupe": True},
    "once, keys ignored": {"always": False, "dedupe": False},
    "always": {"always": True, "dedupe": False},
}
EACH_FAULT: Final = pytest.mark.parametrize("name", FAULTS)
CASES: Final = [
    (action, name)
    for row, action in enumerate(ACTIONS)
    for column, name in enumerate(FAULTS)
    if SOAK or (row + column) % 2 == 0
]
"""Every action with every fault, or every second one of them."""


@cache
def whole(story: str, workspace: Path) -> tuple[Facts, Sizes]:
    """A run of a story in which nothing goes wrong."""
    action = next(action for action, known in ACTIONS.items() if known == story)
    with Case(workspace, action).started() as played:
        played.begin()
        return played.facts(), played.sizes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


def cases(action: str, name: str, workspace: Path, sizes: Sizes) -> Iterator[tuple[str, Fault, Cut | None]]:
    """In which mode and where to kill: everything, or one of each."""
    fault = smaller(FAULTS[name])
    if not SOAK:
        random = Random(f"{action} {name}")
        yield random.choice(list(MODES)), fault, random.choice(list(sizes.cuts()))
        return
    for number, (mode, options) in enumerate(MODES.items(), 1):
        yield mode, FAULTS[name], None
        with Case(workspace, action, fault, **options).started() as played:
            played.begin()
            sizes = played.sizes
        # Who lives and does not answer says so for an hour: a part of it is enough.
        cuts = list(Sizes(sizes.lines, min(sizes.wire, 60)).cuts())
        yield from ((mode, fault, cut) for cut in cuts[:: 3 if number == 2 else 1])


@pytest.mark.requirement("pipeline-survives-kill")
@pytest.mark.parametrize(("action", "name"), CASES)
def test_a_fault_and_a_kill_together_change_nothing(
    action: str, name: str, tmp_path: Path, place: Path, record_property: Record
) -> None:
    facts, sizes = whole(ACTIONS[action], place)
    kills = 0
    for mode, fault, cut in cases(action, name, tmp_path, sizes):
        case = Case(tmp_path, action, fault, **MODES[mode])
        with case.started() as played:
            played.begin(cut)
            told = f"{action}, {name}, {mode}, killed at {cut}"
            kills += played.run.status == "running"
            finish(played, fault.always if mode == "always" else fault.once, case, told)

            assert played.facts() == facts, told
            check_bounds(played, told)
    record_property("matrix_kills", kills)


def finish(played: Played, failure: str, case: Case, told: str) -> None:
    """Let a run come to its end, whether it was killed, has failed, or neither."""
    if played.run.status == "running":
        assert played.resume() == [], told
    if failure and played.run.status == "failed":
        assert played.run.error is not None
        assert played.run.error.kind == failure, told
        played.cast.play(case.sound)
        assert played.resume() == [], told
    assert played.run.status == "completed", f"{told}: {played.run.error}"


def check_bounds(played: Played, told: str) -> None:
    """Whatever agents write: people, the journal and the disk get little of it."""
    assert len(played.cast.shown) <= 20, told
    assert len(played.run.journal) <= 250, told
    kept = [path.stat().st_size for path in (played.folder / "agents").rglob("*") if path.is_file()]
    assert max(kept) <= 4 * 1024 * 1024, told


@EACH_FAULT
def test_a_fault_that_never_ends_fails_the_run_with_its_name_until_it_is_mended(
    name: str, tmp_path: Path, place: Path
) -> None:
    fault = FAULTS[name]
    action = list(ACTIONS)[list(FAULTS).index(name) % len(ACTIONS)]
    case = Case(tmp_path, action, fault, always=True, dedupe=False)
    with case.started() as played:
        played.begin()
        check_failure(played, fault.always)
        if fault.always:
            played.resume()
            check_failure(played, fault.always)
        finish(played, fault.always, case, name)

        assert played.facts() == whole(ACTIONS[action], place)[0]
        check_bounds(played, name)


def check_failure(played: Played, wanted: str) -> None:
    error = played.run.error
    assert (error.kind if error else "") == wanted


def test_an_answer_that_was_read_before_the_hub_died_is_found_and_not_asked_for_again(tmp_path: Path) -> None:
    with Case(tmp_path, "review", dedupe=False).started() as played:
        played.begin()
        asked = [step.seq for step in played.run.steps if step.kind == "think" and step.about == "review T-1"]
        lines = played.run.lines
    cut = next(number for number, seq in enumerate(lines, 1) if seq >= asked[0])

    with Case(tmp_path, "review", dedupe=False).started() as played:
        played.begin(Cut("late", cut - 1))
        sent = len(played.cast.commands)
        played.resume()

        assert played.run.status == "completed"
        assert [command.action for command in played.cast.commands[sent:]] == ["update_spec"]


@pytest.mark.parametrize(("delay_s", "failure"), [(3600.0, ""), (3601.0, "AgentDeadlineError")])
def test_an_answer_that_is_on_its_way_at_the_deadline_counts(
    delay_s: float, failure: str, tmp_path: Path
) -> None:
    with Case(tmp_path, "review", delay_s=delay_s).started() as played:
        played.begin()

        check_failure(played, failure)
