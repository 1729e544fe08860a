"""Answers questions of a run from outside, with or without a process that runs it.

If a hub runs the run, it gets the answer. If none does, an answer to a program is left in the inbox. An answer to an agent is
written to the journal at once: what an agent may do is never decided by a file, which a process of the run could write, too.
"""

from __future__ import annotations

import os

import msgspec

from bartack.core.clock import SystemClock
from bartack.errors import QuestionAnsweredError, QuestionNotFoundError
from bartack.runtime.client.carrying_out import carry_out
from bartack.runtime.client.connection import HubClient
from bartack.runtime.client.manage import veil_of, without_secrets
from bartack.runtime.client.remote import store
from bartack.runtime.protocol.answers import check_answer
from bartack.runtime.protocol.asked import check_agent_answer
from bartack.runtime.protocol.requests import Request, new_request_id, signed
from bartack.runtime.rundir.asked import load_agent_ask, load_question
from bartack.runtime.rundir.find import check_not_ended, load_state, read_state
from bartack.runtime.rundir.inbox import leave_answer
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Mirror
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import NO_VALUE


def answer_question(run: RunDir, question: str, value: bytes, by: str = "") -> bool:
    """Answer an open question; the first answer counts. Returns whether it waits for the next process that runs the run.

    Raises:
        QuestionNotFoundError: There is none of this number.
        QuestionAnsweredError: It was answered before.
        TypeMismatchError: The answer is not of the kind that was asked for.
        PeerRefusedError: This process belongs to a run.
        JournalLockedError: Another process is about to run the run.
    """
    request = new_request_id()

    def by_hub() -> bool:
        with HubClient(run) as hub:
            hub.ask("answer", Request(question=question, by=by), value, by_id=request)
        return False

    return carry_out(by_hub, lambda: _keep(run, request, question, value, by))


def user_name() -> str:
    """The name of the person who answers, as the journal has it."""
    return os.environ.get("LOGNAME") or os.environ.get("USER") or "a person"


def _keep(run: RunDir, request: str, question: str, value: bytes, by: str) -> bool:
    """Keep an answer for the next process that runs the run, unless the last one has taken it before it died."""
    state = read_state(run)
    if state.requests.place_of(request):
        return False
    asked = state.questions.get(question)
    if asked is None:
        raise _missing(state, question)
    if asked.by_agent:
        _write(run, request, question, value, by)
    else:
        checked = bytes(check_answer(load_question(run, asked).args, msgspec.Raw(value)))
        if not store(run, request, "answer", Request(question=question, by=by), checked):
            leave_answer(run, state, question, checked, request, signed(by, run.role()))
    return True


def _write(run: RunDir, request: str, question: str, value: bytes, by: str) -> None:
    check_outside(f"an answer to {question} of {run.id}", run)
    veil = veil_of(run)
    with own_journal(run) as journal:
        state = load_state(run, journal)
        check_not_ended(run, state)
        asked = state.questions.get(question)
        if asked is None:
            raise _missing(state, question)
        answer = check_agent_answer(load_agent_ask(run, asked), msgspec.Raw(value))
        settled = e.QuestionSettled(id=question, answer=answer, by=signed(by, run.role()) or "a person")
        hidden = without_secrets(settled, veil)
        taken = e.RequestTaken(id=request, do="answer", by=settled.by)
        place = journal.stage(e.draft(hidden), e.draft(taken))
        journal.commit()
        apply(state, hidden, place, SystemClock().now_us(), NO_VALUE)
        Mirror(run, state).write(journal.synced_seq, active=False)


def _missing(state: State, question: str) -> QuestionAnsweredError | QuestionNotFoundError:
    """The error of a question that is not open: it was, or it never was."""
    if any(question == f"q{number}" for number in range(1, state.questions_asked + 1)):
        return QuestionAnsweredError(question)
    return QuestionNotFoundError(question)
