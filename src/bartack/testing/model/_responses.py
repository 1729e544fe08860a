"""The Responses API, as far as Codex uses it. Pure: requests to data, data to events."""

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
    encode_event,
    find_cwd,
    objects,
    string,
    text_of,
    words_of,
)
from bartack.testing.model._script import StepFailure, TokenUsage

_USUAL: Final = "functions"
_CALLS: Final = {"function_call", "custom_tool_call", "local_shell_call"}
_RESULTS: Final = {"function_call_output", "custom_tool_call_output", "local_shell_call_output"}


class ResponsesApi:
    """``POST /v1/responses``."""

    def read(self, body: JsonObject, size_bytes: int) -> Conversation:
        """The conversation in a request."""
        given = body.get("input")
        items = objects([{"role": "user", "content": given}] if isinstance(given, str) else given)
        texts = [string(body.get("instructions")), *(text_of(item.get("content")) for item in items)]
        return Conversation(
            turns=tuple(_joined(_turns(items))),
            tools=dict(_tools([*objects(body.get("tools")), *_added_tools(items)])),
            model=string(body.get("model")),
            stream=body.get("stream") is True,
            cwd=find_cwd(texts),
            size_bytes=size_bytes,
        )

    def stream(self, reply: Reply) -> Iterator[Event]:
        """The events of a reply."""
        yield _event("response.created", {"response": _response(reply, "in_progress", [])})
        items = _items(reply)
        for index, item in enumerate(items):
            is_text = item["type"] == "message"
            added = {**item, "status": "in_progress", **({"content": list[object]()} if is_text else {})}
            yield _event("response.output_item.added", {"output_index": index, "item": added})
            for word in words_of(reply.text) if is_text else []:
                place = {"item_id": item["id"], "output_index": index, "content_index": 0}
                yield _event("response.output_text.delta", {**place, "delta": word})
            yield _event("response.output_item.done", {"output_index": index, "item": item})
        end = "incomplete" if reply.stop_reason == "max_tokens" else "completed"
        yield _event(f"response.{end}", {"response": _response(reply, end, items)}, reply.usage)

    def document(self, reply: Reply) -> JsonObject:
        """A reply as one object."""
        return _response(reply, "completed", _items(reply))

    def stream_failure(self, failure: StepFailure) -> Iterator[Event]:
        """A failure inside a stream: its type is the code of the error."""
        error = {"code": failure.error_type, "message": failure.message or "failure of the script"}
        yield _event(
            "response.failed", {"response": {"id": "resp_failed", "status": "failed", "error": error}}
        )

    def encode(self, event: Event) -> bytes:
        """An event as server-sent text."""
        return encode_event(event)


def _turns(items: list[JsonObject]) -> Iterator[Turn]:
    for item in items:
        kind = string(item.get("type")) or "message"
        if kind in _CALLS:
            yield Turn("assistant", calls=(string(item.get("call_id")),))
        elif kind in _RESULTS:
            yield Turn("user", results=(_result(item),))
        elif kind == "message" and item.get("role") in {"user", "assistant"}:
            is_reply = item.get("role") == "assistant"
            yield Turn("assistant" if is_reply else "user", text_of(item.get("content")))


def _joined(turns: Iterator[Turn]) -> Iterator[Turn]:
    """One turn for each reply: its text and its calls are items of their own here."""
    last: Turn | None = None
    for turn in turns:
        if last is not None and last.role == turn.role == "assistant":
            last = Turn("assistant", f"{last.text}{turn.text}", calls=last.calls + turn.calls)
            continue
        if last is not None:
            yield last
        last = turn
    if last is not None:
        yield last


def _result(item: JsonObject) -> ToolResult:
    output = item.get("output")
    return ToolResult(string(item.get("call_id")), text_of(output))


def _added_tools(items: list[JsonObject]) -> list[JsonObject]:
    """Tools that are offered by an item of the conversation: the newest models get them so."""
    added = [item for item in items if item.get("type") == "additional_tools"]
    return [tool for item in added for tool in objects(item.get("tools"))]


def _tools(tools: list[JsonObject], space: str = "") -> Iterator[tuple[str, str]]:
    """Names and kinds. A tool in a namespace is named ``namespace.tool``, except in ``functions``, which is the usual one."""
    for tool in tools:
        kind = string(tool.get("type"))
        name = string(tool.get("name")) or kind
        if kind == "namespace":
            yield from _tools(objects(tool.get("tools")), "" if name == _USUAL else name)
        elif space:
            yield f"{space}.{name}", f"namespaced {kind}"
        else:
            yield name, kind


def _items(reply: Reply) -> list[dict[str, object]]:
    message: dict[str, object] = {
        "type": "message",
        "id": f"msg_{reply.id}",
        "role": "assistant",
        "status": "completed",
        "content": [_content(reply)],
    }
    calls = [_call(tool) for tool in reply.tools]
    return [message, *calls] if reply.text or not calls else calls


def _content(reply: Reply) -> dict[str, object]:
    if reply.stop_reason == "refusal":
        return {"type": "refusal", "refusal": reply.text}
    return {"type": "output_text", "text": reply.text, "annotations": []}


def _call(tool: ToolCall) -> dict[str, object]:
    space, _, name = tool.name.rpartition(".") if tool.kind.startswith("namespaced") else ("", "", tool.name)
    place: dict[str, object] = {"id": f"fc_{tool.id}", "call_id": f"call_{tool.id}", "status": "completed"}
    named = {"name": name, **({"namespace": space} if space else {})}
    if tool.kind.endswith("custom"):
        return {"type": "custom_tool_call", **place, **named, "input": string(tool.input.get("input"))}
    arguments = msgspec.json.encode(tool.input).decode()
    return {"type": "function_call", **place, **named, "arguments": arguments}


def _response(reply: Reply, status: str, output: list[dict[str, object]]) -> dict[str, object]:
    is_incomplete = status == "incomplete"
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "status": status,
        "model": reply.model,
        "output": output,
        "incomplete_details": {"reason": "max_output_tokens"} if is_incomplete else None,
        "usage": None if status == "in_progress" else _usage(reply.usage),
    }


def _usage(usage: TokenUsage) -> dict[str, object]:
    total = usage.input_tokens + usage.cache_read_input_tokens
    return {
        "input_tokens": total,
        "input_tokens_details": {"cached_tokens": usage.cache_read_input_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": total + usage.output_tokens,
    }


def _event(name: str, fields: JsonObject, charged: TokenUsage | None = None) -> Event:
    return Event(name, {"type": name, **fields}, charged)
