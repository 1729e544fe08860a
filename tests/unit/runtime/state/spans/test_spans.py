"""Spans: those that contain an entry are what the state has open after it; and what they say of steps, messages and money."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crash.test_random_programs import CarelessWriter, Writer, actor, make_agent, make_run, shell
from tests.crash.test_recorded_runs import restore
from tests.span_check import check_spans

from bartack import ShellResult
from bartack.journal import Bookmark, Entry, open_reader
from bartack.runtime.client.manage import fork_run
from bartack.runtime.memory.hub import KilledError
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.protocol.steps import UsageFacts
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.columns import FEWEST, KNOWN, Intervals, Texts
from bartack.runtime.state.spans.rows import StepSpan, WorkerSpan
from bartack.runtime.state.spans.spans import MOST_BARS, Spans
from bartack.runtime.state.timeline import Timeline
from bartack.runtime.state.units import Units
from bartack.testing import TestRun

RECORDED = sorted((Path(__file__).parents[4] / "crash" / "journals").glob("*/run-*"))
SECOND = 1_000_000
ERROR = ErrorData(type="builtins:ValueError", message="no", code="BT1")


def all_workers(spans: Spans, seq: int | None = None) -> list[WorkerSpan]:
    """All workers that had been started up to an entry, each by its latest life, in the order of their first ones."""
    seq = spans.last_seq if seq is None else seq
    latest = {spans.lives.path(row): row for row in range(spans.lives.lives.opened_by(seq))}
    return [spans.worker(row, seq) for row in latest.values()]


class Journal:
    """Entries of one run, a second apart."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.write(
            e.RunCreated(run="r", worker="t:main", name="main", program="", workspace="", root="", seed=0),
            e.HubStarted(hub=1),
            e.WorkerSpawned(path="main", worker="t:main"),
        )

    def write(self, *facts: e.EntryData, value: object = None) -> Journal:
        for data in facts:
            seq = len(self.entries) + 1
            raw = msgspec.Raw(msgspec.json.encode(data))
            payload = None if value is None else msgspec.Raw(msgspec.json.encode(value))
            self.entries.append(Entry(seq, seq, seq * SECOND, data.kind, raw, payload))
        return self

    @property
    def seq(self) -> int:
        return len(self.entries)

    def spans(self) -> Spans:
        return check_spans(self.entries)


@pytest.fixture
def journal() -> Journal:
    return Journal()


def begun(n: int, p: str = "main", **members: object) -> e.StepStarted:
    return msgspec.convert({"p": p, "n": n, "step": "shell", "fp": "f", **members}, e.StepStarted)


def ended(n: int, p: str = "main", **members: object) -> e.StepFinished:
    return msgspec.convert({"p": p, "n": n, "step": "shell", "fp": "f", **members}, e.StepFinished)


def failed(n: int, p: str = "main") -> e.StepFailed:
    return e.StepFailed(p=p, n=n, step="shell", fp="f", error=ERROR)


def sent(message: str, **members: object) -> e.MessageSent:
    return msgspec.convert(
        {"mailbox": "box", "id": message, "size": 3, "sender": "main", **members}, e.MessageSent
    )


# What contains an entry is what the state has open after it.


@pytest.mark.requirement("spans-are-the-state")
@pytest.mark.parametrize("place", RECORDED, ids=lambda place: place.parent.name)
def test_spans_that_contain_an_entry_of_a_recorded_run_are_what_its_state_has_open(place: Path) -> None:
    with open_reader(place) as reader:
        spans = check_spans(list(reader.read()))

    assert len(spans.columns) > 2


@pytest.mark.parametrize("seed", range(10))
def test_the_same_holds_for_programs_made_by_chance_that_are_killed(seed: int) -> None:
    code = Writer(seed).write()
    with make_run(code) as whole:
        whole.finish()
    check_spans(whole.journal)
    run = make_run(code, Random(seed).randint(2, len(whole.lines) - 1))
    with closing(run):
        with pytest.raises(KilledError):
            play(run)
        run.resume()
        run.finish()

    check_spans(run.journal)


