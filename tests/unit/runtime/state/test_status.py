"""The table of statuses: every move that it allows happens, every other one is refused, and the reference shows the same table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

import msgspec
import pytest

from bartack.errors import EntryError, RunNotActiveError
from bartack.journal import Entry, open_journal, open_reader
from bartack.runtime import Context, worker
from bartack.runtime.client.answering import answer_question
from bartack.runtime.client.manage import cancel_run, fail_run
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import mark_of
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import add_entry, apply
from bartack.runtime.state.run_state import RunStatus, State
from bartack.runtime.state.status import MOVES, Happening, happening_of, moving, worker_status
from bartack.runtime.state.worker_state import NO_VALUE
from bartack.testing import TestRun

PAGE: Final = Path(__file__).parents[4] / "docs/reference/run-directory.md"
STATUSES: Final[tuple[RunStatus, ...]] = get_args(RunStatus)
HAPPENINGS: Final[tuple[Happening, ...]] = get_args(Happening)
ERROR: Final = ErrorData(type="builtins:ValueError", message="no")
QUESTION: Final = e.StepStarted(p="main", n=1, step="ask", fp="f", question="q1")
ENTRIES: Final[dict[Happening, e.HubStarted | e.HubStopped | e.RunEnded]] = {
    "started": e.HubStarted(hub=2),
    "stopped": e.HubStopped(reason="terminated"),
    "completed": e.RunEnded(status="completed"),
    "failed": e.RunEnded(status="failed"),
    "cancelled": e.RunEnded(status="cancelled"),
    "aborted": e.RunEnded(status="aborted"),
}
"""Entries that make a move, but for those of questions, which a step makes."""
WAYS: Final[dict[RunStatus, tuple[e.EntryData, ...]]] = {
    "running": (),
    "waiting": (QUESTION,),
    "interrupted": (ENTRIES["stopped"],),
    "failed": (e.FailureRecorded(worker="main", error=ERROR), ENTRIES["failed"]),
    "completed": (ENTRIES["completed"],),
    "cancelled": (ENTRIES["cancelled"],),
    "aborted": (ENTRIES["aborted"],),
}
"""How a run comes to each status, from its beginning."""
BEGINNING: Final = (
    e.RunCreated(run="r", worker="t:main", name="main", program="t.py", workspace="/w", root="/w", seed=1),
    e.WorkerSpawned(path="main", worker="t:main"),
    e.HubStarted(hub=1),
)
ASKED_BY_AGENT: Final = (
    e.StepStarted(p="main", n=1, step="think", fp="f"),
    e.QuestionAsked(p="main", n=1, id="q1", ask="permission", agent="a"),
)

Move = tuple[RunStatus, Happening, RunStatus]


def state_of(status: RunStatus) -> State:
    """A run that has this status."""
    state = State()
    for seq, data in enumerate((*BEGINNING, *WAYS[status]), 1):
        apply(state, data, seq, seq, NO_VALUE)
    assert state.status == status
    return state


def moves_of(entries: Iterable[Entry]) -> set[Move]:
    """The moves that a run has made."""
    state, seen = State(), set[Move]()
    for entry in entries:
        data = e.decode_entry(entry.kind, entry.raw)
        before = state.status
        add_entry(state, entry)
        happening = None if data is None else happening_of(data)
        if happening is not None:
            seen.add((before, happening, state.status))
    return seen


# Every move of the table happens.


@worker
async def completes(ctx: Context) -> None:
    """Comes to its end."""
    await ctx.now()


@worker
async def fails(ctx: Context) -> None:
    """Fails."""
    await ctx.now()
    raise ValueError("no")


@worker
async def aborts(ctx: Context) -> None:
    """Ends the run."""
    await ctx.abort("no")


@worker
async def asks(ctx: Context) -> None:
    """Asks one question."""
    await ctx.ask("first?")


@worker
async def asks_twice(ctx: Context) -> None:
    """Asks two questions at the same time."""
    await ctx.gather(ctx.ask("first?"), ctx.ask("second?"))


@worker
async def asks_and_aborts(ctx: Context) -> None:
    """Ends the run while somebody asks."""
    await ctx.spawn(asks())
    await ctx.sleep(1)
    await ctx.abort("no")


@worker
async def asks_and_fails(ctx: Context) -> None:
    """Fails while somebody asks."""
    await ctx.delegate([asks(), fails_later()])


@worker
async def fails_later(ctx: Context) -> None:
    """Fails after a second."""
    await ctx.sleep(1)
    raise ValueError("no")


def ended(*runs: TestRun[None]) -> set[Move]:
    """The moves of runs that come to their ends by themselves."""
    seen: set[Move] = set()
    for run in runs:
        with run:
            seen |= moves_of(run.finish().journal)
    return seen


def resumed(run: TestRun[None], *, stop: bool) -> set[Move]:
    """The moves of a run that is killed, or shut down cleanly, before it gets anywhere, and resumed."""
    with run:
        if run._worker.name == "asks":
            run.wait_for("step.started")
        if stop:
            run._run.hub.core.stop("terminated")
            run._run.flush()
        run.resume()
        if run._worker.name == "asks":
            run.answer("*", "yes")
        return moves_of(run.finish().journal)


def failed_and_resumed(run: TestRun[None]) -> set[Move]:
    with run:
        run.finish()
        run.resume()
        run.wait_for("hub.started")
        run._run.flush()
        return moves_of(run.journal)


def left_alone(place: Path, status: RunStatus, first: tuple[e.EntryData, ...] = ()) -> RunDir:
    """A run with this status that nobody runs, in which this happened first."""
    run = RunDir(place / f"run-20260101-000000-{status}")
    run.make()
    with open_journal(run.path) as journal:
        for data in (*BEGINNING, *first, *WAYS[status]):
            own = isinstance(data, e.RunCreated)
            value = b'{"text":"May it?"}' if isinstance(data, e.QuestionAsked) else None
            journal.append(
                data.kind, msgspec.structs.replace(data, origin=mark_of(run)) if own else data, value
            )
    return run


def moves_without_a_hub(place: Path) -> set[Move]:
    """The moves that people make with runs that nobody runs."""
    seen: set[Move] = set()
    for number, act in enumerate((cancel_run, fail_run)):
        for status in ("running", "waiting", "interrupted", "failed"):
            run = left_alone(place / str(number), status)
            act(run, "because")
            with open_reader(run.path) as reader:
                seen |= moves_of(reader.read())
    resumable: tuple[RunStatus, ...] = ("running", "interrupted", "failed")
    for asked in resumable:
        run = left_alone(place / "asked", asked, ASKED_BY_AGENT)
        answer_question(run, "q1", b'"allow"')
        with open_reader(run.path) as reader:
            seen |= moves_of(reader.read())
    return seen


@pytest.mark.requirement("statuses-are-a-table")
def test_every_move_of_the_table_happens_and_no_other(tmp_path: Path) -> None:
    seen = ended(
        TestRun(completes()),
        TestRun(fails()),
        TestRun(aborts()),
        TestRun(asks_twice(), answers={"*": "yes"}),
        TestRun(asks_and_aborts()),
        TestRun(asks_and_fails()),
    )
    for stop in (True, False):
        seen |= resumed(TestRun(completes()), stop=stop) | resumed(TestRun(asks()), stop=stop)
    seen |= failed_and_resumed(TestRun(fails())) | failed_and_resumed(TestRun(asks_and_fails()))
    seen |= moves_without_a_hub(tmp_path)

    assert seen == {
        (before, happening, after)
        for before, known in MOVES.items()
        for happening, afters in known.items()
        for after in afters
    }


# Every other one is refused.


@pytest.mark.requirement("statuses-are-a-table")
@pytest.mark.parametrize("happening", ENTRIES)
@pytest.mark.parametrize("status", STATUSES)
def test_a_move_that_is_not_in_the_table_is_refused(status: RunStatus, happening: Happening) -> None:
    state, data = state_of(status), ENTRIES[happening]

    if happening in MOVES[status]:
        assert moving(state, data) is data
        apply(state, data, 10, 10, NO_VALUE)
        assert state.status in MOVES[status][happening]
    else:
        with pytest.raises(EntryError, match=f"a run that is {status} cannot be {happening}"):
            moving(state, data)


def test_a_worker_takes_its_own_questions_with_it() -> None:
    state = state_of("waiting")

    assert moving(state, ENTRIES["completed"], leaver="main") is ENTRIES["completed"]
    with pytest.raises(EntryError):
        moving(state, ENTRIES["completed"], leaver="other")


@pytest.mark.parametrize("status", ["completed", "cancelled", "aborted"])
def test_nobody_cancels_or_fails_what_has_ended_for_good(tmp_path: Path, status: RunStatus) -> None:
    run = left_alone(tmp_path, status)
    before = (run.path / "journal.ndjson").read_bytes()

    for act in (cancel_run, fail_run):
        with pytest.raises(RunNotActiveError):
            act(run, "because")

    assert (run.path / "journal.ndjson").read_bytes().startswith(before)
    with open_reader(run.path) as reader:
        assert "run.ended" not in [entry.kind for entry in list(reader.read())[5:]]


# The reference.


def test_the_reference_shows_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)`: [^|]*\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    heads = re.search(r"^\| status \| (.*) \|$", PAGE.read_text(), re.MULTILINE)

    assert heads is not None
    assert tuple(heads[1].split(" | ")) == HAPPENINGS
    shown = {
        (status, happening, after)
        for status, cells in rows
        for happening, cell in zip(HAPPENINGS, cells.split(" | "), strict=True)
        for after in cell.split(", ")
        if after in MOVES
    }
    assert [status for status, _ in rows] == list(MOVES)
    assert shown == {
        (before, happening, after)
        for before, known in MOVES.items()
        for happening, afters in known.items()
        for after in afters
    }


@pytest.mark.parametrize(
    ("ended", "failing", "active", "shown"),
    [
        ("", False, True, "running"),
        ("", False, False, "interrupted"),
        ("", True, True, "running"),
        ("", True, False, "aborted"),
        ("failed", True, False, "aborted"),
        ("cancelled", False, False, "aborted"),
    ],
)
def test_a_worker_that_its_run_has_cut_off_is_aborted_not_interrupted(
    ended: str, failing: bool, active: bool, shown: str
) -> None:
    state = State()
    state.ended = e.RunEnded(status=ended) if ended else None
    state.failure = e.FailureRecorded(worker="main", error=ERROR) if failing else None

    assert worker_status(state, "waiting", active=active) == shown
    assert worker_status(state, "failed", active=active) == "failed"
