"""Tools of a prompt: run in the worker, recorded, run again on replay, and told to the agent as far as it does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from bartack import Context, ShellResult, step, worker
from bartack.agents.scripted.scripted import Capabilities, Prompt, ScriptedReply
from bartack.errors import (
    AgentCapabilityError,
    AgentError,
    DeadlineExceededError,
    ReceiveTimeoutError,
    ShellError,
    StepCancelledError,
)
from bartack.runtime.protocol.frames import Step
from bartack.testing import ScriptedAgent, TestRun, assert_survives_crashes, run_worker, start_worker

R = TypeVar("R")


@dataclass(frozen=True)
class Finding:
    file: str
    risk: int


Call = Mapping[str, object]


def calls(*names: str) -> list[Call]:
    return [{"tool": name} for name in names]


def kinds(run: TestRun[R]) -> list[str]:
    return [entry.kind for entry in run.journal if entry.kind.startswith("tool.")]


def echo(argv: list[str]) -> ShellResult:
    return ShellResult.success(" ".join(argv[1:]))


@worker
async def counting(ctx: Context) -> list[object]:
    count = 0
    seen: list[str] = []

    async def more(by: int = 1) -> int:
        """Count on."""
        nonlocal count
        seen.append(str(await ctx.shell("echo", f"{count}")))
        count += by
        return count

    async def refuse() -> None:
        await ctx.shell("echo", "refused")
        raise ValueError("not that one")

    reply = await ctx.think("Count.", tools=[more, refuse])
    await ctx.shell("echo", "after", count)
    return [reply, count, seen]


def scripted(*made: Call, text: str = "done") -> ScriptedAgent:
    return ScriptedAgent([{"call": list(made), "text": text}])


@pytest.mark.requirement("tools-run-in-the-worker")
def test_a_tool_runs_when_it_is_called_and_its_value_goes_back() -> None:
    made: list[Call] = [{"tool": "more", "expect": 1}, {"tool": "more", "arguments": {"by": 5}, "expect": 6}]

    run = run_worker(counting(), agent=scripted(*made), shell=echo)

    assert run.result == ["done", 6, ["0", "1"]]
    assert [(s.name, s.about) for s in run.steps if "/do:" in s.p] == [
        ("counting/do:1.1:0", "more"),
        ("counting/do:1.1:1", "echo 0"),
        ("counting/do:1.2:0", "more"),
        ("counting/do:1.2:1", "echo 1"),
    ]


def test_a_tool_that_is_not_called_does_not_run() -> None:
    run = run_worker(counting(), agent=scripted(), shell=echo)

    assert run.result == ["done", 0, []]
    assert not kinds(run)


@pytest.mark.requirement("tools-run-in-the-worker")
def test_an_exception_goes_back_as_an_error_of_the_tool() -> None:
    made: list[Call] = [
        {"tool": "refuse", "expect": "ValueError: not that one"},
        {"tool": "more", "expect": 1},
    ]

    run = run_worker(counting(), agent=scripted(*made), shell=echo)

    assert run.result == ["done", 1, ["0"]]
    assert kinds(run) == ["tool.called", "tool.failed", "tool.called", "tool.finished"]


def test_an_unknown_tool_and_wrong_arguments_are_told_to_the_agent() -> None:
    made: list[Call] = [
        {"tool": "less", "expect": "there is no tool 'less'"},
        {
            "tool": "more",
            "arguments": {"by": "x"},
            "expect": "TypeMismatchError: $.by: expected int, found str",
        },
        {
            "tool": "more",
            "arguments": {"to": 1},
            "expect": "TypeMismatchError: $: expected only by, found to",
        },
    ]

    run = run_worker(counting(), agent=scripted(*made), shell=echo)

    assert run.result == ["done", 0, []]


def test_a_tool_is_described_by_its_name_docstring_and_annotations() -> None:
    with start_worker(counting(), agent=scripted(), shell=echo) as run:
        run.finish()

    asked = run.outside.frames[0]
    assert isinstance(asked, Step)
    assert b'"tools":[{"name":"more","description":"Count on.","schema":{' in bytes(asked.a)
    assert b'"properties":{"by":{"type":"integer"}}' in bytes(asked.a)


def test_a_run_with_tools_survives_a_crash_behind_every_line() -> None:
    made: list[Call] = [*calls("more", "refuse", "more"), {"tool": "more", "arguments": {"by": 3}}]

    assert assert_survives_crashes(counting(), at="entries", agent=scripted(*made), shell=echo) > 10


def test_a_crash_of_the_worker_alone_repeats_no_call_and_keeps_the_agent() -> None:
    agent = scripted(*calls("more", "more"))
    with start_worker(counting(), agent=agent, shell=echo) as run:
        run.wait_for("tool.finished", call=1)
        run.crash("counting")
        run.finish()

        assert run.result == ["done", 2, ["0", "1"]]
        assert run.commands == [["echo", "0"], ["echo", "1"], ["echo", "after", "2"]]
        assert len(agent.prompts) == 1


@worker
async def slow(ctx: Context) -> list[str]:
    heard: list[str] = []

    async def wait() -> str:
        heard.append(str(await ctx.shell("echo", "before")))
        await ctx.sleep(60)
        heard.append(str(await ctx.shell("echo", "behind")))
        return "waited"

    return [await ctx.think("Wait.", tools=[wait]), *heard]


def test_a_call_under_way_goes_on_where_it_was_when_its_worker_dies() -> None:
    agent = scripted({"tool": "wait", "expect": "waited"})
    with start_worker(slow(), agent=agent, shell=echo) as run:
        run.wait_for("step.started", step="sleep")
        run.crash("slow")
        run.finish()

        assert run.result == ["done", "before", "behind"]
        assert run.commands == [["echo", "before"], ["echo", "behind"]]


def test_a_call_under_way_goes_on_where_it_was_when_everything_dies() -> None:
    agent = scripted({"tool": "wait", "expect": "waited"})
    with start_worker(slow(), agent=agent, shell=echo) as run:
        run.wait_for("step.started", step="sleep")
        run.crash()
        run.resume()
        run.finish()

        assert run.result == ["done", "before", "behind"]
        assert run.commands == [["echo", "before"], ["echo", "behind"]]
        assert kinds(run) == ["tool.called", "tool.finished"]


class Fickle(ScriptedAgent):
    """Makes other calls each time it is asked; the last ones for ever."""

    def __init__(self, *attempts: Sequence[Call]) -> None:
        super().__init__()
        self._attempts = [ScriptedAgent([{"call": made, "text": "done", "times": 0}]) for made in attempts]

    def reply(self, prompt: Prompt) -> ScriptedReply:
        self.prompts.append(prompt)
        attempt = min(len(self.prompts), len(self._attempts)) - 1
        return self._attempts[attempt].reply(prompt)


@pytest.mark.requirement("tools-are-told-again")
def test_from_the_first_difference_on_calls_are_run_anew() -> None:
    first: list[Call] = [{"tool": "more"}, {"tool": "more", "arguments": {"by": 10}}, {"tool": "more"}]
    second: list[Call] = [
        {"tool": "more", "expect": 1},
        {"tool": "more", "expect": 12},
        {"tool": "more", "expect": 13},
    ]
    with start_worker(counting(), agent=Fickle(first, second), shell=echo) as run:
        run.wait_for("tool.finished", call=2)
        run.crash()
        run.resume()
        run.finish()

        assert run.result == ["done", 13, ["0", "1", "11", "12"]]
        places = [entry.data["place"] for entry in run.journal if entry.kind == "tool.called"]
        assert places == [1, 2, 2, 3]


def test_what_was_superseded_is_not_told_to_a_third_attempt() -> None:
    first: list[Call] = [{"tool": "more"}, {"tool": "more", "arguments": {"by": 10}}]
    second: list[Call] = [{"tool": "more"}, {"tool": "more", "arguments": {"by": 20}}]
    third: list[Call] = [
        {"tool": "more", "expect": 1},
        {"tool": "more", "arguments": {"by": 20}, "expect": 31},
    ]
    with start_worker(counting(), agent=Fickle(first, second, third), shell=echo) as run:
        run.wait_for("tool.finished", call=2)
        run.crash()
        run.resume()
        run.wait_for("tool.finished", call=3)
        run.crash()
        run.resume()
        run.finish()

        assert run.result == ["done", 31, ["0", "1", "11"]]
        assert kinds(run) == ["tool.called", "tool.finished"] * 3


def test_a_call_that_another_attempt_does_not_make_ends_before_the_next_one_begins() -> None:
    agent = Fickle(calls("wait"), calls("wait2"))
    with start_worker(two_tools(), agent=agent, shell=echo) as run:
        run.wait_for("step.started", step="sleep")
        run.crash()
        run.resume()
        run.finish()

        assert run.result == ["wait", "wait2"]
        assert kinds(run) == ["tool.called", "tool.finished", "tool.called", "tool.finished"]


@worker
async def two_tools(ctx: Context) -> list[str]:
    ended: list[str] = []

    async def wait() -> None:
        await ctx.sleep(60)
        ended.append("wait")

    async def wait2() -> None:
        ended.append("wait2")

    await ctx.think("Wait.", tools=[wait, wait2])
    return ended


def test_the_same_id_is_the_same_call() -> None:
    made: list[Call] = [{"tool": "more", "id": "t1", "expect": 1}, {"tool": "more", "expect": 2}]
    again: list[Call] = [*made, {"tool": "more", "id": "t1", "expect": 1}]

    run = run_worker(counting(), agent=scripted(*again), shell=echo)

    assert run.result == ["done", 2, ["0", "1"]]


@worker
async def failing_prompt(ctx: Context) -> list[object]:
    count = 0

    async def more() -> int:
        nonlocal count
        await ctx.shell("echo", f"{count}")
        count += 1
        return count

    return [await ctx.think("Count.", tools=[more]), count]


def test_a_prompt_that_failed_is_set_back_and_its_calls_are_told_again() -> None:
    class Mended(Fickle):
        def reply(self, prompt: Prompt) -> ScriptedReply:
            reply = super().reply(prompt)
            failure = "out of order" if len(self.prompts) == 1 else ""
            return ScriptedReply(reply.text, failure=failure, calls=reply.calls)

    agent = Mended([{"tool": "more", "expect": 1}, {"tool": "more", "expect": 2}])
    with start_worker(failing_prompt(), agent=agent, shell=echo) as run:
        run.finish()
        assert run.error is not None
        assert run.error.kind == "AgentError"
        run.resume()
        run.finish()

        assert run.result == ["done", 2]
        assert run.commands == [["echo", "0"], ["echo", "1"]]


@worker
async def careful(ctx: Context) -> list[object]:
    kept: list[str] = []

    async def risky() -> str:
        try:
            await ctx.shell("false")
        except ShellError as error:
            kept.append(type(error).__name__)
        await ctx.mailbox.notes.send("tried")
        return "tried"

    try:
        await ctx.think("Try.", tools=[risky])
    except AgentError as error:
        kept.append(str(error))
    await ctx.shell("true")
    return [*kept, await ctx.mailbox.notes.receive(0)]


def test_what_is_caught_in_a_tool_or_behind_it_is_history() -> None:
    agent = ScriptedAgent([{"call": calls("risky"), "fail": {"message": "gone"}}])

    def shell(argv: list[str]) -> ShellResult:
        return ShellResult(argv, 1 if argv == ["false"] else 0)

    run = run_worker(careful(), agent=agent, shell=shell)
    assert run.result == ["ShellError", "the agent: gone", "tried"]
    assert assert_survives_crashes(careful(), at="entries", agent=agent, shell=shell) > 5


@worker
async def child(ctx: Context, name: str) -> str:
    return f"{name}:{await ctx.shell('echo', name)}"


@step
def double(number: int) -> int:
    return 2 * number


@worker
async def busy(ctx: Context) -> list[object]:
    """Everything a tool can do: children, branches, messages, time, bodies, questions, prompts with tools of their own."""
    log: list[object] = []

    async def inner(number: int) -> int:
        log.append(number)
        return await double(number)

    async def outer(names: list[str]) -> list[str]:
        made = await ctx.delegate([child(name) for name in names])
        log.extend(await ctx.gather(ctx.random(1, 6), double(4)))
        await ctx.mailbox.notes.send(made)
        await ctx.sleep(5)
        log.append(await ctx.think("Inside.", type=int, tools=[inner]))
        log.append(await ctx.ask("Sure?", type=bool))
        ctx.print("inside")
        return made

    async def beside() -> str:
        return str(await ctx.shell("echo", "beside"))

    both = await ctx.gather(ctx.think("Outside.", tools=[outer, inner]), beside())
    ctx.print("behind")
    return [*both, *log, await ctx.mailbox.notes.receive(0)]


def busy_agent() -> ScriptedAgent:
    return ScriptedAgent(
        [
            {
                "pattern": "Outside",
                "call": [
                    {"tool": "inner", "arguments": {"number": 1}, "expect": 2},
                    {"tool": "outer", "arguments": {"names": ["a", "b"]}, "expect": ["a:a", "b:b"]},
                ],
                "text": "out",
            },
            {"pattern": "Inside", "call": [{"tool": "inner", "arguments": {"number": 21}}], "value": 42},
        ]
    )


def test_tools_do_whatever_workers_do() -> None:
    run = run_worker(busy(), agent=busy_agent(), shell=echo, answers={"Sure?": True})

    assert run.result[:3] == ["out", "beside", 1]
    assert run.result[4:] == [8, 21, 42, True, ["a:a", "b:b"]]
    assert run.output == ["inside", "behind"]
    paths = {s.p for s in run.steps}
    assert {
        "busy.1.1/do:1.2",
        "busy.1.1/do:1.2/1.1:child",
        "busy.1.1/do:1.2.2.2",
        "busy.1.1/do:1.2/do:5.1",
    } <= paths


@pytest.mark.requirement("tools-survive-crashes")
def test_whatever_tools_do_survives_a_crash_behind_every_line() -> None:
    killed = assert_survives_crashes(
        busy(), at="entries", agent=busy_agent(), shell=echo, answers={"Sure?": True}
    )

    assert killed > 30


@worker
async def hurried(ctx: Context) -> list[str]:
    tidied: list[str] = []

    async def dawdle() -> None:
        try:
            await ctx.sleep(1000)
        except StepCancelledError:
            tidied.append(str(await ctx.shell("echo", "tidied")))
            raise

    try:
        async with ctx.timeout(10):
            await ctx.think("Hurry.", tools=[dawdle])
    except DeadlineExceededError:
        tidied.append("late")
    await ctx.shell("echo", "behind")
    return tidied


def test_a_deadline_around_a_prompt_interrupts_the_tool_that_runs() -> None:
    run = run_worker(hurried(), agent=scripted(*calls("dawdle")), shell=echo)

    assert run.result == ["tidied", "late"]
    assert assert_survives_crashes(hurried(), at="entries", agent=scripted(*calls("dawdle")), shell=echo)


@worker
async def doomed(ctx: Context) -> str:
    async def give_up() -> None:
        try:
            await ctx.fail("it is over")
        finally:
            await ctx.shell("echo", "tidied")

    try:
        return await ctx.think("Try.", tools=[give_up])
    except AgentError:
        return "told the agent"


def test_the_failure_of_the_session_leaves_the_prompt() -> None:
    run = run_worker(doomed(), agent=scripted(*calls("give_up")), shell=echo)

    assert run.error is not None
    assert run.error.message == "it is over"
    assert run.commands == [["echo", "tidied"]]
    assert kinds(run) == ["tool.called"]


@worker
async def plain(ctx: Context) -> str:
    async def more() -> int:
        return 1

    try:
        return await ctx.think("Count.", tools=[more])
    except AgentCapabilityError as error:
        return str(error)


@pytest.mark.requirement("tools-need-an-able-agent")
def test_an_agent_without_tools_is_not_asked() -> None:
    agent = ScriptedAgent([{"text": "done"}], capabilities=Capabilities(tools=False))

    run = run_worker(plain(), agent=agent)

    assert run.result == "the agent: it cannot call tools"
    assert not agent.prompts


@worker
async def deaf(ctx: Context) -> str:
    async def hear() -> object:
        return await ctx.mailbox.nothing.receive()

    try:
        return await ctx.think("Listen.", tools=[hear])
    except ReceiveTimeoutError:
        return "it left the prompt"


def test_a_tool_that_waits_for_nobody_has_the_limit_that_every_wait_has() -> None:
    """Its own prompt waits for it: that it is open must not stop the clock."""
    made = {"tool": "hear", "expect": "ReceiveTimeoutError: receive took longer than 1800 s (default)"}

    run = run_worker(deaf(), agent=scripted(made))

    assert run.result == "done"


async def not_typed(when: object) -> None: ...


def plain_function() -> None: ...


async def by_place(number: int, /) -> None: ...


async def of_sets(numbers: set[int]) -> None: ...


@worker
async def misused(ctx: Context, which: str) -> str:
    wrong: dict[str, list[Callable[..., Any]]] = {
        "plain": [plain_function],
        "place": [by_place],
        "set": [of_sets],
        "twice": [not_typed, not_typed],
    }
    await ctx.think("x", tools=wrong[which])
    return ""


@pytest.mark.parametrize(
    ("which", "problem"),
    [
        ("plain", "a tool must be an async function, not plain_function"),
        ("place", "tool by_place: an agent gives arguments by name, so all parameters must have one"),
        ("set", "tool of_sets: set cannot be serialised"),
        ("twice", "two tools of a prompt have the same name: not_typed; rename one of them"),
    ],
)
def test_what_is_no_tool_is_refused_at_the_call(which: str, problem: str) -> None:
    run = run_worker(misused(which), agent=scripted())

    assert run.error is not None
    assert run.error.message == problem


@worker
async def findings(ctx: Context) -> list[Finding]:
    kept: list[Finding] = []

    async def keep(finding: Finding, note: str | None = None) -> Finding:
        kept.append(finding)
        return finding

    await ctx.think("Look.", tools=[keep])
    return kept


def test_arguments_and_results_are_values_of_their_annotations() -> None:
    given = {"file": "a.py", "risk": 3}
    agent = scripted({"tool": "keep", "arguments": {"finding": given}, "expect": given})

    run = run_worker(findings(), agent=agent)

    assert run.result == [Finding("a.py", 3)]
