"""Open questions: those of a run at an entry, and those at the end of a journal that is still being read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, cast, get_args

import msgspec

from bartack.core.text import cut
from bartack.errors import JournalError, NotShownError
from bartack.journal import Entry
from bartack.runtime.protocol.asked import ReadQuestion, read_question
from bartack.runtime.protocol.paths import worker_path
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.inbox import answers_left
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.rows import QuestionSpan
from bartack.runtime.state.spans.waits import left_of_question
from bartack.web._hide import Hider
from bartack.web.following._runs import OVER
from bartack.web.models._run import Question, QuestionType
from bartack.web.reading._view import RunView, until

LONGEST: Final = 32 * 1024
"""Characters of the text of a question, and bytes of its schema and of its default: all questions are on one page."""

LONGEST_ANSWER: Final = 200
"""Characters of an answer that is shown to one who came later."""
_TYPES: Final = frozenset(get_args(QuestionType))


def read_questions(view: RunView) -> list[Question]:
    """The questions that were open, the oldest first."""
    spans = view.moment.questions
    kept = answers_left(view.run) if spans and view.is_live and not view.is_active else set[tuple[str, int]]()
    over = _over(view.status) if spans else ""
    found = [
        msgspec.structs.replace(_bounded(view.hider.hide(_question(view, span))), over=over) for span in spans
    ]
    return [msgspec.structs.replace(one, kept=True) if (one.id, one.seq) in kept else one for one in found]


def _over(status: str) -> Literal["", "failed", "ended"]:
    if status not in OVER:
        return ""
    return "failed" if status == "failed" else "ended"


def _bounded(question: Question) -> Question:
    """A question without secrets that is short enough for a page. Options stay whole, because they are answers."""
    schema, default = question.schema, question.default
    return msgspec.structs.replace(
        question,
        question=cut(question.question, LONGEST),
        schema=schema if len(msgspec.json.encode(schema)) <= LONGEST else None,
        default=default if len(msgspec.json.encode(default)) <= LONGEST else None,
    )


def first_answer(view: RunView, question: str) -> tuple[str, str]:
    """Who answered a question that is not open any longer, and what, as JSON that may be cut; empty: it is not known."""
    for row in reversed(range(view.spans.asked.rows.opened_by(view.seq))):
        span = view.spans.question(row)
        if span.id == question and 0 < span.to_seq <= view.seq:
            try:
                by, answer = _answered(view, span)
            except (JournalError, NotShownError, msgspec.DecodeError):
                return "", ""
            return view.hider.text(by), cut(view.hider.text(answer), LONGEST_ANSWER)
    return "", ""


def _answered(view: RunView, span: QuestionSpan) -> tuple[str, str]:
    entry = view.entry(span.to_seq)
    match e.decode_entry(entry.kind, entry.raw):
        case e.StepFinished(by=by):
            return by, (view.load(entry) or b"").decode()
        case e.QuestionSettled(answer=answer, by=by, how="answered"):
            return by, msgspec.json.encode(answer).decode()
        case _:
            return "", ""


def _question(view: RunView, span: QuestionSpan) -> Question:
    return make_question(
        view.run.id,
        span,
        _read(lambda: view.value(span.asked_seq), span.about, by_agent=span.by_agent),
        left_of_question(view.spans, span, view.seq, view.now_us),
        view.now_us,
    )


def make_question(
    run: str, span: QuestionSpan, read: ReadQuestion, left_s: float | None = None, now_us: int = 0
) -> Question:
    """A question for people, of what a span and its value say."""
    args = read.args
    return Question(
        row=span.row,
        id=span.id,
        run=run,
        worker=span.worker,
        p=span.p,
        n=span.n,
        at=span.asked_us,
        seq=span.asked_seq,
        question=args.question,
        type=cast("QuestionType", args.type if args.type in _TYPES else "str"),
        options=args.options or [],
        schema=args.schema,
        default=None if args.default is None else _decode(bytes(args.default)),
        left_s=None if left_s is None else round(left_s, 3),
        until_at=until(left_s, now_us),
        kind=span.kind,
        agent=span.agent,
        tool=span.tool,
        input=read.input,
    )


def _decode(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _read(load: Callable[[], bytes | None], about: str, *, by_agent: bool) -> ReadQuestion:
    """What is asked; if its value cannot be read, only what the journal says in short."""
    try:
        return read_question(load() or b"null", by_agent=by_agent)
    except (msgspec.DecodeError, RecursionError, JournalError):
        return ReadQuestion(AskArgs(question=about))


def last_questions(
    run: str,
    wanted: Iterable[str],
    entries: Iterable[Entry],
    load: Callable[[Entry], bytes | None],
    hider: Hider,
) -> list[Question]:
    """The open questions that the last entries of a journal ask, in order; ``wanted`` are the numbers of those that are open."""
    left = set(wanted)
    found: list[Question] = []
    for entry in entries:
        span = _asked_by(entry)
        if span is not None and span.id in left:
            read = _read(partial(load, entry), span.about, by_agent=span.by_agent)
            found.append(_bounded(hider.hide(make_question(run, span, read))))
    return found


def _asked_by(entry: Entry) -> QuestionSpan | None:
    """The question that an entry asks, if it asks one."""
    try:
        data = e.decode_entry(entry.kind, entry.raw)
    except msgspec.DecodeError:
        return None
    match data:
        case e.StepStarted(question=number) if number:
            return _span(entry, data.p, data.n, number, data.about)
        case e.QuestionAsked():
            asked = _span(entry, data.p, data.n, data.id, data.about)
            return msgspec.structs.replace(
                asked, by_agent=True, agent=data.agent, kind=data.ask, tool=data.tool
            )
        case _:
            return None


def _span(entry: Entry, p: str, n: int, number: str, about: str) -> QuestionSpan:
    return QuestionSpan(
        row=0,
        id=number,
        worker=worker_path(p),
        p=p,
        n=n,
        from_seq=entry.seq,
        asked_seq=entry.seq,
        asked_us=entry.at,
        about=about,
    )
