"""The Chat Completions API, which most other agents can use. Pure: requests to data, data to events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from bartack.testing.model._conversation import (
    Conversation,
    Event,
    JsonObject,
    Reply,
    ToolCall,
    ToolResult,
    Turn,
    find_cwd,
    objects,
    string,
    text_of,
    words_of,
)
from bartack.testing.model._script import StepFailure, TokenUsage

_FINISH: Final = {
    "tool_use": "tool_calls",
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
}


class ChatApi:
    """``POST /v1/chat/completions``."""

    def read(self, body: JsonObject, size_bytes: int) -> Conversation:
        """The conversation in a request."""
        messages = objects(body.get("messages"))
        return Conversation(
            turns=tuple(turn for message in messages for turn in _turn(message)),
            tools={string(tool.get("name")): "" for tool in _functions(body)},
            model=string(body.get("model")),
            stream=body.get("stream") is True,
            cwd=find_cwd([text_of(message.get("content")) for message in messages]),
            size_bytes=size_bytes,
        )

    def stream(self, reply: Reply) -> Iterator[Event]:
        """The chunks of a reply, its usage, and the end mark."""
        yield _chunk(reply, {"role": "assistant", "content": ""})
        for word in words_of(reply.text):
            yield _chunk(reply, {"content": word})
        for index, tool in enumerate(reply.tools):
            yield _chunk(reply, {"tool_calls": [{"index": index, **_call(tool)}]})
        yield _chunk(reply, {}, finish=_finish(reply))
        last = {
            **_head(reply, "chat.completion.chunk"),
            "choices": list[object](),
            "usage": _usage(reply.usage),
        }
        yield Event("chunk", last, reply.usage)
        yield Event("done", "[DONE]")

    def document(self, reply: Reply) -> JsonObject:
        """A reply as one object."""
        calls = [_call(tool) for tool in reply.tools]
        message = {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply.usage)}

    def stream_failure(self, failure: StepFailure) -> Iterator[Event]:
        """A failure inside a stream."""
        yield Event("chunk", failure.error())

    def encode(self, event: Event) -> bytes:
        """An event as server-sent text; events have no names here."""
        data = event.data.encode() if isinstance(event.data, str) else msgspec.json.encode(event.data)
        return b"data: " + data + b"\n\n"


def _functions(body: JsonObject) -> list[JsonObject]:
    return objects([tool.get("function") for tool in objects(body.get("tools"))])


def _turn(message: JsonObject) -> Iterator[Turn]:
    role, text = message.get("role"), text_of(message.get("content"))
    if role == "assistant":
        calls = objects(message.get("tool_calls"))
        yield Turn("assistant", text, calls=tuple(string(call.get("id")) for call in calls))
    elif role == "user":
        yield Turn("user", text)
    elif role == "tool":
        yield Turn("user", results=(ToolResult(string(message.get("tool_call_id")), text),))


def _chunk(reply: Reply, delta: JsonObject, *, finish: str | None = None) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Event("chunk", {**_head(reply, "chat.completion.chunk"), "choices": [choice]})


def _head(reply: Reply, kind: str) -> dict[str, object]:
    return {"id": f"chatcmpl_{reply.id}", "object": kind, "created": 0, "model": reply.model}


def _call(tool: ToolCall) -> dict[str, object]:
    function = {"name": tool.name, "arguments": msgspec.json.encode(tool.input).decode()}
    return {"id": f"call_{tool.id}", "type": "function", "function": function}


def _finish(reply: Reply) -> str:
    return _FINISH.get(reply.stop_reason, reply.stop_reason)


def _usage(usage: TokenUsage) -> dict[str, object]:
    prompt = usage.input_tokens + usage.cache_read_input_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens},
    }
