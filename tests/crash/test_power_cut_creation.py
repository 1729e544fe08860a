"""A power cut at every operation that makes or updates a run, from the first directory on: there is a whole run or none.

A run is made on a simulated disk once for each of its operations, with the power cut right after it. Every remainder of each such
disk is looked at, or a choice of them where they are too many to count. Where one has a journal, everything that a resume needs
is as it was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.crash.runs import RealRun

from bartack.core.batch import Batch
from bartack.core.disk import Disk
from bartack.journal import FileJournal, open_journal
from bartack.runtime.hub.create import Plan, make_run
from bartack.runtime.program.pin import finish_update, pin, prepare_update
from bartack.runtime.rundir.find import list_runs, load_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.testing import FaultyDisk, PowerCut, VirtualClock
from bartack.testing.platter import keep_everything

LIMIT = 1024
"""Longer arguments are a blob."""
WORKSPACE = Path("/users/ada/project")
STATE_DIR = WORKSPACE / ".bartack"
SETS = ["budget.usd=3"]

MAIN = b"""
from shared.marks import leave_mark

from bartack import Context, worker


@worker
async def main(ctx: Context, text: str) -> int:
    ctx.print(leave_mark(len(text)))
    return len(text)
"""
MARKS = b"def leave_mark(number: int) -> str:\n    return f'{number}'\n" + b"# a long comment\n" * 40
SOURCES = {"main.py": MAIN, "shared/__init__.py": b"", "shared/marks.py": MARKS}
EDITED = {"main.py": MAIN + b"# edited\n", "shared/__init__.py": b"", "shared/other.py": b"OTHER = 1\n"}
TEXT = "x" * 2 * LIMIT

Record = Callable[[str, object], None]
Work = Callable[[FaultyDisk], object]


@pytest.fixture(autouse=True)
def keep_files_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sector that is not synced is a doubt, and those of the reserved space and of blank lines say nothing."""
    monkeypatch.setattr("bartack.journal._stage.INLINE_LIMIT", LIMIT)
    monkeypatch.setattr("bartack.journal._file.RESERVE_SIZE", 512)
    monkeypatch.setattr("bartack.journal._line_file.FILLING", 512)


def plan(state_dir: Path = STATE_DIR, text: str = TEXT) -> Plan:
    created = e.RunCreated(
        run="",
        worker="main:main",
        name="main",
        program=str(state_dir.parent / "main.py"),
        workspace=str(state_dir.parent),
        root=str(state_dir.parent),
        seed=1,
        synced=True,
    )
    arguments = b'{"kwargs":{"text":"%b"}}' % text.encode()
    return Plan(
        sources=SOURCES,
        created=created,
        arguments=arguments,
        state_dir=state_dir,
        durability="power",
        sets=SETS,
    )


def new_disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.put(str(WORKSPACE / "main.py"), MAIN)
    return disk


def cut(disk: FaultyDisk, work: Work, mutations: int) -> bool:
    """Work until the power goes; ``False`` if the work was done before."""
    disk.crash_after(mutations)
    try:
        work(disk)
    except PowerCut:
        return True
    return False


def moments_of(work: Work, make_disk: Callable[[], FaultyDisk]) -> Iterator[tuple[int, FaultyDisk, bool]]:
    """The disk at each moment: after every operation of the work, and at last when all of it is done."""
    mutations = 0
    while True:
        disk = make_disk()
        was_cut = cut(disk, work, mutations)
        yield mutations, disk, not was_cut
        if not was_cut:
            return
        mutations += 1


def journals_of(disk: FaultyDisk) -> list[RunDir]:
    """Where runs are: what has no journal is not listed, found or resumed by anything."""
    return [RunDir(os.path.dirname(path)) for path in disk.tree() if path.endswith("/journal.ndjson")]


def pinned(sources: dict[str, bytes], folder: Path) -> dict[str, bytes]:
    """The files that a program is kept in, with its bytecode, which names the directory it was written to."""
    return _pinned(tuple(sources.items()), folder)


@cache
def _pinned(sources: tuple[tuple[str, bytes], ...], folder: Path) -> dict[str, bytes]:
    disk = FaultyDisk()
    pin(dict(sources), folder, Batch(disk))
    return {path.removeprefix(str(folder)): content for path, content in disk.tree().items()}


def program_of(disk: FaultyDisk, run: RunDir) -> dict[str, bytes]:
    folder = str(run.program)
    found = disk.tree().items()
    return {path.removeprefix(folder): content for path, content in found if path.startswith(f"{folder}/")}


def owned(disk: Disk, run: RunDir) -> FileJournal:
    return open_journal(run.path, disk=disk, clock=VirtualClock())


def check_whole(disk: FaultyDisk, run: RunDir, expected: Plan) -> None:
    """Everything is there that a resume needs."""
    assert program_of(disk, run) == pinned(SOURCES, run.program)
    assert disk.tree()[str(run.path / "sets.json")] == b'["budget.usd=3"]'
    assert {str(run.work), str(run.inbox)} <= disk.folders()
    with owned(disk, run) as journal:
        state = load_state(run, journal)
        [spawned] = [entry for entry in journal.read() if entry.kind == e.WorkerSpawned.kind]
        assert journal.load_value(spawned) == expected.arguments
    assert state.run is not None
    assert state.run.run == run.id
    assert state.hub == 0


def check_creation(disk: FaultyDisk, expected: Plan, *, done: int) -> None:
    runs = journals_of(disk)
    assert len(runs) >= done, "a run that was acknowledged is gone"
    for run in runs:
        check_whole(disk, run, expected)


