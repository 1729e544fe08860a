"""Links between workers: the abnormal end of one aborts the other or is a message to it, once, whoever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.runtime.stage import Puppet, Stage, delegate, error, fields

from bartack import Context, Outcome, ShellResult, worker
from bartack.errors import DeadlineExceededError, LinkedExitError, ReceiveTimeoutError, StepCancelledError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import NO_VALUE
from bartack.telemetry import Telemetry
from bartack.testing import TestRun, assert_survives_crashes, run_worker


@worker
async def partner(ctx: Context, how: str) -> str:
    """A worker that ends as it is told, when it is told to."""
    await ctx.mailbox.go.receive(600)
    if how == "error":
        raise ValueError("on purpose")
    return how


@worker
async def tied(ctx: Context, how: str) -> list[str]:
    handle = await ctx.spawn(partner(how), on_failure="collect")
    await ctx.link(handle)
    await ctx.link(handle)
    if how == "cancelled":
        await handle.cancel("enough")
    else:
        await ctx.mailbox.go.send(1)
    try:
        await ctx.mailbox.never.receive(60)
    except LinkedExitError as ended:
        return [ended.worker, ended.reason, ended.message]
    except ReceiveTimeoutError:
        return ["went on"]
    return ["not reached"]


@pytest.mark.requirement("links-abort")
@pytest.mark.parametrize(("how", "reason"), [("error", "error"), ("cancelled", "aborted")])
def test_the_abnormal_end_of_a_linked_worker_is_raised_where_the_other_waits(how: str, reason: str) -> None:
    path = "tied/1:partner"

    assert run_worker(tied(how)).result == [path, reason, f"linked exit: {path} ended: {reason}"]


@pytest.mark.requirement("links-abort")
def test_a_normal_end_goes_by() -> None:
    assert run_worker(tied("fine")).result == ["went on"]


@worker
async def lonely(ctx: Context, other: str, *, shell: bool) -> str:
    """Linked with a sibling by its path; waits until that one's end reaches it."""
    await ctx.link(other)
    await ctx.mailbox.go.send(1)
    if shell:
        await ctx.shell("long")
    await ctx.mailbox.never.receive(3600)
    return "not reached"


@worker
async def siblings(ctx: Context) -> list[str]:
    calls = [partner("error"), lonely("siblings/1.1:partner", shell=False)]
    outcomes = await ctx.delegate(calls, on_failure="collect")
    return [f"{outcome.error.kind}: {outcome.error.message}" for outcome in outcomes if outcome.error]


@pytest.mark.requirement("links-abort")
def test_siblings_whose_failures_are_collected_are_tied_to_each_other_all_the_same() -> None:
    assert run_worker(siblings()).result == [
        "ValueError: on purpose",
        "LinkedExitError: linked exit: siblings/1.1:partner ended: error",
    ]


@worker
async def trapper(ctx: Context) -> list[object]:
    """Everything that links can do, in one program."""
    seen: list[object] = []
    paths: list[str] = []
    await ctx.trap(True)
    for how in ("error", "fine", "error"):
        handle = await ctx.spawn(partner(how), on_failure="collect")
        paths.append(handle.path)
        await ctx.link(handle)
        await ctx.mailbox.go.send(1)
        await handle
        if how == "error" and not seen:
            seen.append(_exit(await ctx.inbox.receive(60)))
        elif how == "error":
            await ctx.unlink(handle)  # takes the message back
    seen.append(await ctx.inbox.drain())
    await ctx.link("nobody")
    seen.append(_exit(await ctx.inbox.receive(0)))
    await ctx.trap(False)
    for target in ("trapper/9:nobody", paths[0], ctx.path, paths[1]):
        try:
            await ctx.link(target)
            seen.append("fine")
        except StepCancelledError as ended:
            seen.append(ended.reason)
    return seen


def _exit(message: object) -> object:
    found = fields(message)
    return [found["type"], found["from"], found["reason"], sorted(found)]


