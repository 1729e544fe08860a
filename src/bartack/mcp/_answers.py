"""``answer_question``: passes on what a person said. The first answer counts, and a later one gets it back."""

from __future__ import annotations

import msgspec

from bartack.errors import QuestionAnsweredError
from bartack.mcp._errors import ToolError
from bartack.mcp._report import cut_text, iso
from bartack.runtime.client.answering import answer_question
from bartack.runtime.protocol.values import encode
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e


def pass_answer(run: RunDir, question: str, value: object, by: str) -> dict[str, object]:
    """Answer an open question of a run.

    Raises:
        ToolError: It asks for a permission, which only a person may give.
        BartackError: There is no such question, or the answer is not of its kind.
    """
    asked = read_state(run).questions.get(question)
    if asked is not None and asked.kind == "permission":
        raise ToolError(
            f"{question} asks for a permission. Only a person may give it: bartack answer {run.id} {question}"
        )
    try:
        kept = answer_question(run, question, encode(value), by)
    except QuestionAnsweredError:
        return {"accepted": False, **first_answer(run, question)}
    return (
        {"accepted": True, "kept": True, "resume_hint": f"bartack resume {run.id}"}
        if kept
        else {"accepted": True}
    )


def first_answer(run: RunDir, question: str) -> dict[str, object]:
    """Who answered a question, when, and what, as far as that is in the journal yet."""
    asked: tuple[str, int] | None = None
    with run.open_reader() as reader:
        for entry in reader.read():
            match e.decode_entry(entry.kind, entry.raw):
                case e.StepStarted(question=number, p=p, n=n) if number == question:
                    asked = (p, n)
                case e.StepFinished(p=p, n=n, by=by) if (p, n) == asked:
                    value = msgspec.json.decode(reader.load_value(entry) or b"null")
                    return _described(by, entry.at, value)
                case e.QuestionSettled(id=number, by=by, answer=answer) if number == question:
                    return _described(by, entry.at, answer)
                case _:
                    continue
    return {"answered_by": "an answer that waits for the run to be resumed"}


def _described(by: str, at: int, value: object) -> dict[str, object]:
    answer = cut_text(value) if isinstance(value, str) else value
    return {"answered_by": by, "answered_at": iso(at), "answer": answer}