@pytest.mark.parametrize("text", ["", TEXT], ids=["short", "long"])
@pytest.mark.requirement("run-survives-power-cut", "program-is-durable-first")
def test_a_power_cut_while_a_run_is_made_leaves_a_whole_run_or_none(
    text: str, record_property: Record
) -> None:
    states, wanted = 0, plan(text=text)
    for mutations, disk, done in moments_of(lambda disk: make_run(wanted, disk), new_disk):
        for found in disk.remainders(limit=512, samples=300, seed=mutations):
            states += 1
            check_creation(found, wanted, done=int(done))

    record_property("power_cut_states", states)
    assert states >= 1500


@pytest.mark.requirement("run-survives-power-cut")
def test_a_run_does_not_rest_on_directories_that_a_killed_process_made(record_property: Record) -> None:
    states = 0
    for mutations, disk, done in moments_of(lambda disk: make_run(plan(), disk), new_disk):
        disk.kill_users()
        make_run(plan(), disk)
        for found in disk.remainders(limit=64, samples=10, seed=mutations):
            states += 1
            check_creation(found, plan(), done=1 + done)

    record_property("power_cut_states", states)
    assert states >= 200


def test_without_power_durability_a_run_is_made_without_a_sync_of_its_program() -> None:
    disk = new_disk()
    unsynced = plan()
    object.__setattr__(unsynced, "durability", "process")
    run = make_run(unsynced, disk)

    synced = [operation.path for operation in disk.log if operation.name in {"sync", "sync_dir"}]
    assert not [path for path in synced if path.startswith(str(run.program))]
    assert program_of(disk, run) == pinned(SOURCES, run.program)


@pytest.mark.requirement("program-is-durable-first")
def test_each_file_and_directory_of_a_new_run_is_synced_once_before_its_journal() -> None:
    disk = new_disk()
    run = make_run(plan(text=""), disk)

    names = [(operation.name, operation.path) for operation in disk.log]
    before = names[: names.index(("open", str(run.path / ".journal.ndjson.tmp")))]
    synced = [path for name, path in before if name in {"sync", "sync_dir"}]
    files = [str(run.program) + path for path in pinned(SOURCES, run.program)] + [str(run.path / "sets.json")]
    folders = {os.path.dirname(path) for path in files} | {str(run.path), str(STATE_DIR), str(WORKSPACE)}
    assert sorted(synced) == sorted([*files, *folders])


# Updates.


def update(disk: FaultyDisk) -> None:
    """What ``resume --update`` does when the program fits."""
    [run] = journals_of(disk)
    with owned(disk, run) as journal:
        finish_update(run.path, load_state(run, journal).next_program, disk)
        waiting = prepare_update(run.path, EDITED, journal.fence, disk)
        entry = e.ProgramPinned(program="/elsewhere/main.py", root="/elsewhere", waiting=waiting)
        journal.stage(e.draft(entry))
        journal.commit()
        finish_update(run.path, waiting, disk)


def resumed(disk: FaultyDisk, run: RunDir) -> State:
    """What a resume does first."""
    with owned(disk, run) as journal:
        state = load_state(run, journal)
        finish_update(run.path, state.next_program, disk)
    return state


def check_update(disk: FaultyDisk, *, done: bool) -> None:
    [run] = journals_of(disk)
    state = resumed(disk, run)
    assert state.run is not None
    updated = state.run.root == "/elsewhere"
    assert updated or not done, "an update that was acknowledged is gone"
    expected = pinned(EDITED, run.path / state.next_program) if updated else pinned(SOURCES, run.program)
    assert program_of(disk, run) == expected


def made_disk() -> FaultyDisk:
    disk = new_disk()
    make_run(plan(), disk)
    return disk.after_power_cut()


@pytest.mark.requirement("update-is-durable-first")
def test_a_power_cut_while_a_program_is_updated_leaves_the_program_that_the_journal_has(
    record_property: Record,
) -> None:
    base, states = made_disk(), 0
    for mutations, disk, done in moments_of(update, lambda: base.after_power_cut(keep_everything)):
        for found in disk.remainders(limit=512, samples=40, seed=mutations):
            states += 1
            check_update(found, done=done)

    record_property("power_cut_states", states)
    assert states >= 1200


@pytest.mark.requirement("update-is-durable-first")
def test_a_program_is_updated_after_an_update_that_was_killed_or_lost_its_power() -> None:
    base = made_disk()
    for mutations, disk, _ in moments_of(update, lambda: base.after_power_cut(keep_everything)):
        cut_disks = list(disk.remainders(limit=0, samples=3, seed=mutations))
        disk.kill_users()
        for found in (disk, *cut_disks):
            update(found)
            check_update(found.after_power_cut(), done=True)


# For real.


@pytest.mark.requirement("run-survives-power-cut")
def test_what_a_power_cut_leaves_of_a_run_is_resumed(tmp_path: Path) -> None:
    for name, content in SOURCES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    disk = FaultyDisk()
    disk.put(str(tmp_path / "main.py"), MAIN)
    made = make_run(plan(tmp_path / ".bartack"), disk)
    found = disk.after_power_cut()
    for folder in found.folders():
        os.makedirs(folder, exist_ok=True)
    for path, content in found.tree().items():
        Path(path).write_bytes(content)

    [listed] = list_runs(tmp_path)
    assert listed.id == made.id
    with RealRun(listed, tmp_path) as run:
        assert run.finish() == 0, run.story()
        assert run.api.result() == len(TEXT)
