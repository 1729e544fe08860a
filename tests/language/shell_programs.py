"""Workers that run shell forms, for the tests with real runs beside this file."""

from __future__ import annotations

from typing import Literal

from bartack import Context, worker
from bartack.errors import BartackError, ShellError
from bartack.runtime.context.part import scheduler_of
from bartack.runtime.patchwork._forms import shell_form
from bartack.runtime.scheduler.operations import StepOp
from bartack.runtime.scheduler.results import ShellResult
from bartack.supervision.forms import Bare, Form, Group, Pipeline, Redirect, SimpleCommand, Word


def command(*texts: str | Word) -> SimpleCommand:
    return SimpleCommand([[text] if isinstance(text, str) else text for text in texts])


def joined(joint: Literal["&&", "||"], *commands: SimpleCommand | Group) -> Form:
    return Form(Pipeline([commands[0]]), [(joint, Pipeline([one])) for one in commands[1:]])


def run(
    ctx: Context, form: Form, *, check: bool = True, live: bool = False, timeout_s: float | None = None
) -> StepOp[ShellResult]:
    return shell_form(scheduler_of(ctx), form, check=check, live=live, timeout_s=timeout_s)


def noted(*texts: str | Word) -> SimpleCommand:
    """A command that adds its output to the effects of the run."""
    return SimpleCommand(command(*texts).words, redirects=[Redirect(1, ">>", ["effects.txt"])])


async def caught(step: StepOp[ShellResult]) -> list[object]:
    """What became of a form that fails."""
    try:
        await step
    except ShellError as error:
        return [type(error).__name__, error.status, error.command, error.stdout, error.stderr, str(error)]
    except BartackError as error:
        return [type(error).__name__, str(error)]
    return []


@worker
async def outcomes(ctx: Context) -> list[object]:
    """Forms of each kind, and what they give."""
    failing = command("sh", "-c", "echo out; seq 20 >&2; exit 3")
    missing = command("no-such-program", "a b")
    plain = await run(ctx, joined("&&", command("echo", "a b", "*")))
    pipeline = await run(ctx, Form(Pipeline([command("printf", "b\\na\\n"), command("sort")])))
    listed = await run(ctx, joined("&&", noted("echo", "x"), command("ls", [Bare("effects*")])))
    return [
        [plain.status, plain.stdout],
        [pipeline.status, pipeline.stdout, str(pipeline)],
        [listed.status, listed.stdout],
        [(await run(ctx, joined("&&", missing), check=False)).status],
        [(await run(ctx, joined("&&", command("sh", "-c", "kill -KILL $$")), check=False)).status],
        [(await run(ctx, joined("&&", command(":"), missing), check=False)).status],
        await caught(run(ctx, joined("&&", failing))),
        await caught(run(ctx, joined("||", Group(joined("&&", failing)), command("sh", "-c", "exit 4")))),
        await caught(run(ctx, joined("&&", missing))),
    ]


@worker
async def secretive(ctx: Context, secret: str) -> list[object]:
    """A form with a secret in it fails."""
    return await caught(run(ctx, joined("&&", command("test", secret, "=", "x"), command("true"))))


@worker
async def late(ctx: Context) -> list[object]:
    """A form that leaves a grandchild behind and takes too long."""
    inner = command("sh", "-c", "echo begun; sleep 1000 & exec sleep 1000")
    form = joined("||", Group(joined("&&", inner, command("true"))), noted("echo", "behind"))
    return await caught(run(ctx, form, check=False, timeout_s=3))


@worker
async def flooding(ctx: Context) -> list[object]:
    """Forms that write more than can be kept: at once, and without an end."""
    return [
        await caught(
            run(
                ctx,
                joined("&&", command("head", "-c", "68000000", "/dev/zero"), command("true")),
                check=False,
            )
        ),
        await caught(
            run(ctx, joined("&&", command("sh", "-c", "head -c 70000000 /dev/zero; exec sleep 1000")))
        ),
    ]


@worker
async def talking(ctx: Context) -> list[object]:
    """A form whose output is shown, and only the end of it kept."""
    ctx.print("before")
    text = (
        "echo begins; echo trouble >&2; until test -e go; do sleep 0.02; done; seq 20000; printf 'no newline'"
    )
    result = await run(ctx, joined("&&", command(":"), command("sh", "-c", text)), live=True)
    return [len(result.stdout), result.stdout[-20:], result.stderr]


@worker
async def patient(ctx: Context) -> str:
    """A form that tells its key, and waits until it may go on."""
    wait = command("sh", "-c", "until test -e go; do sleep 0.02; done")
    key = noted("sh", "-c", 'echo "$BARTACK_STEP"')
    result = await run(ctx, joined("&&", key, wait, command("echo", "done")))
    return str(result)
