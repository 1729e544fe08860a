"""The MCP server without input and output: legal messages, hostile ones, and calls that are open at the same time."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.agents.mcp.answer import error_answer, object_answer, value_answer
from bartack.agents.mcp.calls import McpCall, McpEvent, Withdrawn
from bartack.agents.mcp.lines import message_line
from bartack.agents.mcp.server import ToolServer
from bartack.agents.protocol.messages import ToolSpec

ECHO: Final = ToolSpec(
    "echo",
    "Say it again.",
    {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "minimum": 1}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
DO: Final = ToolSpec("do_1", "Do it.", {"type": "object", "properties": {}, "additionalProperties": False})


def server(**options: Any) -> ToolServer:
    return ToolServer([ECHO, DO], "bartack", "1", **options)


def request(method: str, params: object = None, number: object = 1) -> dict[str, object]:
    message: dict[str, object] = {"jsonrpc": "2.0", "id": number, "method": method}
    return message if params is None else {**message, "params": params}


def call(name: str, arguments: object, number: object = 1, **meta: object) -> dict[str, object]:
    params = {"name": name, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return request("tools/call", params, number)


def one(events: list[McpEvent]) -> Any:
    assert len(events) == 1
    return events[0]


def code_of(events: list[McpEvent]) -> tuple[object, int]:
    refused = one(events)
    return refused["id"], refused["error"]["code"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_known_version_is_echoed(version: str) -> None:
    hello = one(server().feed(request("initialize", {"protocolVersion": version})))

    assert hello["result"]["protocolVersion"] == version
    assert hello["result"]["serverInfo"] == {"name": "bartack", "version": "1"}
    assert hello["result"]["capabilities"] == {"tools": {}}


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", 7, None])
def test_another_version_gets_the_last_known_one(version: object) -> None:
    hello = one(server().feed(request("initialize", {"protocolVersion": version})))

    assert hello["result"]["protocolVersion"] == "2025-11-25"


def test_tools_are_listed_with_their_schemas_and_hints() -> None:
    tools = one(server(read_only={"echo"}).feed(request("tools/list")))["result"]["tools"]

    assert [tool["name"] for tool in tools] == ["echo", "do_1"]
    assert tools[0]["inputSchema"] == ECHO.input_schema
    assert tools[0]["annotations"] == {"readOnlyHint": True}
    assert "annotations" not in tools[1]


def test_instructions_are_sent_with_the_greeting() -> None:
    hello = one(server(instructions="Read this.").feed(request("initialize", {})))

    assert hello["result"]["instructions"] == "Read this."


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, 1.5, "a", "", "ü" * 1000])
def test_an_id_of_any_legal_kind_comes_back(number: object) -> None:
    assert one(server().feed(request("ping", number=number))) == {
        "jsonrpc": "2.0",
        "id": number,
        "result": {},
    }


@pytest.mark.parametrize("number", [None, True, [], {}, [1], 2**63, -(2**80)])
def test_an_id_that_is_none_is_refused_without_one(number: object) -> None:
    assert code_of(server().feed(request("ping", number=number))) == (None, -32600)


@pytest.mark.parametrize(
    "line",
    [b"hello", b"{", b'{"a": 1}}', b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b"1e999999", b"1" * 5000],
)
def test_a_line_that_is_not_json_is_answered(line: bytes) -> None:
    assert code_of(server().feed(line)) == (None, -32700)


@pytest.mark.parametrize(
    "line", [b"1", b"null", b'"text"', b"true", b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]']
)
def test_batches_and_values_that_are_no_objects_are_refused(line: bytes) -> None:
    assert code_of(server().feed(line)) == (None, -32600)


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "method": "ping"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
    ],
)
def test_an_object_that_is_not_a_request_is_refused_with_its_id(message: dict[str, object]) -> None:
    assert code_of(server().feed(message)) == (1, -32600)


@pytest.mark.parametrize(
    "method", ["server/discover", "resources/list", "logging/setLevel", "notifications/x", "x" * 9999]
)
def test_other_methods_are_not_there(method: str) -> None:
    refused = one(server().feed(request(method)))

    assert refused["error"]["code"] == -32601
    assert len(refused["error"]["message"]) < 200


@pytest.mark.parametrize(
    "params",
    [
        [],
        "x",
        5,
        {},
        {"name": 5},
        {"name": "rm"},
        {"name": "echo", "arguments": []},
        {"name": "echo", "_meta": 1},
    ],
)
def test_parameters_that_are_wrong_and_unknown_tools_are_refused(params: object) -> None:
    assert code_of(server().feed(request("tools/call", params))) == (1, -32602)


def test_a_cursor_that_was_never_given_is_refused() -> None:
    assert code_of(server().feed(request("tools/list", {"cursor": "x"}))) == (1, -32602)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, "$.text"),
        ({"text": 5}, "$.text"),
        ({"text": "a", "times": 0}, "$.times"),
        ({"text": "a", "more": 1}, "$.more"),
    ],
)
def test_wrong_arguments_are_an_error_of_the_tool_that_says_where(arguments: object, names: str) -> None:
    result = one(server().feed(call("echo", arguments)))["result"]

    assert result["isError"] is True
    assert names in result["content"][0]["text"]


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "ping"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "do_1"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": 5},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
    ],
)
def test_notifications_and_answers_get_no_reply_and_start_nothing(message: dict[str, object]) -> None:
    tools = server()

    assert tools.feed(message) == []
    assert tools.open_calls == []


def test_a_call_is_handed_out_with_what_the_agent_calls_it() -> None:
    message = call("echo", {"text": "a"}, "r1", **{"claudecode/toolUseId": "toolu_1"})

    use = one(server().feed(message))

    assert use == McpCall(1, "echo", {"text": "a"}, {"claudecode/toolUseId": "toolu_1"}, "r1")
    assert use.own_id == "toolu_1"


@pytest.mark.parametrize("meta", [{}, {"claudecode/toolUseId": 5}])
def test_a_call_without_a_name_of_its_agent_has_none(meta: dict[str, object]) -> None:
    assert one(server().feed(call("do_1", {}, **meta))).own_id == ""


def test_two_calls_are_open_at_once_and_answered_in_any_order() -> None:
    tools = server()
    first, second = one(tools.feed(call("do_1", {}, 1))), one(tools.feed(call("do_1", {}, "1")))

    later: Any = tools.answer(second.id, value_answer(2))
    earlier: Any = tools.answer(first.id, value_answer([1]))

    assert (later["id"], later["result"]["content"][0]["text"]) == ("1", "2")
    assert earlier["result"] == {
        "content": [{"type": "text", "text": "[1]"}],
        "structuredContent": {"value": [1]},
        "isError": False,
    }
    assert tools.open_calls == []


def test_an_id_that_is_open_is_refused_and_the_call_stays_open() -> None:
    tools = server()
    use = one(tools.feed(call("do_1", {}, 7)))

    assert code_of(tools.feed(call("do_1", {}, 7))) == (7, -32600)
    assert tools.answer(use.id, value_answer(None)) is not None
    assert isinstance(one(tools.feed(call("do_1", {}, 7))), McpCall)


def test_a_call_is_answered_once() -> None:
    tools = server()
    use = one(tools.feed(call("do_1", {})))

    assert tools.answer(use.id, value_answer(1)) is not None
    assert tools.answer(use.id, value_answer(2)) is None


def test_an_error_of_a_tool_is_text() -> None:
    tools = server()
    use = one(tools.feed(call("do_1", {})))

    told: Any = tools.answer(use.id, error_answer("this step has ended"))

    assert told["result"] == {"content": [{"type": "text", "text": "this step has ended"}], "isError": True}


def test_an_object_is_its_own_structured_content() -> None:
    assert object_answer({"b": 1, "a": 2}) == ('{"a":2,"b":1}', {"b": 1, "a": 2}, False)


def test_a_withdrawn_call_is_reported_and_its_answer_dropped() -> None:
    tools = server()
    use = one(tools.feed(call("do_1", {}, 3)))

    def cancel(number: object) -> dict[str, object]:
        return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}

    assert tools.feed(cancel("3")) == []
    assert tools.feed(cancel(3)) == [Withdrawn(use.id)]
    assert tools.feed(cancel(3)) == []
    assert tools.answer(use.id, value_answer(1)) is None


def test_progress_counts_up_and_is_sent_only_to_who_asked() -> None:
    tools = server()
    quiet = one(tools.feed(call("do_1", {}, 1)))
    loud = one(tools.feed(call("do_1", {}, 2, progressToken="p")))

    sent: list[Any] = [tools.progress(loud.id, "one"), tools.progress(loud.id, "two")]

    assert [message["params"] for message in sent] == [
        {"progressToken": "p", "progress": 1, "message": "one"},
        {"progressToken": "p", "progress": 2, "message": "two"},
    ]
    assert tools.progress(quiet.id, "x") is None
    tools.answer(loud.id, value_answer(1))
    assert tools.progress(loud.id, "late") is None


def test_a_line_of_ten_megabytes_is_a_call_like_any_other() -> None:
    text = "x" * 10_000_000

    use = one(server().read(message_line(call("echo", {"text": text}))))

    assert use.arguments == {"text": text}


def test_a_line_that_is_too_long_is_skipped_answered_and_not_kept() -> None:
    tools = server(limit=1000)
    events: list[McpEvent] = []
    for _ in range(1000):
        events += tools.read(b"x" * 1000)
    assert events == []
    assert sum(map(len, tools._lines._parts)) == 0

    events = tools.read(b"\n" + message_line(request("ping")))

    assert [event["id"] for event in events if isinstance(event, dict)] == [None, 1]


@given(st.data())
def test_a_stream_may_be_cut_anywhere(data: st.DataObject) -> None:
    stream = b"\n\r\n" + b"".join(message_line(request("ping", number=number)) for number in range(4))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    tools = server()

    events = [event for part in parts for event in tools.read(part)]

    assert [event["id"] for event in events if isinstance(event, dict)] == [0, 1, 2, 3]


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["jsonrpc", "id", "method", "params", "name", "arguments"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_comes_is_answered_and_can_be_written(line: bytes) -> None:
    for event in server().feed(line):
        if isinstance(event, dict):
            message_line(event)