def play(run: TestRun[list[object]]) -> None:
    run.start()
    run.finish()


@pytest.mark.parametrize("seed", range(10))
def test_the_same_holds_for_failures_that_are_resumed_after_their_cause_is_fixed(seed: int) -> None:
    broken = [True]

    def fixable(words: list[str]) -> ShellResult:
        return shell(words) if broken[0] else ShellResult.success("said")

    with TestRun(actor(CarelessWriter(seed).write()), agent=make_agent(), shell=fixable) as run:
        run.finish()
        broken[0] = False
        for _ in range(6):
            if run.error is not None:
                run.resume()
                run.finish()

    spans = check_spans(run.journal)
    undone = {(step.name, step.seq) for step in Timeline.of(run.journal).steps if step.status == "undone"}
    assert {name for name, seq in undone if seq} <= {step.name for step in spans.steps(statuses={"undone"})}


def test_the_same_holds_for_a_fork(tmp_path: Path) -> None:
    run = restore("plain", tmp_path)
    with open_reader(run.path) as reader:
        inner = next(step for step in Timeline.of(reader.read()).steps if "/" in step.p and step.seq)
    with open_reader(fork_run(run, inner.name).path) as reader:
        spans = check_spans(list(reader.read()))

    assert "delegate" in {step.kind for step in spans.at().steps}


def test_the_same_holds_when_workers_are_dropped_and_steps_set_aside(journal: Journal) -> None:
    child = e.WorkerSpawned(path="main/1:c", worker="t:c", p="main", n=1)
    journal.write(
        begun(1, step="delegate"),
        child,
        begun(1, "main/1:c", question="q1", step="ask"),
        e.WorkersDropped(p="main", n=1),
        child,
        ended(1, "main/1:c"),
        e.WorkerEnded(path="main/1:c"),
        ended(1, step="delegate"),
        begun(2),
        e.StepSetAside(path="main", p="main", n=1, to=4, workers=["main/1:c"]),
        begun(1, step="delegate"),
    )

    spans = journal.spans()
    assert [(step.name, step.status) for step in spans.steps()] == [
        ("main:1", "undone"),
        ("main/1:c:1", "undone"),
        ("main/1:c:1", "undone"),
        ("main:2", "undone"),
        ("main:1", "open"),
    ]
    assert [worker.status for worker in all_workers(spans, 11)] == ["running", "completed"]
    assert [worker.status for worker in all_workers(spans)] == ["running", "undone"]


def test_spans_are_the_same_whether_entries_come_at_once_or_one_by_one(journal: Journal) -> None:
    journal.write(begun(1), sent("m-1"), ended(1), begun(2))
    spans = Spans()
    for entry in journal.entries:
        spans.add(entry)
        live = spans.at()

        assert live.seq == entry.seq
        assert live.steps == [
            step for step in Spans.of(journal.entries[: entry.seq]).steps() if step.status == "open"
        ]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60), st.integers(1, 5))
@settings(max_examples=60)
def test_rows_at_an_entry_are_those_between_their_ends(events: list[tuple[bool, int]], fewest: int) -> None:
    rows = Intervals(fewest)
    opened: list[int] = []
    ends: dict[int, tuple[int, int]] = {}
    for seq, (opens, which) in enumerate(events, 1):
        for _ in range(which):
            if opens:
                opened.append(rows.open(seq))
                ends[opened[-1]] = (seq, 1 << 40)
            elif opened:
                gone = opened.pop(which % len(opened))
                rows.close(gone, seq)
                ends[gone] = (ends[gone][0], seq)

    for seq in range(len(events) + 2):
        assert rows.at(seq) == [row for row, (first, last) in ends.items() if first <= seq < last]


