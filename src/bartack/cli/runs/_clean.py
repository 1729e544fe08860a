"""``bartack clean``: delete runs that have ended. A run that can be resumed is deleted only if it is named.

Worktrees are removed first, and only if their whole content is saved elsewhere (``_clean_trees.py``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from bartack.cli.app._database import INSECURE_HELP, ON_HELP, open_team
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import ago, complete_run, locate, note_unreadable, paint_status, workspace_option
from bartack.cli.app._terminal import Screen, human_size, printable, write_note
from bartack.cli.look._age import changed_before, parse_age
from bartack.cli.runs._clean_trees import clear_trees, count_trees, write_cleared
from bartack.core import typed
from bartack.depot.elsewhere import Elsewhere
from bartack.errors import BartackError, ForeignRunError, UntrustedError, UsageError
from bartack.runtime.client.manage import delete_run
from bartack.runtime.rundir.find import TERMINAL, UNREADABLE, RunSummary, list_runs, summarise
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own

if TYPE_CHECKING:
    from bartack.depot.upkeep import Upkeep
    from bartack.pipeline.worktree.old_worktrees import Cleared


class Candidate(msgspec.Struct):
    """A run to delete."""

    run: str
    status: str
    updated_at: str
    size_bytes: int
    worktrees: int = 0


class _Facts(msgspec.Struct):
    """What the summary of a run says about its age."""

    status: str = ""
    updated_at: str = ""


# Long because its options and its help are part of it; the functions that it calls do the work.
@click.command(short_help="Delete runs that have ended.")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_run)
@click.option(
    "--older-than",
    "age",
    metavar="AGE",
    help="Delete only runs that last changed longer ago: 30m, 12h, 7d, 4w.",
)
@click.option("--unfinished", is_flag=True, help="Also delete named runs that could still be resumed.")
@click.option("--worktrees", is_flag=True, help="Remove only the worktrees of these runs; keep the runs.")
@click.option(
    "--on", default="", metavar="DATABASE", help=f"Delete runs of {ON_HELP}, whichever machine has run them."
)
@click.option("--insecure", is_flag=True, help=INSECURE_HELP)
@click.option("--dry-run", is_flag=True, help="Only list the runs that would be deleted.")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@workspace_option
@json_option
def clean(
    runs: tuple[str, ...],
    age: str | None,
    workspace: str,
    on: str,
    *,
    insecure: bool,
    unfinished: bool,
    worktrees: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Delete runs that are completed or cancelled: all of the workspace, or the named ones.

    A run that failed or was interrupted can still be resumed. It is deleted only if it is named and --unfinished is given. An
    active run is never deleted. The command lists the runs first and asks before it deletes them.

    Before the command removes the worktrees of a run, it commits all changes in them to their branches and archives ignored
    files. It keeps a worktree, and its run, unless all its content is saved elsewhere.

    With --on DATABASE the command deletes runs of that database, and their journals in pieces: nodes continue with these if it is
    interrupted. Large values that no run holds any more are removed a day later.
    """
    if unfinished and not runs:
        raise UsageError("bartack clean", "--unfinished needs the names of the runs")
    before = None if age is None else datetime.now(UTC) - parse_age(age, "bartack clean")
    if on:
        if worktrees:
            raise UsageError("bartack clean", "--worktrees is for runs of this machine: leave out --on")
        from bartack.config.load import load_elsewhere  # noqa: PLC0415 - other runs are found without it

        upkeep, found = _find_in_database(
            load_elsewhere(on, insecure=insecure), runs, before, unfinished=unfinished
        )
        return _clean_database(upkeep, found, dry_run=dry_run, yes=yes, as_json=as_json)
    chosen = _choose(runs, workspace, unfinished=unfinished)
    candidates = [
        (run, Candidate(run.id, summary.status, summary.updated_at, _size(run.path), _count_trees(run)))
        for run, summary in chosen
        if before is None or changed_before(summary.updated_at, before)
    ]
    candidates = [(run, facts) for run, facts in candidates if facts.worktrees or not worktrees]
    if not as_json:
        _write(Screen(sys.stdout), [facts for _, facts in candidates])
    what = "the worktrees of " if worktrees else ""
    agreed = bool(candidates) and not dry_run and (yes or _ask(what, len(candidates), as_json=as_json))
    cleared: dict[str, Cleared] = {}
    failed: dict[str, str] = {}
    if agreed:
        for run, _ in candidates:
            with _noting(run, failed):
                _remove(run, cleared, only_trees=worktrees)
    if as_json:
        shown = msgspec.to_builtins([facts for _, facts in candidates])
        parts = {"worktrees": msgspec.to_builtins(cleared), "failed": failed}
        write_json({"deleted": agreed, "runs": shown, **parts})
    else:
        write_cleared(Screen(sys.stdout), cleared)
    return Exit.FAILED if failed else Exit.OK


