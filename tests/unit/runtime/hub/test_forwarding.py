"""Requests that come through a database, with a real hub and a database in memory: both ends of their way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tests.descriptors import high_descriptors
from tests.waiting import until

from bartack import Run, Session
from bartack.core.watch import Watch, open_watch
from bartack.depot.asking import Answered, RequestState, StoredRequest
from bartack.errors import (
    DepotUnavailableError,
    QuestionNotFoundError,
    ReceiveTimeoutError,
    RequestLateError,
)
from bartack.runtime.client.connection import HubClient
from bartack.runtime.hub.forwarding import RequestForwarder
from bartack.runtime.protocol.requests import Request, new_request_id
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.timeline import Timeline

PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    async with ctx.mailbox.calls.delivery() as message:
        await message.reply({"got": message.value})
    return await ctx.ask("What now?")
"""


class Database:
    """The requests of one run."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[StoredRequest] = []
        self.is_late = False
        self.settled: dict[str, Answered] = {}
        self.is_away = False
        self.owner: Literal["owned", "queued", ""] = "owned"
        self.forwarder: RequestForwarder | None = None
        self._folder = folder

    def ask(self, request: StoredRequest, late_s: float | None = None) -> Answered:
        if request.id not in {one.id for one in self.asked}:
            self.asked.append(request)
        if self.forwarder is not None:
            self.forwarder.wake()
        return Answered("late") if self.is_late else self.settled.get(request.id, Answered("open"))

    def look(self, requests: Sequence[str]) -> dict[str, Answered]:
        return {one: self.settled.get(one, Answered("open")) for one in requests}

    def withdraw(self, request: str) -> None:
        self.asked = [one for one in self.asked if one.id != request or one.id in self.settled]

    def standing(self) -> Literal["owned", "queued", ""]:
        return self.owner

    def watch(self) -> Watch:
        return open_watch(str(self._folder))

    def open(self) -> list[StoredRequest]:
        return [one for one in self.asked if one.id not in self.settled]

    def settle(self, request: str, state: RequestState, answer: bytes) -> bool:
        if self.is_away:
            raise DepotUnavailableError("the database", "it is away")
        self.settled.setdefault(request, Answered(state, answer))
        (self._folder / "changed").write_bytes(answer[:10])
        return True


class Place:
    """A run with a hub on this machine, which its clients reach through a database only."""

    def __init__(self, folder: Path) -> None:
        (folder / "main.py").write_text(PROGRAM, encoding="utf-8")
        self.run = Run.start(folder / "main.py", workspace=folder)
        self.dir = RunDir(self.run.dir)
        (folder / "database").mkdir()
        self.database = Database(folder / "database")
        until(self.dir.socket.has_listener, "the hub")

    def forward(self) -> RequestForwarder:
        """An owner of the run begins, after the one before."""
        if self.database.forwarder is not None:
            self.database.forwarder.close()
        made = RequestForwarder(self.dir, self.database)
        made.leave()
        made.start()
        self.database.forwarder = made
        return made

    def taken(self) -> int:
        """How many requests have an outcome in the journal."""
        return sum(entry["kind"] == "request.taken" for entry in self.run.events())

    def close(self) -> None:
        if self.database.forwarder is not None:
            self.database.forwarder.close()
        self.database.owner = ""
        if self.dir.is_active():
            self.run.interrupt()
            self.run.wait(30)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(tmp_path)

    def questioner(run: RunDir) -> Database | None:
        return made.database if made.database.owner else None

    monkeypatch.setattr(RunDir, "questioner", questioner)
    yield made
    made.close()


def test_a_session_through_a_database_is_like_one_on_the_machine(place: Place) -> None:
    place.forward()
    large = "x" * 200_000
    with Session.join(place.run.dir) as session:
        box = session.mailbox.results
        assert box.send(large).startswith("m-")
        assert box.stats().queued == 1
        with box.delivery() as message:
            assert message.value == large
        with pytest.raises(ReceiveTimeoutError):
            box.receive(0.01)
        assert session.mailbox.calls.call(large) == {"got": large}
    with pytest.raises(QuestionNotFoundError):
        place.run.answer("q9", "text")

    assert place.taken() == 2, "what has changed the run has an outcome in its journal"


@pytest.mark.requirement("node-many-runs")
def test_requests_come_through_in_a_process_with_many_descriptors(request: pytest.FixtureRequest) -> None:
    with high_descriptors():
        place: Place = request.getfixturevalue("place")
        place.forward()
        with Session.join(place.run.dir) as session:
            assert session.mailbox.calls.call("text") == {"got": "text"}


def test_what_a_client_holds_goes_back_when_it_leaves(place: Place) -> None:
    place.forward()
    with Session.join(place.run.dir) as session:
        session.mailbox.results.send("one")
        session.mailbox.results._hold(1)
        with pytest.raises(ReceiveTimeoutError):
            session.mailbox.results.receive(0)

    with Session.join(place.run.dir) as session:
        assert session.mailbox.results.receive(20) == "one"


def test_an_answer_that_was_not_stored_is_not_carried_out_again_by_the_next_owner(place: Place) -> None:
    place.forward()
    place.database.is_away = True
    request = StoredRequest(new_request_id(), "send", b'{"mailbox":"results"}', b'"once"')
    place.database.ask(request)
    until(lambda: place.taken() == 1, "the hub to carry it out")
    assert place.database.open() == [request]

    place.database.is_away = False
    place.forward()

    assert place.database.settled[request.id].state == "done"
    assert place.taken() == 1
    assert len([*place.run.messages("results")]) == 1


def test_the_journal_answers_for_a_hub_that_is_gone(place: Place) -> None:
    forwarder = place.forward()
    place.database.is_away = True
    done = StoredRequest(new_request_id(), "send", b'{"mailbox":"results"}', b'"once"')
    place.database.ask(done)
    until(lambda: place.taken() == 1, "the hub to carry it out")
    forwarder.close()
    place.database.owner = ""
    place.run.cancel()
    missed = StoredRequest(new_request_id(), "fail", b'{"message":"no"}')
    place.database.ask(missed)
    place.database.is_away = False

    forwarder.finish(rests=True)

    assert place.database.settled[done.id].state == "done"
    assert place.database.settled[missed.id].state == "refused"
    assert b"RunNotActiveError" in place.database.settled[missed.id].answer


def test_a_request_that_a_next_hub_can_carry_out_stays_open(place: Place) -> None:
    forwarder = place.forward()
    forwarder.close()
    request = StoredRequest(new_request_id(), "cancel", b"{}")
    place.database.ask(request)

    forwarder.finish(rests=False)

    assert place.database.open() == [request]


def test_a_late_request_is_an_error_of_the_client(place: Place) -> None:
    place.database.is_late = True
    with HubClient(place.dir) as hub, pytest.raises(RequestLateError) as caught:
        hub.ask("cancel", Request())

    assert caught.value.run_id == place.run.id


def test_a_client_takes_another_way_when_no_process_answers_requests_any_more(place: Place) -> None:
    with HubClient(place.dir) as hub, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hub.ask, "cancel", Request())
        until(lambda: place.database.asked, "the request")
        place.database.owner = ""
        asked.result(30)

    assert place.database.asked == [], "it was taken back"
    assert place.run.wait(30).status == "cancelled"


def by_of(place: Place, kind: str) -> list[object]:
    return [entry.get("by") for entry in place.run.events() if entry["kind"] == kind]


def ask(
    place: Place, asks: str, args: Request, by: str, value: bytes | None = None, client: str = ""
) -> None:
    request = StoredRequest(new_request_id(), asks, msgspec.json.encode(args), value, client, 1, by)
    place.database.ask(request)
    until(lambda: request.id in place.database.settled, "the answer")
    assert place.database.settled[request.id].state == "done"


@pytest.mark.requirement("requests-name-the-role")
def test_the_journal_has_the_role_that_asks_and_not_only_the_name_that_a_client_gives(place: Place) -> None:
    place.forward()
    for client in ("", "own"):
        ask(place, "send", Request(mailbox="results"), "red", b"1", client)
        ask(place, "send", Request(mailbox="results"), "blue", b"2", client)
    assert by_of(place, "request.taken") == ["role red", "role blue"] * 2, (
        "no connection is shared by two roles"
    )
    ask(place, "send", Request(mailbox="calls"), "red", b"3")
    until(lambda: len(place.run.questions()) == 1, "the question")

    claimed = Request(question="q1", by="role admin (role owner)")
    ask(place, "answer", claimed, "red", b'"nothing"')

    place.run.wait(30)
    assert by_of(place, "step.finished")[-1] == "admin (role red)"


@pytest.mark.requirement("requests-name-the-role")
@pytest.mark.parametrize(
    ("asks", "kinds"), [("cancel", ["session.failed", "run.ended"]), ("fail", ["session.failed"])]
)
def test_who_has_ended_a_run_is_a_role(place: Place, asks: str, kinds: list[str]) -> None:
    place.forward()
    ask(place, asks, Request(message="no need"), "red")
    place.run.wait(30)

    assert [by_of(place, kind) for kind in kinds] == [["role red"]] * len(kinds)
    with place.dir.open_reader() as reader:
        notes = {note.kind: note.text for note in Timeline.of(reader.read()).notes}
    assert notes["failed"].endswith("no need (by role red)")


@pytest.mark.requirement("requests-name-the-role")
def test_what_was_left_for_a_run_that_rests_has_its_role(place: Place) -> None:
    forwarder = place.forward()
    place.run.interrupt()
    until(lambda: not place.dir.is_active(), "the hub to end")
    forwarder.close()
    sent = StoredRequest(new_request_id(), "send", b'{"mailbox":"results"}', b"1", by="red")
    place.database.ask(sent)
    RequestForwarder(place.dir, place.database).leave()

    place.database.owner = ""
    place.run.resume()

    until(lambda: by_of(place, "request.taken")[-1:] == ["role red"], "the message")