@pytest.mark.requirement("links-trap")
@pytest.mark.requirement("links-survive-crashes")
def test_who_traps_gets_a_message_once_wherever_the_run_is_killed() -> None:
    names = ["at", "from", "reason", "type"]

    result = run_worker(trapper()).result

    assert result == [
        ["EXIT", "trapper/2:partner", "error", names],
        [],
        ["EXIT", "nobody", "noproc", names],
        "noproc",
        "error",
        "fine",
        "fine",
    ]
    assert assert_survives_crashes(trapper(), at="entries") > 30


@worker
async def ring(ctx: Context, mine: int) -> str:
    """One of three, each linked with the next; the first fails when all are."""
    await ctx.link(ctx.path.replace(f".{mine}:", f".{mine % 3 + 1}:"))
    await ctx.mailbox.linked.send(mine)
    try:
        await ctx.mailbox[f"ring-{mine}"].receive(600)
        raise ValueError("the first")
    finally:
        await ctx.shell("tidy", str(mine))


@worker
async def circle(ctx: Context) -> list[str]:
    async def begin() -> None:
        for _ in range(3):
            await ctx.mailbox.linked.receive(600)
        await ctx.mailbox["ring-1"].send(1)

    rings = ctx.delegate([ring(1), ring(2), ring(3)], on_failure="collect")
    outcomes, _ = await ctx.gather(rings, begin())
    assert outcomes is not None
    return sorted(outcome.error.kind for outcome in outcomes if outcome.error)


@pytest.mark.requirement("links-survive-crashes")
def test_a_circle_of_links_ends_once_and_everybody_tidies_up() -> None:
    def shell(_words: list[str]) -> ShellResult:
        return ShellResult.success()

    run = run_worker(circle(), shell=shell)

    assert run.result == ["LinkedExitError", "LinkedExitError", "ValueError"]
    assert [step.status for step in run.steps if step.kind == "shell"] == ["finished"] * 3
    told = [entry.data for entry in run.journal if entry.kind == "link.told"]
    assert len({frozenset((str(data["path"]), str(data["by"]))) for data in told}) == len(told) == 3
    assert assert_survives_crashes(circle(), at="entries", shell=shell) > 20


@worker
async def busy(ctx: Context) -> list[object]:
    """Is aborted in everything at once."""
    handle = await ctx.spawn(partner("error"), on_failure="collect")
    await ctx.link(handle)
    await ctx.mailbox.declare("narrow", capacity=1)
    await ctx.mailbox.narrow.send("first")

    async def limited() -> str:
        try:
            async with ctx.timeout(500):
                await ctx.mailbox.never.receive(3600)
        except DeadlineExceededError:
            return "late"
        except LinkedExitError as ended:
            return ended.reason
        return "not reached"

    async def delegated() -> None:
        await ctx.delegate([patient()])

    async def blocked() -> None:
        await ctx.mailbox.narrow.send("second")

    async def begin() -> None:
        await ctx.mailbox.go.send(1)

    parts = (limited(), delegated(), blocked(), begin())
    outcomes: list[Outcome[object]] = await ctx.gather(*parts, on_failure="collect")
    return [outcome.value if outcome.error is None else outcome.error.kind for outcome in outcomes]


@worker
async def patient(ctx: Context) -> str:
    await ctx.mailbox.never.receive(3600)
    return "not reached"


@pytest.mark.requirement("links-abort")
def test_everything_that_a_worker_waits_for_is_aborted() -> None:
    run = run_worker(busy())

    assert run.result == ["error", "LinkedExitError", "LinkedExitError", None]
    assert assert_survives_crashes(busy(), at="entries") > 10


