"""``bartack resume --all``: queue the interrupted runs of all workspaces for the node."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click

from bartack.cli.app._database import waits_of
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import write_json
from bartack.cli.app._runs import ago, from_home, paint_status, program_name
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.cli.look._age import changed_before, parse_age
from bartack.cli.queued._options import AllOptions
from bartack.cli.queued._queueing import submit_run, wake_node
from bartack.depot import user_depot
from bartack.errors import BartackError, UsageError
from bartack.runtime.client.everywhere import PlacedRun, all_runs
from bartack.runtime.rundir.find import TERMINAL, UNREADABLE, RunSummary, summarise
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.rundir.stored import has_stored_answer


class Resumable(NamedTuple):
    """A run that is not over and that no process runs, and why it is not resumed; empty if it is."""

    placed: PlacedRun
    summary: RunSummary
    obstacle: str = ""

    @property
    def workspace(self) -> str:
        """Where it works."""
        return self.summary.workspace or self.placed.workspace


def resume_all(options: AllOptions, here: Path, *, as_json: bool) -> Exit:
    """Queue the runs that can be resumed, after the person has seen them.

    Raises:
        UsageError: It cannot be confirmed without a terminal, or an option is invalid.
        UntrustedError: Another user can change the list of the workspaces.
    """
    before = None if options.since is None else datetime.now(UTC) - parse_age(options.since, "bartack resume")
    found = all_runs(here)
    candidates = find_candidates(found.runs, before, failed=options.failed)
    chosen = [one for one in candidates if not one.obstacle]
    left_out = [one for one in candidates if one.obstacle]
    for unlisted in found.unlisted:
        write_note(f"the runs of {printable(unlisted.workspace)} are skipped: {printable(unlisted.reason)}")
    if not as_json:
        _write(Screen(sys.stdout), chosen, left_out)
    agreed = bool(chosen) and (options.yes or _ask(len(chosen), as_json=as_json))
    failed = _queue(chosen) if agreed else {}
    if as_json:
        parts = {"runs": [_facts(one) for one in chosen], "left_out": [_facts(one) for one in left_out]}
        write_json({"queued": agreed, **parts, "failed": failed})
    elif agreed:
        _report(len(chosen) - len(failed))
    return Exit.FAILED if failed else Exit.OK


def find_candidates(runs: Sequence[PlacedRun], before: datetime | None, *, failed: bool) -> list[Resumable]:
    """The runs that are not over and that neither a process runs nor the node is going to run."""
    found: list[Resumable] = []
    waits = waits_of(placed.run for placed in runs)
    for placed in runs:
        standing = placed.standing
        if standing is not None and standing.state in {"queued", "owned"}:
            continue
        summary = summarise(placed.run)
        if summary.status in TERMINAL or summary.pid:
            continue
        if before is not None and changed_before(summary.updated_at, before):
            continue
        wait = waits.get(placed.run.id)
        for_nodes = wait is not None and wait.is_given
        found.append(
            Resumable(placed, summary, _obstacle(placed, summary, failed=failed, for_nodes=for_nodes))
        )
    return found


def _obstacle(placed: PlacedRun, summary: RunSummary, *, failed: bool, for_nodes: bool) -> str:
    """Why a run is not resumed; empty if it is."""
    standing = placed.standing
    if for_nodes:
        return "it is for the nodes of a database"
    if summary.status == UNREADABLE:
        return summary.error or "it is unreadable"
    if summary.status == "failed" and not failed:
        return "it failed; --failed includes it"
    if standing is not None and standing.state == "held" and not failed:
        return f"it is held ({standing.reason}); --failed includes it"
    if summary.status == "waiting" and not has_stored_answer(placed.run):
        return f"it waits for an answer: {', '.join(summary.questions)}"
    return _foreign_reason(placed.run)


def _foreign_reason(run: RunDir) -> str:
    """Why a run must not be executed; empty if it was made here by this user, or is trusted."""
    try:
        check_own(run)
    except BartackError as error:
        return error.message
    except OSError as error:
        return f"{error.filename or run.path}: {error.strerror or error}"
    return ""


def _queue(chosen: Sequence[Resumable]) -> dict[str, str]:
    """Queue runs and start the node; returns the errors of those that cannot be queued."""
    depot = user_depot()
    failed: dict[str, str] = {}
    for one in chosen:
        run = one.placed.run
        try:
            submit_run(depot, run, one.placed.standing)
        except BartackError as error:
            failed[run.id] = error.message
        except OSError as error:
            failed[run.id] = f"{error.filename or run.path}: {error.strerror or error}"
        if run.id in failed:
            write_note(f"{run.id} is not queued: {printable(failed[run.id])}")
    if len(failed) < len(chosen):
        wake_node(depot)
    return failed


def _ask(count: int, *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise UsageError(
            "bartack resume", "it can only be confirmed on a terminal; --yes queues without asking"
        )
    runs = "this run" if count == 1 else f"these {count} runs"
    return click.confirm(f"Let the node resume {runs}?", err=True)


def _report(count: int) -> None:
    if count:
        what = "1 run is queued" if count == 1 else f"{count} runs are queued"
        write_note(f"{what}; 'bartack status --all' shows what becomes of {'it' if count == 1 else 'them'}")


def _facts(one: Resumable) -> dict[str, object]:
    run = one.placed.run
    obstacle = {"reason": one.obstacle} if one.obstacle else {}
    return {
        "run": run.id,
        "dir": str(run.path),
        "workspace": one.workspace,
        "status": one.summary.status,
        "updated_at": one.summary.updated_at,
        **obstacle,
    }


def _write(screen: Screen, chosen: Sequence[Resumable], left_out: Sequence[Resumable]) -> None:
    if chosen:
        screen.listing([_row(screen, one) for one in chosen], indent=0)
    else:
        screen.line("No run is to be resumed.")
    if left_out:
        screen.line("Left out:")
        screen.listing([_row(screen, one) for one in left_out])
    screen.flush()  # a person reads it before the question


def _row(screen: Screen, one: Resumable) -> tuple[str, ...]:
    summary = one.summary
    return (
        summary.run,
        paint_status(screen, summary.status),
        printable(from_home(one.workspace)),
        printable(summary.goal or program_name(summary.program)),
        ago(summary.updated_at),
        printable(one.obstacle),
    )
