"""``bartack answer``: the open questions of runs, and answers to them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from bartack.cli.app._database import shows_database
from bartack.cli.app._options import json_option, with_on, write_json
from bartack.cli.app._runs import (
    QuestionFacts,
    complete_run,
    locate,
    note_unreadable,
    open_questions,
    workspace_option,
)
from bartack.cli.app._terminal import Screen, printable, printable_lines, write_note
from bartack.errors import BartackError, TypeMismatchError, UsageError
from bartack.runtime.client.answering import answer_question, user_name
from bartack.runtime.protocol.answers import check_answer, read_typed
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.asked import load_question
from bartack.runtime.rundir.find import ENDED, UNREADABLE, list_runs, look_at, read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State

Asked = tuple[RunDir, QuestionFacts]
"""An open question, and the run that asks it."""

_KINDS: Final = {"bool": "yes or no", "int": "a whole number", "float": "a number", "json": "JSON"}


@click.command(short_help="List the open questions of a run, or answer one.")
@click.argument("run", required=False, shell_complete=complete_run)
@click.argument("question", required=False)
@click.argument("value", required=False)
@click.option("--all", "everywhere", is_flag=True, help="List the open questions of all workspaces.")
@shows_database
@workspace_option
@json_option
def answer(
    run: str | None,
    question: str | None,
    value: str | None,
    workspace: str,
    *,
    everywhere: bool,
    as_json: bool,
) -> None:
    """List the open questions of RUN, or answer QUESTION with VALUE. Without RUN: the questions of all runs of the workspace.

    VALUE is parsed as the type of the question: text, yes or no, a number, one of the options, or JSON. The first answer counts.
    If the run is not active, the answer is stored and used when the run is resumed. The node resumes a run that it knows at once.
    """
    if everywhere:
        _list_everywhere(run, workspace, as_json=as_json)
        return
    if run is None:
        _list(_asking(list_runs(Path(workspace))), as_json=as_json)
        return
    found = locate(run, workspace)
    state = read_state(found)
    if question is None:
        _list(_questions_of(found, state), as_json=as_json)
    elif value is None:
        raise UsageError("bartack answer", f"the answer to {question} is missing")
    else:
        _answer(found, state, question, value, as_json=as_json)


def _list_everywhere(run: str | None, workspace: str, *, as_json: bool) -> None:
    if run is not None:
        raise UsageError("bartack answer", "--all lists the questions of all runs; leave RUN out")
    from bartack.runtime.client.everywhere import all_runs  # noqa: PLC0415 - only the list of all workspaces needs it

    found = all_runs(Path(workspace))
    for one in found.unlisted:
        write_note(f"the runs of {printable(one.workspace)} are skipped: {printable(one.reason)}")
    places = {placed.run.path: placed.workspace for placed in found.runs}
    _list(_asking([placed.run for placed in found.runs]), as_json=as_json, places=places)


def _asking(runs: Sequence[RunDir]) -> list[Asked]:
    """The open questions of runs; for an unreadable run it writes the reason."""
    asked: list[Asked] = []
    for run in runs:
        summary, state = look_at(run)
        if summary.status == UNREADABLE:
            note_unreadable(summary)
        elif summary.questions and summary.status not in ENDED - {"interrupted"}:
            try:
                asked += _questions_of(run, state or read_state(run))
            except BartackError as error:
                write_note(f"{run.id} is skipped: {printable(error.message)}")
    return asked


def _questions_of(run: RunDir, state: State) -> list[Asked]:
    return [(run, question) for question in open_questions(run, state)]


def _list(asked: list[Asked], *, as_json: bool, places: Mapping[Path, str] | None = None) -> None:
    """Write questions; with ``places``, the workspaces of their runs, too."""
    if as_json:
        write_json([_facts(run, question, places) for run, question in asked])
        return
    screen = Screen(sys.stdout)
    if not asked:
        screen.line("No question is open.")
    for run, question in asked:
        screen.line(f"{run.id}  {screen.paint(question.id, 'cyan')}  {printable_lines(_text(question), 4)}")
        if question.use:
            screen.line(f"    {printable(question.use)}")
        if places is not None:
            screen.line(f"    in {printable(places[run.path])}")
        screen.line(f"    {with_on(f'bartack answer {run.id} {question.id} {question.hint}')}")


def _facts(run: RunDir, question: QuestionFacts, places: Mapping[Path, str] | None) -> dict[str, object]:
    place = {} if places is None else {"workspace": places[run.path]}
    return {"run": run.id, **place, **msgspec.to_builtins(question)}


def _text(question: QuestionFacts) -> str:
    args = AskArgs(question=question.question, type=question.type, options=question.options)
    return f"{question.question} ({expected(args)}; asked by {question.asker})"


def _answer(run: RunDir, state: State, question: str, text: str, *, as_json: bool) -> None:
    asked = state.questions.get(question)
    value = msgspec.Raw(msgspec.json.encode(text))
    if asked is not None:
        value = checked(load_question(run, asked).args, text)
    kept, queued = give_answer(run, question, bytes(value), user_name())
    if as_json:
        more = {"queued": True} if queued else {}
        write_json({"run": run.id, "question": question, "kept": kept, **more})
    elif not kept:
        write_note(f"answered {question} of {run.id}")
    elif queued:
        write_note(f"answered {question} of {run.id}; the node resumes it")
        write_note(f"  watch it: {with_on(f'bartack attach {run.id}')}")
    else:
        write_note(f"stored for {run.id}, which is not active")
        write_note(f"resume it with: {with_on(f'bartack resume {run.id}')}")


def give_answer(run: RunDir, question: str, value: bytes, by: str) -> tuple[bool, bool]:
    """Answer a question, or store the answer for a run that is not active; the node resumes one that rests in its queue.

    Returns:
        Whether the answer is stored, and whether the node resumes the run.
    """
    kept = answer_question(run, question, value, by)
    if not kept:
        return False, False
    if run.where is not None:
        return True, run.is_awaited()
    from bartack.cli.queued._queueing import requeue_resting  # noqa: PLC0415 - active runs are answered faster without it

    return True, requeue_resting(run)


def checked(args: AskArgs, text: str) -> msgspec.Raw:
    """Convert typed text to the value that the question asks for.

    Raises:
        UsageError: The text is not a valid answer.
    """
    try:
        return check_answer(args, read_typed(args.type, text, args.options or ()))
    except TypeMismatchError as error:
        problem = "" if args.options or args.type != "json" else f" ({error.message})"
        raise UsageError(
            "bartack answer", f"{text!r} is not a valid answer: expected {expected(args)}{problem}"
        ) from None


def expected(args: AskArgs) -> str:
    """Describe the kind of answer that a question expects."""
    return " | ".join(args.options) if args.options else _KINDS.get(args.type, "a text")