@worker
async def persistent(ctx: Context) -> list[str]:
    """Handles the abort, and goes on; then is aborted a second time."""
    seen: list[str] = []
    for _ in range(2):
        handle = await ctx.spawn(partner("error"), on_failure="collect")
        await ctx.link(handle)
        await ctx.mailbox.go.send(1)
        try:
            await ctx.mailbox.never.receive(60)
        except LinkedExitError as ended:
            seen.append(ended.worker)
            await ctx.mailbox.seen.send(ended.worker)
    return seen


def test_a_worker_that_handles_an_abort_goes_on() -> None:
    assert run_worker(persistent()).result == ["persistent/1:partner", "persistent/6:partner"]


@worker
async def uncaught(ctx: Context) -> str:
    handle = await ctx.spawn(partner("error"), on_failure="collect")
    await ctx.link(handle)
    await ctx.mailbox.go.send(1)
    return str(await ctx.mailbox.later.receive(60))


def test_an_abort_that_nobody_handles_fails_the_session_and_resume_goes_on_at_its_step() -> None:
    with TestRun(uncaught()) as run:
        run.start()
        run.finish()
        assert run.error is not None
        assert run.error.kind == "LinkedExitError"

        run.resume()
        run.wait_for("step.started", step="receive", p="uncaught")
        run.send("later", "mended")
        run.finish()

        assert run.result == "mended"


@worker
async def stopper(ctx: Context) -> str:
    handle = await ctx.spawn(patient(), on_failure="collect")
    await ctx.sleep(1)
    await handle.cancel("enough")
    outcome = await handle
    return outcome.error.message if outcome.error else "went on"


@pytest.mark.requirement("links-survive-crashes")
def test_a_cancellation_reaches_the_step_it_interrupts_wherever_the_run_is_killed() -> None:
    assert run_worker(stopper()).result == "cancelled: enough"
    assert assert_survives_crashes(stopper(), at="entries") > 5


# By hand.


def pair(stage: Stage) -> tuple[Puppet, Puppet, Puppet]:
    """The first worker, and two others that are linked."""
    main = stage.begin()
    delegate(main, 1, ["a", "b"], on_failure="collect")
    stage.hub.run_ready()
    a, b = stage.workers["main/1.1:a"], stage.workers["main/1.2:b"]
    assert a.value(a.step(1, "link", s.LinkArgs(target=b.path))) is None
    return main, a, b


def test_a_command_ends_with_its_tree_before_its_worker_learns_of_the_abort() -> None:
    stage = Stage()
    _, a, b = pair(stage)
    waiting = a.step(2, "shell", s.ShellArgs(pipeline=[["long"]]))

    b.say(f.Failed(e=error()))

    assert a.answer(waiting) is None
    assert len(stage.stopped_shells) == 1
    stage.end_shell()
    assert a.error(waiting) == "LinkedExitError"


def test_an_end_that_comes_while_another_one_is_still_aborting_is_raised_behind_it() -> None:
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a", "b", "c"], on_failure="collect")
    stage.hub.run_ready()
    a, *others = (stage.workers[f"main/1.{number}:{name}"] for number, name in enumerate("abc", 1))
    for n, other in enumerate(others, 1):
        a.step(n, "link", s.LinkArgs(target=other.path))
    waiting = a.step(3, "shell", s.ShellArgs(pipeline=[["long"]]))

    for other in others:
        other.say(f.Failed(e=error()))
    stage.end_shell()

    assert a.error(waiting) == "LinkedExitError"
    assert a.error(a.step(4, "receive", s.ReceiveArgs(mailbox="never"))) == "LinkedExitError"
    assert a.answer(a.step(5, "receive", s.ReceiveArgs(mailbox="never"))) is None


@worker
async def doomed(ctx: Context, seconds: float) -> None:
    await ctx.sleep(seconds)
    raise ValueError("on purpose")


