"""What a model server reads from a request and puts into a reply, whichever API carries it.

Pure data. ``_messages.py``, ``_responses.py`` and ``_chat.py`` translate from and to their APIs; ``_director.py`` decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, cast

import msgspec

from bartack.testing.model._script import StepFailure, TokenUsage

JsonObject = Mapping[str, object]

_CWD: Final = re.compile(r"<cwd>([^<\n]+)</cwd>|[Ww]orking directory: *([^\s<][^\n<]*)")


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool, as the agent sent it to the model."""

    id: str
    text: str
    is_error: bool = False


class Turn(msgspec.Struct, frozen=True):
    """One message of a conversation: a text of the user, tool results, or a reply of the model."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[str, ...] = ()
    """The ids of the tool calls of a reply."""
    results: tuple[ToolResult, ...] = ()


class Conversation(msgspec.Struct, frozen=True):
    """A request for the next reply."""

    turns: tuple[Turn, ...]
    tools: dict[str, str] = {}
    """The kind of each tool that is offered, by name."""
    model: str = ""
    stream: bool = False
    cwd: str = ""
    size_bytes: int = 0
    members: tuple[str, ...] = ()
    """The members of the JSON object that the reply has to be; empty if it may be any text."""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool that the reply calls."""

    id: str
    name: str
    input: dict[str, object]
    kind: str = ""


class Reply(msgspec.Struct, frozen=True):
    """The reply of the model."""

    id: str
    model: str
    text: str
    tools: tuple[ToolCall, ...]
    stop_reason: str
    usage: TokenUsage

    @property
    def first_usage(self) -> TokenUsage:
        """What an API that reports tokens at the beginning of a reply reports there."""
        return msgspec.structs.replace(self.usage, output_tokens=1)


class Event(NamedTuple):
    """One event of a streamed reply."""

    name: str
    data: JsonObject | str
    charged: TokenUsage | None = None
    """What the agent knows from this event on that the reply costs."""


class Api(Protocol):
    """One API of models."""

    def read(self, body: JsonObject, size_bytes: int) -> Conversation:
        """The conversation in a request."""
        ...

    def stream(self, reply: Reply) -> Iterator[Event]:
        """The events of a reply."""
        ...

    def document(self, reply: Reply) -> JsonObject:
        """A reply as one object."""
        ...

    def stream_failure(self, failure: StepFailure) -> Iterator[Event]:
        """The events of a failure that comes inside a stream."""
        ...

    def encode(self, event: Event) -> bytes:
        """An event as server-sent text."""
        ...


def encode_event(event: Event) -> bytes:
    """An event with its name, as most APIs send it."""
    return f"event: {event.name}\ndata: ".encode() + msgspec.json.encode(event.data) + b"\n\n"


def words_of(text: str) -> list[str]:
    """A text in the pieces in which it is streamed: words, each with the white space after it."""
    return re.findall(r"\s*\S+\s*", text) or ([text] if text else [])


def find_cwd(texts: Sequence[str]) -> str:
    """The working directory that an agent names to its model; empty if it names none."""
    for text in texts:
        if match := _CWD.search(text):
            return (match[1] or match[2]).strip()
    return ""


def objects(value: object) -> list[JsonObject]:
    """The objects of a list; anything else is left out."""
    return (
        [cast("JsonObject", item) for item in cast("list[object]", value) if isinstance(item, dict)]
        if isinstance(value, list)
        else []
    )


def text_of(content: object) -> str:
    """The text of a content that is a string or a list of parts with a ``text``."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in objects(content) if isinstance(part.get("text"), str))


def string(value: object) -> str:
    """A string as it is; anything else is empty."""
    return value if isinstance(value, str) else ""
