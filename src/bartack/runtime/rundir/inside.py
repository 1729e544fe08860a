"""Whether a process belongs to a run: by its line of parents, by its control group, by its environment.

Every process of a run has a parent program of that run above it, which is a subreaper: forking twice, a session of its own or an
empty environment do not change that. Where the parent programs were killed together, the control group shows it. The environment
is one more sign, and only that, because a process can clear its own.

This finds processes that were started by a run. It is not a boundary between processes of one user: one that asks another program
of the user to act for it (cron, a service manager, a debugger) is not found. ``docs/explanation/security.md`` says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from bartack.depot import KeptRun
from bartack.errors import BartackError, PeerRefusedError
from bartack.runtime.state import entries as e
from bartack.supervision.parent.client import KEEPER
from bartack.supervision.parent.guardian import parse_guarded
from bartack.supervision.process.cgroup import is_in_ground
from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.line import read_line
from bartack.supervision.process.system import iter_open_files, read_command, read_environment

ZYGOTE: Final = "bartack.runtime.worker_process.zygote"
READERS: Final = frozenset({"bartack.runtime.program.probe", "bartack.runtime.program.replay"})
"""Programs that import the program of a run before it runs."""

UNKNOWN: Final = "?"
"""The id of a run that a process belongs to, where only that is known."""

CREATOR: Final = "creator"
"""Stands in ``questions.from_runs`` for the run whose processes created this one."""

_OURS: Final = "bartack"
_LOCK: Final = "/lock"


class Inside(NamedTuple):
    """A process belongs to a run."""

    run: str
    """The id of the innermost run, or ``UNKNOWN``."""
    sign: str
    """What shows it."""


def find_enclosing(pid: int) -> Inside | None:
    """The innermost run that a process belongs to; ``None`` for a process outside every run."""
    line = read_line(pid)
    return Inside(UNKNOWN, "it ended before it could be placed") if line is None else find_in_line(line)


def find_in_line(line: Sequence[ProcessFacts]) -> Inside | None:
    """The same for a process whose line of parents is known."""
    supervised = False
    for place, facts in enumerate(line):
        words = read_command(facts.pid)
        run = _run_of_parent(words)
        if run is None and place:  # a hub is outside its own run, and everything below it is inside
            run = _run_of_hub(facts.pid, words)
        if run:
            return Inside(run, f"process {facts.pid} above it belongs to that run")
        supervised = supervised or run is not None
    if not supervised and line and is_in_ground(line[0].pid):
        return Inside(UNKNOWN, "it is in the control group of a run")
    return _by_environment(line)


def _run_of_parent(words: Sequence[str]) -> str | None:
    """The run that a process works for by its command; empty for a parent program that works for a supervisor alone."""
    guarded = parse_guarded(words)
    if guarded is None or guarded.module not in {KEEPER, ZYGOTE, *READERS}:
        return None
    if guarded.module in READERS:
        return UNKNOWN
    return os.path.basename(os.path.dirname(guarded.lock)) if os.sep in guarded.lock else ""


def _run_of_hub(pid: int, words: Sequence[str]) -> str | None:
    """The run whose hub a process is: it holds the lock. Orphans of its parent programs are below it."""
    if not any(_OURS in word for word in words):
        return None
    for name in iter_open_files(pid):
        folder = name.removesuffix(_LOCK)
        if folder != name and os.path.basename(folder).startswith("run-"):
            return os.path.basename(folder)
    return None


def _by_environment(line: Sequence[ProcessFacts]) -> Inside | None:
    for facts in line:
        run = read_environment(facts.pid).get("BARTACK_RUN")
        if run:
            return Inside(run, f"BARTACK_RUN is set in the environment of process {facts.pid}")
    return None


def is_allowed(inside: Inside, created: e.RunCreated | None) -> bool:
    """Whether the person allowed processes of a run to act on another one, when that one was created."""
    if created is None or inside.run in {created.run, UNKNOWN}:
        return False
    return any(
        inside.run == created.inside if allowed == CREATOR else fnmatchcase(inside.run, allowed)
        for allowed in created.from_runs
    )


def reason_of(inside: Inside) -> str:
    """Why a process of a run is refused, for people."""
    owner = "a run" if inside.run == UNKNOWN else inside.run
    return f"the process that asks belongs to {owner} ({inside.sign})"


def check_outside(asked: str, run: KeptRun) -> None:
    """Raise if this process belongs to a run that is not allowed to act on ``run``.

    Raises:
        PeerRefusedError: It does.
    """
    inside = find_enclosing(os.getpid())
    if inside is not None and not is_allowed(inside, _read_start(run)[0]):
        raise PeerRefusedError(asked, reason_of(inside))


def check_may_drive(run: KeptRun) -> None:
    """Raise if this process belongs to a run that is not allowed to resume ``run``. The run that created it may start it.

    Raises:
        PeerRefusedError: It does.
    """
    inside = find_enclosing(os.getpid())
    if inside is None:
        return
    created, is_new = _read_start(run)
    is_own = is_new and created is not None and created.inside == inside.run
    if not is_own and not is_allowed(inside, created):
        raise PeerRefusedError(f"resuming {run.id}", reason_of(inside))


def _read_start(run: KeptRun) -> tuple[e.RunCreated | None, bool]:
    """The first entry of a run, as far as it can be read, and whether no hub has run it yet."""
    created: e.RunCreated | None = None
    with suppress(BartackError, OSError), run.open_reader() as reader:
        for entry in reader.read():
            if entry.kind == e.RunCreated.kind:
                created = entry.decode(e.RunCreated)
            elif entry.kind == e.HubStarted.kind:
                return created, False
    return created, True
