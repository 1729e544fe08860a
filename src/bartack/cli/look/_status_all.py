"""``bartack status --all``: the runs of all workspaces, with what each of them waits for."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from bartack.cli.app._database import describe_wait, reason_in_queue, state_in_queue, status_in_queue
from bartack.cli.app._database import waits_of as node_waits_of
from bartack.cli.app._options import write_json
from bartack.cli.app._runs import (
    ago,
    cost_of,
    from_home,
    may_be_queued,
    paint_status,
    program_name,
    remark_of,
)
from bartack.cli.app._terminal import Screen, human_time, printable
from bartack.cli.look._age import changed_before, parse_age
from bartack.cli.queued._queueing import describe_place, note_no_node, state_of
from bartack.core.clock import SystemClock
from bartack.depot import user_depot
from bartack.errors import BartackError
from bartack.runtime.client.everywhere import PlacedRun, Unlisted, all_runs
from bartack.runtime.rundir.find import UNREADABLE, RunSummary, read_state, summarise
from bartack.runtime.rundir.stored import has_stored_answer

if TYPE_CHECKING:
    from bartack.depot.upkeep import Wait

SINCE: Final = "24h"
"""Runs that ended longer ago are left out."""
OPEN: Final = frozenset({"running", "waiting", "interrupted", UNREADABLE})
WAITING: Final = OPEN - {UNREADABLE}
IN_QUEUE: Final = frozenset({"queued", "owned", "held"})


class ListedRun(NamedTuple):
    """A run in the list, and what it waits for."""

    placed: PlacedRun
    summary: RunSummary
    waits: list[str]
    wait: Wait | None = None
    """What it waits for if it is for the nodes of a database."""

    @property
    def workspace(self) -> str:
        """Where it works. Workspaces can share a directory of runs, so the run knows it better."""
        return self.summary.workspace or self.placed.workspace

    @property
    def status(self) -> str:
        """Its status, or its state in the queue if that says more."""
        standing = self.placed.standing
        in_queue = standing is not None and standing.state in {"queued", "held"} and not self.summary.pid
        if standing is not None and in_queue:
            return standing.state
        return status_in_queue(self.summary.status, state_in_queue(self.wait))


def list_everything(here: Path, since: str, *, as_json: bool) -> None:
    """Write the list.

    Raises:
        UsageError: ``since`` is not an age.
        UntrustedError: Another user can change the list of the workspaces.
    """
    before = datetime.now(UTC) - parse_age(since, "bartack status")
    found = all_runs(here)
    summaries = [(placed, summarise(placed.run)) for placed in found.runs]
    waits = node_waits_of(placed.run for placed, summary in summaries if may_be_queued(summary))
    listed = [
        ListedRun(placed, summary, waits_of(placed, summary), waits.get(placed.run.id))
        for placed, summary in summaries
        if is_current(placed, summary, before)
    ]
    if as_json:
        has_node = user_depot().seated() is not None
        facts = [_facts(one, has_node=has_node) for one in listed]
        write_json([*facts, *map(_unlisted_facts, found.unlisted)])
    else:
        _write(Screen(sys.stdout), listed, found.unlisted, since)


def is_current(placed: PlacedRun, summary: RunSummary, before: datetime) -> bool:
    """Whether a run is not over, or ended not long ago."""
    if summary.status in OPEN or (placed.standing is not None and placed.standing.state in IN_QUEUE):
        return True
    return not changed_before(summary.updated_at, before)


def waits_of(placed: PlacedRun, summary: RunSummary) -> list[str]:
    """What a run waits for, in words; empty if it has ended or does not wait."""
    standing = placed.standing
    words = (
        [remark_of(summary)] if summary.status in WAITING and (summary.questions or summary.deadlock) else []
    )
    if summary.status == "waiting" and not summary.pid and has_stored_answer(placed.run):
        words = ["its answer is stored"]
    if summary.pid and summary.status == "running":
        words += _pauses(placed)
    is_over = standing is None or standing.state == "over" or (standing.state == "resting" and words)
    if standing is not None and not is_over:
        words += describe_place(standing)
    return words


def _pauses(placed: PlacedRun) -> list[str]:
    """When the agents of an active run that must not be called now are called again."""
    try:
        state = read_state(placed.run)
    except (BartackError, OSError):
        return []  # it ended, or was deleted, since it was listed
    now_us = SystemClock().now_us()
    steps = [step for worker in state.workers.values() for step in worker.open.values()]
    dues = [step.due for step in steps if step.step == "think" and step.between and step.due > now_us]
    return [f"calls its agent again in {human_time((min(dues) - now_us) / 1e6)}"] if dues else []


# For programs.


def _facts(listed: ListedRun, *, has_node: bool) -> dict[str, object]:
    facts: dict[str, object] = {
        **msgspec.to_builtins(listed.summary),
        "dir": str(listed.placed.run.path),
        "workspace": listed.workspace,
        "waits_for": listed.waits,
    }
    standing, wait = listed.placed.standing, listed.wait
    if wait is not None and (wait.is_given or standing is None):
        facts["queue"] = {"state": state_in_queue(wait), "reason": describe_wait(wait)}
    elif standing is not None:
        facts["queue"] = {
            "state": state_of(standing, has_node=has_node),
            "priority": standing.job.priority,
            "after": list(standing.job.after),
            "due_us": standing.due_us,
            "reason": standing.reason,
        }
    return facts


def _unlisted_facts(unlisted: Unlisted) -> dict[str, object]:
    return {"run": "", "status": UNREADABLE, "workspace": unlisted.workspace, "error": unlisted.reason}


# For people.


def _write(screen: Screen, listed: list[ListedRun], unlisted: list[Unlisted], since: str) -> None:
    if not listed and not unlisted:
        screen.line(f"No run of any workspace is open, and none has ended in the last {since}.")
        return
    paid = any(one.summary.spent_usd for one in listed)
    names = ["run", "status", "workspace", "what", *(["usd"] if paid else []), "changed"]
    rows = [_row(screen, one, paid=paid) for one in listed]
    rows += [_unlisted_row(screen, one, paid=paid) for one in unlisted]
    screen.listing([(*(screen.paint(name, "dim") for name in names), ""), *rows], indent=0)
    note_no_node(screen, [one.placed.standing for one in listed if one.placed.standing is not None])


def _row(screen: Screen, listed: ListedRun, *, paid: bool) -> tuple[str, ...]:
    summary = listed.summary
    cost = cost_of(summary)
    return (
        summary.run,
        paint_status(screen, listed.status),
        printable(from_home(listed.workspace)),
        printable(summary.goal or program_name(summary.program)),
        *([cost] if paid else []),
        ago(summary.updated_at),
        printable(reason_in_queue(listed.wait) or "; ".join(listed.waits)) or remark_of(summary),
    )


def _unlisted_row(screen: Screen, unlisted: Unlisted, *, paid: bool) -> tuple[str, ...]:
    place = printable(from_home(unlisted.workspace))
    empty = ("", "", *([""] if paid else []))
    return ("-", paint_status(screen, UNREADABLE), place, *empty, printable(unlisted.reason))
