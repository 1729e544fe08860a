"""Requests in a real PostgreSQL: each is stored once, wakes its run, and is answered by the owner of the run only."""

from __future__ import annotations

from uuid import uuid4

from tests.unit.depot.yard import Yard
from tests.waiting import until

from bartack.depot.asking import Answered, StoredRequest
from bartack.depot.postgres._requests import RunQuestioner
from bartack.depot.postgres._run import PostgresRun
from bartack.journal import Draft


def kept(yard: Yard, run_id: str) -> PostgresRun:
    return PostgresRun(yard.folder / run_id, yard.database)


def questioner(yard: Yard, run_id: str) -> RunQuestioner:
    return kept(yard, run_id).questioner()


def request(asks: str = "cancel") -> StoredRequest:
    return StoredRequest(uuid4().hex, asks, b"{}")


def test_a_request_that_is_sent_twice_is_one_and_has_one_answer(yard: Yard) -> None:
    run_id = yard.submit()
    ask = questioner(yard, run_id).ask
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    sent = request("send")._replace(value=b'"hello"', client="me", number=7)

    assert ask(sent) == ask(sent) == Answered("open")
    owner = fleet.answerer(taken)
    assert owner.open() == [sent._replace(by="bartack")]
    assert owner.settle(sent.id, "done", b'"m-1"')
    assert not owner.settle(sent.id, "refused", b"{}"), "the first answer counts"

    assert ask(sent) == Answered("done", b'"m-1"')
    assert owner.open() == []


def test_only_the_owner_of_the_run_answers(yard: Yard) -> None:
    run_id = yard.submit()
    old, new = yard.node("old"), yard.node("new")
    (mine,) = old.claim(1)
    sent = request()
    questioner(yard, run_id).ask(sent)
    old.give_back(mine, "queued", 0, "", 0)
    (theirs,) = new.claim(1)

    assert not old.answerer(mine).settle(sent.id, "done", b"null")
    assert [one.id for one in new.answerer(theirs).open()] == [sent.id]
    assert new.answerer(theirs).settle(sent.id, "done", b"null")


def test_a_request_wakes_a_run_that_rests(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    fleet.give_back(taken, "resting", 0, "it waits for a person", 0)
    ask = questioner(yard, run_id)
    assert ask.standing() == ""

    ask.ask(request("answer"))

    assert yard.state(run_id) == "queued"
    assert ask.standing() == "queued"


def test_a_run_whose_owner_would_let_it_rest_is_queued_for_a_request_that_came_meanwhile(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    sent = request("answer")
    questioner(yard, run_id).ask(sent)

    fleet.give_back(taken, "resting", 0, "it waits for a person", 0)
    assert yard.state(run_id) == "queued"

    (again,) = fleet.claim(1)
    fleet.answerer(again).settle(sent.id, "done", b"null")
    fleet.give_back(again, "resting", 0, "it waits for a person", 0)
    assert yard.state(run_id) == "resting"


def test_a_request_does_not_wake_a_run_that_is_held_or_over(yard: Yard) -> None:
    for state in ("held", "over"):
        run_id = yard.submit()
        fleet = yard.node()
        (taken,) = fleet.claim(1)
        fleet.give_back(taken, state, 0, "", 0)

        questioner(yard, run_id).ask(request())

        assert yard.state(run_id) == state


def test_a_request_that_is_late_is_handed_to_no_hub(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    ask = questioner(yard, run_id)
    sent = request()

    ask.ask(sent, 0.0)

    assert ask.look([sent.id]) == {sent.id: Answered("late")}
    assert fleet.answerer(taken).open() == []
    assert ask.ask(sent) == Answered("late")
    fleet.give_back(taken, "resting", 0, "", 0)
    assert yard.state(run_id) == "resting", "it queues no run"


def test_a_request_that_was_taken_back_is_gone_unless_it_was_answered(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    ask = questioner(yard, run_id)
    first, second = request(), request()
    ask.ask(first)
    ask.ask(second)
    fleet.answerer(taken).settle(first.id, "done", b"null")

    ask.withdraw(first.id)
    ask.withdraw(second.id)

    assert ask.look([first.id, second.id]) == {first.id: Answered("done", b"null")}


def test_a_node_is_woken_by_a_request_without_a_beat(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)

    def asked() -> bool:
        # Its connection may not listen yet: then it hears the next one.
        questioner(yard, run_id).ask(request())
        return fleet.take_asked() == {taken.no}

    until(asked, "the notification")


def test_a_beat_reports_the_runs_with_requests(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    fleet._listener.close()
    questioner(yard, run_id).ask(request())
    assert fleet.take_asked() == set()

    ((asked,),) = yard.rows("SELECT asked FROM bartack.beat_fleet(%s)", fleet.node.id)

    assert asked == [taken.no]


def test_a_run_that_a_process_has_changed_without_a_hub_is_queued_or_over(yard: Yard) -> None:
    run_id = yard.submit()
    fleet = yard.node()
    (taken,) = fleet.claim(1)
    fleet.give_back(taken, "resting", 0, "", 0)
    run = kept(yard, run_id)

    with run.own():
        pass
    assert yard.state(run_id) == "resting", "it was only looked at"
    with run.own() as journal:
        journal.stage(Draft("test", {}))
        journal.commit()
    assert yard.state(run_id) == "queued"
    with run.own() as journal:
        journal.stage(Draft("test", {}))
        journal.commit()
        run.mark(b'{"seq": 3, "status": "cancelled"}')
    assert yard.state(run_id) == "over"
    (yard.folder / run_id / "run.json").unlink()