def test_many_spans_are_found_between_copies_of_what_is_open() -> None:
    rows = Intervals()
    for seq in range(1, 4 * FEWEST):
        row = rows.open(seq)
        if seq % 3:
            rows.close(row, seq + 0)

    assert rows.at(2 * FEWEST) == [seq - 1 for seq in range(3, 2 * FEWEST + 1, 3)]
    assert rows.now() == rows.at(4 * FEWEST)


# Steps.


def test_a_step_has_the_status_that_it_had_after_the_entry_that_is_asked_for(journal: Journal) -> None:
    journal.write(begun(1), failed(1))
    journal.write(e.WorkerEnded(path="main", error=ERROR, origin=("main", 1)))
    journal.write(e.HubStarted(hub=2), e.WorkerRewound(path="main", to=5), ended(1))
    spans = journal.spans()

    first, again = spans.attempts_of("main", 1)
    assert [spans.step(first.row, seq).status for seq in (4, 5, 7, 8, 9)] == [
        "open",
        "failed",
        "failed",
        "undone",
        "undone",
    ]
    assert (first.error, again.status, again.error) == (
        ("builtins:ValueError", "no", "BT1"),
        "finished",
        None,
    )
    found = spans.find_step("main", 1, 6)
    assert found is not None
    assert found.row == first.row


def test_the_beginning_of_a_body_is_exact_only_if_its_worker_has_reported_it(journal: Journal) -> None:
    journal.write(
        ended(1, step="body"),
        ended(2, step="body", took_us=250_000),
        ended(3, step="now"),
        begun(4, step="body", since=6_900_000),
        ended(4, step="body"),
    )
    found = [(step.began, step.began_us, step.took_us) for step in journal.spans().steps()]

    assert found == [
        ("after", 3 * SECOND, None),
        ("exact", 4_750_000, 250_000),
        ("exact", 6 * SECOND, 0),
        ("exact", 6_900_000, 1_100_000),
    ]


def test_a_path_has_one_lane(journal: Journal) -> None:
    child = e.WorkerSpawned(path="main/1:c", worker="t:c", p="main", n=1)
    journal.write(ended(1, step="body"), ended(2, step="body"), child, ended(1, "main/1:c", step="body"))
    spans = journal.spans()

    assert [lane.path for lane in spans.window(0, spans.last_us, 1000).lanes] == ["main", "main/1:c"]
    assert [lane.path for lane in spans.columns.lanes] == ["main", "main/1:c"]


def test_a_body_whose_beginning_is_unknown_began_after_its_run_was_resumed(journal: Journal) -> None:
    journal.write(ended(1), e.HubStarted(hub=2), ended(2, step="body"))

    (_, body) = journal.spans().steps()
    assert (body.began, body.began_us) == ("after", 5 * SECOND)


def test_attempts_are_counted_as_of_an_entry(journal: Journal) -> None:
    journal.write(
        begun(1), e.StepRetried(p="main", n=1, attempt=1, due=9, error=ERROR), begun(1, attempt=2), ended(1)
    )
    spans = journal.spans()

    assert [(spans.step(0, seq).attempt, spans.step(0, seq).due_us) for seq in (4, 5, 6)] == [
        (1, 0),
        (2, 9),
        (2, 0),
    ]


def test_calls_of_tools_are_spans_and_end_with_their_prompt(journal: Journal) -> None:
    journal.write(
        begun(1, step="think"),
        e.ToolCalled(p="main", n=1, call=1, place=1, tool="look"),
        e.ToolFinished(p="main", n=1, call=1),
        e.ToolCalled(p="main", n=1, call=2, place=2, tool="touch"),
        failed(1),
    )
    spans = journal.spans()

    tools = list(spans.steps(kinds={"tool"}))
    assert [(tool.p, tool.about, tool.status) for tool in tools] == [
        ("main/do:1.1", "look", "finished"),
        ("main/do:1.2", "touch", "aborted"),
    ]
    assert [step.kind for step in spans.at(5).steps] == ["think", "tool"]


