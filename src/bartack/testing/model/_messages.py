"""The Messages API, as far as Claude Code and claude-agent-acp use it. Pure: requests to data, data to events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec

from bartack.testing.model._conversation import (
    Conversation,
    Event,
    JsonObject,
    Reply,
    ToolCall,
    ToolResult,
    Turn,
    encode_event,
    find_cwd,
    objects,
    string,
    text_of,
    words_of,
)
from bartack.testing.model._script import StepFailure, TokenUsage


class MessagesApi:
    """``POST /v1/messages``."""

    def read(self, body: JsonObject, size_bytes: int) -> Conversation:
        """The conversation in a request. Messages of the role ``system`` are instructions, not turns."""
        messages = objects(body.get("messages"))
        texts = [text_of(body.get("system")), *(text_of(message.get("content")) for message in messages)]
        return Conversation(
            turns=tuple(
                _turn(message) for message in messages if message.get("role") in {"user", "assistant"}
            ),
            tools={string(tool.get("name")): "" for tool in objects(body.get("tools"))},
            model=string(body.get("model")),
            stream=body.get("stream") is True,
            cwd=find_cwd(texts),
            size_bytes=size_bytes,
            members=_members(body),
        )

    def stream(self, reply: Reply) -> Iterator[Event]:
        """The events of a reply."""
        first = reply.first_usage
        start = {**_message(reply, None, first), "content": list[object]()}
        yield _event("message_start", {"message": start}, first)
        first_tool = 1 if reply.text or not reply.tools else 0
        if first_tool:
            block: JsonObject = {"type": "text", "text": ""}
            yield _event("content_block_start", {"index": 0, "content_block": block})
            for word in words_of(reply.text):
                delta = {"type": "text_delta", "text": word}
                yield _event("content_block_delta", {"index": 0, "delta": delta})
            yield _event("content_block_stop", {"index": 0})
        for index, tool in enumerate(reply.tools, first_tool):
            yield _event(
                "content_block_start", {"index": index, "content_block": {**_tool(tool), "input": {}}}
            )
            delta = {"type": "input_json_delta", "partial_json": msgspec.json.encode(tool.input).decode()}
            yield _event("content_block_delta", {"index": index, "delta": delta})
            yield _event("content_block_stop", {"index": index})
        end = {"stop_reason": reply.stop_reason, "stop_sequence": None}
        yield _event(
            "message_delta",
            {"delta": end, "usage": {"output_tokens": reply.usage.output_tokens}},
            reply.usage,
        )
        yield _event("message_stop", {})

    def document(self, reply: Reply) -> JsonObject:
        """A reply as one object."""
        text = [{"type": "text", "text": reply.text}] if reply.text or not reply.tools else []
        return {
            **_message(reply, reply.stop_reason, reply.usage),
            "content": [*text, *(_tool(tool) for tool in reply.tools)],
        }

    def stream_failure(self, failure: StepFailure) -> Iterator[Event]:
        """A failure inside a stream."""
        yield Event("error", failure.error())

    def encode(self, event: Event) -> bytes:
        """An event as server-sent text."""
        return encode_event(event)


def _members(body: JsonObject) -> tuple[str, ...]:
    """What the reply has to have if the request names a schema."""
    found: object = body
    for key in ("output_config", "format", "schema", "properties"):
        found = cast("JsonObject", found).get(key) if isinstance(found, dict) else None
    return tuple(cast("JsonObject", found)) if isinstance(found, dict) else ()


def _turn(message: JsonObject) -> Turn:
    content = message.get("content")
    parts = objects(content)
    if message.get("role") == "assistant":
        calls = tuple(string(part.get("id")) for part in parts if part.get("type") == "tool_use")
        return Turn("assistant", text_of(content), calls=calls)
    results = tuple(
        ToolResult(
            string(part.get("tool_use_id")), text_of(part.get("content")), part.get("is_error") is True
        )
        for part in parts
        if part.get("type") == "tool_result"
    )
    return Turn("user", text_of(content), results=results)


def _message(reply: Reply, stop_reason: str | None, usage: TokenUsage) -> dict[str, object]:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": msgspec.to_builtins(usage),
    }


def _tool(tool: ToolCall) -> dict[str, object]:
    return {"type": "tool_use", "id": f"toolu_{tool.id}", "name": tool.name, "input": tool.input}


def _event(name: str, fields: JsonObject, charged: TokenUsage | None = None) -> Event:
    return Event(name, {"type": name, **fields}, charged)
