"""Requests of processes outside, to real hubs: connections that are cut, hubs that are killed, and one outcome in the end."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable
from typing import Final

import msgspec
import pytest
from tests.crash.doomed_hub import TAKEN_POINTS
from tests.crash.runs import PATIENCE_S, Begin, RealRun, wait_until

from bartack import Session
from bartack.errors import RunNotActiveError
from bartack.runtime import AsyncRun
from bartack.runtime.client import remote
from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.requests import Request
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.presence import open_connection

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

CUTS: Final = ("before", "sent", "answered")
"""Where a connection is cut: before the request has left, after that, or when the answer is there and nobody has read it."""


class CutSocket(socket.socket):
    """A connection that is cut at its first request."""

    def __init__(self, sock: socket.socket, cut: str) -> None:
        super().__init__(fileno=sock.detach())
        self._cut = cut
        self._sent = 0

    def _pass(self) -> None:
        self._sent += 1
        if self._sent == 2 and self._cut == "before":
            raise ConnectionResetError

    def sendall(self, *args: object) -> None:
        self._pass()
        super().sendall(*args)  # type: ignore[arg-type]  # - passed on as they are

    def send(self, *args: object) -> int:
        self._pass()
        return super().send(*args)  # type: ignore[arg-type]  # - passed on as they are

    def recv(self, *args: object) -> bytes:
        if self._sent < 2 or self._cut == "answered":
            super().recv(*args)  # type: ignore[arg-type]  # - passed on as they are
        raise ConnectionResetError


@pytest.fixture
def run(begin: Begin) -> RealRun:
    """A run that sends back what it is sent, twice."""
    made = begin("echoing", 2)
    made.start()
    made.wait_open("receive")
    return made


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the next connection cut."""

    def arm(where: str) -> None:
        cuts = [where]

        def open_cut(run: RunDir) -> socket.socket:
            opened = open_connection(run)
            return CutSocket(opened, cuts.pop()) if cuts else opened

        monkeypatch.setattr(remote, "open_connection", open_cut)

    return arm


def echoes(run: RealRun, *words: str) -> list[object]:
    """What the run sent back, when it has ended."""
    for word in words:
        run.api.send("to", word)
    assert run.wait_hub() == 0, run.story()
    with_values = [entry for entry in run.entries() if entry.kind == "message.sent"]
    return [
        msgspec.json.decode(entry.value)
        for entry in with_values
        if entry.data["mailbox"] == "back" and entry.value is not None
    ]


@pytest.mark.requirement("requests-once")
@pytest.mark.parametrize("where", CUTS)
def test_a_client_whose_connection_is_cut_sends_its_request_again(
    run: RealRun, cut: Callable[[str], None], where: str
) -> None:
    cut(where)
    with Session.join(run.run.path) as session:
        sent = session.mailbox.to.send("once")
        kept = session.mailbox.shelf.send("and this over the second connection")

    assert {sent, kept} <= {entry.data["id"] for entry in run.entries() if entry.kind == "message.sent"}
    assert echoes(run, "last") == ["once", "last"]


@pytest.mark.requirement("requests-once")
@pytest.mark.parametrize("where", CUTS)
def test_a_client_on_a_loop_whose_connection_is_cut_sends_its_requests_again(
    run: RealRun, cut: Callable[[str], None], where: str
) -> None:
    async def main() -> None:
        async with await AsyncRun.open(run.run.path) as client:
            cut(where)
            async with await client.join() as session, asyncio.timeout(PATIENCE_S):
                sends = [session.mailbox.shelf.send(n) for n in range(5)]
                ids = await asyncio.gather(session.mailbox.to.send("once"), *sends)
                assert len(set(ids)) == 6
                assert (await session.mailbox.shelf.stats()).queued == 5

    asyncio.run(main())

    assert echoes(run, "last") == ["once", "last"]


@pytest.mark.parametrize("where", ["sent", "answered"])
def test_a_call_whose_connection_is_cut_has_one_message_and_gets_its_reply(
    run: RealRun, cut: Callable[[str], None], where: str
) -> None:
    served: list[object] = []

    def serve() -> None:
        with waiting.mailbox.orders.delivery(PATIENCE_S) as delivery:
            served.append(delivery.value)
            delivery.reply("done")

    with Session.join(run.run.path) as waiting:
        server = threading.Thread(target=serve)
        server.start()
        cut(where)
        with Session.join(run.run.path) as session:
            assert session.mailbox.orders.call("order", PATIENCE_S) == "done"
        server.join(PATIENCE_S)

    assert served == ["order"]


