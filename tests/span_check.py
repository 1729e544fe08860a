"""Whether the spans of a journal are what the state of its run has open, after each of its entries."""

from __future__ import annotations

from collections.abc import Sequence

from bartack.journal import Entry
from bartack.messaging import Mailbox
from bartack.runtime.state.apply import add_entry
from bartack.runtime.state.run_state import State
from bartack.runtime.state.spans.rows import MailboxCounts, MessageSpan
from bartack.runtime.state.spans.spans import Moment, Spans
from bartack.runtime.state.spans.steps import TOOL
from bartack.runtime.state.spans.waits import left_of_question, left_of_step
from bartack.runtime.state.worker_state import AskedQuestion, OpenStep


def check_spans(entries: Sequence[Entry]) -> Spans:
    """Compare the spans that contain each entry with what a state has open after it; returns the spans."""
    spans = Spans.of(entries)
    state = State()
    for entry in entries:
        add_entry(state, entry)
        _compare(spans.at(entry.seq), state)
        _compare_run(spans, state, entry)
        _compare_boxes(spans, state, entry.seq)
        _compare_timeline(spans, entry.seq)
    return spans


def _compare(moment: Moment, state: State) -> None:
    assert moment.status == state.status, moment.seq
    steps = {((step.p, step.n), step.kind, step.status) for step in moment.steps if step.kind != TOOL}
    opened = {
        (key, step.step, "open") for worker in state.workers.values() for key, step in worker.open.items()
    }
    assert steps == opened, moment.seq
    alive = {worker.path: worker.status for worker in moment.workers}
    assert alive == {path: "running" for path, worker in state.workers.items() if not worker.ended}, (
        moment.seq
    )
    assert {asked.id: asked.asked_seq for asked in moment.questions} == {
        asked.id: asked.seq for asked in state.questions.values()
    }, moment.seq
    assert round(moment.spent.usd - state.spent_usd, 9) == 0, moment.seq
    assert moment.spent.tokens == state.spent.tokens, moment.seq
    assert round(moment.reserved_usd - state.reserved_usd, 9) == 0, moment.seq
    _compare_mail(moment.messages, state, moment.seq)


def _compare_mail(messages: Sequence[MessageSpan], state: State, seq: int) -> None:
    for name, mailbox in state.mailboxes.items():
        of_it = [message for message in messages if message.mailbox == name]
        by_status = {
            status: [message.id for message in of_it if message.status == status]
            for status in ("queued", "scheduled", "held")
        }
        assert sorted(by_status["queued"]) == sorted(message.id for message in mailbox.queued()), seq
        assert len(by_status["scheduled"]) == mailbox.scheduled, seq
        assert all(mailbox.is_scheduled(message) for message in by_status["scheduled"]), seq
        assert len(by_status["held"]) == mailbox.held, seq
        assert all(mailbox.holding(message) is not None for message in by_status["held"]), seq
        assert len(of_it) == len(mailbox) + mailbox.scheduled + mailbox.held, seq
    assert {message.mailbox for message in messages} <= state.mailboxes.keys(), seq


def _compare_run(spans: Spans, state: State, entry: Entry) -> None:
    past, seq = spans.past, entry.seq
    assert past.failure_at(seq) == state.failure, seq
    assert len(past.suppressed_at(seq)) == state.suppressed, seq
    assert past.hub_at(seq).number == state.hub, seq
    assert past.hub_at(seq).dead_us == state.dead_us, seq
    moment = spans.at(seq)
    for step in moment.steps:
        worker = state.worker_of(step.p)
        if worker is not None and step.kind != TOOL:
            expected = _left_of_step(state, worker.open[step.p, step.n], entry.at)
            assert left_of_step(spans, step, seq, entry.at) == expected, (seq, step)
    for question in moment.questions:
        expected = _left_of_question(state, state.questions[question.id], entry.at)
        assert left_of_question(spans, question, seq, entry.at) == expected, (seq, question)


def _left_of_step(state: State, step: OpenStep, now: int) -> float | None:
    if step.timeout_s is None:
        return None
    people = step.waits_for_people_us(now, state.dead_us)
    return max(step.timeout_s - max(now - step.at - (state.dead_us - step.dead_us) - people, 0) / 1e6, 0.0)


def _left_of_question(state: State, question: AskedQuestion, now: int) -> float | None:
    if not question.by_agent:
        worker = state.worker_of(question.p)
        assert worker is not None
        return _left_of_step(state, worker.open[question.key], now)
    if question.timeout_s is None:
        return None
    waited = max(now - question.at - (state.dead_us - question.dead_us), 0) / 1e6
    return max(question.timeout_s - waited, 0.0)


def _compare_boxes(spans: Spans, state: State, seq: int) -> None:
    boxes = spans.boxes
    assert set(boxes.names_at(seq)) == set(state.mailboxes), seq
    counts = spans.mail.counts_at(seq)
    for name, box in state.mailboxes.items():
        assert boxes.sent_to(name, seq) == box.sent, (seq, name)
        facts = (box.closed, box.capacity, box.max_bytes, box.overflow, box.owner, tuple(box.patterns))
        assert tuple(boxes.facts_at(name, seq)) == facts, (seq, name)
        assert counts.pop(name, MailboxCounts()) == _counts(spans, box, seq), (seq, name)
    assert not counts, seq
    assert spans.letters.at(seq) == list(state.deliveries.letters.values()), seq


def _counts(spans: Spans, box: Mailbox, seq: int) -> MailboxCounts:
    oldest = box.oldest()
    sent = [message.sent_us for message in spans.messages(seq) if oldest and message.id == oldest.id]
    return MailboxCounts(len(box), box.scheduled, box.held, box.size_bytes, sent[0] if sent else 0)


def _compare_timeline(spans: Spans, seq: int) -> None:
    """A timeline as of an entry has all steps that had begun, and those that were open are."""
    began = [step.began_us for step in spans.steps(seq=seq)]
    first, last = min([spans.first_us, *began]), max(spans.last_us, spans.first_us + 1)
    bars = {lane.path: lane.bars for lane in spans.window(first, last, 1000, seq=seq).lanes}
    assert sum(bar.steps for of_lane in bars.values() for bar in of_lane) == len(began), seq
    for step in spans.at(seq).steps:
        end_us = max(spans.time_of(seq), step.began_us)
        shown = [bar for bar in bars[step.p] if bar.from_us <= step.began_us and bar.to_us >= end_us]
        assert any(bar.state in {"open", "failed"} for bar in shown), (seq, step)
