"""``bartack answer``: the open questions of runs, and answers to them."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable, printable_lines, write_note
from bartack.cli.runs._runs import (
    QuestionFacts,
    complete_run,
    load_value,
    locate,
    note_unreadable,
    open_questions,
    workspace_option,
)
from bartack.errors import (
    BartackError,
    QuestionNotFoundError,
    RunNotActiveError,
    TypeMismatchError,
    UsageError,
)
from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.answers import check_answer
from bartack.runtime.protocol.requests import Request
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.find import ENDED, UNREADABLE, list_runs, read_state, summarise
from bartack.runtime.rundir.inbox import leave_answer
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State

Asked = tuple[RunDir, QuestionFacts]
"""An open question, and the run that asks it."""

_KINDS: Final = {"bool": "yes or no", "int": "a whole number", "float": "a number", "json": "JSON"}


@click.command(short_help="List the open questions of a run, or answer one.")
@click.argument("run", required=False, shell_complete=complete_run)
@click.argument("question", required=False)
@click.argument("value", required=False)
@workspace_option
@json_option
def answer(
    run: str | None, question: str | None, value: str | None, workspace: str, *, as_json: bool
) -> None:
    """List the open questions of RUN, or answer QUESTION with VALUE. Without RUN: the questions of all runs.

    VALUE is parsed as the type of the question: text, yes or no, a number, one of the options, or JSON. The first answer counts.
    If the run is not active, the answer is stored and used when the run is resumed.
    """
    if run is None:
        _list(_asking(Path(workspace)), as_json=as_json)
        return
    found = locate(run, workspace)
    state = read_state(found)
    if question is None:
        _list(_questions_of(found), as_json=as_json)
    elif value is None:
        raise UsageError("bartack answer", f"the answer to {question} is missing")
    else:
        _answer(found, state, question, value, as_json=as_json)


def _asking(workspace: Path) -> list[Asked]:
    """The open questions of all runs; for an unreadable run it writes the reason."""
    asked: list[Asked] = []
    for run in list_runs(workspace):
        summary = summarise(run)
        if summary.status == UNREADABLE:
            note_unreadable(summary)
        elif summary.questions and summary.status not in ENDED - {"interrupted"}:
            try:
                asked += _questions_of(run)
            except BartackError as error:
                write_note(f"{run.id} is skipped: {printable(error.message)}")
    return asked


def _questions_of(run: RunDir) -> list[Asked]:
    return [(run, question) for question in open_questions(run, read_state(run))]


def _list(asked: list[Asked], *, as_json: bool) -> None:
    if as_json:
        write_json([{"run": run.id, **msgspec.to_builtins(question)} for run, question in asked])
        return
    screen = Screen(sys.stdout)
    if not asked:
        screen.line("No question is open.")
    for run, question in asked:
        screen.line(f"{run.id}  {screen.paint(question.id, 'cyan')}  {printable_lines(_text(question), 4)}")
        screen.line(f"    bartack answer {run.id} {question.id} VALUE")


def _text(question: QuestionFacts) -> str:
    args = AskArgs(question=question.question, type=question.type, options=question.options)
    return f"{question.question} ({expected(args)}; asked by {question.worker})"


def _answer(run: RunDir, state: State, question: str, text: str, *, as_json: bool) -> None:
    place = state.questions.get(question)
    value = msgspec.Raw(msgspec.json.encode(text))
    if place is not None:
        path, p, n = place
        args = msgspec.json.decode(load_value(run, state.workers[path].open[p, n].asked), type=AskArgs)
        value = checked(args, text)
    try:
        with HubClient(run) as hub:
            hub.ask("answer", Request(question=question, by=user_name()), bytes(value))
        kept = False
    except RunNotActiveError:
        if place is None:
            raise QuestionNotFoundError(question) from None
        leave_answer(run, state, question, bytes(value))
        kept = True
    if as_json:
        write_json({"run": run.id, "question": question, "kept": kept})
    elif not kept:
        write_note(f"answered {question} of {run.id}")
    else:
        write_note(f"stored for {run.id}, which is not active")
        write_note(f"resume it with: bartack resume {run.id}")


def checked(args: AskArgs, text: str) -> msgspec.Raw:
    """Convert typed text to the value that the question asks for.

    Raises:
        UsageError: The text is not a valid answer.
    """
    try:
        return check_answer(args, msgspec.Raw(_read(args, text)))
    except TypeMismatchError as error:
        problem = "" if args.options or args.type != "json" else f" ({error.message})"
        raise UsageError(
            "bartack answer", f"{text!r} is not a valid answer: expected {expected(args)}{problem}"
        ) from None


def _read(args: AskArgs, text: str) -> bytes:
    """For a JSON question the text is JSON, unless it is one of the options."""
    if args.type == "json" and text not in (args.options or ()):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.encode(msgspec.json.decode(text))
    return msgspec.json.encode(text)


def expected(args: AskArgs) -> str:
    """Describe the kind of answer that a question expects."""
    return " | ".join(args.options) if args.options else _KINDS.get(args.type, "a text")


def user_name() -> str:
    """The name of the user who answers."""
    return os.environ.get("LOGNAME") or os.environ.get("USER") or "a person"
