"""The core of the hub: commands, prompts, questions, timers, deadlines, and what workers do themselves."""

from __future__ import annotations

import base64

import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate, error, fields, plain, raw

from bartack.errors import AgentError, BartackError, QuestionAnsweredError, QuestionNotFoundError
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.desk import Settings
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.steps import MailboxArgs

MAKE = s.ShellArgs(pipeline=[["make"]])


def think(worker: Puppet, n: int, *, max_usd: float | None = None, timeout_s: float | None = None) -> int:
    args = s.ThinkArgs(prompt="what?", name="ask-it", max_usd=max_usd, timeout_s=timeout_s)
    return worker.step(n, "think", args)


def reply(usd: float = 0.0) -> s.ThinkOutcome:
    return s.ThinkOutcome(key="k", agent="a", text="that", usd=usd)


def ask(worker: Puppet, n: int, **options: object) -> int:
    given = {"question": "Go?", **{name: value for name, value in options.items() if value is not None}}
    worker.say(f.Step(i=100 + n, p=worker.path, n=n, step="ask", fp="fp-ask", a=raw(given)))
    return 100 + n


def answer(stage: Stage, number: str, value: object) -> None:
    stage.core.questions.answer(number, raw(value), "a person")
    stage.hub.finish_turn()


# Commands.


def test_a_command_runs_and_its_outcome_is_durable_before_it_is_told() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)
    assert stage.started_shells[0].args == MAKE

    stage.end_shell(ShellEnd(0, b"out\n", b"err\n"))

    assert main.value(i) == {"argv": ["make"], "status": 0, "stdout": "out\n", "stderr": "err\n"}
    assert stage.kinds()[-2:] == ["step.started", "step.finished"]


def test_output_that_is_no_text_comes_whole() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)

    stage.end_shell(ShellEnd(0, b"\xff\xfe"))

    assert base64.b64decode(str(fields(main.value(i))["stdout64"])) == b"\xff\xfe"


def test_a_command_that_fails_is_an_error_only_if_it_is_checked() -> None:
    stage = Stage()
    main = stage.begin()
    checked = main.step(1, "shell", MAKE)
    stage.end_shell(ShellEnd(2, stderr=b"no rule"))
    unchecked = main.step(2, "shell", s.ShellArgs(pipeline=[["make"]], check=False))
    stage.end_shell(ShellEnd(2))

    assert main.error(checked) == "ShellError"
    assert fields(main.value(unchecked))["status"] == 2


def test_a_command_that_could_not_start_is_an_error() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)

    stage.end_shell(ShellEnd(127, problem="there is no program 'make'"))

    assert main.error(i) == "ShellError"


def test_a_command_that_takes_too_long_is_ended_first() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", s.ShellArgs(pipeline=[["make"]], timeout_s=3.0))

    stage.wait(3.0)
    assert (stage.stopped_shells, main.answer(i)) == ([1], None)
    stage.end_shell(ShellEnd(-15))

    assert main.error(i) == "ShellTimeoutError"


def test_a_command_that_is_cancelled_is_ended_first() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)

    main.cancel(1)
    assert (stage.stopped_shells, main.answer(i)) == ([1], None)
    stage.end_shell(ShellEnd(-15))

    assert main.error(i) == "StepCancelledError"


def test_a_command_that_says_too_much_is_ended() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)

    stage.hub.post(lambda core: core.shell_too_large(1))
    stage.hub.run_ready()
    assert stage.stopped_shells == [1]
    stage.end_shell(ShellEnd(-9))

    assert main.error(i) == "MessageTooLargeError"


@pytest.mark.parametrize("once", [False, True])
def test_a_command_that_died_with_its_keeper_runs_again_unless_it_must_not(once: bool) -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", s.ShellArgs(pipeline=[["make"]], once=once))

    stage.hub.post(lambda core: core.shell_lost(1))
    stage.hub.run_ready()

    assert len(stage.started_shells) == (1 if once else 2)
    if once:
        assert main.error(i) == "OutcomeUnknownError"
    else:
        assert stage.started_shells[0].key == stage.started_shells[1].key


def test_a_command_in_flight_when_the_hub_died_runs_again_with_its_key() -> None:
    stage = Stage()
    main = stage.begin()
    main.step(1, "shell", MAKE)
    stage.hub.flush()

    main = stage.again()
    i = main.step(1, "shell", MAKE)
    stage.end_shell()

    assert main.value(i)
    assert len({start.key for start in stage.started_shells}) == 1
    assert stage.outcomes()["main", 1] == 1


