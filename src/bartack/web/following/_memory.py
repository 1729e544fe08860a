"""How much memory the spans of a run take, about: their columns exactly, what few rows have by its number."""

from __future__ import annotations

import sys
from array import array
from typing import Final, cast

from bartack.runtime.state.run_state import State
from bartack.runtime.state.spans.spans import Spans

EACH: Final = 120
"""What an element of a list or dict that is not a number takes, about."""
WORKER: Final = 3000
MESSAGE: Final = 700

_ROOM: Final = Spans.__module__.rpartition(".")[0]


def size_of_spans(spans: Spans) -> int:
    """The bytes of the spans of a run and of its state."""
    seen: set[int] = set()
    return _size_of(spans, seen) + _size_of_state(spans.state)


def _size_of(thing: object, seen: set[int]) -> int:
    """The bytes of columns, and of the objects of the room of spans that hold them."""
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, array | bytearray):
        return sys.getsizeof(thing)  # pyright: ignore[reportUnknownArgumentType] - an array of any type
    if isinstance(thing, dict):
        members = cast("dict[object, object]", thing)
        return sys.getsizeof(members) + EACH * len(members) + _of_arrays(list(members.values()), seen)
    if isinstance(thing, list | set):
        elements = cast("list[object]", thing)
        return sys.getsizeof(elements) + EACH * len(elements) + _of_arrays(list(elements), seen)
    if (
        type(thing).__module__.startswith(_ROOM)
        and not isinstance(thing, State)
        and hasattr(thing, "__dict__")
    ):
        return sum(_size_of(part, seen) for part in vars(thing).values())
    return 0


def _of_arrays(elements: list[object], seen: set[int]) -> int:
    """What columns in a collection take: one kind of element is in each."""
    if not elements or not (isinstance(elements[0], array) or hasattr(elements[0], "__dict__")):
        return 0
    return sum(_size_of(element, seen) for element in elements)


def _size_of_state(state: State) -> int:
    workers = sum(WORKER + sys.getsizeof(worker.history) for worker in state.workers.values())
    boxes = state.mailboxes.values()
    messages = sum(box.size_bytes + MESSAGE * (len(box) + box.scheduled + box.held) for box in boxes)
    return workers + messages
