"""A hub whose commits are confirmed late: it decides on meanwhile, and nothing leaves it before its commit is confirmed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.late_journal import LateJournal
from tests.unit.runtime.kernel.mail.test_mailroom import Outsider, send
from tests.unit.runtime.stage import Puppet, Stage, ask, delegate, raw, receive, shell

from bartack.config.timeouts import Timeouts
from bartack.errors import JournalOwnershipLostError, JournalPoisonedError
from bartack.runtime.memory.hub import MemoryHub
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state.worker_state import UnknownDecision

SEEDS = range(40)


class LateStage(Stage):
    """A stage on which the test confirms each commit."""

    journal: LateJournal

    def __init__(self) -> None:
        self.journals: list[LateJournal] = []
        super().__init__()

    def close(self) -> None:
        for journal in self.journals:
            journal.close()

    def _hub(self, dies_after: int | None, *, late: bool = False) -> MemoryHub:
        del dies_after, late
        self.journal = LateJournal(self.store, take_over=True, clock=self.clock)
        self.journals.append(self.journal)
        return MemoryHub(self.journal, self.clock, self, timeouts=Timeouts({}), settings=self.settings)

    def begin(self, dead_s: float = 0.0, unknown: UnknownDecision | None = None) -> Puppet:
        """Start the run and confirm everything up to the connection of its first worker."""
        if self.core.state.run is None:
            self._create()
        self.hub.begin(int(dead_s * 1e6), unknown)
        self.settle()
        return self.workers["main"]

    def confirm(self) -> None:
        """The commit under way is durable, and the hub learns it."""
        self.journal.confirm()
        self.turn()

    def settle(self) -> None:
        """Confirm every commit until none is left."""
        self.hub.run_ready()
        while self.journal.under_way:
            self.confirm()

    def turn(self) -> None:
        """The loop of the hub turns: something can be read."""
        self.hub.finish_turn()
        self.hub.run_ready()


@pytest.fixture
def stage() -> Iterator[LateStage]:
    stage = LateStage()
    yield stage
    stage.close()


def two(stage: LateStage) -> tuple[Puppet, Puppet]:
    delegate(stage.begin(), 1, ["a", "b"])
    stage.settle()
    return stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]


def answered(worker: Puppet) -> list[int]:
    return [frame.i for frame in worker.heard if isinstance(frame, f.Answer | f.Refusal)]


def note(stage: LateStage, worker: Puppet, n: int) -> None:
    worker.say(f.Note(p=worker.path, n=n, step="now", fp="x", v=raw(1)))


# Nothing leaves before its commit is confirmed.


def test_a_worker_is_answered_when_its_commit_is_confirmed(stage: LateStage) -> None:
    main = stage.begin()

    i = send(main, 1, "box", 5)

    assert main.answer(i) is None
    stage.turn()
    assert main.answer(i) is None
    stage.confirm()
    assert main.value(i) == f"m-{stage.entries('message.sent')[0].seq}"


def test_the_hub_decides_on_while_a_commit_is_under_way(stage: LateStage) -> None:
    a, b = two(stage)

    first = send(a, 1, "box", 1)
    staged = stage.journal.last_seq
    second = send(b, 1, "box", 2)
    third = receive(a, 2, "box")

    assert stage.journal.last_seq > staged > stage.journal.synced_seq
    assert (answered(a), answered(b)) == ([], [])
    stage.confirm()
    assert (answered(a), answered(b)) == ([first], [])
    stage.confirm()
    assert (answered(a), answered(b)) == ([first, third], [second])
    assert not stage.journal.under_way
    assert stage.journal.synced_seq == stage.journal.last_seq


def test_answers_to_one_worker_come_in_the_order_of_the_journal(stage: LateStage) -> None:
    main = stage.begin()
    waiting = [receive(main, n, f"box{n}") for n in (1, 2, 3)]
    stage.settle()
    outside = Outsider(stage)
    for n in (3, 1, 2):
        outside.ask("send", n, mailbox=f"box{n}")

    stage.settle()

    taken = [entry.data["n"] for entry in stage.entries("message.taken")]
    assert taken == [3, 1, 2]
    assert answered(main) == [waiting[2], waiting[0], waiting[1]]


def test_a_process_outside_is_answered_and_a_worker_handed_its_message_when_that_is_durable(
    stage: LateStage,
) -> None:
    main = stage.begin()
    waiting = receive(main, 1, "box")
    stage.settle()
    outside = Outsider(stage)

    sent = outside.ask("send", 5, mailbox="box")

    assert (outside.answer(sent), main.answer(waiting)) == (None, None)
    stage.settle()
    assert (outside.value(sent) is not None, main.value(waiting)) == (True, 5)


def test_an_agent_is_asked_and_a_person_notified_when_that_is_durable(stage: LateStage) -> None:
    main = stage.begin()
    send(main, 1, "box", 1)
    main.step(2, "think", s.ThinkArgs(name="", prompt="hello"))
    ask(main, 3)

    assert (stage.prompts, stage.shown) == ({}, [])
    stage.confirm()
    assert (stage.prompts, stage.shown) == ({}, [])
    stage.confirm()
    assert len(stage.prompts) == 1
    assert [text for _, text in stage.shown] == ["question q1: Go?"]


def test_a_run_ends_when_its_end_is_durable(stage: LateStage) -> None:
    main = stage.begin()
    main.result(5)
    while stage.core.state.ended is None:
        assert stage.hub.status == ""
        stage.confirm()

    assert stage.hub.status == ""
    stage.settle()
    assert stage.hub.status == "completed"


# Commands that need not wait for the disk.


def test_a_repeatable_command_starts_while_a_commit_is_under_way(stage: LateStage) -> None:
    a, b = two(stage)
    send(a, 1, "box", 1)

    shell(b, 1)
    shell(b, 2, once=True)

    assert len(stage.started_shells) == 1
    stage.settle()
    assert len(stage.started_shells) == 2


def test_a_command_waits_for_a_value_that_is_in_the_commit_under_way(stage: LateStage) -> None:
    main = stage.begin()
    note(stage, main, 1)
    send(main, 2, "box", 1)
    assert stage.journal.under_way

    shell(main, 3)

    assert stage.started_shells == []
    stage.confirm()
    stage.confirm()
    assert len(stage.started_shells) == 1
    shell(main, 4)
    assert len(stage.started_shells) == 2


def test_a_command_waits_for_a_value_that_came_after_the_start_of_the_commit(stage: LateStage) -> None:
    main = stage.begin()
    send(main, 1, "box", 1)
    note(stage, main, 2)

    shell(main, 3)
    stage.confirm()

    assert stage.started_shells == []
    stage.confirm()
    assert len(stage.started_shells) == 1


# Commits that fail, and hubs that die meanwhile.


@pytest.mark.parametrize("written", [False, True])
def test_a_commit_that_fails_while_later_entries_are_staged_stops_the_hub(
    stage: LateStage, written: bool
) -> None:
    a, b = two(stage)
    send(a, 1, "box", 1)
    send(b, 1, "box", 2)
    stage.journal.refuse(written=written)

    with pytest.raises(JournalPoisonedError):
        stage.turn()
    with pytest.raises(JournalPoisonedError):
        send(a, 2, "box", 3)

    assert (answered(a), answered(b)) == ([], [])
    stage.again()
    stage.settle()
    a, b = stage.workers[a.path], stage.workers[b.path]
    assert ([past.n for past in a.past], [past.n for past in b.past]) == ([1] if written else [], [])


@pytest.mark.parametrize("durable", [False, True])
def test_a_hub_that_dies_between_start_and_end_of_a_commit_has_notified_nobody(
    stage: LateStage, durable: bool
) -> None:
    main = stage.begin()
    sent = send(main, 1, "box", 5)
    if durable:
        stage.journal.confirm()
    dead = stage.journal

    again = stage.again()

    assert main.answer(sent) is None
    assert [past.n for past in again.past] == ([1] if durable else [])
    stage.settle()
    assert len(stage.entries("message.sent")) == int(durable)
    if not durable:
        dead.confirm()
        with pytest.raises(JournalOwnershipLostError):
            dead.finish_commit()
        assert stage.entries("message.sent") == []


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_answered_is_there_after_a_crash_at_any_moment(stage: LateStage, seed: int) -> None:
    chance = random.Random(seed)
    crew = list(two(stage))
    steps = {worker.path: 0 for worker in crew}
    known: dict[str, list[int]] = {worker.path: [] for worker in crew}
    asked: dict[tuple[str, int], int] = {}
    for _ in range(60):
        worker = chance.choice(crew)
        move = chance.random()
        if move < 0.5:
            steps[worker.path] += 1
            asked[worker.path, send(worker, steps[worker.path], "box", 1)] = steps[worker.path]
        elif move < 0.65:
            steps[worker.path] += 1
            note(stage, worker, steps[worker.path])
        elif stage.journal.under_way:
            stage.confirm()
        for one in crew:
            known[one.path] = [asked[one.path, i] for i in answered(one)]
    if stage.journal.under_way and chance.random() < 0.5:
        stage.journal.confirm()

    stage.again()
    stage.settle()

    for worker in crew:
        past = [past.n for past in stage.workers[worker.path].past]
        assert past == sorted(past) == list(range(1, len(past) + 1)), "a gap"
        assert known[worker.path] == sorted(known[worker.path])
        assert set(known[worker.path]) <= set(past), "an answer was lost"
