from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.unit.runtime.fake_hub import FakeHub
from tests.unit.runtime.stage import Stage, fields
from tests.unit.supervision.form_keeper import captured, form, into, run

from bartack import Context, ShellResult, worker
from bartack.errors import NestedStepError, ShellError, ShellTimeoutError
from bartack.runtime.context.part import scheduler_of
from bartack.runtime.kernel.commands import ShellEnd
from bartack.runtime.kernel.output_tail import cut_front
from bartack.runtime.patchwork._forms import shell_form, unsafe_form
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.scheduler.fingerprint import Fingerprints
from bartack.runtime.scheduler.operations import StepOp
from bartack.supervision.forms import Form, plain_of
from bartack.testing import run_worker

LISTING = form(run("ls", "-l"), run("head", "-1"))
ARGS = s.ShellArgs(form=LISTING, shown="ls -l | head -1")


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    yield hub
    hub.close()


def step(
    ctx: Context, wanted: Form, *, check: bool = True, timeout_s: float | None = None
) -> StepOp[ShellResult]:
    return shell_form(scheduler_of(ctx), wanted, check=check, timeout_s=timeout_s)


# The worker's side.


def test_a_form_is_a_shell_step_and_its_outcome_a_result(hub: FakeHub) -> None:
    async def program(ctx: Context) -> list[object]:
        result = await step(ctx, LISTING, check=False, timeout_s=5)
        return [result.status, result.ok, str(result), result.stderr]

    hub.start(program)
    hub.settle()
    asked = hub.said(f.Step)[0]
    hub.answer({"argv": ["ls"], "status": 2, "stdout": "a\n", "stderr": "no"})

    assert hub.result() == [2, False, "a", "no"]
    assert (asked.step, asked.about) == ("shell", "ls -l | head -1")
    args = msgspec.json.decode(asked.a, type=s.ShellArgs)
    assert args == s.ShellArgs(form=LISTING, shown="ls -l | head -1", check=False, timeout_s=5.0)


def test_what_a_form_is_does_not_depend_on_how_it_is_run(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        await step(ctx, LISTING)
        await step(ctx, LISTING, check=False, timeout_s=7)
        await step(ctx, form(run("ls", "-l"), run("head", "-2")))

    hub.start(program)
    for _ in range(3):
        hub.settle()
        hub.answer({"argv": [], "status": 0})

    first, second, third = [asked.fp for asked in hub.said(f.Step)]
    assert first == second != third


@pytest.mark.parametrize(
    "wanted",
    [
        form(run("echo", "a\0b")),
        form(into("\0", "echo")),
        form(run("echo", captured(run("echo", "\0")))),
    ],
)
def test_nul_is_refused_before_anything_is_asked(hub: FakeHub, wanted: Form) -> None:
    async def program(ctx: Context) -> None:
        await step(ctx, wanted)

    hub.start(program)
    hub.settle()

    with pytest.raises(ShellError, match="NUL"):
        hub.result()
    assert hub.said(f.Step) == []


def test_a_form_cannot_be_run_inside_a_body(hub: FakeHub) -> None:
    async def program(ctx: Context) -> None:
        def body() -> None:
            step(ctx, LISTING)

        await ctx.step(body)

    hub.start(program)
    hub.wait_for_bodies()

    with pytest.raises(NestedStepError):
        hub.result()


def test_text_for_a_shell_is_one_word() -> None:
    plain = plain_of(unsafe_form("echo a; echo b"))

    assert plain is not None
    assert plain.argv == ["/bin/sh", "-c", "echo a; echo b"]


def test_what_people_see_has_no_secrets() -> None:
    prints = Fingerprints("/run", "/workspace", {"A_TOKEN": "swordfish", "HOME": "/home"})

    assert prints.redact("echo swordfish /home") == "echo $env:A_TOKEN /home"
    assert Fingerprints("/run", "/workspace", {}).redact("x") == "x"


# The hub's side.


def test_a_form_fails_with_what_it_wrote() -> None:
    stage = Stage()
    main = stage.begin()
    checked = main.step(1, "shell", ARGS)
    stage.end_shell(ShellEnd(2, b"out", b"err\xff"))
    unchecked = main.step(2, "shell", s.ShellArgs(form=LISTING, shown="ls", check=False))
    stage.end_shell(ShellEnd(127))

    refusal = next(frame for frame in main.heard if isinstance(frame, f.Refusal) and frame.i == checked)
    assert refusal.e.message == "command failed with status 2: ls -l | head -1\nerr�"
    assert (refusal.e.facts["command"], refusal.e.facts["stdout"]) == ("ls -l | head -1", "out")
    assert fields(main.value(unchecked))["status"] == 127


def test_a_form_that_takes_too_long_is_a_shell_error_with_what_it_wrote() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", s.ShellArgs(form=LISTING, shown="ls", check=False, timeout_s=3.0))

    stage.wait(3.0)
    stage.end_shell(ShellEnd(143, b"so far"))

    refusal = next(frame for frame in main.heard if isinstance(frame, f.Refusal) and frame.i == i)
    assert refusal.e.type == f"bartack.errors:{ShellTimeoutError.__name__}"
    assert (refusal.e.facts["status"], refusal.e.facts["stdout"]) == (124, "so far")
    assert issubclass(ShellTimeoutError, ShellError)
    assert issubclass(ShellTimeoutError, TimeoutError)


def test_a_form_that_writes_too_much_fails_whatever_its_status() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", s.ShellArgs(form=LISTING, shown="ls", check=False))

    stage.end_shell(ShellEnd(0, too_large=True))

    assert main.error(i) == "LimitExceededError"


def test_a_form_that_writes_without_end_is_ended() -> None:
    stage = Stage()
    main = stage.begin()
    i = main.step(1, "shell", ARGS)

    stage.hub.post(lambda core: core.shell_too_large(1))
    stage.hub.run_ready()
    assert stage.stopped_shells == [1]
    stage.end_shell(ShellEnd(143))

    assert main.error(i) == "LimitExceededError"


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [("abc", 3, "abc"), ("abc", 2, "bc"), ("aé", 2, "é"), ("éa", 2, "a"), ("🙂a", 4, "a"), ("🙂", 3, "")],
)
def test_no_character_is_cut_in_two(text: str, limit: int, kept: str) -> None:
    assert cut_front(text.encode(), limit).decode() == kept


# Runs in memory.


@worker
async def counting(ctx: Context) -> str:
    return str(await step(ctx, form(into("o", "git", "log"), run("wc", "-l"))))


def test_a_test_says_by_its_words_how_a_form_ends() -> None:
    script: dict[tuple[str, ...], ShellResult] = {
        ("git", "log", ">", "o", "|", "wc", "-l"): ShellResult.success("7\n")
    }

    assert run_worker(counting(), shell=script).result == "7"
