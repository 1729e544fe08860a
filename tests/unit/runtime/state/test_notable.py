"""Which entries are facts that people want to know, and that the same entries are always the same facts."""

from __future__ import annotations

from bartack.errors import AgentRateLimitedError, BudgetExceededError
from bartack.notices import Fact
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.state import entries as e
from bartack.runtime.state.notable import Notable

AT = 1_767_225_600_000_000
MINUTE = 60_000_000


def error(code: str, message: str = "no more") -> ErrorData:
    return ErrorData(type="bartack.errors:X", message=message, code=code)


def facts_of(*entries: e.EntryData) -> list[Fact]:
    notable = Notable()
    found = [notable.add(data, seq, AT + seq) for seq, data in enumerate(entries, 1)]
    return [fact for fact in found if fact is not None]


def ask(question: str = "q1", attempt: int = 1) -> e.StepStarted:
    return e.StepStarted(
        p="main", n=1, step="ask", fp="x", about="Ship it?", question=question, attempt=attempt
    )


def spent() -> e.StepFailed:
    return e.StepFailed(p="main", n=2, step="think", fp="x", error=error(BudgetExceededError.code))


def limited(due: int) -> e.StepRetried:
    return e.StepRetried(p="main", n=2, attempt=1, due=due, error=error(AgentRateLimitedError.code))


def test_a_question_of_a_program_is_a_fact_with_the_place_of_its_number() -> None:
    assert facts_of(ask(), e.StepStarted(p="main", n=2, step="shell", fp="x")) == [
        Fact(kind="question", place="q1", at=AT + 1, text="Ship it?", question="q1")
    ]


def test_a_question_or_permission_of_an_agent_is_a_fact() -> None:
    asked = e.QuestionAsked(p="main", n=1, id="q2", ask="permission", agent="builder", about="may use Bash?")

    assert facts_of(asked) == [
        Fact(kind="question", place="q2", at=AT + 1, text="builder: may use Bash?", question="q2")
    ]


def test_how_a_run_ended_is_a_fact() -> None:
    failure = e.FailureRecorded(worker="main/1", error=error("BT1", "boom"))
    later = e.FailureRecorded(worker="main", error=error("BT2", "and then"), suppressed=True)

    assert facts_of(e.RunEnded(status="completed"))[0].kind == "ended"
    assert facts_of(e.RunEnded(status="cancelled", reason="enough"))[0].text == "enough"
    [failed] = facts_of(failure, later, e.RunEnded(status="failed"))
    assert (failed.kind, failed.place, failed.text) == ("failed", "3", "main/1: boom")


def test_a_budget_that_is_used_up_is_one_fact_until_the_run_is_resumed() -> None:
    other = e.StepFailed(p="main", n=2, step="think", fp="x", error=error("BT999"))

    found = facts_of(other, spent(), spent(), e.HubStarted(hub=2), spent())

    assert [(fact.kind, fact.place) for fact in found] == [("budget", "2"), ("budget", "5")]


def test_agents_that_wait_for_the_same_limit_are_one_fact() -> None:
    until = AT + 60 * MINUTE
    other = e.StepRetried(p="main", n=2, attempt=1, due=until, error=error("BT999"))

    found = facts_of(
        other, limited(until), limited(until + MINUTE // 2), limited(until + 5 * MINUTE), limited(AT)
    )

    assert [(fact.place, fact.until) for fact in found] == [("2", until), ("4", until + 5 * MINUTE)]


def test_a_hub_that_did_not_stop_in_order_is_lost() -> None:
    notable = Notable()
    assert notable.lost_hub(AT) is None

    notable.add(e.HubStarted(hub=3), 1, AT)
    lost = notable.lost_hub(AT)
    assert lost is not None
    assert (lost.kind, lost.place) == ("failed", "hub3")

    notable.add(e.HubStopped(reason="interrupted"), 2, AT)
    assert notable.lost_hub(AT) is None


def test_entries_that_matter_are_known_by_their_kinds() -> None:
    assert {ask().kind, spent().kind, e.RunEnded.kind, e.HubStarted.kind} <= Notable().kinds
    assert e.OutputWritten.kind not in Notable().kinds