def test_a_once_command_does_not_start_before_it_is_written_down_and_another_does() -> None:
    stage = Stage()
    main = stage.begin()
    for n, once in ((1, False), (2, True)):
        args = s.ShellArgs(pipeline=[["make"]], once=once)
        stage.hub.say(main.number, f.Step(i=n, p="main", n=n, step="shell", fp="x", a=raw(args)))
        stage.hub._events.popleft()(stage.core)

    assert [type(action).__name__ for action in stage.core.turn.take_at_once()] == ["StartShell"]
    assert stage.core.turn.must_sync


def test_no_effect_leaves_before_what_the_program_saw_is_durable() -> None:
    stage = Stage()
    main = stage.begin()
    stage.hub.say(main.number, f.Note(p="main", n=1, step="now", fp="x", v=raw(1)))
    stage.hub.say(main.number, f.Step(i=1, p="main", n=2, step="shell", fp="x", a=raw(MAKE)))
    for _ in range(2):
        stage.hub._events.popleft()(stage.core)

    assert stage.core.turn.take_at_once() == []
    assert stage.core.turn.must_sync
    stage.hub.finish_turn()
    assert [entry.kind for entry in stage.store.entries][-2:] == ["step.finished", "step.started"]
    assert len(stage.started_shells) == 1


# Prompts and money.


def test_a_prompt_is_written_down_before_the_agent_is_called() -> None:
    stage = Stage()
    main = stage.begin()
    i = think(main, 1)
    assert stage.store.entries[-1].kind == "step.started"

    stage.end_prompt(reply())

    assert fields(main.value(i))["text"] == "that"


def test_an_agent_that_fails_is_an_error() -> None:
    stage = Stage()
    main = stage.begin()
    i = think(main, 1)

    stage.end_prompt(AgentError("a", "no credit"))

    assert main.error(i) == "AgentError"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_prompt_that_is_late_or_cancelled_is_given_up_first(cancelled: bool) -> None:
    stage = Stage()
    main = stage.begin()
    i = think(main, 1, timeout_s=60.0)

    if cancelled:
        main.cancel(1)
    else:
        stage.wait(60.0)
    assert (stage.stopped_prompts, main.answer(i)) == ([1], None)
    stage.end_prompt(AgentError("a", "given up"))

    assert main.error(i) == ("StepCancelledError" if cancelled else "StepTimeoutError")


def test_the_same_prompt_three_times_has_three_keys_and_a_second_attempt_the_same() -> None:
    stage = Stage()
    main = stage.begin()
    for n in range(1, 4):
        think(main, n)
    keys = [start.key for start in stage.prompts.values()]
    assert len(set(keys)) == 3

    main = stage.again()
    think(main, 1)

    again = next(iter(stage.prompts.values()))
    assert (again.key, again.attempt) == (keys[0], 2)


def test_money_is_reserved_while_a_prompt_runs_and_settled_when_it_ends() -> None:
    stage = Stage(settings=Settings(max_usd=5.0, reserve_usd=2.0))
    main = stage.begin()
    think(main, 1, max_usd=3.0)
    running = main.value(main.step(2, "budget"))
    stage.end_prompt(reply(0.5))
    settled = main.value(main.step(3, "budget"))

    assert running == {"limit_usd": 5.0, "spent_usd": 0.0, "reserved_usd": 3.0}
    assert settled == {"limit_usd": 5.0, "spent_usd": 0.5, "reserved_usd": 0.0}


@pytest.mark.requirement("budget-is-used-to-its-end")
def test_a_prompt_gets_what_is_left_of_the_budget_until_nothing_is() -> None:
    stage = Stage(settings=Settings(max_usd=5.0, reserve_usd=2.0))
    main = stage.begin()
    think(main, 1)
    think(main, 2, max_usd=9.0)

    assert [prompt.reserved_usd for prompt in stage.prompts.values()] == [2.0, 3.0]
    assert main.error(think(main, 3)) == "BudgetExceededError"
    stage.end_prompt(reply(1.5))
    think(main, 4)
    assert [prompt.reserved_usd for prompt in stage.prompts.values()] == [3.0, 0.5]


