"""What is done to a run from outside it: cancel, fail, fork, delete. With or without a process that runs it.

Where a hub runs the run, it is asked. Where none does, whoever asks owns the journal for a moment and writes the entry himself:
the same entry, so that nobody can tell the difference later.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Final

import msgspec

from bartack.core import SystemClock, open_watch
from bartack.errors import (
    ResumeRefusedError,
    RunNotActiveError,
    RunNotFoundError,
    SessionFailedError,
    StepNotFoundError,
)
from bartack.journal import Draft, Entry, FileJournal, FileReader, open_journal, open_reader
from bartack.runtime import _entries as e
from bartack.runtime._apply import apply, apply_all
from bartack.runtime._client import HubClient, is_active
from bartack.runtime._creation import claim_run
from bartack.runtime._foreign import Request
from bartack.runtime._frames import ErrorData
from bartack.runtime._inside import check_outside
from bartack.runtime._layout import RunDir
from bartack.runtime._locate import TERMINAL, status_of
from bartack.runtime._mirror import Mirror
from bartack.runtime._owning import own_journal
from bartack.runtime._state import State
from bartack.runtime._statuses import moving
from bartack.runtime._view import Chronicle, parse_step
from bartack.runtime._worker_state import NO_VALUE
from bartack.supervision import take_tree_lock

STOP_WAIT_S: Final = 10.0
"""How long to wait for a run that was told to stop; it goes on stopping behind that."""

SKIPPED: Final = "fork.skipped"
"""Stands in a forked journal where the original had an entry of its engine, so that every entry keeps its place."""


def cancel_run(run: RunDir, reason: str) -> None:
    """End a run for good.

    Raises:
        RunNotActiveError: It has ended for good already.
        JournalLockedError: Somebody is just about to run it.
        PeerRefusedError: This process belongs to a run.
    """
    try:
        _ask(run, "cancel", reason)
    except RunNotActiveError:
        check_outside(f"cancelling {run.id}", run)
        _write(run, e.RunEnded(status="cancelled", reason=reason or "cancelled"))


def fail_run(run: RunDir, reason: str) -> None:
    """Fail the session for everybody in it; it can be resumed.

    Raises:
        RunNotActiveError: It has ended for good already.
        JournalLockedError: Somebody is just about to run it.
        PeerRefusedError: This process belongs to a run.
    """
    try:
        _ask(run, "fail", reason)
    except RunNotActiveError:
        check_outside(f"failing {run.id}", run)
        kind = f"{SessionFailedError.__module__}:{SessionFailedError.__qualname__}"
        error = ErrorData(type=kind, message=reason, code=SessionFailedError.code)
        _write(run, e.RunEnded(status="failed"), e.FailureRecorded(worker="", error=error))


def _ask(run: RunDir, do: str, message: str) -> None:
    with HubClient(run) as hub:
        hub.ask(do, Request(message=message))
    until = time.monotonic() + STOP_WAIT_S
    with open_watch(str(run.path)) as watch:
        while is_active(run) and (left := until - time.monotonic()) > 0:
            watch.wait(left)


def _write(run: RunDir, ended: e.RunEnded, *before: e.EntryData) -> None:
    with own_journal(run) as journal:
        state = State()
        apply_all(state, journal.read())
        status = status_of(run, state, active=False)
        if status in TERMINAL:
            raise RunNotActiveError(run.id, status)
        moving(state, ended)
        entries = (*before, ended)
        first = journal.stage(*(e.draft(entry) for entry in entries))
        journal.commit()
        for place, entry in enumerate(entries, first):
            apply(state, entry, place, SystemClock().now_us(), NO_VALUE)
        Mirror(run, state).write(journal.synced_seq, active=False)


def delete_run(run: RunDir) -> None:
    """Delete a run with everything in it.

    Raises:
        TreeLockedError: A process of it lives.
        PeerRefusedError: This process belongs to a run.
    """
    check_outside(f"deleting {run.id}", run)
    lock = take_tree_lock(str(run.tree_lock), 0.0)
    try:
        # First out of the way, then away: nobody ever meets half a run.
        doomed = run.path.with_name(f".deleted-{run.id}")
        os.rename(run.path, doomed)
        shutil.rmtree(doomed)
    finally:
        os.close(lock)


# Forking.


def fork_run(run: RunDir, at: str) -> RunDir:
    """Make a run that begins with what another one did, up to the outcome of one step. Nothing runs yet.

    Args:
        run: The other run; it is not changed.
        at: The step: ``path:n``, or ``n`` of the first worker.

    Raises:
        StepNotFoundError: There is no such step, or it has no outcome.
        RunNotFoundError: The journal has no run in it.
        PeerRefusedError: This process belongs to a run.
    """
    check_outside(f"forking {run.id}", run)
    with open_reader(run.path) as reader:
        entries = list(reader.read())
        last = _place_of(run, entries, at)
        run_id, path = claim_run(run.path.parent)
        fork = RunDir(path)
        fork.make()
        try:
            _copy_files(run, fork)
            _copy_entries(reader, entries[:last], fork, run_id)
        except BaseException:
            shutil.rmtree(path)
            raise
    return fork


def _place_of(run: RunDir, entries: list[Entry], at: str) -> int:
    chronicle = Chronicle()
    chronicle.add_all(entries)
    if chronicle.state.run is None:
        raise RunNotFoundError(run.id)
    named = parse_step(at, chronicle.state.run.name)
    step = chronicle.step(*named) if named is not None else None
    if step is None or not step.seq:
        raise StepNotFoundError(run.id, at)
    if step.cleanup or step.status == "undone":
        raise ResumeRefusedError(run.id, f"step {at} is no part of its worker's history")
    return step.seq


def _copy_files(run: RunDir, fork: RunDir) -> None:
    """The program, and the files of the run as they are now: they are not rewound."""
    for name in ("program", "work", "agents"):
        source = run.path / name
        if source.is_dir():
            shutil.copytree(source, fork.path / name, symlinks=True, dirs_exist_ok=True)


class _Dated:
    """A clock that says when an entry was written the first time."""

    def __init__(self) -> None:
        self.at = 0

    def now_us(self) -> int:
        return self.at

    def monotonic_ns(self) -> int:
        return self.at * 1000


def _copy_entries(reader: FileReader, entries: list[Entry], fork: RunDir, run_id: str) -> None:
    """Every entry keeps its place and its time: later entries, and ids of messages, refer to them."""
    clock = _Dated()
    clock.at = entries[0].at
    with open_journal(fork.path, clock=clock) as journal:
        for entry in entries[1:]:
            clock.at = entry.at
            journal.stage(_copied(reader, journal, entry, run_id))
        journal.commit()
    # How long nobody ran the run is counted from here.
    os.utime(fork.lock, ns=(clock.at * 1000, clock.at * 1000))


def _copied(reader: FileReader, journal: FileJournal, entry: Entry, run_id: str) -> Draft:
    if entry.kind.startswith("journal."):
        return Draft(SKIPPED, {"kind": entry.kind})
    value = reader.load_value(entry)
    ref = journal.put_blob(value) if entry.ref is not None and value is not None else None
    data: msgspec.Struct | dict[str, object] = entry.data
    if entry.kind == e.RunCreated.kind:
        created = entry.decode(e.RunCreated)
        data = msgspec.structs.replace(created, run=run_id, forked_from=created.run)
    return Draft(entry.kind, data, None if ref is not None else value, ref)
