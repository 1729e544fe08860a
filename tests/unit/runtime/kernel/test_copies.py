"""Copies of the workspace: a step that may have changed files is finished together with a copy of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from tests.unit.runtime.stage import Ask, Lines, Puppet, Role, Stage, Theatre, delegate, error, raw, shell

from bartack.errors import AgentError
from bartack.journal import BlobRef, Entry
from bartack.journal.memory import MemoryStore
from bartack.runtime.kernel import actions as act
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.copies import desk
from bartack.runtime.kernel.copies.core import CopyingCore
from bartack.runtime.kernel.copies.desk import PACKS_MOST, CopyMade
from bartack.runtime.kernel.core import Core
from bartack.runtime.memory.hub import KilledError, MortalJournal
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.copies import Pack
from bartack.telemetry import Telemetry
from bartack.testing import VirtualClock


def pack_of(name: str) -> BlobRef:
    return BlobRef(hashlib.sha256(name.encode()).hexdigest(), len(name))


def made(stage: Stage, *parts: str) -> CopyMade:
    pack = [stage.hub.journal.put_blob(part.encode()) for part in parts]
    return CopyMade(copy=parts[-1], pack=pack, head="refs/heads/main", refs={"refs/heads/main": "c1"})


def copying(core: Core) -> CopyingCore:
    assert isinstance(core, CopyingCore)
    return core


def end_copy(stage: Stage, *parts: str, problem: str = "") -> None:
    """The copy that is being made is made, with a pack of these parts, changes nothing without one, or fails."""
    action = stage.copying.pop(0)
    assert isinstance(action, act.KeepCopy)

    def ended(core: Core) -> None:
        if problem:
            copying(core).copy_failed(problem)
        else:
            copying(core).copy_made(made(stage, *parts) if parts else None)

    stage.hub.post(ended)
    stage.hub.run_ready()


def groups(stage: Stage) -> list[list[str]]:
    """The kinds of entries of each line that this hub has written."""
    stage.hub.flush()
    assert isinstance(stage.hub.journal, MortalJournal)
    ends = [0, *stage.hub.journal.lines]
    return [[entry.kind for entry in stage.store.entries[begin:end]] for begin, end in pairwise(ends)]


@pytest.fixture
def stage() -> Stage:
    return Stage(keeps_copies=True)


def a_command(stage: Stage, main: Puppet) -> int:
    i = shell(main, 1)
    stage.end_shell(ShellEnd(0, b"done"))
    return i


def a_failing_command(stage: Stage, main: Puppet) -> int:
    i = shell(main, 1)
    stage.end_shell(ShellEnd(1))
    return i


def a_prompt(stage: Stage, main: Puppet) -> int:
    i = main.step(1, "think", s.ThinkArgs(prompt="p", name="ask-it"))
    stage.end_prompt(s.ThinkOutcome(key="k", agent="a", text="done"))
    return i


def a_failing_prompt(stage: Stage, main: Puppet) -> int:
    i = main.step(1, "think", s.ThinkArgs(prompt="p", name="ask-it"))
    stage.end_prompt(AgentError("a", "no"))
    return i


def a_body(stage: Stage, main: Puppet) -> int:
    main.begin(1)
    return main.done(1, "done")


def a_write(stage: Stage, main: Puppet) -> int:
    main.begin(1, "write")
    return main.done(1, None, "write")


def a_failing_body(stage: Stage, main: Puppet) -> int:
    main.begin(1)
    return main.done(1, e=error())


CHANGES = [a_command, a_failing_command, a_prompt, a_failing_prompt, a_body, a_write, a_failing_body]


@pytest.mark.requirement("fleet-copies")
@pytest.mark.parametrize("change", CHANGES)
def test_a_step_that_may_change_files_is_finished_in_one_line_with_their_copy(
    stage: Stage, change: Callable[[Stage, Puppet], int]
) -> None:
    main = stage.begin()
    i = change(stage, main)
    assert main.answer(i) is None
    assert not stage.outcomes()

    end_copy(stage, "copy-1")

    assert main.answer(i) is not None
    outcome, kept = groups(stage)[-1]
    assert outcome in {"step.finished", "step.failed"}
    assert kept == "workspace.kept"
    latest = stage.core.state.copies.latest
    assert latest == e.WorkspaceKept(copy="copy-1", head="refs/heads/main", refs={"refs/heads/main": "c1"})


def test_steps_that_change_nothing_wait_for_no_copy(stage: Stage) -> None:
    main = stage.begin()
    main.say(f.Note(p="main", n=1, step="now", fp="fp-now"))
    i = main.step(2, "budget")

    assert main.answer(i) is not None
    assert not stage.copying


HARMLESS = s.ShellArgs(pipeline=[["git", "status"]], changes=False)


def a_harmless_command(stage: Stage, main: Puppet) -> int:
    i = main.step(1, "shell", HARMLESS)
    stage.end_shell(ShellEnd(0))
    return i


def a_harmless_command_that_fails(stage: Stage, main: Puppet) -> int:
    i = main.step(1, "shell", HARMLESS)
    stage.end_shell(ShellEnd(1))
    return i


def a_harmless_body(stage: Stage, main: Puppet) -> int:
    main.begin(1, changes=False)
    return main.done(1, "done")


def a_short_harmless_body(stage: Stage, main: Puppet) -> int:
    """Its beginning and its end are read in the same turn."""
    begin = f.Begin(p="main", n=1, step="body", fp="fp-body", changes=False)
    done = f.Done(i=1, p="main", n=1, step="body", fp="fp-body", v=raw("done"))

    def both(core: Core) -> None:
        core.frame(main.number, begin)
        core.frame(main.number, done)

    stage.hub.post(both)
    stage.hub.run_ready()
    return 1


def a_harmless_body_that_is_tried_again(stage: Stage, main: Puppet) -> int:
    main.begin(1, changes=False)
    again = main.done(1, e=error(), retry_in_s=5.0)
    stage.wait(6)
    assert main.answer(again) is not None
    return main.done(1, "done", attempt=2)


UNCHANGING = [
    a_harmless_command,
    a_harmless_command_that_fails,
    a_harmless_body,
    a_short_harmless_body,
    a_harmless_body_that_is_tried_again,
]


@pytest.mark.requirement("fleet-copies-unneeded")
@pytest.mark.parametrize("step", UNCHANGING)
def test_a_step_that_changes_nothing_by_its_own_account_waits_for_no_copy(
    stage: Stage, step: Callable[[Stage, Puppet], int]
) -> None:
    main = stage.begin()
    i = step(stage, main)

    assert main.answer(i) is not None
    assert not stage.copying


@pytest.mark.requirement("fleet-copies-unneeded")
def test_a_long_step_that_changes_nothing_has_no_copies(stage: Stage) -> None:
    main = stage.begin()
    main.step(1, "shell", HARMLESS)
    delegate(main, 2, ["a"])
    stage.workers["main/2.1:a"].begin(1, changes=False)

    stage.wait(60)

    assert not stage.copying


@pytest.mark.requirement("fleet-copies-unneeded")
def test_what_an_open_step_says_of_files_may_change_when_it_is_executed_again(stage: Stage) -> None:
    main = stage.begin()
    shell(main, 1)

    after = stage.again()
    i = after.step(1, "shell", HARMLESS)
    stage.end_shell(ShellEnd(0))

    assert after.answer(i) is not None
    assert not stage.copying


def test_a_copy_of_the_same_files_is_no_entry(stage: Stage) -> None:
    main = stage.begin()
    i = a_command(stage, main)

    end_copy(stage)

    assert main.answer(i) is not None
    assert groups(stage)[-1] == ["step.finished"]


def test_what_ends_while_a_copy_is_made_shares_the_next_one(stage: Stage) -> None:
    main = stage.begin()
    delegate(main, 1, ["a", "b", "c"])
    workers = [stage.workers[f"main/1.{n}:{name}"] for n, name in enumerate("abc", 1)]
    asked = [shell(worker, 1) for worker in workers]
    for _ in workers:
        stage.end_shell()
    assert len(stage.copying) == 1

    end_copy(stage, "copy-1")
    assert [worker.answer(i) is not None for worker, i in zip(workers, asked, strict=True)] == [
        True,
        False,
        False,
    ]

    assert stage.copying == [act.KeepCopy("copy-1")]
    end_copy(stage, "copy-2")
    assert groups(stage)[-1] == ["step.finished", "step.finished", "workspace.kept"]
    assert not stage.copying
    assert stage.core.state.copies.packs == [
        Pack("copy-1", (pack_of("copy-1"),)),
        Pack("copy-2", (pack_of("copy-2"),)),
    ]


def test_a_long_step_has_copies_from_time_to_time(stage: Stage) -> None:
    main = stage.begin()
    stage.wait(31)
    assert not stage.copying, "nothing that may change files is under way"
    shell(main, 1)
    stage.wait(31)

    end_copy(stage, "copy-1")

    assert groups(stage)[-1] == ["workspace.kept"]
    assert stage.core.state.copies.latest is not None
    assert stage.core.state.copies.latest.during
    stage.wait(29)
    assert not stage.copying
    stage.wait(2)
    assert stage.copying == [act.KeepCopy("copy-1", during=True)]
    stage.end_shell()
    end_copy(stage)
    assert stage.copying == [act.KeepCopy("copy-1")], (
        "a copy that had begun before does not count for the step"
    )


def test_a_copy_that_fails_is_tried_again(stage: Stage) -> None:
    main = stage.begin()
    i = a_command(stage, main)
    end_copy(stage, problem="files change under it")
    assert not stage.copying

    stage.wait(1.1)
    end_copy(stage, "copy-1")

    assert main.answer(i) is not None
    assert groups(stage)[-1] == ["step.finished", "workspace.kept"]


@pytest.mark.requirement("fleet-copy-fails")
def test_no_step_finishes_without_its_copy_and_after_a_minute_the_run_stops(stage: Stage) -> None:
    main = stage.begin()
    i = a_command(stage, main)
    while not stage.hub.status:
        if stage.copying:
            end_copy(stage, problem="there is no room")
        stage.wait(1.0)

    assert stage.hub.status == "copies"
    assert 60 <= stage.clock.monotonic_ns() / 1e9 <= 63
    assert main.answer(i) is None
    assert not stage.outcomes()
    assert any("there is no room" in text for _, text in stage.shown)
    assert stage.entries("hub.stopped")[-1].data["reason"] == "copies"

    after = stage.again()
    assert len(stage.started_shells) == 1
    shell(after, 1)
    assert len(stage.started_shells) == 2, "the step was not finished, so it is executed again"


def test_a_copy_during_a_step_that_fails_stops_nothing(stage: Stage) -> None:
    main = stage.begin()
    shell(main, 1)
    for _ in range(5):
        stage.wait(31)
        end_copy(stage, problem="there is no room")

    stage.end_shell()
    end_copy(stage, problem="there is no room")
    assert not stage.hub.status, "the minute begins when a step needs the copy"


def test_a_command_whose_end_is_held_does_not_run_out_of_time(stage: Stage) -> None:
    main = stage.begin()
    args = s.ShellArgs(pipeline=[["make"]], timeout_s=5.0)
    i = main.step(1, "shell", args)
    stage.end_shell(ShellEnd(0))
    stage.wait(10)

    end_copy(stage, "copy-1")

    assert not stage.stopped_shells
    assert isinstance(main.answer(i), f.Answer)


def test_a_body_that_is_cancelled_while_it_is_held_has_one_outcome(stage: Stage) -> None:
    main = stage.begin()
    main.begin(1)
    main.done(1, "done")
    main.cancel(1)

    end_copy(stage, "copy-1")

    assert stage.outcomes() == {("main", 1): 1}


def test_a_worker_ends_after_what_is_held_of_it(stage: Stage) -> None:
    main = stage.begin()
    main.begin(1)
    main.done(1, "done")
    main.result("over")
    assert "worker.ended" not in stage.kinds()

    end_copy(stage, "copy-1")

    found = groups(stage)[-1]
    assert found.index("step.finished") < found.index("worker.ended") < found.index("workspace.kept")


def test_a_process_that_dies_after_a_body_is_not_the_end_of_that_body(stage: Stage) -> None:
    main = stage.begin()
    main.begin(1)
    main.done(1, "done")
    main.die()
    stage.hub.run_ready()
    assert stage.crew == [main]

    end_copy(stage, "copy-1")

    assert stage.outcomes() == {("main", 1): 1}
    assert len(stage.crew) == 2
    assert [past.n for past in stage.workers["main"].past] == [1]


def test_many_packs_become_one(stage: Stage) -> None:
    main = stage.begin()
    for n in range(1, PACKS_MOST + 2):
        shell(main, n)
        stage.end_shell()
        end_copy(stage, f"copy-{n}")
    last = f"copy-{PACKS_MOST + 1}"
    assert stage.copying == [act.PackCopy(last)]

    shell(main, PACKS_MOST + 2)
    stage.end_shell()
    stage.copying.reverse()
    end_copy(stage, "copy-later")
    stage.copying.clear()
    stage.hub.post(lambda core: copying(core).copy_packed(last, [stage.hub.journal.put_blob(b"all")]))
    stage.hub.run_ready()

    assert groups(stage)[-1] == ["workspace.packed"]
    assert stage.core.state.copies.packs == [
        Pack(last, (pack_of("all"),)),
        Pack("copy-later", (pack_of("copy-later"),)),
    ]
    assert stage.core.state.copies.first is not None
    assert stage.core.state.copies.first.copy == "copy-1"


def take_copy(stage: Stage, made: CopyMade) -> None:
    stage.hub.post(lambda core: copying(core).copy_made(made))
    stage.hub.run_ready()


def keep_sized(stage: Stage, main: Puppet, *sizes: int) -> None:
    """Finish a step for each size of a pack."""
    for n, size in enumerate(sizes, 1):
        shell(main, n)
        stage.end_shell()
        stage.copying.pop(0)
        pack = stage.hub.journal.put_blob(bytes([n]) * size)
        take_copy(stage, CopyMade(copy=f"copy-{n}", pack=[pack]))


@pytest.mark.parametrize(
    ("sizes", "packs"),
    [
        ([1, 300], False),
        ([4, 4, 4, 4], False),
        ([4, 4, 4, 4, 1], True),
        ([50, 60, 40, 30], False),
        ([50, 60, 40, 31], True),
    ],
)
def test_packs_that_have_outgrown_the_largest_one_become_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, sizes: list[int], *, packs: bool
) -> None:
    monkeypatch.setattr(desk, "PACKS_LARGE", 16)
    keep_sized(stage, stage.begin(), *sizes)

    assert stage.copying == ([act.PackCopy(f"copy-{len(sizes)}")] if packs else [])


@pytest.mark.requirement("fleet-copy-parts")
def test_a_large_pack_has_several_parts_in_the_line_of_its_copy(stage: Stage) -> None:
    main = stage.begin()
    shell(main, 1)
    stage.end_shell()
    end_copy(stage, "half-1", "copy-1")
    shell(main, 2)
    stage.end_shell()
    end_copy(stage, "half-2", "copy-2")

    assert groups(stage)[-1] == ["step.finished", "workspace.part", "workspace.kept"]
    assert stage.core.state.copies.packs == [
        Pack(f"copy-{n}", (pack_of(f"half-{n}"), pack_of(f"copy-{n}"))) for n in (1, 2)
    ]
    stage.hub.post(
        lambda core: copying(core).copy_packed(
            "copy-2", [stage.hub.journal.put_blob(b"%d" % n) for n in (1, 2)]
        )
    )
    stage.hub.run_ready()
    assert groups(stage)[-1] == ["workspace.part", "workspace.packed"]
    assert stage.core.state.copies.packs == [Pack("copy-2", (pack_of("1"), pack_of("2")))]


@pytest.mark.requirement("fleet-events")
def test_a_copy_is_reported_when_it_is_durable() -> None:
    told: list[dict[str, object]] = []
    telemetry = Telemetry()
    telemetry.attach("test", "copy.*", lambda name, counts, facts, _: told.append({**counts, **facts}))
    stage = Stage(keeps_copies=True, telemetry=telemetry)
    a_command(stage, stage.begin())
    assert not told

    stage.copying.clear()
    pack = [stage.hub.journal.put_blob(b"pack")]
    take_copy(stage, CopyMade(copy="c", pack=pack, took_us=70))

    assert told == [{"duration_ns": 70_000, "run": stage.core.state.run_id, "during": False}]


# Everything is killed after every line.


class Machines(Theatre):
    """A run whose machine dies; the next one has the files of the latest copy, and no others."""

    def __init__(
        self,
        roles: dict[str, Role],
        store: MemoryStore,
        copies: dict[str, frozenset[str]],
        clock: VirtualClock,
        dies_after: int | None = None,
    ) -> None:
        self.copies = copies
        super().__init__(roles, store, clock=clock, keeps_copies=True, dies_after=dies_after)
        latest = self.core.state.copies.latest
        self.files: set[str] = set()
        if latest is not None:
            self.files.update(copies[latest.copy])

    def start_shell(self, action: act.StartShell) -> None:
        self.files.add(action.key)
        super().start_shell(action)

    def keep_copy(self, action: act.KeepCopy | act.PackCopy) -> None:
        assert isinstance(action, act.KeepCopy)
        name = f"copy-{len(self.copies) + 1}"
        is_same = self.copies.get(action.parent) == frozenset(self.files)
        if not is_same:
            self.copies[name] = frozenset(self.files)
        found = None if is_same else made(self, name)
        self.hub.post(lambda core: copying(core).copy_made(found))


def first() -> Lines:
    yield Ask("delegate", s.DelegateArgs(workers=["prog:a", "prog:b"]), [{}, {}])
    yield Ask("shell", s.ShellArgs(pipeline=[["last"]]))
    return None


def two_commands() -> Lines:
    yield Ask("shell", s.ShellArgs(pipeline=[["one"]]))
    yield Ask("body", None, 1)
    yield Ask("shell", s.ShellArgs(pipeline=[["two"]]))
    return None


def one_that_lies() -> Lines:
    yield Ask("shell", s.ShellArgs(pipeline=[["one"]]))
    yield Ask("shell", s.ShellArgs(pipeline=[["lie"]], changes=False))
    yield Ask("sleep", s.SleepArgs(seconds=5.0))
    yield Ask("shell", s.ShellArgs(pipeline=[["two"]]))
    return None


@pytest.mark.requirement("fleet-copies-unneeded")
def test_what_a_step_has_changed_in_spite_of_its_word_is_part_of_the_next_copy_and_of_no_earlier_one() -> (
    None
):
    store, copies, clock = MemoryStore(), dict[str, frozenset[str]](), VirtualClock()
    roles: dict[str, Role] = {"main": one_that_lies}
    here = Machines(roles, store, copies, clock)
    here.begin()
    here.hub.run_ready()
    here.hub.flush()
    one, lie, two = (here.core.turn.key(here.core.state.workers["main"], "main", n) for n in (1, 2, 4))
    assert here.files == {one, lie}

    there = Machines(roles, store, copies, clock)
    assert there.files == {one}, "the files of the latest copy are there, and nothing else"
    there.begin()
    assert there.play() == "completed"

    assert len(there.executed) == 1, "a finished step is not executed again, whatever it said"
    assert copies[f"copy-{len(copies)}"] == {one, two}


ROLES: dict[str, Role] = {"main": first, "a": two_commands, "b": two_commands}


def finished_commands(entries: list[Entry]) -> Iterator[tuple[str, int]]:
    for entry in entries:
        if entry.kind == "step.finished" and entry.data["step"] == "shell":
            yield str(entry.data["p"]), int(str(entry.data["n"]))


@pytest.mark.requirement("fleet-copies")
def test_whenever_the_machine_dies_the_next_one_has_the_files_of_every_finished_step() -> None:
    line = 0
    status = ""
    while not status:
        line += 1
        store, copies, clock = MemoryStore(), dict[str, frozenset[str]](), VirtualClock()
        with_death = Machines(ROLES, store, copies, clock, dies_after=line)
        try:
            with_death.begin()
            status = with_death.play()
        except KilledError:
            pass
        after = Machines(ROLES, store, copies, clock)
        state = after.core.state
        for p, n in finished_commands(list(store.entries)):
            worker = state.worker_of(p)
            assert worker is not None
            assert after.core.turn.key(worker, p, n) in after.files, f"killed after line {line}"
        done = set(finished_commands(list(store.entries)))
        if after.core.state.ended is None:
            after.begin()
            assert after.play() == "completed"
            keys = {after.core.turn.key(state.workers[p], p, n) for p, n in done}
            again = {command.rpartition(" ")[2] for command in after.executed}
            assert not keys & again, f"killed after line {line}"
        assert len(after.files) == 5, f"killed after line {line}"
    assert line > 10
