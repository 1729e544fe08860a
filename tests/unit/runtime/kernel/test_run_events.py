"""What telemetry is told of workers, steps, processes, failures and waits: every event by a real action."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.runtime.kernel.mail.test_supervised import pair
from tests.unit.runtime.kernel.test_mail_events import Told, last, listening, names
from tests.unit.runtime.stage import Puppet, Stage, fields, raw

from bartack.errors import AgentError
from bartack.messaging.options import Terms
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.workers import ProcessEnd
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.telemetry import Event, StepStart, Telemetry
from bartack.telemetry.catalogue import MailboxSent, SendStart, WorkerStart

SHELL = s.ShellArgs(pipeline=[["make"]])


def only(told: Told, name: str) -> list[dict[str, object]]:
    return [facts for heard, facts in told if heard == name]


def receive(puppet: Puppet, n: int, timeout_s: float | None = None) -> int:
    return puppet.step(n, "receive", s.ReceiveArgs(mailbox="box", timeout_s=timeout_s))


def test_a_run_and_its_worker_are_told_from_their_begin_to_their_end() -> None:
    stage, told = listening()
    main = stage.begin()
    stage.wait(2.0)
    main.result("done")
    stage.hub.run_ready()

    run = stage.core.state.run_id
    assert last(told, "run.start") == {"run": run, "hub": 1}
    assert last(told, "worker.start") == {"run": run, "worker": "main", "parent": ""}
    assert last(told, "worker.stop") == {"duration_ns": 2_000_000_000, "run": run, "worker": "main"}
    assert last(told, "run.stop") == {"duration_ns": 2_000_000_000, "run": run, "status": "completed"}


def test_a_resumed_run_begins_again_with_the_workers_that_are_not_through() -> None:
    stage, told = listening()
    stage.begin()
    assert last(told, "run.start")["hub"] == 1
    told.clear()
    stage.again(dead_s=5.0)

    assert last(told, "run.start")["hub"] == 2
    assert [facts["worker"] for facts in only(told, "worker.start")] == ["main"]


def test_a_hub_that_stops_in_order_ends_its_part_of_the_run() -> None:
    stage, told = listening("run.*")
    stage.begin()
    stage.core.stop("interrupted")
    stage.hub.flush()

    assert (told[-1][0], told[-1][1]["status"]) == ("run.stop", "interrupted")


def test_a_step_is_told_with_its_kind_and_how_long_it_took() -> None:
    stage, told = listening("step.*")
    main = stage.begin()
    main.step(1, "shell", SHELL)
    stage.wait(3.0)
    stage.end_shell(ShellEnd(0))
    main.step(2, "shell", SHELL)
    stage.end_shell(ShellEnd(1))

    run = stage.core.state.run_id
    facts = {"run": run, "worker": "main", "step": "main:1", "kind": "shell"}
    assert told[0] == ("step.start", {"attempt": 1, **facts})
    assert told[1] == ("step.stop", {"duration_ns": 3_000_000_000, **facts})
    assert told[3] == (
        "step.exception",
        {**facts, "duration_ns": 0, "step": "main:2", "error": "ShellError"},
    )
    assert "make" not in repr(told), "a command is a payload"


def test_the_step_of_a_branch_belongs_to_its_worker() -> None:
    stage, told = listening("step.start")
    main = stage.begin()
    main.step(1, "shell", SHELL, p="main.1.2")
    stage.hub.flush()

    assert (told[0][1]["worker"], told[0][1]["step"]) == ("main", "main.1.2:1")


def test_a_failure_is_told_with_how_soon_everybody_knew_and_who_saw_it() -> None:
    stage, told = listening()
    main = stage.begin()
    calls: list[dict[str, list[int]]] = [{"args": []}] * 3
    main.step(1, "delegate", s.DelegateArgs(workers=["m:one", "m:two", "m:three"]), calls)
    one, two = stage.workers["main/1.1:one"], stage.workers["main/1.2:two"]
    receive(two, 1)
    one.fail()
    stage.hub.run_ready()
    stage.clock.advance(0.002)
    two.fail(f.ErrorData(type="bartack.errors:SessionFailedError", message=""))
    stage.workers["main/1.3:three"].fail()
    stage.hub.run_ready()
    stage.hub.flush()

    failed = last(told, "session.failed")
    assert (failed["worker"], failed["error"]) == ("main/1.1:one", "ValueError")
    seen = [facts for facts in only(told, "session.failure_seen") if facts["worker"] == two.path]
    assert [(facts["error"], facts["latency_ns"]) for facts in seen] == [("ValueError", 2_000_000)]
    assert len(only(told, "session.failed")) == 1, "what fails behind it is not the cause"
    assert last(told, "worker.exception")["worker"] == "main/1.1:one"


def test_the_latency_of_a_failure_is_the_time_until_it_was_durable() -> None:
    stage, told = listening("session.failed")
    main = stage.begin()
    stage.hub.say(main.number, f.Failed(e=f.ErrorData(type="builtins:ValueError", message="no")))
    stage.hub._events.popleft()(stage.core)
    assert told == []
    stage.clock.advance(0.001)
    stage.hub.finish_turn()

    assert told[0][1]["latency_ns"] == 1_000_000


def test_the_processes_of_workers_are_told_like_the_children_of_a_supervisor() -> None:
    stage, told = listening("supervisor.*")
    main = stage.begin()
    stage.wait(1.0)
    main.die("signal:SIGSEGV")
    stage.hub.run_ready()

    run = stage.core.state.run_id
    common = {"supervisor": "run", "child": "main", "run": run}
    assert told == [
        ("supervisor.child_started", {"duration_ns": 0, "incarnation": 1, **common}),
        (
            "supervisor.child_ended",
            {
                "duration_ns": 1_000_000_000,
                "incarnation": 1,
                "reason": "signal:SIGSEGV",
                "normal": False,
                **common,
            },
        ),
        (
            "supervisor.child_restarted",
            {
                "restarts": 1,
                "delay_ns": 0,
                "incarnation": 2,
                "reason": "signal:SIGSEGV",
                "strategy": "one_for_one",
                **common,
            },
        ),
        ("supervisor.child_started", {"duration_ns": 0, "incarnation": 2, **common}),
    ]


def test_a_worker_that_cannot_be_kept_alive_is_told_once_as_escalated() -> None:
    stage, told = listening("supervisor.*")
    stage.shy = set()
    stage.begin()
    for _ in range(3):
        stage.workers["main"].die()
        stage.hub.run_ready()
        stage.wait(2.0)

    assert [(facts["restarts"], facts["reason"]) for facts in only(told, "supervisor.escalated")] == [
        (3, "signal:SIGKILL")
    ]
    assert len(only(told, "supervisor.child_restarted")) == 2


def test_a_parent_program_is_told_like_a_child_and_fails_the_session_when_it_dies_too_often() -> None:
    stage, told = listening("supervisor.*")
    stage.begin()
    stage.core.parent_died("parent of commands", 1, (3, 5.0), restarted=True)
    assert last(told, "supervisor.child_restarted")["child"] == "parent of commands"

    stage.core.parent_died("parent of commands", 4, (3, 5.0), restarted=False)
    stage.hub.finish_turn()

    assert last(told, "supervisor.escalated")["child"] == "parent of commands"
    failure = stage.core.state.failure
    assert failure is not None
    assert failure.error.type.endswith(":SupervisorExhaustedError")


def test_processes_of_an_earlier_hub_that_were_killed_are_recorded_and_shown() -> None:
    stage, told = listening("process.*")
    stage.core.start(orphans=["sleep 1000", "cat"])
    stage.hub.finish_turn()

    run = stage.core.state.run_id
    killed = {"count": 2, "worker": "", "commands": "sleep 1000, cat", "run": run}
    assert told == [("process.orphan_killed", killed)]
    text = "terminated 2 processes that an earlier hub had left running: sleep 1000; cat"
    assert ("note", text) in stage.shown


def test_what_a_process_left_behind_is_told_and_shown() -> None:
    stage, told = listening("process.*")
    stage.begin()
    stage.core.report_orphans("main", ["sleep", "cat"], ["stone"])
    stage.hub.finish_turn()

    run = stage.core.state.run_id
    assert told == [
        ("process.orphan_killed", {"count": 2, "worker": "main", "commands": "sleep, cat", "run": run}),
        ("process.survivor", {"count": 1, "worker": "main", "commands": "stone", "run": run}),
    ]
    assert stage.shown == [
        ("note", "left sleep, cat running; it was terminated"),
        ("note", "left stone running; it cannot be terminated"),
    ]


def test_a_crash_is_written_down_with_all_that_is_known_of_it() -> None:
    stage = Stage()
    main = stage.begin()
    main.value(main.step(1, "send", s.SendArgs(mailbox="box"), "x"))
    main.value(receive(main, 2))
    end = ProcessEnd(pid=4711, uptime_s=1.2345, peak_memory_bytes=1 << 20, stderr_tail="ouch")
    stage.core.process_gone("main", 1, "oom", end=end)
    stage.hub.finish_turn()

    (entry,) = stage.entries("worker.crashed")
    crashed = entry.decode(e.WorkerCrashed)
    assert crashed == e.WorkerCrashed(
        path="main",
        incarnation=1,
        reason="oom",
        arrived=True,
        pid=4711,
        last_step="main:2 receive",
        last_message=str(stage.entries("message.sent")[0].data["id"]),
        stderr_tail="ouch",
        uptime_s=1.234,
        peak_memory_bytes=1 << 20,
        restarts=1,
        decision="restart",
        next_start=crashed.next_start,
    )
    assert crashed.next_start == stage.clock.now_us()


def test_a_crash_during_a_step_names_the_step_that_is_open() -> None:
    stage = Stage()
    main = stage.begin()
    main.step(1, "shell", SHELL)
    main.die()
    stage.hub.run_ready()

    (entry,) = stage.entries("worker.crashed")
    assert entry.data["last_step"] == "main:1 shell"


def test_the_last_crash_says_that_the_worker_is_given_up() -> None:
    stage = Stage()
    stage.begin()
    for _ in range(3):
        stage.workers["main"].die()
        stage.hub.run_ready()
        stage.wait(2.0)

    decisions = [entry.decode(e.WorkerCrashed) for entry in stage.entries("worker.crashed")]
    assert [(crash.decision, crash.next_start > 0) for crash in decisions] == [
        ("restart", True),
        ("restart", True),
        ("escalate", False),
    ]
    assert decisions[1].next_start >= decisions[0].next_start


def test_a_wait_that_ran_out_is_told_with_where_its_limit_came_from() -> None:
    stage, told = listening("wait.timeout")
    main = stage.begin()
    receive(main, 1, timeout_s=4.0)
    stage.wait(5.0)

    run = stage.core.state.run_id
    assert told == [
        (
            "wait.timeout",
            {
                "waited_ns": 4_000_000_000,
                "limit_ns": 4_000_000_000,
                "run": run,
                "worker": "main",
                "kind": "receive",
                "where": "main:1",
                "source": "explicit",
            },
        )
    ]


def test_a_wait_with_a_limit_is_told_to_be_slow_once() -> None:
    stage, told = listening("wait.slow")
    main = stage.begin()
    receive(main, 1, timeout_s=900.0)
    for _ in range(30):
        stage.wait(10.0)

    assert [(facts["kind"], facts["where"], facts["limit_ns"]) for _, facts in told] == [
        ("receive", "main:1", 900_000_000_000)
    ]
    assert told[0][1]["waited_ns"] == 60_000_000_000


def test_a_wait_that_may_take_for_ever_is_told_every_minute_until_it_is_over() -> None:
    stage, told = listening("wait.slow")
    main = stage.begin()
    main.step(1, "ask", s.AskArgs(question="Ship it?"))
    for _ in range(13):
        stage.wait(10.0)
    assert [(facts["kind"], facts["source"], facts["limit_ns"]) for _, facts in told] == [
        ("ask", "forever", 0),
        ("ask", "forever", 0),
    ]

    stage.core.questions.answer("q1", raw("yes"), "me")
    stage.hub.run_ready()
    for _ in range(13):
        stage.wait(10.0)

    assert len(told) == 2


def test_a_worker_that_computes_for_long_is_told_with_where_it_is() -> None:
    stage, told = listening("wait.slow")
    main = stage.begin()
    main.say(f.Slow(seconds=12.0, stack=[f.StackLine("team.py", 7, "cut", "while True: pass")]))
    stage.hub.flush()

    assert [(facts["kind"], facts["where"], facts["waited_ns"]) for _, facts in told] == [
        ("compute", "team.py:7", 12_000_000_000)
    ]


class Tracing:
    """A tracer that numbers spans."""

    def __init__(self) -> None:
        self.asked: list[Event] = []

    def traceparent(self, event: Event) -> str:
        self.asked.append(event)
        return f"trace-{len(self.asked)}"


def traced() -> tuple[Stage, Tracing]:
    telemetry, tracer = Telemetry(), Tracing()
    telemetry.trace_with(tracer)
    return Stage(telemetry=telemetry), tracer


def metadata_of(stage: Stage) -> list[Mapping[str, object]]:
    return [entry.decode(e.MessageSent).metadata for entry in stage.entries("message.sent")]


def test_a_message_carries_its_trace_unless_it_has_one() -> None:
    stage, tracer = traced()
    main = stage.begin()
    main.value(main.step(1, "send", s.SendArgs(mailbox="box", metadata={"a": 1}), "x"))
    main.value(main.step(2, "send", s.SendArgs(mailbox="box", metadata={"traceparent": "mine"}), "y"))

    assert metadata_of(stage) == [{"a": 1, "traceparent": "trace-1"}, {"traceparent": "mine"}]
    (asked,) = tracer.asked
    assert isinstance(asked, MailboxSent)
    assert (asked.sender, asked.mailbox) == ("main", "box")


def test_whoever_waits_for_a_message_is_shown_the_trace_that_it_carries() -> None:
    stage, tracer = traced()
    told: list[object] = []

    def hear(name: str, counts: Mapping[str, int], facts: Mapping[str, object], config: object) -> None:
        told.append(facts["traceparent"])

    stage.telemetry.attach("test", "mailbox.delivered", hear)
    sender, receiver = pair(stage)
    args = s.ReceiveArgs(mailbox="box", timeout_s=60.0, hold=True)
    waiting = receiver.step(1, "receive", args)
    sender.value(sender.step(1, "send", s.SendArgs(mailbox="box", metadata={"a": 1}), "x"))

    carried = {"a": 1, "traceparent": f"trace-{len(tracer.asked)}"}
    assert metadata_of(stage) == [carried]
    assert fields(receiver.value(waiting))["metadata"] == carried
    assert told == [carried["traceparent"]]


def test_a_supervised_send_and_its_message_carry_one_trace() -> None:
    stage, tracer = traced()
    main = stage.begin()
    terms = s.SuperviseArgs(mailbox="box", terms=Terms(ack="delivered"))
    main.step(1, "send_supervised", terms, "x")

    assert metadata_of(stage) == [{"traceparent": "trace-1"}]
    assert [type(event) for event in tracer.asked] == [SendStart]


def test_commands_and_workers_are_started_with_their_trace() -> None:
    stage, tracer = traced()
    main = stage.begin()
    main.step(1, "shell", SHELL)

    assert [action.trace for action in stage.started_shells] == ["trace-1"]
    assert stage.core.trace_of_worker("main") == "trace-2"
    step, worker = tracer.asked
    assert isinstance(step, StepStart)
    assert isinstance(worker, WorkerStart)
    assert (step.step, worker.worker) == ("main:1", "main")


def test_without_a_tracer_nothing_carries_a_trace() -> None:
    for stage in (Stage(), listening()[0]):
        main = stage.begin()
        main.step(1, "shell", SHELL)
        main.value(main.step(2, "send", s.SendArgs(mailbox="box"), "x"))

        assert [action.trace for action in stage.started_shells] == [""]
        assert stage.core.trace_of_worker("main") == ""
        assert metadata_of(stage) == [{}]


def test_a_failed_prompt_is_told_without_what_was_asked() -> None:
    stage, told = listening("step.*")
    main = stage.begin()
    main.step(1, "think", s.ThinkArgs(name="ask", prompt="secret", agent="a"))
    stage.end_prompt(AgentError("a", "away"))

    assert names(told) == ["step.start", "step.exception"]
    assert "secret" not in repr(told)