@worker
async def survivor(ctx: Context) -> list[str]:
    """Handles the end of one linked worker, and waits again when the next ones end."""
    for seconds in (1, 2, 3):
        await ctx.link(await ctx.spawn(doomed(seconds), on_failure="collect"))
    seen: list[str] = []
    for _ in range(4):
        try:
            await ctx.mailbox.never.receive(60)
        except LinkedExitError as ended:
            seen.append(ended.worker)
        except ReceiveTimeoutError:
            seen.append("waited")
    return seen


@pytest.mark.requirement("links-abort")
def test_who_handled_one_end_is_aborted_by_the_next_where_it_waits() -> None:
    assert run_worker(survivor()).result == [*(f"survivor/{number}:doomed" for number in (1, 3, 5)), "waited"]
    assert_survives_crashes(survivor(), at="entries")


@worker
async def nameless(ctx: Context) -> None:
    await ctx.link("")


def test_a_worker_has_to_be_named() -> None:
    ran = run_worker(nameless())

    assert ran.error is not None
    assert ran.error.kind == "MailboxNameError"


@worker
async def tidy(ctx: Context) -> object:
    """Lets go of everything, whatever happens."""
    other = await ctx.spawn(partner("error"), on_failure="collect")
    await ctx.link(other)
    await ctx.trap(True)
    try:
        await ctx.mailbox.flag.receive(5)
        await ctx.mailbox.go.send(1)
        return _exit(await ctx.inbox.receive(60))
    finally:
        await ctx.trap(False)
        await ctx.unlink(other)


def test_undoing_a_link_behind_a_failure_does_not_handle_it_and_is_undone_with_it() -> None:
    with TestRun(tidy()) as run:
        run.start()
        run.finish()
        assert run.error is not None
        assert run.error.kind == "ReceiveTimeoutError"

        run.resume()
        run.send("flag", 1)
        run.finish()

        assert run.result == ["EXIT", "tidy/1:partner", "error", ["at", "from", "reason", "type"]]


def test_an_abort_whose_command_died_with_the_hub_is_the_outcome_all_the_same() -> None:
    stage = Stage()
    _, a, b = pair(stage)
    a.step(2, "shell", s.ShellArgs(pipeline=[["long"]]))
    b.say(f.Failed(e=error()))
    stage.hub.flush()

    stage.again()
    a = stage.workers["main/1.1:a"]

    assert a.error(a.step(2, "shell", s.ShellArgs(pipeline=[["long"]]))) == "LinkedExitError"
    assert len(stage.started_shells) == 1


def test_a_step_of_a_worker_that_computes_is_aborted_when_it_comes() -> None:
    stage = Stage()
    _, a, b = pair(stage)

    b.say(f.Failed(e=error()))

    assert a.error(a.step(2, "receive", s.ReceiveArgs(mailbox="never"))) == "LinkedExitError"
    assert a.answer(a.step(3, "receive", s.ReceiveArgs(mailbox="never"))) is None


def test_a_body_is_ended_with_its_process() -> None:
    stage = Stage()
    _, a, b = pair(stage)
    a.begin(2)
    stage.hub.flush()

    b.say(f.Failed(e=error()))
    stage.hub.run_ready()
    a = stage.workers["main/1.1:a"]

    assert stage.stopped == ["main/1.1:a"]
    assert [(past.n, past.e.type.rpartition(":")[2]) for past in a.past if past.e] == [(2, "LinkedExitError")]


def test_a_body_that_was_to_be_ended_when_the_hub_died_is_not_begun_again() -> None:
    stage = Stage()
    _, a, b = pair(stage)
    a.begin(2, asked=True)
    stage.core.turn.record((e.LinkReported(path=a.path, by=b.path, reason="error"), NO_VALUE))
    stage.hub.flush()

    stage.again()
    a = stage.workers["main/1.1:a"]

    assert a.error(a.begin(2, asked=True)) == "LinkedExitError"


