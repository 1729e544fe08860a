"""Shell forms as steps: what a program in Patchwork runs, and how a worker asks for it.

The step is of the kind ``shell`` like every other command. What it is, is the form alone: how its outcome is taken, how long it may
take and whether it is shown can change without making it another step.
"""

from __future__ import annotations

from typing import Final

from bartack.core.text import cut
from bartack.errors import ShellError
from bartack.runtime.context.part import Seconds, encode_args, limit_of
from bartack.runtime.context.shell import as_text
from bartack.runtime.protocol.steps import ShellArgs
from bartack.runtime.scheduler.operations import StepOp
from bartack.runtime.scheduler.results import ShellResult
from bartack.runtime.scheduler.scheduler import Scheduler
from bartack.supervision.forms import Form, Pipeline, SimpleCommand, iter_texts, show_form

NEVER_STARTED: Final = 127
_ABOUT: Final = 120
_SHOWN: Final = 2000


def shell_form(
    scheduler: Scheduler,
    form: Form,
    *,
    check: bool = True,
    live: bool = False,
    once: bool = False,
    timeout_s: Seconds | None = None,
) -> StepOp[ShellResult]:
    """Execute a form.

    Args:
        scheduler: That of the worker.
        form: The form, with the values that belong into it.
        check: A status other than 0 is a ``ShellError``; else it is the result's.
        live: Show the output while it runs, and keep only the end of it.
        once: It must not be run twice, whatever happens.
        timeout_s: How long it may take.

    Raises:
        ShellError: No program can be given one of the words. Awaited: the form failed, if that is checked.
        ShellTimeoutError: Awaited: it took too long.
        LimitExceededError: Awaited: it wrote more than can be kept.
    """
    scheduler.check_here("a shell form")
    shown = _cut(show_form(form, scheduler.redact), _SHOWN)
    if any("\0" in text for text in iter_texts(form)):
        raise ShellError([shown], NEVER_STARTED, problem="no program can be given a word that contains NUL")
    args = ShellArgs(form=form, shown=shown, live=live, timeout_s=limit_of(timeout_s), check=check, once=once)
    return StepOp("shell", encode_args(args), as_text, about=_cut(shown, _ABOUT), written=encode_args(form))


def unsafe_form(text: str) -> Form:
    """A text that ``/bin/sh`` reads. Nothing else hands text to a shell."""
    return Form(Pipeline([SimpleCommand([["/bin/sh"], ["-c"], [text]])]))


def _cut(text: str, limit: int) -> str:
    return cut(text, limit)