@pytest.mark.parametrize(
    ("spent", "wanted", "refused"),
    [(4.96, None, True), (4.94, None, False), (4.96, 0.01, False), (5.0, 0.0, True)],
)
def test_a_rest_of_the_budget_that_is_worth_no_call_buys_none(
    spent: float, wanted: float | None, refused: bool
) -> None:
    stage = Stage(settings=Settings(max_usd=5.0, min_reserve_usd=0.05))
    main = stage.begin()
    think(main, 1, max_usd=5.0)
    stage.end_prompt(reply(spent))

    asked = think(main, 2, max_usd=wanted)

    assert (len(stage.prompts) == 0) == refused
    if refused:
        assert main.error(asked) == "BudgetExceededError"


def test_a_budget_that_is_less_than_what_a_call_is_worth_buys_one_call() -> None:
    stage = Stage(settings=Settings(max_usd=0.03, min_reserve_usd=0.05))
    think(stage.begin(), 1)

    assert [prompt.reserved_usd for prompt in stage.prompts.values()] == [0.03]


def test_what_an_attempt_before_reserved_does_not_stand_in_the_way_of_the_next() -> None:
    stage = Stage(settings=Settings(max_usd=5.0))
    think(stage.begin(), 1, max_usd=4.0)

    main = stage.again()
    i = think(main, 1, max_usd=4.0)
    stage.end_prompt(reply(1.0))

    assert main.value(i)
    assert (stage.core.state.spent_usd, stage.core.state.reserved_usd) == (1.0, 0.0)


def test_a_worker_that_ends_for_good_reserves_nothing_and_asks_nothing() -> None:
    stage = Stage(settings=Settings(max_usd=5.0))
    main = stage.begin()
    delegate(main, 1, ["a", "b"])
    think(stage.workers["main/1.1:a"], 1, max_usd=1.0)
    ask(stage.workers["main/1.2:b"], 1)

    main.cancel(1)

    assert stage.core.state.reserved_usd == 0.0
    assert stage.core.state.questions == {}
    with pytest.raises(QuestionAnsweredError):
        answer(stage, "q1", "yes")


# Questions.


def test_a_question_waits_for_its_answer_and_the_first_one_counts() -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1)
    assert stage.core.state.status == "waiting"

    answer(stage, "q1", "yes")

    assert main.value(i) == "yes"
    assert stage.entries("step.finished")[-1].data["by"] == "a person"
    with pytest.raises(QuestionAnsweredError):
        answer(stage, "q1", "no")
    with pytest.raises(QuestionNotFoundError):
        answer(stage, "q2", "no")


def test_a_question_is_the_same_one_after_a_restart() -> None:
    stage = Stage()
    ask(stage.begin(), 1)

    main = stage.again()
    assert list(stage.core.state.questions) == ["q1"]
    i = ask(main, 1)
    answer(stage, "q1", "yes")

    assert main.value(i) == "yes"
    assert len(stage.entries("step.started")) == 1


def test_a_question_that_was_answered_while_its_worker_replays_is_not_asked_again() -> None:
    stage = Stage()
    ask(stage.begin(), 1)
    main = stage.again()

    answer(stage, "q1", "yes")
    ask(main, 1)

    assert [plain(past.v) for past in main.past] == ["yes"]
    assert list(stage.core.state.questions) == []


@pytest.mark.parametrize(
    ("kind", "typed", "seen"),
    [
        ("bool", "y", True),
        ("bool", "No", False),
        ("int", "12", 12),
        ("float", 3, 3.0),
        ("str", "12", "12"),
        ("json", {"a": 1}, {"a": 1}),
    ],
)
def test_an_answer_is_read_as_what_was_asked_for(kind: str, typed: object, seen: object) -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1, type=kind)

    answer(stage, "q1", typed)

    assert main.value(i) == seen


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        ({"type": "int"}, "many"),
        ({"type": "int"}, str(2**70)),
        ({"type": "float"}, "nan"),
        ({"type": "json"}, {"count": 2**70}),
        ({"options": ["a", "b"]}, "c"),
    ],
)
def test_an_answer_that_does_not_fit_leaves_the_question_open(
    options: dict[str, object], typed: object
) -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1, **options)

    with pytest.raises(BartackError, match="answer"):
        answer(stage, "q1", typed)

    assert main.answer(i) is None
    assert list(stage.core.state.questions) == ["q1"]


