"""The requests of a session: the same on both transports, and checked before they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from bartack.errors import DeliveryOptionError, TopicNameError
from bartack.runtime.client import requests
from bartack.runtime.client.asynchronous.connection import AsyncHubClient
from bartack.runtime.client.asynchronous.session import AsyncMailbox, AsyncMailroom
from bartack.runtime.client.connection import HubClient
from bartack.runtime.client.peer import HubPeer
from bartack.runtime.client.session import ForeignMailbox, ForeignMailroom
from bartack.runtime.protocol.requests import BY_ID, REQUEST_ID, Request
from bartack.runtime.rundir.layout import RunDir

Asked = tuple[str, Request | None, bytes | None]

ANSWERS: Final = {
    "send": b'"m-1"',
    "call": b"7",
    "withdraw": b"true",
    "mailboxes": b'{"b": {}, "a": {}}',
}


class Blocking(HubClient):
    """A connection that keeps the last request."""

    def __init__(self) -> None:
        self.asked: Asked = ("", None, None)

    def ask(
        self,
        do: str,
        request: Request | None = None,
        value: bytes | None = None,
        timeout_s: float | None = None,
        by_id: str = "",
    ) -> bytes:
        self.asked = (do, request, value)
        return ANSWERS.get(do, b"null")


class Awaited(AsyncHubClient):
    """The same on an asyncio loop."""

    def __init__(self, run: RunDir) -> None:
        super().__init__(run, 0)
        self.asked: Asked = ("", None, None)

    async def ask(self, do: str, request: Request | None = None, value: bytes | None = None) -> bytes:
        self.asked = (do, request, value)
        return ANSWERS.get(do, b"null")


CALLS: Final[dict[str, tuple[Callable[[ForeignMailbox], object], Callable[[AsyncMailbox], object]]]] = {
    "send": (
        lambda box: box.send({"n": 1}, key="k", metadata={"a": 1}),
        lambda box: box.send({"n": 1}, key="k", metadata={"a": 1}),
    ),
    "call": (lambda box: box.call("q", 2.0, type=int), lambda box: box.call("q", 2.0, type=int)),
    "subscribe": (lambda box: box.subscribe("build.*"), lambda box: box.subscribe("build.*")),
    "unsubscribe": (lambda box: box.unsubscribe("build.*"), lambda box: box.unsubscribe("build.*")),
    "withdraw": (lambda box: box.withdraw("m-1"), lambda box: box.withdraw("m-1")),
    "close": (lambda box: box.close(), lambda box: box.close()),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_transports_send_the_same_request_and_read_the_same_result(tmp_path: Path, name: str) -> None:
    blocking, awaited = Blocking(), Awaited(RunDir(tmp_path))
    call, twin = CALLS[name]

    async def result() -> object:
        made = twin(AsyncMailbox(awaited, "orders"))
        assert asyncio.iscoroutine(made)
        found: object = await made
        return found

    expected = call(ForeignMailbox(blocking, "orders"))

    assert asyncio.run(result()) == expected
    assert awaited.asked == blocking.asked
    assert awaited.asked[0] in {name, "subscribe"}


def test_the_names_of_mailboxes_are_sorted(tmp_path: Path) -> None:
    assert ForeignMailroom(Blocking()).names() == ["a", "b"]
    assert asyncio.run(AsyncMailroom(Awaited(RunDir(tmp_path))).names()) == ["a", "b"]


def test_a_request_that_changes_the_run_has_an_id_that_no_other_has(tmp_path: Path) -> None:
    peer = HubPeer(RunDir(tmp_path))

    ids = [peer._frame(do, None, None).id for do in (*BY_ID, *BY_ID)]

    assert len(set(ids)) == 2 * len(BY_ID)
    assert all(REQUEST_ID.fullmatch(one) for one in ids)
    assert peer._frame("send", None, None, "mine").id == "mine"
    assert {peer._frame(do, None, None).id for do in ("state", "ps", "receive", "ack", "renew")} == {""}


def test_a_message_without_a_key_has_none() -> None:
    assert requests.send("orders", 1).request.key == ""


@pytest.mark.parametrize("recipients", ["orders", ["orders", "orders"]])
def test_a_broadcast_is_checked_before_it_is_sent(recipients: str | list[str]) -> None:
    with pytest.raises(DeliveryOptionError):
        requests.broadcast(recipients, 1, "all_or_nothing", {})


def test_other_requests_are_checked_before_they_are_sent() -> None:
    with pytest.raises(TopicNameError):
        requests.subscribe("orders", "")
    with pytest.raises(ValueError, match="negative"):
        requests.check_most(-1)
    with pytest.raises(ValueError, match="-1"):
        requests.receive("orders", -1.0)


@pytest.mark.parametrize(("error", "text"), [("full", "full"), (KeyError("x"), "KeyError: 'x'")])
def test_a_failure_is_sent_as_text(error: BaseException | str, text: str) -> None:
    assert requests.fail(error).request == Request(message=text)


def test_an_answer_is_read_as_the_type_of_its_request() -> None:
    assert requests.withdraw("orders", "m-1").decode(b"false") is False
    with pytest.raises(msgspec.ValidationError):
        requests.withdraw("orders", "m-1").decode(b"1")
