"""JSON-RPC between two equal sides: numbers of requests, their answers, and messages that are none."""

from __future__ import annotations

import msgspec
import pytest

from bartack.agents.program._json_rpc import (
    INTERNAL_ERROR,
    NO_SUCH_METHOD,
    JsonRpc,
    RpcFailure,
    RpcFlaw,
    RpcNotification,
    RpcReply,
    RpcRequest,
)


def test_requests_are_numbered_and_written_as_lines() -> None:
    rpc = JsonRpc()

    first, line = rpc.request("initialize", {"a": 1})
    second, _ = rpc.request("more")

    assert (first, second) == (1, 2)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert msgspec.json.decode(line) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"a": 1},
    }


def test_an_answer_names_the_method_that_was_asked() -> None:
    rpc = JsonRpc()
    number, _ = rpc.request("thread/start")

    assert rpc.read({"id": number, "result": {"x": 1}}) == RpcReply(number, "thread/start", {"x": 1})
    assert not rpc.waiting


def test_a_second_answer_to_one_request_is_a_flaw() -> None:
    rpc = JsonRpc()
    number, _ = rpc.request("once")
    rpc.read({"id": number, "result": {}})

    assert rpc.read({"id": number, "result": {}}) == RpcFlaw(
        "unexpected_reply", "no request 1 waits for an answer"
    )


@pytest.mark.parametrize("strange", [None, True, "1", 1.0, [1], 7])
def test_an_answer_to_no_request_of_ours_is_a_flaw(strange: object) -> None:
    rpc = JsonRpc()
    rpc.request("one")

    read = rpc.read({"id": strange, "result": {}})

    assert isinstance(read, RpcFlaw)
    assert rpc.waiting == {1}


def test_no_answer_counts_after_the_connection_is_over() -> None:
    rpc = JsonRpc()
    number, _ = rpc.request("one")
    rpc.forget()

    assert isinstance(rpc.read({"id": number, "result": {}}), RpcFlaw)


def test_a_refusal_has_its_code_and_its_text() -> None:
    rpc = JsonRpc()
    number, _ = rpc.request("turn/start")

    read = rpc.read({"id": number, "error": {"code": -32600, "message": "no", "data": {"why": 1}}})

    assert read == RpcFailure(number, "turn/start", -32600, "no", {"why": 1})


@pytest.mark.parametrize(("error", "text"), [("broken", "broken"), ({"code": "x"}, ""), (3, "3")])
def test_a_refusal_of_another_form_is_one_all_the_same(error: object, text: str) -> None:
    rpc = JsonRpc()
    number, _ = rpc.request("turn/start")

    assert rpc.read({"id": number, "error": error}) == RpcFailure(number, "turn/start", INTERNAL_ERROR, text)


def test_a_request_of_the_other_side_keeps_its_id() -> None:
    rpc = JsonRpc()

    assert rpc.read({"id": 0, "method": "ask", "params": {"a": 1}}) == RpcRequest(0, "ask", {"a": 1})
    assert rpc.read({"id": "x-1", "method": "ask", "params": [1]}) == RpcRequest("x-1", "ask", {})


def test_a_notification_has_no_id() -> None:
    assert JsonRpc().read({"method": "moved", "params": {"to": 2}}) == RpcNotification("moved", {"to": 2})


@pytest.mark.parametrize(
    ("value", "case"),
    [({}, "not_a_message"), ({"method": 3}, "not_a_message"), ({"method": "m", "id": 1.5}, "wrong_id")],
)
def test_what_is_not_a_message_is_a_flaw(value: dict[str, object], case: str) -> None:
    read = JsonRpc().read(value)

    assert isinstance(read, RpcFlaw)
    assert read.case == case


def test_answers_of_ours_name_the_request() -> None:
    rpc = JsonRpc()

    assert msgspec.json.decode(rpc.reply("x", {"ok": True})) == {
        "jsonrpc": "2.0",
        "id": "x",
        "result": {"ok": True},
    }
    refusal = msgspec.json.decode(rpc.refuse(0, NO_SUCH_METHOD, "unknown"))
    assert refusal == {"jsonrpc": "2.0", "id": 0, "error": {"code": -32601, "message": "unknown"}}


def test_a_notification_of_ours_has_no_id() -> None:
    assert msgspec.json.decode(JsonRpc().notify("initialized")) == {"jsonrpc": "2.0", "method": "initialized"}