@pytest.mark.parametrize("number", ["", "q", "q0", "q2", "q²", "q01", "q" + "1" * 5000])
def test_a_question_that_never_was_is_not_found(number: str) -> None:
    stage = Stage()
    ask(stage.begin(), 1)

    with pytest.raises(QuestionNotFoundError):
        answer(stage, number, "yes")


@pytest.mark.parametrize("default", [None, "maybe"])
def test_a_question_may_have_a_deadline(default: str | None) -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1, timeout_s=60.0, default=default)

    stage.wait(60.0)

    if default is None:
        assert main.error(i) == "QuestionTimeoutError"
    else:
        assert main.value(i) == default
    assert stage.core.state.status == "running"


@pytest.mark.parametrize("default", [None, "maybe"])
def test_a_run_without_people_asks_nobody(default: str | None) -> None:
    stage = Stage(settings=Settings(no_input=True))
    main = stage.begin()
    i = ask(main, 1, default=default)

    if default is None:
        assert main.error(i) == "NoAnswerError"
    else:
        assert main.value(i) == default


def test_a_cancelled_question_is_no_longer_open() -> None:
    stage = Stage()
    main = stage.begin()
    i = ask(main, 1)

    main.cancel(1)

    assert main.error(i) == "StepCancelledError"
    assert stage.core.state.status == "running"


# Timers and deadlines.


def test_a_timer_fires_at_its_moment_however_often_the_hub_was_restarted() -> None:
    stage = Stage()
    stage.begin().step(1, "sleep", s.SleepArgs(seconds=100.0))
    stage.hub.flush()
    stage.wait(30.0)

    main = stage.again(dead_s=50.0)
    i = main.step(1, "sleep", s.SleepArgs(seconds=100.0))
    stage.wait(19.0)
    assert main.answer(i) is None
    stage.wait(1.1)

    assert main.value(i) is None
    assert stage.outcomes()["main", 1] == 1


def test_a_timer_that_passed_while_nobody_ran_the_run_fires_at_once() -> None:
    stage = Stage()
    stage.begin().step(1, "sleep", s.SleepArgs(seconds=100.0))
    stage.hub.flush()

    main = stage.again(dead_s=1000.0)
    i = main.step(1, "sleep", s.SleepArgs(seconds=100.0))
    stage.wait(0.001)

    assert main.value(i) is None


def test_a_timer_for_a_moment_that_has_passed_is_over() -> None:
    main = Stage().begin()

    assert main.value(main.step(1, "sleep", s.SleepArgs(until=1))) is None
    assert main.value(main.step(2, "sleep", s.SleepArgs(seconds=0.0))) is None


def test_a_deadline_scope_runs_out_and_that_is_its_outcome() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, "timeout", timeout_s=10.0)
    left = main.value(main.step(2, "left"))

    stage.wait(10.0)
    main.say(f.Note(p="main", n=1, step="timeout", fp="fp-timeout", v=raw(None)))

    assert left == 10.0
    assert main.pushed(f.Fired) == 1
    assert stage.outcomes()["main", 1] == 1
    assert [plain(past.v) for past in stage.again().past] == [10.0, "fired"]


def test_a_deadline_scope_that_is_left_in_time_does_not_run_out() -> None:
    stage = Stage()
    main = stage.begin()
    main.begin(1, "timeout", timeout_s=10.0)
    main.say(f.Note(p="main", n=1, step="timeout", fp="fp-timeout", v=raw(None)))

    stage.wait(20.0)

    assert main.pushed(f.Fired) == 0
    assert main.value(main.step(2, "left")) is None


def test_a_deadline_scope_counts_the_time_the_hub_was_alive() -> None:
    stage = Stage()
    stage.begin().begin(1, "timeout", timeout_s=100.0)
    stage.hub.flush()
    stage.wait(60.0)

    main = stage.again(dead_s=10_000.0)
    main.begin(1, "timeout", timeout_s=100.0)

    assert main.value(main.step(2, "left")) == pytest.approx(40.0)
    stage.wait(41.0)
    assert main.pushed(f.Fired) == 1


def test_the_innermost_deadline_around_a_step_counts() -> None:
    main = Stage().begin()
    main.begin(1, "timeout", timeout_s=100.0)
    main.begin(1, "timeout", timeout_s=10.0, p="main.2.1")
    main.begin(1, "timeout", timeout_s=5.0, p="main.2.2")

    assert main.value(main.step(2, "left", p="main.2.1")) == 10.0
    assert main.value(main.step(3, "left")) == 100.0


