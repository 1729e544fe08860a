"""Cancels, fails, forks and deletes runs from outside, with or without a process that runs them.

If a hub runs the run, it gets a request. If none does, this process owns the journal for a moment and writes the same entry itself,
so that the journal does not depend on which of them wrote it. Setting steps aside is in ``again.py``.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.load import kept_sets, write_sets
from bartack.core import Account, Batch, SystemClock, open_watch
from bartack.errors import (
    ResumeRefusedError,
    RunNotActiveError,
    RunNotFoundError,
    SessionFailedError,
    StepNotFoundError,
    WorkspaceError,
)
from bartack.journal import Draft, Entry, FileBlobs, FileReader, Veil, open_blobs, open_journal, open_reader
from bartack.runtime.client.connection import HubClient
from bartack.runtime.program.pin import current_program
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.requests import Request
from bartack.runtime.rundir.find import check_not_ended, load_state
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Mirror
from bartack.runtime.rundir.order import claim_run
from bartack.runtime.rundir.origin import check_own, mark_of
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.rundir.presence import is_active
from bartack.runtime.rundir.run_as import account_of, share_run
from bartack.runtime.rundir.secret_digests import NAME as DIGESTS
from bartack.runtime.rundir.secrets import open_veil_of
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply, apply_all
from bartack.runtime.state.run_state import State
from bartack.runtime.state.status import moving
from bartack.runtime.state.timeline import Timeline
from bartack.runtime.state.worker_state import NO_VALUE
from bartack.supervision import take_tree_lock

STOP_WAIT_S: Final = 10.0
"""How long to wait until a run has stopped; it may still be stopping after that."""

_DELETED: Final = ".deleted-"
"""How the name of a run's directory begins while it is being deleted."""

SKIPPED: Final = "fork.skipped"
"""Stands in a forked journal where the original had an entry of its engine, so that every entry keeps its place."""


def cancel_run(run: RunDir, reason: str) -> None:
    """Cancel a run for good.

    Raises:
        RunNotActiveError: It has ended for good already.
        JournalLockedError: Another process is about to run it.
        PeerRefusedError: This process belongs to a run.
    """
    try:
        _ask(run, "cancel", reason)
    except RunNotActiveError:
        check_outside(f"cancelling {run.id}", run)
        _write(run, e.RunEnded(status="cancelled", reason=reason or "cancelled"))


