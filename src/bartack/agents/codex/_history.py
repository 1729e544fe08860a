"""What a thread of Codex already has of a call: the answer that a dead process has left, found by the id of its message."""

from __future__ import annotations

from typing import Literal, NamedTuple

from bartack.agents.codex._messages import ANSWER
from bartack.agents.program._json_lines import Json, object_of, objects_of, text_of

Standing = Literal["none", "completed", "unfinished"]


class Found(NamedTuple):
    """The newest turn of a call.

    Attributes:
        standing: ``none``: the thread has no turn of this call; ``unfinished``: it was interrupted, or it failed.
        number: The number of the attempt that it belongs to.
        text: The last message of the model.
        answer: What the tool ``answer`` took last; ``None`` if it was not called.
    """

    standing: Standing
    number: int = 0
    text: str = ""
    answer: Json | None = None


def client_id(key: str, attempt: int) -> str:
    """The id of the message that begins a turn."""
    return f"{key}#{attempt}"


def find_turn(thread: Json, key: str, answer_tool: str = ANSWER) -> Found:
    """The newest turn of a call, among those that ``thread/resume`` lists. ``answer_tool`` takes its value."""
    for turn in reversed(objects_of(thread, "turns")):
        number = _number(turn, key)
        if number:
            done = text_of(turn, "status") == "completed"
            standing: Standing = "completed" if done else "unfinished"
            return Found(standing, number, last_text(turn), _answer(turn, answer_tool))
    return Found("none")


def last_text(turn: Json) -> str:
    """The last message of the model in a turn."""
    texts = [text_of(item, "text") for item in _items(turn, "agentMessage")]
    return texts[-1] if texts else ""


def _number(turn: Json, key: str) -> int:
    for item in _items(turn, "userMessage"):
        name, mark, number = text_of(item, "clientId").rpartition("#")
        if mark and name == key and number.isdecimal():
            return int(number)
    return 0


def _answer(turn: Json, tool: str) -> Json | None:
    calls = [item for item in _items(turn, "dynamicToolCall") if text_of(item, "tool") == tool]
    good = [object_of(call, "arguments") for call in calls if call.get("success") is True]
    return good[-1] if good else None


def _items(turn: Json, kind: str) -> list[Json]:
    return [item for item in objects_of(turn, "items") if text_of(item, "type") == kind]