def test_deadlines_stand_still_while_somebody_replays_but_not_for_ever() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a", "b"])
    first, second = stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]
    first.value(first.step(1, "send", MailboxArgs(mailbox="box"), 1))
    waiting = second.step(1, "receive", s.ReceiveArgs(mailbox="other", timeout_s=30.0))
    stage.kill(first.path)

    stage.clock.advance(50.0)
    stage.hub.tick()
    assert second.answer(waiting) is None
    stage.clock.advance(41.0)
    stage.hub.tick()

    assert second.error(waiting) == "ReceiveTimeoutError"


# What workers do themselves.


def test_what_a_worker_noted_and_printed_is_durable_with_the_next_commit_and_shown_then() -> None:
    stage = Stage()
    main = stage.begin()
    main.say(f.Note(p="main", n=1, step="now", fp="n", v=raw(1)))
    main.say(f.Note(p="main", n=2, step="read", fp="r", e=error("FileAccessError")))
    main.say(f.Out(p="main", n=3, channel="print", text="hello"))
    assert (stage.core.turn.must_sync, stage.shown) == (False, [])

    main.step(4, "send", s.SendArgs(mailbox="box"), 1)

    assert stage.shown == [("print", "hello")]
    again = stage.again()
    assert [past.step for past in again.past] == ["now", "read", "print", "send"]
    assert stage.shown == [("print", "hello")]


def test_a_body_that_ends_at_once_is_one_entry() -> None:
    stage = Stage()
    main = stage.begin()
    stage.hub.say(main.number, f.Begin(p="main", n=1, step="body", fp="b", about="fetch"))
    stage.hub.say(main.number, f.Done(i=1, p="main", n=1, step="body", fp="b", v=raw(7)))
    for _ in range(2):
        stage.hub._events.popleft()(stage.core)
    stage.hub.finish_turn()

    assert main.value(1) == 7
    assert stage.kinds()[-2:] == ["hub.started", "step.finished"]


def test_a_body_that_begins_and_is_given_up_in_one_turn_is_cancelled() -> None:
    stage = Stage()
    main = stage.begin()
    stage.hub.say(main.number, f.Begin(p="main", n=1, step="body", fp="b", about="fetch"))
    stage.hub.say(main.number, f.Cancel(p="main", n=1, reason="another branch failed"))
    for _ in range(2):
        stage.hub._events.popleft()(stage.core)
    stage.hub.finish_turn()

    assert stage.kinds()[-2:] == ["step.started", "step.failed"]


def test_a_body_in_flight_when_the_hub_died_is_executed_again() -> None:
    stage = Stage()
    stage.begin().begin(1)
    stage.hub.flush()

    main = stage.again()
    main.begin(1)
    i = main.done(1, "result")

    assert main.value(i) == "result"
    assert stage.outcomes()["main", 1] == 1


def test_an_append_goes_on_where_it_began() -> None:
    stage = Stage()
    main = stage.begin()
    assert main.value(main.begin(1, "append", asked=True, a={"path": "f", "offset": 7})) == {
        "path": "f",
        "offset": 7,
    }

    main = stage.again()

    assert (
        fields(main.value(main.begin(1, "append", asked=True, a={"path": "f", "offset": 99})))["offset"] == 7
    )


def test_a_body_that_failed_is_told_with_its_error() -> None:
    main = Stage().begin()
    main.begin(1)

    assert main.error(main.done(1, e=error("KeyError"))) == "KeyError"


# Anything else.


def test_a_step_that_nobody_knows_is_an_error_of_that_step() -> None:
    main = Stage().begin()

    assert main.error(main.step(1, "dance")) == "UnknownRequestError"


def test_arguments_that_do_not_fit_are_an_error_of_that_step() -> None:
    main = Stage().begin()

    main.say(f.Step(i=1, p="main", n=1, step="shell", fp="x", a=raw({"pipeline": "rm -rf"})))

    assert main.error(1) == "FrameError"


def test_a_step_of_a_branch_that_was_cancelled_before_is_not_begun() -> None:
    stage = Stage()
    main = stage.begin()

    i = main.step(1, "shell", MAKE, cancelled=True)

    assert main.error(i) == "StepCancelledError"
    assert stage.started_shells == []


def test_a_cancellation_that_comes_behind_the_outcome_changes_nothing() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", MAKE)
    stage.end_shell()

    main.cancel(1)

    assert main.value(i)
    assert stage.outcomes()["main", 1] == 1
