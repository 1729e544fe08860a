"""What each API reads from a request, and how it writes one reply."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from bartack.testing.model._chat import ChatApi
from bartack.testing.model._conversation import Api, Event, Reply, ToolCall, ToolResult, Turn, find_cwd
from bartack.testing.model._director import Place, place_of
from bartack.testing.model._messages import MessagesApi
from bartack.testing.model._responses import ResponsesApi
from bartack.testing.model._script import StepFailure, TokenUsage

REPLY = Reply(
    "f00",
    "some-model",
    "two words",
    (ToolCall("f00_0", "Bash", {"command": "true"}),),
    "tool_use",
    TokenUsage(100, 20, 3, 4),
)

MESSAGES: dict[str, object] = {
    "model": "m",
    "stream": True,
    "system": [{"type": "text", "text": " - Primary working directory: /w/d\n - more"}],
    "tools": [{"name": "Bash", "input_schema": {}}],
    "messages": [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": [{"type": "text", "text": "go [[script:x]]"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one", "is_error": False},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [{"type": "text", "text": "two"}],
                    "is_error": True,
                },
            ],
        },
    ],
}
RESPONSES: dict[str, object] = {
    "model": "m",
    "stream": True,
    "instructions": "be short",
    "tools": [
        {"type": "function", "name": "Bash"},
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "ours", "tools": [{"type": "function", "name": "do_1"}]},
        {"type": "web_search"},
    ],
    "input": [
        {
            "type": "additional_tools",
            "tools": [
                {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
            ],
        },
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be short"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<cwd>/w/d</cwd>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go [[script:x]]"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look"}]},
        {"type": "function_call", "call_id": "t1", "name": "Bash", "arguments": "{}"},
        {"type": "function_call", "call_id": "t2", "name": "Bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "t1", "output": "one"},
        {"type": "function_call_output", "call_id": "t2", "output": [{"type": "input_text", "text": "two"}]},
    ],
}
CHAT: dict[str, object] = {
    "model": "m",
    "stream": True,
    "tools": [{"type": "function", "function": {"name": "Bash"}}],
    "messages": [
        {"role": "system", "content": "Working directory: /w/d"},
        {"role": "user", "content": "go [[script:x]]"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "t1"}, {"id": "t2"}]},
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "two"}]},
    ],
}


def data(event: Event) -> Mapping[str, object]:
    assert not isinstance(event.data, str)
    return event.data


@pytest.mark.parametrize(
    ("api", "body"), [(MessagesApi(), MESSAGES), (ResponsesApi(), RESPONSES), (ChatApi(), CHAT)]
)
def test_a_request_has_the_same_meaning_in_every_api(api: Api, body: dict[str, object]) -> None:
    read = api.read(body, 99)

    assert place_of(read) == Place("x", 1)
    assert (read.model, read.stream, read.cwd, read.size_bytes) == ("m", True, "/w/d", 99)
    assert "Bash" in read.tools
    assert [(result.id, result.text) for turn in read.turns for result in turn.results] == [
        ("t1", "one"),
        ("t2", "two"),
    ]


def test_the_messages_api_reads_contents_that_are_strings() -> None:
    read = MessagesApi().read({"messages": [{"role": "user", "content": "[[script:x]]"}]}, 1)

    assert read.turns == (Turn("user", "[[script:x]]"),)
    assert not read.stream


def test_the_messages_api_reads_the_form_that_a_reply_has_to_have() -> None:
    form = {"type": "json_schema", "schema": {"type": "object", "properties": {"title": {"type": "string"}}}}

    assert MessagesApi().read({"output_config": {"format": form}}, 0).members == ("title",)
    assert MessagesApi().read({"output_config": {"effort": "low"}}, 0).members == ()


def test_the_messages_api_reads_whether_a_tool_failed() -> None:
    assert MessagesApi().read(MESSAGES, 1).turns[-1].results[1] == ToolResult("t2", "two", is_error=True)


def test_the_responses_api_reads_a_prompt_that_is_a_string_and_all_kinds_of_tools() -> None:
    assert ResponsesApi().read({"input": "hello"}, 1).turns == (Turn("user", "hello"),)
    assert ResponsesApi().read(RESPONSES, 1).tools == {
        "Bash": "function",
        "apply_patch": "custom",
        "ours.do_1": "namespaced function",
        "exec": "custom",
        "web_search": "web_search",
    }


@pytest.mark.parametrize(
    "body", [{}, {"messages": 3, "input": 3, "tools": "x"}, {"messages": [1], "input": [None]}]
)
@pytest.mark.parametrize("api", [MessagesApi(), ResponsesApi(), ChatApi()])
def test_nonsense_is_an_empty_conversation(api: Api, body: dict[str, object]) -> None:
    assert api.read(body, 1).turns == ()


def test_a_reply_of_the_messages_api() -> None:
    events = list(MessagesApi().stream(REPLY))

    assert [event.name for event in events] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(data(event)["type"] == event.name for event in events)
    assert data(events[5])["content_block"] == {
        "type": "tool_use",
        "id": "toolu_f00_0",
        "name": "Bash",
        "input": {},
    }
    assert data(events[6])["delta"] == {"type": "input_json_delta", "partial_json": '{"command":"true"}'}
    assert data(events[8])["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert [event.charged for event in events if event.charged] == [TokenUsage(100, 1, 3, 4), REPLY.usage]


def test_a_whole_message_has_the_same_blocks() -> None:
    message = MessagesApi().document(REPLY)

    assert message["stop_reason"] == "tool_use"
    assert message["content"] == [
        {"type": "text", "text": "two words"},
        {"type": "tool_use", "id": "toolu_f00_0", "name": "Bash", "input": {"command": "true"}},
    ]


def test_a_reply_of_the_responses_api() -> None:
    events = list(ResponsesApi().stream(REPLY))

    assert [event.name for event in events] == [
        "response.created",
        "response.output_item.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_item.done",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    assert data(events[6])["item"] == {
        "type": "function_call",
        "id": "fc_f00_0",
        "call_id": "call_f00_0",
        "status": "completed",
        "name": "Bash",
        "arguments": '{"command":"true"}',
    }


@pytest.mark.parametrize(
    ("tool", "wanted"),
    [
        (
            ToolCall("i", "apply_patch", {"input": "*** Begin"}, "custom"),
            {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin"},
        ),
        (
            ToolCall("i", "ours.do_1", {}, "namespaced function"),
            {"type": "function_call", "namespace": "ours", "name": "do_1", "arguments": "{}"},
        ),
    ],
)
def test_other_kinds_of_tools_are_called_as_they_were_offered(
    tool: ToolCall, wanted: dict[str, object]
) -> None:
    reply = Reply("i", "m", "", (tool,), "tool_use", TokenUsage())
    output = ResponsesApi().document(reply)["output"]

    assert isinstance(output, list)
    assert output == [{**wanted, "id": "fc_i", "call_id": "call_i", "status": "completed"}]


def test_a_reply_that_is_too_long_is_incomplete_in_the_responses_api() -> None:
    reply = Reply("i", "m", "half", (), "max_tokens", TokenUsage())

    assert list(ResponsesApi().stream(reply))[-1].name == "response.incomplete"


def test_a_reply_of_the_chat_api() -> None:
    api = ChatApi()
    texts = [api.encode(event) for event in api.stream(REPLY)]

    assert texts[-1] == b"data: [DONE]\n\n"
    chunks = [json.loads(text.removeprefix(b"data: ")) for text in texts[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "two words"
    assert deltas[-2]["tool_calls"][0]["function"] == {"name": "Bash", "arguments": '{"command":"true"}'}
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert chunks[-1]["usage"]["completion_tokens"] == 20


def test_events_have_a_name_a_line_of_data_and_a_blank_line() -> None:
    assert MessagesApi().encode(Event("ping", {"type": "ping"})) == b'event: ping\ndata: {"type":"ping"}\n\n'


@pytest.mark.parametrize(
    ("api", "text"),
    [
        (MessagesApi(), b"event: error\n"),
        (ResponsesApi(), b'"code":"context_length_exceeded"'),
        (ChatApi(), b'"type":"context_length_exceeded"'),
    ],
)
def test_a_failure_inside_a_stream_has_its_type(api: Api, text: bytes) -> None:
    events = api.stream_failure(StepFailure(200, type="context_length_exceeded"))

    assert text in b"".join(api.encode(event) for event in events)


def test_the_working_directory_of_an_agent_is_found() -> None:
    assert find_cwd(["x", "a\n - Primary working directory: /a b/c\n - Is a git repo: no"]) == "/a b/c"
    assert find_cwd(["<environment_context>\n  <cwd>/x/y</cwd>\n"]) == "/x/y"
    assert find_cwd(["nothing of it"]) == ""