def test_steps_are_found_by_worker_kind_status_and_text(journal: Journal) -> None:
    child = e.WorkerSpawned(path="main/1:c", worker="t:c", p="main", n=1)
    journal.write(begun(1, about="pytest -Q"), child, begun(1, "main/1:c.2.1", about="ruff"), ended(1))
    spans = journal.spans()

    def names(steps: Iterable[StepSpan]) -> list[str]:
        return [step.name for step in steps]

    assert names(spans.steps(worker="main/1:c")) == ["main/1:c.2.1:1"]
    assert names(spans.steps(statuses={"finished"})) == ["main:1"]
    assert names(spans.steps(statuses={"open"}, seq=4)) == ["main:1"]
    assert names(spans.steps(text="PYTEST -q")) == ["main:1"]
    assert names(spans.steps(kinds={"think"})) == []
    assert names(spans.steps(newest_first=True)) == ["main/1:c.2.1:1", "main:1"]


def test_the_bars_of_a_past_entry_are_those_of_then(journal: Journal) -> None:
    journal.write(begun(1), failed(1), begun(2), ended(2), begun(3))
    journal.write(e.WorkerEnded(path="main", error=ERROR, origin=("main", 1)))
    journal.write(e.HubStarted(hub=2), e.WorkerRewound(path="main", to=5), ended(1))
    spans = journal.spans()

    def drawn(seq: int) -> list[tuple[str, int]]:
        (lane,) = spans.window(0, spans.last_us, 10_000, seq=seq).lanes
        return [(bar.state, bar.to_us // SECOND) for bar in lane.bars]

    assert drawn(4) == [("open", 4)]
    assert drawn(6) == [("failed", 5), ("open", 6)]
    assert drawn(10) == [("failed", 5), ("finished", 7), ("open", 10)]
    assert drawn(11)[0] == ("undone", 5)


def test_blocks_of_a_timeline_stand_for_steps_as_they_were_after_an_entry(journal: Journal) -> None:
    for n in range(1, 300):
        journal.write(ended(n))
    spans = Spans.of(journal.entries)

    def steps(seq: int) -> int:
        (lane,) = spans.window(0, spans.last_us, 4, seq=seq).lanes
        return sum(bar.steps for bar in lane.bars)

    assert [steps(seq) for seq in (4, 100, 250, 302)] == [1, 97, 247, 299]


def test_a_call_of_an_agent_is_known_by_what_its_prompt_and_its_outcome_say(journal: Journal) -> None:
    asked = {"prompt": "do it", "name": "n", "agent": "ann", "command": {"action": "review", "task_id": "t1"}}
    usage = {"input_tokens": 7, "turns": 2}
    outcome = {"key": "ik:other", "agent": "bob", "conversation": "c1", "usage": usage}
    journal.write(begun(1, step="think"), value=asked)
    journal.write(e.AttemptFailed(p="main", n=1, agent="bob", attempt=1, code="BT1", text="no"))
    journal.write(begun(2, step="think"), value="not what it should be")
    calls = journal.spans().columns.calls

    open_call = calls.call(0, ("main", 1))
    assert open_call is not None
    assert open_call[:6] == (step_key("r", "main", 1, 0), "bob", "review", "t1", "", 5)
    assert calls.call(1, ("main", 2)) is not None
    assert calls.call(2, ("main", 3)) is None

    journal.write(ended(1, step="think"), value=outcome)
    ended_call = journal.spans().columns.calls.call(0, ("main", 1))
    assert ended_call is not None
    assert ended_call[:6] == ("ik:other", "bob", "review", "t1", "c1", 5)
    assert ended_call.usage == UsageFacts(input_tokens=7, turns=2)


def test_the_entries_of_a_step_are_its_beginning_its_attempts_and_its_end(journal: Journal) -> None:
    retried = e.StepRetried(p="main", n=1, attempt=1, due=9, error=ERROR)
    journal.write(begun(1), retried, begun(1, attempt=2), ended(1), ended(2))
    columns = journal.spans().columns

    assert [columns.entries_of(row) for row in (0, 1)] == [[4, 5, 6, 7], [8]]


# Messages, questions, workers.


def test_a_worker_has_a_name_its_steps_and_its_crashes(journal: Journal) -> None:
    child = e.WorkerSpawned(path="main/1:c", worker="t:c", p="main", n=1)
    crashed = e.WorkerCrashed(path="main/1:c", incarnation=1, reason="SIGKILL")
    journal.write(child, value={"args": [{"long": 1}, "b3"]})
    journal.write(ended(1, "main/1:c"), crashed, ended(2, "main/1:c"))
    spans = journal.spans()

    _, worker = all_workers(spans, 6)
    assert (worker.label, worker.arguments, worker.steps, worker.crashes) == (
        "c b3",
        '{"long":1}, "b3"',
        1,
        1,
    )
    _, worker = all_workers(spans)
    assert (worker.steps, worker.crashes) == (2, 1)


def test_a_message_has_one_status_after_the_other(journal: Journal) -> None:
    journal.write(
        sent("m-1", not_before=9),
        e.MessageMoved(mailbox="box", id="m-1", to="due"),
        e.MessageTaken(mailbox="box", id="m-1", p="main", n=1, fp="f", attempt=1),
        e.MessageMoved(mailbox="box", id="m-1", to="returned", reason="busy"),
        e.MessageHeld(mailbox="box", id="m-1", by="peer", attempt=2),
        e.MessageMoved(mailbox="box", id="m-1", to="dead", reason="max_deliveries"),
        e.LetterMoved(message="m-1", to="retrying"),
        e.MessageTaken(mailbox="box", id="m-1", p="main", n=2, fp="f"),
    )
    spans = journal.spans()
    found = [spans.message(0, seq) for seq in range(4, 12)]

    assert [message.status for message in found] == [
        "scheduled",
        "queued",
        "held",
        "queued",
        "held",
        "dead",
        "queued",
        "received",
    ]
    assert [message.receiver for message in found] == ["", "", "main", "", "peer", "peer", "", "main"]
    assert [message.reason for message in found[:5]] == ["", "", "", "busy", ""]
    assert [message.reason for message in found[5:]] == ["max_deliveries", "max_deliveries", ""]
    assert (found[-1].attempts, found[-1].from_seq, found[-1].to_seq) == (2, 4, 11)
    assert len(list(spans.messages())) == 1


@pytest.mark.parametrize(
    ("to", "status"), [("dropped", "dropped"), ("withdrawn", "withdrawn"), ("dead", "dead")]
)
def test_a_message_that_nobody_received_says_what_became_of_it(
    journal: Journal, to: str, status: str
) -> None:
    journal.write(sent("m-1"), e.MessageMoved(mailbox="box", id="m-1", to=to))

    assert [message.status for message in journal.spans().messages()] == [status]


def test_a_dead_letter_that_was_in_no_mailbox_is_a_message(journal: Journal) -> None:
    journal.write(e.LetterAdded(message="m-1", mailbox="box", reason="expired", size=5))
    spans = journal.spans()

    (message,) = spans.messages()
    assert (message.status, message.reason, message.size) == ("dead", "expired", 5)
    assert spans.at().messages == []


def test_questions_of_programs_and_agents_are_open_until_they_are_settled(journal: Journal) -> None:
    journal.write(
        begun(1, step="ask", question="q1", about="Go?"),
        begun(2, step="think"),
        e.QuestionAsked(p="main", n=2, id="q2", agent="ann", about="May I?"),
        ended(1, step="ask", by="me"),
        e.QuestionSettled(id="q2", answer="yes", by="me"),
    )
    spans = journal.spans()

    assert [[question.id for question in spans.at(seq).questions] for seq in range(3, 9)] == [
        [],
        ["q1"],
        ["q1"],
        ["q1", "q2"],
        ["q2"],
        [],
    ]
    asked = spans.question(1)
    assert (asked.agent, asked.about, asked.from_seq, asked.to_seq) == ("ann", "May I?", 6, 8)
    assert [mark.kind for mark in spans.marks] == ["question", "question", "answer", "answer"]
    assert [spans.status_at(seq) for seq in (3, 4, 8)] == ["running", "waiting", "running"]


def test_marks_are_what_people_look_for(journal: Journal) -> None:
    journal.write(
        e.WorkerCrashed(path="main", incarnation=1, reason="signal:SIGKILL"),
        e.HubStarted(hub=2, dead_us=2 * SECOND),
        e.FailureRecorded(worker="main", error=ERROR),
        e.RunEnded(status="failed", reason="it broke"),
    )

    assert journal.spans().marks == [
        (4 * SECOND, "crash", 4, "signal:SIGKILL", "main"),
        (5 * SECOND, "resume", 5, "resumed after 2.0 s without a hub", ""),
        (6 * SECOND, "failure", 6, "ValueError: no", "main"),
        (7 * SECOND, "end", 7, "failed: it broke", ""),
    ]


def test_money_and_tokens_are_added_up_over_time(journal: Journal) -> None:
    for n in range(1, 1001):
        journal.write(ended(n, step="think", usd=0.5, used=msgspec.to_builtins(Units(tokens=3))))
    spans = journal.spans()

    assert spans.past.spent_at(3) == (0, 0, 0.0, 0)
    assert spans.past.spent_at(5) == (5 * SECOND, 5, 1.0, 6)
    points = spans.spent(400)
    assert (len(points) <= 400, points[-1].usd, points[-1].seq) == (True, 500.0, 1003)
    assert [cost.usd for cost in spans.columns.costs()] == [0.5] * 1000


# The timeline.


def busy(journal: Journal, count: int, lanes: int) -> Spans:
    """Workers with short steps beside each other, each inside a long one."""
    draw = Random(count)
    paths = [f"main/1.{number}:c" for number in range(lanes)]
    for path in paths:
        journal.write(e.WorkerSpawned(path=path, worker="t:c", p="main", n=1), begun(1, path, step="timeout"))
    for n in range(2, count):
        path = draw.choice(paths)
        journal.write(begun(n, path), ended(n, path) if draw.random() < 0.9 else failed(n, path))
    return Spans.of(journal.entries)


def test_every_step_of_a_window_is_in_one_bar(journal: Journal) -> None:
    spans = busy(journal, 3000, 5)
    draw = Random(1)
    times = [(step.began_us, step.ended_us or spans.last_us) for step in spans.steps()]

    for _ in range(20):
        first, last = sorted(draw.randint(0, spans.last_us) for _ in range(2))
        for px in (10, 300, 100_000):
            drawn = spans.window(first, last, px)
            shown = sum(bar.steps for lane in drawn.lanes for bar in lane.bars)
            wanted = sum(begin <= max(last, first + 1) and end >= first for begin, end in times)
            # A merged bar may stand for steps that are just outside.
            assert wanted <= shown <= wanted + (0 if px == 100_000 and not drawn.merged else shown)
            if not drawn.merged:
                assert shown == wanted


def test_a_zoom_has_few_bars_and_loses_no_step(journal: Journal) -> None:
    spans = busy(journal, 3000, 5)
    drawn = spans.window(spans.first_us, spans.last_us, 1000)

    bars = [bar for lane in drawn.lanes for bar in lane.bars]
    assert len(bars) <= 5 * (1000 + 1)
    assert sum(bar.steps for bar in bars) == len(spans.columns)
    assert drawn.merged
    assert {bar.state for bar in bars if bar.steps == 1 and drawn.kinds[bar.kind] == "timeout"} == {"open"}
    merged = [bar for bar in bars if bar.steps > 1]
    assert {bar.state for bar in merged} == {"finished", "failed"}


def test_a_timeline_has_at_most_so_many_bars_however_many_lanes_there_are(journal: Journal) -> None:
    for number in range(MOST_BARS + 10):
        path = f"main/{number}:c"
        journal.write(e.WorkerSpawned(path=path, worker="t:c", p="main", n=number), begun(1, path))
    spans = Spans.of(journal.entries)
    drawn = spans.window(spans.first_us, spans.last_us, 1000)

    assert (sum(len(lane.bars) for lane in drawn.lanes), drawn.left_out) == (MOST_BARS, 10)
    assert len(spans.window(spans.first_us, spans.last_us, 1000, lanes={3, 8005}).lanes) == 2


def test_bars_of_steps_that_were_undone_later_say_so(journal: Journal) -> None:
    for n in range(1, 101):
        journal.write(begun(n), ended(n) if n > 1 else failed(n))
    before = Spans.of(journal.entries)
    journal.write(
        e.WorkerEnded(path="main", error=ERROR, origin=("main", 1)), e.WorkerRewound(path="main", to=5)
    )
    after = Spans.of(journal.entries)

    def states(spans: Spans) -> set[str]:
        (lane,) = spans.window(0, 300 * SECOND, 20).lanes
        assert sum(bar.steps for bar in lane.bars) == 100
        return {bar.state for bar in lane.bars}

    assert states(before) == {"failed", "finished"}
    assert states(after) == {"undone"}


def test_a_clock_that_was_set_back_loses_no_step() -> None:
    journal = Journal()
    busy(journal, 600, 1)
    turned = [
        msgspec.structs.replace(entry, at=entry.at - 1000 * SECOND if entry.seq > 600 else entry.at)
        for entry in journal.entries
    ]
    spans = Spans.of(turned)
    begin = min(entry.at for entry in turned)

    drawn = spans.window(begin, max(entry.at for entry in turned), 100)
    assert sum(bar.steps for lane in drawn.lanes for bar in lane.bars) == len(spans.columns)


def test_what_changed_since_an_entry_is_what_began_and_what_ended_after_it(journal: Journal) -> None:
    journal.write(begun(1), begun(2, "main.1.1"), ended(1), begun(3), e.RunEnded(status="completed"))
    changes = journal.spans().since(5)

    assert changes.seq == 8
    assert (changes.opened, changes.closed) == ([2], [0])
    assert [mark.kind for mark in changes.marks] == ["end"]


# Texts and bookmarks.


def test_texts_come_back_and_the_same_text_takes_no_more_room() -> None:
    texts = Texts()
    words = ["", "zażółć", "𝄞", "\ud800", "x" * 1000]
    numbers = [texts.add(word) for word in words]

    assert [texts[number] for number in numbers] == words
    assert [texts.add(word) for word in words] == numbers
    assert len(texts) == len(words)


def test_texts_beyond_those_that_are_recognised_come_back_as_well() -> None:
    texts = Texts()
    for number in range(KNOWN + 10):
        texts.add(str(number))

    last = str(KNOWN + 9)
    assert {texts[texts.add(last)], texts[texts.add(last)]} == {last}


def test_the_last_bookmark_before_an_entry_is_found() -> None:
    spans = Spans()
    kept = [Bookmark(seq, seq * 100, seq) for seq in (200, 1025, 1500, 2049, 9000)]
    for bookmark in kept:
        spans.keep(bookmark)

    assert [spans.bookmark(seq).seq for seq in (1, 1024, 1025, 2048, 2049, 99_999)] == [
        1,
        1,
        1025,
        1025,
        2049,
        9000,
    ]
