"""What a journal adds up to: the same when it is written and when it is read again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.runtime.stage import Stage, delegate, error, raw

from bartack.journal import Entry
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import APPLY, apply_all
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Value


def picture(state: State) -> dict[str, object]:
    """Everything of a state that somebody could depend on."""
    return {
        "status": state.status,
        "failure": state.failure,
        "suppressed": state.suppressed,
        "hub": state.hub,
        "dead_us": state.dead_us,
        "money": (state.spent_usd, state.reserved_usd),
        "questions": (state.questions, state.questions_asked),
        "children": {step: paths for step, paths in state.children.items() if paths},
        "held": state.held,
        "undone": state.undone,
        "result": shown(state.result),
        "workers": {path: worker_picture(state, path) for path in state.workers},
        "mailboxes": {name: mailbox_picture(state, name) for name in state.mailboxes},
    }


def worker_picture(state: State, path: str) -> dict[str, object]:
    worker = state.workers[path]
    hidden = {"open", "arguments", "result", "blame"}
    facts = {name: value for name, value in vars(worker).items() if name not in hidden}
    facts["blame"] = vars(worker.blame)
    # Which workers have a process is the business of the hub that runs them.
    facts["status"] = "alive" if worker.status in {"waiting", "running"} else worker.status
    opened = {
        step: {name: getattr(value, name) for name in value.__struct_fields__ if name not in {"asked", "at"}}
        for step, value in worker.open.items()
    }
    return {**facts, "history": list(worker.history), "open": opened, "result": shown(worker.result)}


def mailbox_picture(state: State, name: str) -> dict[str, object]:
    mailbox = state.mailboxes[name]
    queued = [(message.id, message.order, message.attempt) for message in mailbox.queued()]
    counts = (mailbox.sent, mailbox.delivered, mailbox.dropped, mailbox.held, mailbox.scheduled)
    bounds = (mailbox.capacity, mailbox.max_bytes, mailbox.overflow, mailbox.closed)
    return {"queued": queued, "counts": counts, "bounds": bounds, "size": mailbox.size_bytes}


def shown(value: Value) -> object:
    return None if value.raw is None else bytes(value.raw)


def read_again(entries: list[Entry]) -> State:
    state = State()
    apply_all(state, entries)
    return state


# Stories, each a run in the middle of something.


def messages(stage: Stage) -> None:
    main = stage.begin()
    main.step(1, "declare", s.DeclareArgs(mailbox="box", capacity=2, overflow="drop_oldest"))
    for n in range(2, 6):
        main.step(n, "send", s.SendArgs(mailbox="box", key=f"k{n}"), n)
    main.step(6, "receive", s.ReceiveArgs(mailbox="box", hold=True))
    main.step(7, "nack", s.AckArgs(mailbox="box", id="m-7", ok=False))
    later = stage.clock.now_us() + 1_000_000
    main.step(8, "send", s.SendArgs(mailbox="other", not_before=later), "later")
    main.step(9, "close", s.MailboxArgs(mailbox="shut"))
    main.step(10, "drain", s.DrainArgs(mailbox="box", max=1))
    main.step(11, "receive", s.ReceiveArgs(mailbox="box", hold=True))
    main.step(12, "call", s.CallMailboxArgs(mailbox="calls"), "ping")
    stage.wait(2.0)


def workers(stage: Stage) -> None:
    main = stage.begin()
    delegate(main, 1, ["a", "b"], on_failure="collect", limit=1)
    stage.workers["main/1.1:a"].fail()
    delegate(main, 2, ["c"], kind="spawn")
    child = stage.workers["main/2:c"]
    main.step(3, "stop", s.StopArgs(path=child.path, reason="enough"))
    child.step(1, "shell", s.ShellArgs(pipeline=[["x"]]))
    other = stage.workers["main/1.2:b"]
    other.begin(1)
    stage.kill(other.path)


def failures(stage: Stage) -> None:
    main = stage.begin()
    main.step(1, "shell", s.ShellArgs(pipeline=[["x"]]), p="main.1.1")
    delegate(main, 1, ["a"], p="main.1.2")
    stage.end_shell(ShellEnd(1))
    main.cancel(1, p="main.1.2")
    main.say(f.Out(p="main", n=2, channel="print", text="oh"))
    main.fail(error("ShellError"), ("main.1.1", 1))
    main = stage.again(dead_s=5.0)
    main.step(1, "fail", s.FailArgs(message="no"), p="main.1.1")
    main.step(3, "shell", s.ShellArgs(pipeline=[["rm"]]))


def money(stage: Stage) -> None:
    main = stage.begin()
    main.step(1, "think", s.ThinkArgs(prompt="p", name="n", max_usd=1.0))
    main.step(2, "think", s.ThinkArgs(prompt="p", name="n", max_usd=2.0))
    stage.end_prompt(s.ThinkOutcome(key="k", agent="a", usd=0.25))
    main.step(3, "ask", s.AskArgs(question="q"))
    main.begin(4, asked=True)
    main.done(4, e=error("OSError"), retry_in_s=60.0)
    main.step(5, "sleep", s.SleepArgs(seconds=60.0))


def ended(stage: Stage) -> None:
    stage.begin().result({"ok": True})


def interrupted(stage: Stage) -> None:
    stage.begin()
    stage.core.stop("interrupted")
    stage.hub.finish_turn()


STORIES = [messages, workers, failures, money, ended, interrupted]


@pytest.mark.parametrize("story", STORIES)
def test_the_state_that_was_written_is_the_state_that_is_read(story: Callable[[Stage], None]) -> None:
    stage = Stage(settings=Settings(max_usd=10.0))

    story(stage)

    assert picture(read_again(stage.entries())) == picture(stage.core.state)


@pytest.mark.parametrize("story", STORIES)
def test_every_beginning_of_a_journal_adds_up_to_something(story: Callable[[Stage], None]) -> None:
    stage = Stage(settings=Settings(max_usd=10.0))
    story(stage)
    entries = stage.entries()

    for length in range(len(entries) + 1):
        picture(read_again(entries[:length]))


def test_every_kind_of_entry_is_taken_into_account() -> None:
    assert set(APPLY) == set(e.ENTRY_TYPES.values())


def test_entries_that_are_not_the_hubs_are_passed_over() -> None:
    stage = Stage()
    stage.begin()
    stage.hub.journal.append("somebody.else", {"x": 1})

    assert picture(read_again(stage.entries())) == picture(stage.core.state)


def test_a_branch_belongs_to_its_worker_however_deep_it_is() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a"], p="main.4.1.2.7")
    state = stage.core.state

    assert state.worker_of("main.4.1") is state.workers["main"]
    assert state.worker_of("main.4.1.2.7") is state.workers["main"]
    assert state.worker_of("main.4.1.2.7/1.1:a.1.1") is state.workers["main.4.1.2.7/1.1:a"]
    assert state.worker_of("other") is None


def test_a_large_value_is_kept_beside_the_journal_and_comes_back() -> None:
    stage = Stage()
    main = stage.begin()
    text = "x" * 100_000
    main.step(1, "shell", s.ShellArgs(pipeline=[["x"]]))
    stage.end_shell(ShellEnd(0, text.encode()))

    again = stage.again()

    (past,) = again.past
    assert past.ref is not None
    assert text.encode() in stage.store.get(past.ref)


def test_the_output_of_clean_up_is_no_history() -> None:
    stage = Stage()
    main = stage.begin()
    main.step(1, "fail", s.FailArgs(message="no"))
    main.say(f.Out(p="main", n=2, channel="log", text="tidied"))
    main.say(f.Note(p="main", n=3, step="now", fp="n", v=raw(1)))

    assert list(stage.worker("main").history) == []