def fail_run(run: RunDir, reason: str) -> None:
    """Fail the session for all processes in it; it can be resumed.

    Raises:
        RunNotActiveError: It has ended for good already.
        JournalLockedError: Another process is about to run it.
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
    veil = _veil_of(run)
    with own_journal(run) as journal:
        state = load_state(run, journal)
        check_not_ended(run, state)
        moving(state, ended)
        entries = [_without_secrets(entry, veil) for entry in (*before, ended)]
        first = journal.stage(*(e.draft(entry) for entry in entries))
        journal.commit()
        for place, entry in enumerate(entries, first):
            apply(state, entry, place, SystemClock().now_us(), NO_VALUE)
        Mirror(run, state).write(journal.synced_seq, active=False)


def _without_secrets(entry: e.EntryData, veil: Veil) -> e.EntryData:
    """An entry whose texts are for people. The journal is open without the veil: what it hides may be missing here."""
    return e.decode_entry(entry.kind, veil.hide(msgspec.json.encode(entry))) or entry


def delete_run(run: RunDir) -> None:
    """Delete a run with everything in it.

    Raises:
        TreeLockedError: A process of it is alive.
        PeerRefusedError: This process belongs to a run.
        ForeignRunError: It came from elsewhere: its record of its processes is not trusted.
    """
    check_outside(f"deleting {run.id}", run)
    check_own(run)
    lock = take_tree_lock(str(run.tree_lock), 0.0)
    try:
        # Renamed before it is deleted: no other command ever finds half a run.
        doomed = run.path.with_name(f"{_DELETED}{run.id}")
        os.rename(run.path, doomed)
        shutil.rmtree(doomed)
    finally:
        os.close(lock)
    _delete_left(run.path.parent)


def _delete_left(runs: Path) -> None:
    """Delete what deletions that were killed or refused have left."""
    for name in os.listdir(runs):
        if name.startswith(_DELETED):
            shutil.rmtree(runs / name, ignore_errors=True)


# Forking.


def fork_run(run: RunDir, at: str) -> RunDir:
    """Make a run that begins with what another one did, up to the outcome of one step. Nothing runs yet.

    Args:
        run: The other run; it is not changed.
        at: The step: ``path:n``, or ``n`` of the first worker.

    Raises:
        StepNotFoundError: The run has no such step, or the step has no outcome.
        RunNotFoundError: The journal has no run in it.
        PeerRefusedError: This process belongs to a run.
        ForeignRunError: It came from elsewhere, and is not trusted.
    """
    check_outside(f"forking {run.id}", run)
    check_own(run)
    veil = _veil_of(run)
    with open_reader(run.path, veil=veil) as reader:
        entries = list(reader.read())
        last = _place_of(run, entries, at)
        _, path = claim_run(run.path.parent)
        fork = RunDir(path)
        try:
            _copy_files(run, fork, entries)
            _copy_entries(reader, entries[:last], fork, veil)
        except BaseException:
            shutil.rmtree(path)
            raise
    return fork


def _veil_of(run: RunDir) -> Veil:
    state = State()
    with open_reader(run.path) as reader:
        apply_all(state, reader.read())
    try:
        place = run.workspace(state) if state.run is not None else str(run.path)
    except WorkspaceError:
        place = str(run.path)  # a run whose workspace is gone can still be cancelled
    return open_veil_of(run, place)


def _place_of(run: RunDir, entries: list[Entry], at: str) -> int:
    timeline = Timeline.of(entries)
    if timeline.state.run is None:
        raise RunNotFoundError(run.id)
    step = timeline.find_ended(at)
    if step is None:
        raise StepNotFoundError(run.id, at)
    if step.cleanup or step.status == "undone":
        raise ResumeRefusedError(run.id, f"step {at} is not part of the history of its worker")
    return step.seq


def _waiting(entries: list[Entry]) -> str:
    """Where the last update of the run has written the program."""
    pins = (entry for entry in reversed(entries) if entry.kind == e.ProgramPinned.kind)
    return next((entry.decode(e.ProgramPinned).waiting for entry in pins), "")


def _copy_files(run: RunDir, fork: RunDir, entries: list[Entry]) -> None:
    """Copy the program, and the files of the run as they are now; they are not rolled back. The copies are durable."""
    batch = Batch()
    fork.make(batch)
    program = current_program(run.path, _waiting(entries))
    for source, target in ((program, fork.program), (run.agents, fork.agents)):
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            batch.include_tree(str(target))
    _copy_work(run, fork, _fork_account(run, fork, entries))
    batch.include_tree(str(fork.work))
    if (run.path / DIGESTS).is_file():
        batch.write(str(fork.path / DIGESTS), (run.path / DIGESTS).read_bytes())
    write_sets(fork.path, kept_sets(run.path), batch)
    batch.include_dir(str(fork.path))
    batch.settle()


def _fork_account(run: RunDir, fork: RunDir, entries: list[Entry]) -> Account | None:
    """The account of the processes of both runs, if it is not that of their hub; it can use the fork, too."""
    created = next(entry.decode(e.RunCreated) for entry in entries if entry.kind == e.RunCreated.kind)
    account = account_of(run, created)
    return None if account is None else share_run(fork, share_run(run, account))


def _copy_work(run: RunDir, fork: RunDir, account: Account | None) -> None:
    """What another user can change is copied with the rights of that user: a file may become a link meanwhile."""
    with nullcontext() if account is None else account.acting():
        for entry in os.scandir(run.work) if run.work.is_dir() else ():
            if entry.is_dir(follow_symlinks=False):
                shutil.copytree(entry.path, fork.work / entry.name, symlinks=True)
            else:
                shutil.copy2(entry.path, fork.work / entry.name, follow_symlinks=False)


class _Dated:
    """A clock that shows when an entry was written the first time."""

    def __init__(self) -> None:
        self.at = 0

    def now_us(self) -> int:
        return self.at

    def monotonic_ns(self) -> int:
        return self.at * 1000


def _copy_entries(reader: FileReader, entries: list[Entry], fork: RunDir, veil: Veil) -> None:
    """Every entry keeps its place and its time: later entries, and ids of messages, refer to them."""
    clock = _Dated()
    clock.at = entries[0].at
    first = _copies(reader, entries[1:], fork, clock, veil)
    open_journal(fork.path, clock=clock, first=first, veil=veil).close()
    # The time without a hub is counted from here.
    os.utime(fork.lock, ns=(clock.at * 1000, clock.at * 1000))


def _copies(
    reader: FileReader, entries: Iterable[Entry], fork: RunDir, clock: _Dated, veil: Veil
) -> Iterator[tuple[Draft]]:
    blobs = open_blobs(str(fork.path), veil=veil)
    for entry in entries:
        clock.at = entry.at
        yield (_copied(reader, blobs, entry, fork),)


def _copied(reader: FileReader, blobs: FileBlobs, entry: Entry, fork: RunDir) -> Draft:
    if entry.kind.startswith("journal."):
        return Draft(SKIPPED, {"kind": entry.kind})
    value = reader.load_value(entry)
    ref = blobs.put(value) if entry.ref is not None and value is not None else None
    data: msgspec.Struct | dict[str, object] = entry.data
    if entry.kind == e.RunCreated.kind:
        created = entry.decode(e.RunCreated)
        data = msgspec.structs.replace(
            created, run=fork.id, forked_from=created.run, synced=True, origin=mark_of(fork)
        )
    elif entry.kind == e.ProgramPinned.kind:
        # The fork has it in place, and its own updates may use the same name.
        data = msgspec.structs.replace(entry.decode(e.ProgramPinned), waiting="")
    return Draft(entry.kind, data, None if ref is not None else value, ref)