def _find_in_database(
    where: Elsewhere, names: tuple[str, ...], before: datetime | None, *, unfinished: bool
) -> tuple[Upkeep, list[Candidate]]:
    """The runs of a database to delete."""
    from bartack.depot.upkeep import Upkeep  # noqa: PLC0415 - only these runs need it

    team = open_team(where)
    wanted = {team.find(name) for name in names}
    found: list[Candidate] = []
    upkeep = Upkeep(team)
    for one in upkeep.iter_unowned():
        facts = typed.decode(one.summary, type=_Facts)
        has_ended = facts.status in TERMINAL
        if one.id in wanted and not has_ended and not unfinished:
            reason = f"{one.id} is {facts.status} and could be resumed; --unfinished includes it"
            raise UsageError("bartack clean", reason)
        if (one.id in wanted if wanted else has_ended) and (
            before is None or changed_before(facts.updated_at, before)
        ):
            found.append(Candidate(one.id, facts.status, facts.updated_at, one.size_bytes))
    return upkeep, found


def _clean_database(
    upkeep: Upkeep, found: list[Candidate], *, dry_run: bool, yes: bool, as_json: bool
) -> Exit:
    if not as_json:
        _write(Screen(sys.stdout), found)
    agreed = bool(found) and not dry_run and (yes or _ask("", len(found), as_json=as_json))
    gone = upkeep.remove([facts.run for facts in found]) if agreed else set[str]()
    failed = {facts.run: "a process owns it" for facts in found if agreed and facts.run not in gone}
    if as_json:
        runs = msgspec.to_builtins(found)
        write_json({"deleted": agreed, "runs": runs, "worktrees": {}, "failed": failed})
    else:
        for run, reason in failed.items():
            write_note(f"{run} is not deleted: {reason}")
    return Exit.FAILED if failed else Exit.OK


def _remove(run: RunDir, cleared: dict[str, Cleared], *, only_trees: bool) -> None:
    """Delete a run and its worktrees, unless content of a worktree would be lost."""
    found = clear_trees(run)
    if found is not None:
        cleared[run.id] = found
    if not only_trees and not (found is not None and found.kept):
        delete_run(run)


@contextmanager
def _noting(run: RunDir, failed: dict[str, str]) -> Generator[None]:
    """Report the error of one run and continue with the next."""
    try:
        yield
    except BartackError as error:
        failed[run.id] = error.message
    except OSError as error:
        failed[run.id] = f"{error.filename or run.path}: {error.strerror or error}"
    if run.id in failed:
        write_note(f"{run.id} is not deleted: {printable(failed[run.id])}")


def _choose(names: tuple[str, ...], workspace: str, *, unfinished: bool) -> list[tuple[RunDir, RunSummary]]:
    if not names:
        found = [(run, summarise(run)) for run in list_runs(Path(workspace))]
        for _, summary in found:
            if summary.status == UNREADABLE:
                note_unreadable(summary)
        ended = [(run, summary) for run, summary in found if summary.status in TERMINAL]
        return [(run, summary) for run, summary in ended if _is_own(run)]
    chosen = [(run, summarise(run)) for run in {name: locate(name, workspace) for name in names}.values()]
    for run, summary in chosen:
        check_own(run)
        if run.is_active():
            raise UsageError("bartack clean", f"{run.id} is running; cancel it first")
        if summary.status not in TERMINAL and not unfinished:
            reason = f"{run.id} is {summary.status} and could be resumed; --unfinished includes it"
            raise UsageError("bartack clean", reason)
    return chosen


def _is_own(run: RunDir) -> bool:
    """Whether a run was created here; for any other run it writes why the run is kept."""
    try:
        check_own(run)
    except (ForeignRunError, UntrustedError) as error:
        write_note(f"{run.id} is kept: {error.message}")
        return False
    except OSError as error:
        write_note(
            f"{run.id} is kept: {printable(f'{error.filename or run.path}: {error.strerror or error}')}"
        )
        return False
    return True


def _count_trees(run: RunDir) -> int:
    """Return how many worktrees a run has, 0 if they are unreadable; the removal reports that error."""
    try:
        return count_trees(run)
    except OSError:
        return 0


def _size(path: Path) -> int:
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
    return size


def _write(screen: Screen, candidates: list[Candidate]) -> None:
    if not candidates:
        screen.line("Nothing to delete.")
        return
    screen.table(
        [
            (
                facts.run,
                paint_status(screen, facts.status),
                ago(facts.updated_at),
                human_size(facts.size_bytes),
                f"{facts.worktrees} worktree{'s' if facts.worktrees > 1 else ''}" if facts.worktrees else "",
            )
            for facts in candidates
        ],
        indent=0,
    )


def _ask(what: str, count: int, *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise UsageError("bartack clean", "there is no terminal to confirm on; --yes deletes without asking")
    runs = "this run" if count == 1 else f"these {count} runs"
    return click.confirm(f"Delete {what}{runs} with everything in them?", err=True)