def test_a_worker_on_its_way_out_tidies_up_before_another_link_aborts_it() -> None:
    stage = Stage()
    _, a, b = pair(stage)
    c = e.WorkerSpawned(path="main/1.3:c", worker="prog:c", p="main", n=1, collect=True)
    stage.core.turn.record((c, NO_VALUE))
    a.value(a.step(2, "link", s.LinkArgs(target=c.path)))
    aborted = a.step(3, "receive", s.ReceiveArgs(mailbox="never"))
    b.say(f.Failed(e=error()))
    assert a.error(aborted) == "LinkedExitError"
    tidying = a.step(4, "shell", s.ShellArgs(pipeline=[["rm"]]))

    ended = e.WorkerEnded(path=c.path, error=error(), final=True)
    stage.core.turn.record((ended, NO_VALUE))
    stage.core.links.worker_ended(stage.worker(c.path))
    stage.hub.run_ready()

    assert stage.stopped_shells == []
    stage.end_shell()
    assert a.value(tidying)
    assert a.answer(a.step(5, "shell", s.ShellArgs(pipeline=[["rm"]]))) is None
    stage.end_shell()
    assert a.error(a.step(6, "receive", s.ReceiveArgs(mailbox="never"))) == "LinkedExitError"


def test_links_of_workers_that_were_cut_off_together_say_nothing_and_are_there_again_with_them() -> None:
    """A failure beside the delegate gives its workers up; set back, they go on, linked as they were."""
    stage = Stage()
    main = stage.begin()
    delegate(main, 1, ["a", "b"], p="main.1.1")
    stage.hub.run_ready()
    a, b = stage.workers["main.1.1/1.1:a"], stage.workers["main.1.1/1.2:b"]
    a.step(1, "link", s.LinkArgs(target=b.path))
    b.step(1, "receive", s.ReceiveArgs(mailbox="never"))
    failing = main.step(1, "receive", s.ReceiveArgs(mailbox="never", timeout_s=0), p="main.1.2")
    assert main.error(failing) == "ReceiveTimeoutError"
    main.say(f.Cancel(p="main.1.1", n=1, reason="a sibling failed"))
    stage.hub.run_ready()
    assert "link.told" not in stage.kinds()
    main.say(f.Failed(e=error(), origin=("main.1.2", 1)))
    stage.hub.run_ready()

    main = stage.again()

    assert stage.core.state.links.has(a.path, b.path)
    delegate(main, 1, ["a", "b"], p="main.1.1")
    stage.hub.run_ready()
    assert not stage.worker(a.path).ended


def test_a_worker_whose_abort_ends_another_that_is_linked_with_it_is_aborted_once() -> None:
    stage = Stage()
    _, a, b = pair(stage)
    delegate(a, 1, ["child"], p=f"{a.path}.2.1")
    stage.hub.run_ready()
    child = stage.workers[f"{a.path}.2.1/1.1:child"]
    child.value(child.step(1, "link", s.LinkArgs(target=a.path)))
    waiting = a.step(1, "receive", s.ReceiveArgs(mailbox="never"), p=f"{a.path}.2.2")

    b.say(f.Failed(e=error()))
    stage.hub.run_ready()

    assert a.error(waiting) == "LinkedExitError"
    assert stage.worker(child.path).ended
    assert set(stage.outcomes().values()) == {1}


def test_links_are_told_when_they_act() -> None:
    telemetry = Telemetry()
    heard: list[tuple[object, ...]] = []

    def note(
        name: str, measurements: Mapping[str, int], metadata: Mapping[str, object], _config: object
    ) -> None:
        heard.append((name, metadata["ended"], metadata["worker"], metadata["trapped"], metadata["reason"]))

    telemetry.attach("test", "link.*", note)
    stage = Stage(telemetry=telemetry)
    _, a, b = pair(stage)
    a.value(a.step(2, "trap", s.TrapArgs(on=True)))

    b.say(f.Failed(e=error()))
    stage.hub.flush()

    assert heard == [("link.exit", b.path, a.path, True, "error")]
