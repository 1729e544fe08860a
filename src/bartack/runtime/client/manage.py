"""Cancels, fails, forks and deletes runs from outside, with or without a process that runs them.

If a hub runs the run, it gets a request. If none does, this process owns the journal for a moment and writes the same entry itself,
so that the journal does not depend on which of them wrote it. Setting steps aside is in ``again.py``.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from itertools import takewhile
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.load import kept_sets, write_sets
from bartack.config.problem import CONFIG_FILE
from bartack.core.accounts import Account
from bartack.core.batch import Batch
from bartack.core.clock import SystemClock
from bartack.depot import FileRuns
from bartack.depot.elsewhere import write_elsewhere
from bartack.errors import (
    ResumeRefusedError,
    RunNotActiveError,
    RunNotFoundError,
    SessionFailedError,
    StepNotFoundError,
    WorkspaceError,
)
from bartack.journal import Blobs, Draft, Entry, JournalReader
from bartack.journal.veil import Veil
from bartack.runtime.client.carrying_out import carry_out
from bartack.runtime.client.connection import HubClient
from bartack.runtime.program.pin import current_program
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.requests import Request, new_request_id, signed
from bartack.runtime.rundir.find import check_not_ended, load_state, summarise
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Mirror
from bartack.runtime.rundir.origin import check_own, mark_of
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.rundir.run_as import account_of, share_run
from bartack.runtime.rundir.secret_digests import NAME as DIGESTS
from bartack.runtime.rundir.secrets import open_veil_of
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply, apply_all
from bartack.runtime.state.run_state import State
from bartack.runtime.state.status import moving
from bartack.runtime.state.timeline import Timeline
from bartack.runtime.state.worker_state import NO_VALUE
from bartack.supervision.process.lock import take_tree_lock

STOP_WAIT_S: Final = 10.0
"""How long to wait until a run has stopped; it may still be stopping after that."""

_ENDING: Final = {"cancel": "cancelling", "fail": "failing"}

SKIPPED: Final = "fork.skipped"
"""Stands in a forked journal where the original had an entry of its engine, so that every entry keeps its place."""


def cancel_run(run: RunDir, reason: str) -> None:
    """Cancel a run for good.

    Raises:
        RunNotActiveError: It has ended for good already.
        JournalLockedError: Another process is about to run it.
        PeerRefusedError: This process belongs to a run.
    """
    _end(run, "cancel", reason, e.RunEnded(status="cancelled", reason=reason or "cancelled"))


def fail_run(run: RunDir, reason: str) -> None:
    """Fail the session for all processes in it; it can be resumed.

    Raises:
        RunNotActiveError: It has ended for good already.
        JournalLockedError: Another process is about to run it.
        PeerRefusedError: This process belongs to a run.
    """
    kind = f"{SessionFailedError.__module__}:{SessionFailedError.__qualname__}"
    error = ErrorData(type=kind, message=reason, code=SessionFailedError.code)
    _end(run, "fail", reason, e.RunEnded(status="failed"), e.FailureRecorded(worker="", error=error))


def _end(run: RunDir, do: str, reason: str, ended: e.RunEnded, *before: e.EntryData) -> None:
    """Have the hub end a run. Without one, or if it dies before it has recorded the end, write what it would write."""
    request = new_request_id()

    def by_hub() -> None:
        with HubClient(run) as hub:
            hub.ask(do, Request(message=reason), by_id=request)
        _wait_stopped(run)
        if not run.is_active() and summarise(run).status != ended.status:
            raise RunNotActiveError(run.id, "its process is gone")

    def alone() -> None:
        check_outside(f"{_ENDING[do]} {run.id}", run)
        _write(run, request, do, ended, *before)

    carry_out(by_hub, alone)


def _wait_stopped(run: RunDir) -> None:
    until = time.monotonic() + STOP_WAIT_S
    with run.watch() as watch:
        while run.is_active() and (left := until - time.monotonic()) > 0:
            watch.wait(left)


def _write(run: RunDir, request: str, do: str, ended: e.RunEnded, *before: e.EntryData) -> None:
    veil = veil_of(run)
    with own_journal(run) as journal:
        state = load_state(run, journal)
        by = signed("", run.role())
        ended = msgspec.structs.replace(ended, by=by)
        written = (*(_by(by, entry) for entry in before), e.RequestTaken(id=request, do=do, by=by))
        if state.requests.place_of(request):
            if state.ended is not None:
                return
            written = ()
        check_not_ended(run, state)
        moving(state, ended)
        entries = [without_secrets(entry, veil) for entry in (*written, ended)]
        first = journal.stage(*(e.draft(entry) for entry in entries))
        journal.commit()
        for place, entry in enumerate(entries, first):
            apply(state, entry, place, SystemClock().now_us(), NO_VALUE)
        Mirror(run, state).write(journal.synced_seq, active=False)
    from bartack.depot import user_depot  # noqa: PLC0415 - only ends need it

    user_depot().nudge()  # the run may rest in the queue, where others wait for it


def _by(by: str, entry: e.EntryData) -> e.EntryData:
    return msgspec.structs.replace(entry, by=by) if isinstance(entry, e.FailureRecorded) else entry


def without_secrets(entry: e.EntryData, veil: Veil) -> e.EntryData:
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
        run.delete()
    finally:
        os.close(lock)


# Forking.


def fork_run(run: RunDir, at: str | int) -> RunDir:
    """Make a run that begins with what another one did, up to the outcome of one step. Nothing runs yet.

    Args:
        run: The other run; it is not changed. The new one is kept where it is. If it keeps copies of its workspace, the new one
            has them up to that of the step.
        at: The step: ``path:n``, or ``n`` of the first worker. Or the number of an entry: the last step that had an outcome then.

    Raises:
        StepNotFoundError: The run has no such step, or the step has no outcome.
        RunNotFoundError: The journal has no run in it.
        PeerRefusedError: This process belongs to a run.
        ForeignRunError: It came from elsewhere, and is not trusted.
    """
    check_outside(f"forking {run.id}", run)
    check_own(run)
    run.bring_here()
    veil = veil_of(run)
    with run.open_reader(veil=veil) as reader:
        entries = list(reader.read())
        last = _place_of(run, entries, at)
        fork = RunDir(FileRuns(run.path.parent).claim())
        try:
            if run.where is not None:
                write_elsewhere(fork.path, run.where)
                fork.team = run.find_team()
            _copy_files(run, fork, entries)
            chosen = [*entries[:last], *_files_of(entries, last)]
            _copy_entries(reader, run.open_blobs(), chosen, fork, veil)
        except BaseException:
            shutil.rmtree(fork.path)
            raise
    return fork


def _files_of(entries: list[Entry], last: int) -> list[Entry]:
    """The copy of the files that a step has left: it is recorded after the step, in the same line."""
    line = entries[last - 1].commit
    parts: list[Entry] = []
    for one in takewhile(lambda entry: entry.commit == line, entries[last:]):
        if one.kind == e.WorkspaceKept.kind:
            return [*parts, one]
        if one.kind == e.WorkspacePart.kind:
            parts.append(one)
        elif one.kind == e.WorkspacePacked.kind:
            parts.clear()
    return []


def count_open_prompts(state: State) -> int:
    """How many prompts of a fork had no outcome where it begins: they are asked again, each in a conversation of its own."""
    return sum(step.step == "think" for worker in state.workers.values() for step in worker.open.values())


def veil_of(run: RunDir) -> Veil:
    """What hides the secrets of a run that no process runs."""
    state = State()
    with run.open_reader() as reader:
        # Only these entries say where the workspace is: the rest of the journal is not decoded for it.
        named = {e.RunCreated.kind, e.RunMoved.kind}
        apply_all(state, (entry for entry in reader.search([b'"kind":"run.']) if entry.kind in named))
    try:
        place = run.workspace(state) if state.run is not None else str(run.path)
    except WorkspaceError:
        place = str(run.path)  # a run whose workspace is gone can still be cancelled
    return open_veil_of(run, place)


def _place_of(run: RunDir, entries: list[Entry], at: str | int) -> int:
    timeline = Timeline.of(entries if isinstance(at, str) else entries[: max(at, 0)])
    if timeline.state.run is None:
        raise RunNotFoundError(run.id) if isinstance(at, str) else StepNotFoundError(run.id, f"entry {at}")
    if isinstance(at, int):
        return _last_outcome(run, timeline, at)
    step = timeline.find_ended(at)
    if step is None:
        raise StepNotFoundError(run.id, at)
    if step.cleanup or step.status == "undone":
        raise ResumeRefusedError(run.id, f"step {at} is not part of the history of its worker")
    return step.seq


def _last_outcome(run: RunDir, timeline: Timeline, at: int) -> int:
    """Where the last outcome is that was part of a history when the entry was written, whatever became of it since."""
    kept = [step.seq for step in timeline.steps if not step.cleanup and step.status != "undone"]
    last = max(kept, default=0)
    if not last:
        raise StepNotFoundError(run.id, f"entry {at}")
    return last


def _waiting(entries: list[Entry]) -> str:
    """Where the last update of the run has written the program."""
    pins = (entry for entry in reversed(entries) if entry.kind == e.ProgramPinned.kind)
    return next((entry.decode(e.ProgramPinned).waiting for entry in pins), "")


def _copy_files(run: RunDir, fork: RunDir, entries: list[Entry]) -> None:
    """Copy the program, and the files of the run as they are now; they are not rolled back. The copies are durable."""
    batch = Batch()
    fork.make(batch)
    program = current_program(run.path, _waiting(entries))
    if program.is_dir():
        shutil.copytree(program, fork.program, symlinks=True, dirs_exist_ok=True)
        batch.include_tree(str(fork.program))
    if run.agents.is_dir():
        _copy_agents(run.agents, fork.agents)
        batch.include_tree(str(fork.agents))
    _copy_work(run, fork, _fork_account(run, fork, entries))
    batch.include_tree(str(fork.work))
    if (run.path / DIGESTS).is_file():
        batch.write(str(fork.path / DIGESTS), (run.path / DIGESTS).read_bytes())
    if (run.path / CONFIG_FILE).is_file():
        batch.write(str(fork.path / CONFIG_FILE), (run.path / CONFIG_FILE).read_bytes())
    write_sets(fork.path, kept_sets(run.path), batch)
    batch.include_dir(str(fork.path))
    batch.settle()


def _copy_agents(agents: Path, target: Path) -> None:
    """Copy the conversations. Agents of a run that is active change theirs meanwhile: what is gone by now was not history."""
    shutil.copytree(agents, target, symlinks=True, ignore=_special_files, copy_function=_copy_if_there)


def _special_files(folder: str, names: list[str]) -> list[str]:
    """Sockets and pipes of agents, which cannot be copied, and files that are gone."""
    return [name for name in names if not _can_be_copied(os.path.join(folder, name))]


def _can_be_copied(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _copy_if_there(source: str, target: str) -> str:
    with suppress(FileNotFoundError):
        shutil.copy2(source, target, follow_symlinks=False)
    return target


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


def _copy_entries(
    reader: JournalReader, packs: Blobs, entries: list[Entry], fork: RunDir, veil: Veil
) -> None:
    """Every entry keeps its place and its time: later entries, and ids of messages, refer to them."""
    clock = _Dated()
    clock.at = entries[0].at
    first = _copies(reader, packs, entries[1:], fork, clock, veil)
    # The time without a hub is counted from the last of them.
    fork.create(first, clock=clock, veil=veil, alive_us=entries[-1].at)


def _copies(
    reader: JournalReader, packs: Blobs, entries: Iterable[Entry], fork: RunDir, clock: _Dated, veil: Veil
) -> Iterator[tuple[Draft]]:
    blobs, packs_here = fork.open_blobs(veil=veil), fork.open_blobs()
    for entry in entries:
        clock.at = entry.at
        if entry.kind in e.PACKS and entry.ref is not None:
            yield (Draft(entry.kind, entry.data, ref=packs_here.put(packs.get(entry.ref))),)
        else:
            yield (_copied(reader, blobs, entry, fork),)


def _copied(reader: JournalReader, blobs: Blobs, entry: Entry, fork: RunDir) -> Draft:
    if entry.kind.startswith("journal."):
        return Draft(SKIPPED, {"kind": entry.kind})
    value = reader.load_value(entry)
    ref = blobs.put(value) if entry.ref is not None and value is not None else None
    data: msgspec.Struct | dict[str, object] = entry.data
    if entry.kind == e.RunCreated.kind:
        created = entry.decode(e.RunCreated)
        data = msgspec.structs.replace(
            created, run=fork.id, forked_from=created.run, synced=True, origin=mark_of(fork), start_key=""
        )
    elif entry.kind == e.ProgramPinned.kind:
        # The fork has it in place, and its own updates may use the same name.
        data = msgspec.structs.replace(entry.decode(e.ProgramPinned), waiting="")
    return Draft(entry.kind, data, None if ref is not None else value, ref)