def test_a_client_that_left_does_not_come_back(run: RealRun) -> None:
    async def main() -> None:
        async with await AsyncRun.open(run.run.path) as client:
            session = await client.join()
            await session.close()
            with pytest.raises(RunNotActiveError):
                await session.mailbox.to.send("late")

    asyncio.run(main())

    assert run.count("message.sent") == 0


# Hubs that die.


def interrupted(run: RealRun) -> None:
    """The hub has killed itself."""
    assert run.wait_hub() < 0, run.story()


@pytest.mark.requirement("requests-once")
@pytest.mark.parametrize("point", TAKEN_POINTS)
def test_a_message_to_a_hub_that_is_killed_meanwhile_arrives_once(begin: Begin, point: str) -> None:
    run = begin("echoing", 2)
    run.start_doomed(point)
    run.wait_open("receive")

    run.api.send("to", "once")
    interrupted(run)
    run.start()

    assert echoes(run, "last") == ["once", "last"]
    assert not list(run.run.inbox.glob("*"))


@pytest.mark.requirement("requests-once")
@pytest.mark.parametrize("point", TAKEN_POINTS)
def test_an_answer_to_a_hub_that_is_killed_meanwhile_counts_once_and_is_no_error(
    begin: Begin, point: str
) -> None:
    run = begin("asking")
    run.start_doomed(point)
    run.wait_open("ask")

    run.api.answer("q1", True)
    interrupted(run)

    assert run.finish() == 0, run.story()
    assert run.api.result() is True
    assert run.count("request.taken") == 1


@pytest.mark.requirement("cancelled-stays-cancelled")
@pytest.mark.parametrize("point", TAKEN_POINTS)
def test_a_run_whose_hub_is_killed_while_it_is_cancelled_is_cancelled(begin: Begin, point: str) -> None:
    run = begin("echoing", 2)
    run.start_doomed(point)
    run.wait_open("receive")

    run.api.cancel("enough")
    interrupted(run)

    assert run.api.state().status == "cancelled"
    assert run.count("request.taken") == run.count("run.ended") == 1
    with pytest.raises(RunNotActiveError):
        run.api.cancel("again")


@pytest.mark.requirement("cancelled-stays-cancelled")
def test_a_run_whose_hub_and_client_are_killed_while_it_is_cancelled_is_cancelled_by_its_next_hub(
    begin: Begin,
) -> None:
    run = begin("echoing", 2)
    run.start_doomed("taken:answered")
    run.wait_open("receive")
    with HubClient(run.run) as hub:
        hub.ask("cancel", Request(message="enough"))
    interrupted(run)
    assert run.count("run.ended") == 0

    assert run.finish() == 4, run.story()

    assert run.api.state().status == "cancelled"
    run.wait_nothing_left()


@pytest.mark.parametrize("point", TAKEN_POINTS)
def test_a_run_whose_hub_is_killed_while_it_is_failed_from_outside_has_failed_once(
    begin: Begin, point: str
) -> None:
    run = begin("echoing", 1)
    run.start_doomed(point)
    run.wait_open("receive")

    run.api.fail("enough")
    interrupted(run)

    assert run.api.state().status == "failed"
    assert run.count("session.failed") == run.count("request.taken") == 1
    run.start()
    assert echoes(run, "last") == ["last"]


@pytest.mark.requirement("requests-once")
@pytest.mark.parametrize("point", TAKEN_POINTS)
def test_letters_are_tried_again_once_by_a_hub_that_is_killed_meanwhile(begin: Begin, point: str) -> None:
    run = begin("echoing", 2)
    run.start_doomed(point, 3)
    run.wait_open("receive")
    letters = run.api.dead_letters
    kept = {letters.add_message("shelf", n) for n in range(2)}

    tried = letters.retry_messages("all")
    interrupted(run)

    assert {one.id for one in tried} == kept
    assert run.count("dead_letter.moved") == 2
    assert run.count("request.taken") == 3


def test_a_request_that_the_next_hub_gets_again_has_the_outcome_of_the_first(begin: Begin) -> None:
    run = begin("echoing", 2)
    run.start_doomed("taken:committed")
    run.wait_open("receive")
    with pytest.raises(RunNotActiveError), HubClient(run.run) as hub:
        hub.ask("send", Request(mailbox="shelf"), b'"once"', by_id="mine")
    interrupted(run)
    run.start()
    wait_until(run.run.is_active)

    with HubClient(run.run) as hub:
        answers = {hub.ask("send", Request(mailbox="shelf"), b'"once"', by_id="mine") for _ in range(3)}

    (sent,) = [entry.data["id"] for entry in run.entries() if entry.kind == "message.sent"]
    assert answers == {msgspec.json.encode(sent)}
    assert run.count("request.taken") == 1
