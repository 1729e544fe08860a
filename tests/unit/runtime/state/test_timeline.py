"""Steps, messages and workers, as the entries of a run tell of them."""

from __future__ import annotations

import pytest

from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.state import entries as e
from bartack.runtime.state.timeline import Timeline, parse_step
from bartack.runtime.state.worker_state import NO_VALUE

ERROR = ErrorData(type="builtins:ValueError", message="no")


class Teller:
    """Tells a timeline one entry after the other, a second apart."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.seq = 0
        self.tell(
            e.RunCreated(run="r", worker="t:main", name="main", program="", workspace="", root="", seed=0),
            e.WorkerSpawned(path="main", worker="t:main"),
            e.HubStarted(hub=1),
        )

    def tell(self, *entries: e.EntryData) -> Teller:
        for entry in entries:
            self.seq += 1
            self.timeline.add(entry, self.seq, self.seq * 1_000_000, NO_VALUE)
        return self

    def statuses(self) -> list[tuple[str, str]]:
        return [(step.name, step.status) for step in self.timeline.steps]


@pytest.fixture
def teller() -> Teller:
    return Teller()


def begun(n: int, *, attempt: int = 1, cleanup: bool = False) -> e.StepStarted:
    return e.StepStarted(p="main", n=n, step="shell", fp="f", attempt=attempt, cleanup=cleanup)


def ended(n: int, *, cleanup: bool = False) -> e.StepFinished:
    return e.StepFinished(p="main", n=n, step="shell", fp="f", cleanup=cleanup)


def sent(message: str = "m-1", **options: int) -> e.MessageSent:
    return e.MessageSent(
        mailbox="box", id=message, size=1, sender="main", not_before=options.get("not_before", 0)
    )


def test_a_step_lasts_from_its_first_start_to_its_outcome(teller: Teller) -> None:
    teller.tell(begun(1), begun(1, attempt=2), ended(1))

    (step,) = teller.timeline.steps
    assert (step.duration_s, step.attempt, step.status) == (2.0, 2, "finished")


def test_a_step_of_which_only_the_outcome_is_written_has_no_duration(teller: Teller) -> None:
    teller.tell(ended(1))

    assert teller.timeline.steps[0].duration_s is None


def test_a_body_that_was_executed_again_after_a_crash_took_as_long_as_the_execution_that_ended(
    teller: Teller,
) -> None:
    body = e.StepStarted(p="main", n=1, step="body", fp="f")
    crash = e.WorkerCrashed(path="main", incarnation=1, reason="signal:SIGKILL")
    teller.tell(body, crash, body, e.StepFinished(p="main", n=1, step="body", fp="f", took_us=250_000))

    assert teller.timeline.steps[0].duration_s == 0.25


def test_a_body_that_was_retried_took_as_long_as_all_its_attempts_and_pauses(teller: Teller) -> None:
    retried = e.StepRetried(p="main", n=1, attempt=1, due=9, error=ERROR)
    again = e.StepStarted(p="main", n=1, step="body", fp="f", attempt=2)
    last = e.StepFinished(p="main", n=1, step="body", fp="f", took_us=250_000)
    teller.tell(e.StepStarted(p="main", n=1, step="body", fp="f"), retried, again, last)

    assert teller.timeline.steps[0].duration_s == 3.0


def test_an_attempt_that_failed_is_shown_until_the_next_one_ends(teller: Teller) -> None:
    teller.tell(begun(1), e.StepRetried(p="main", n=1, attempt=1, due=9, error=ERROR))
    (step,) = teller.timeline.steps
    assert (step.status, step.attempt, step.error) == ("open", 2, ERROR)

    teller.tell(ended(1))
    assert (step.status, step.error) == ("finished", None)


def test_steps_that_were_open_at_the_end_of_their_worker_were_aborted(teller: Teller) -> None:
    teller.tell(begun(1), e.WorkerEnded(path="main", error=ERROR))

    assert teller.statuses() == [("main:1", "aborted")]
    assert teller.timeline.workers["main"].status == "failed"
    assert teller.timeline.workers["main"].ended_at == 5_000_000


def test_clean_up_that_was_cut_off_is_over_when_the_run_goes_on(teller: Teller) -> None:
    teller.tell(begun(1, cleanup=True), begun(2), e.HubStarted(hub=2))

    assert teller.statuses() == [("main:1", "aborted"), ("main:2", "open")]


def test_a_rewind_undoes_the_failing_step_and_the_clean_up_behind_it(teller: Teller) -> None:
    teller.tell(ended(1), e.StepFailed(p="main", n=2, step="shell", fp="f", error=ERROR))
    place = teller.seq
    teller.tell(ended(3, cleanup=True), e.WorkerEnded(path="main", error=ERROR))
    teller.tell(e.HubStarted(hub=2), e.WorkerRewound(path="main", to=place), begun(2))

    assert teller.statuses() == [
        ("main:1", "finished"),
        ("main:2", "undone"),
        ("main:3", "undone"),
        ("main:2", "open"),
    ]
    step = teller.timeline.step("main", 2)
    assert step is not None
    assert step.status == "open"
    assert teller.timeline.workers["main"].status == "waiting"


def test_steps_of_a_branch_belong_to_its_worker(teller: Teller) -> None:
    teller.tell(e.StepStarted(p="main.1.2", n=1, step="shell", fp="f"), e.WorkerEnded(path="main"))

    assert teller.statuses() == [("main.1.2:1", "aborted")]


@pytest.mark.parametrize(
    ("entries", "status"),
    [
        ([], "queued"),
        ([e.MessageTaken(mailbox="box", id="m-1", p="main", n=2, fp="f")], "received"),
        ([e.MessageTaken(mailbox="box", id="m-1", p="main", n=2, fp="f", attempt=1)], "held"),
        ([e.MessagesDrained(mailbox="box", ids=["m-1"], p="main", n=2, fp="f")], "received"),
        ([e.MessageHeld(mailbox="box", id="m-1", by="foreign:7", attempt=1)], "held"),
        ([e.MessageMoved(mailbox="box", id="m-1", to="withdrawn")], "withdrawn"),
        ([e.MessageMoved(mailbox="box", id="m-1", to="dropped", reason="overflow")], "dropped"),
        ([e.MessageMoved(mailbox="box", id="m-1", to="dead", reason="nack")], "dead"),
        (
            [
                e.MessageTaken(mailbox="box", id="m-1", p="main", n=2, fp="f", attempt=1),
                e.MessageMoved(mailbox="box", id="m-1", to="returning", p="main", n=3),
            ],
            "held",
        ),
        (
            [
                e.MessageHeld(mailbox="box", id="m-1", by="foreign:7", attempt=1),
                e.MessageMoved(mailbox="box", id="m-1", to="returned"),
            ],
            "queued",
        ),
        (
            [
                e.MessageHeld(mailbox="box", id="m-1", by="foreign:7", attempt=1),
                e.MessageMoved(mailbox="box", id="m-1", to="processed"),
            ],
            "received",
        ),
    ],
)
def test_a_message_is_where_its_last_entry_put_it(
    teller: Teller, entries: list[e.EntryData], status: str
) -> None:
    teller.tell(sent(), *entries)

    assert teller.timeline.messages["m-1"].status == status


def test_a_scheduled_message_is_queued_when_it_is_due(teller: Teller) -> None:
    teller.tell(sent("m-1", not_before=99), sent("m-2", not_before=99))

    teller.tell(e.MessageMoved(mailbox="box", id="m-1", to="due"))

    assert [message.status for message in teller.timeline.messages.values()] == ["queued", "scheduled"]


def test_who_gave_a_message_back_has_not_received_it(teller: Teller) -> None:
    teller.tell(sent(), e.MessageHeld(mailbox="box", id="m-1", by="foreign:7", attempt=1))
    assert teller.timeline.messages["m-1"].receiver == "foreign:7"

    teller.tell(e.MessageMoved(mailbox="box", id="m-1", to="returned"))
    assert teller.timeline.messages["m-1"].receiver == ""


def test_what_happened_to_the_run_is_noted_in_order(teller: Teller) -> None:
    teller.tell(
        e.WorkerCrashed(path="main", incarnation=1, reason="signal:SIGKILL"),
        e.HubStopped(reason="interrupted"),
        e.HubStarted(hub=2, dead_us=1_500_000),
        e.FailureRecorded(worker="main", error=ERROR),
        e.FailureRecorded(worker="main", error=ERROR, suppressed=True),
        e.RunEnded(status="failed"),
    )

    assert [(note.kind, note.text) for note in teller.timeline.notes] == [
        ("crashed", "its process ended (signal:SIGKILL); started again"),
        ("stopped", "stopped: interrupted"),
        ("resumed", "resumed after 1.5 s without a hub"),
        ("failed", "ValueError: no"),
        ("suppressed", "ValueError: no"),
        ("ended", "failed"),
    ]
    assert teller.timeline.workers["main"].crashes == 1


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("3", ("main", 3)),
        ("main:3", ("main", 3)),
        ("main/7.2:analyst:10", ("main/7.2:analyst", 10)),
        ("main/7.2:analyst", None),
        ("", None),
        ("main:", None),
        ("-1", None),
    ],
)
def test_a_step_is_named_by_path_and_number(text: str, meant: tuple[str, int] | None) -> None:
    assert parse_step(text, "main") == meant


def test_a_dead_letter_that_is_tried_again_is_queued(teller: Teller) -> None:
    teller.tell(e.LetterAdded(message="m-9", mailbox="box", reason="no_receiver"))
    assert (teller.timeline.messages["m-9"].status, teller.timeline.messages["m-9"].reason) == (
        "dead",
        "no_receiver",
    )

    teller.tell(e.LetterMoved(message="m-9", to="retrying"))
    assert teller.timeline.messages["m-9"].status == "queued"


def test_a_supervised_send_is_a_step_of_its_kind(teller: Teller) -> None:
    teller.tell(e.MessageSent(mailbox="box", id="m-1", size=1, p="main", n=1, fp="f", step="send_supervised"))

    (step,) = teller.timeline.steps
    assert (step.kind, step.about, step.status) == ("send_supervised", "box", "finished")
