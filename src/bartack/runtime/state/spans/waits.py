"""How much of its time a wait has left after an entry: only the time counts in which a hub was alive. A part of ``spans.py``.

The kernel counts in the same way (``kernel/desk.py``); an agent that waits for people does not use its own time.
"""

from __future__ import annotations

from bartack.runtime.state.spans.rows import QuestionSpan, StepSpan
from bartack.runtime.state.spans.spans import Spans


def left_of_step(spans: Spans, step: StepSpan, seq: int, now_us: int) -> float | None:
    """Seconds that an open step has left; ``None`` if it waits for ever.

    Args:
        spans: The run.
        step: The step, as of the entry.
        seq: The entry.
        now_us: The moment to count to: that of the entry, or now if it is the last one.
    """
    if step.timeout_s is None:
        return None
    began_seq, began_us = spans.columns.attempts.began(step.row, seq)
    waited = now_us - began_us - _dead_between(spans, began_seq, seq) - _asking_us(spans, step, seq, now_us)
    return max(step.timeout_s - max(waited, 0) / 1e6, 0.0)


def left_of_question(spans: Spans, question: QuestionSpan, seq: int, now_us: int) -> float | None:
    """Seconds that an open question has left; ``None`` if it waits for ever. See ``left_of_step``."""
    if not question.by_agent:
        step = spans.find_step(question.p, question.n, seq)
        return None if step is None else left_of_step(spans, step, seq, now_us)
    if question.timeout_s is None:
        return None
    waited = now_us - question.asked_us - _dead_between(spans, question.asked_seq, seq)
    return max(question.timeout_s - max(waited, 0) / 1e6, 0.0)


def _asking_us(spans: Spans, step: StepSpan, seq: int, now_us: int) -> int:
    """How long the agent of a prompt had questions to people while a hub was alive."""
    total = until = 0
    for row in spans.asked.of_prompt((step.p, step.n)):
        question = spans.question(row)
        if not step.from_seq <= question.asked_seq <= seq:
            continue
        begin = max(question.asked_seq, until)
        is_over = 0 < question.to_seq <= seq
        end = question.to_seq if is_over else seq
        if end < begin:
            continue
        end_us = question.ended_us if is_over else now_us
        total += max(end_us - spans.time_of(begin) - _dead_between(spans, begin, end), 0)
        until = end
    return total


def _dead_between(spans: Spans, first: int, last: int) -> int:
    return spans.past.hub_at(last).dead_us - spans.past.hub_at(first).dead_us
