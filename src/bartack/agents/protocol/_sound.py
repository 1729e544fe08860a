"""Whether a value that an agent sends can be stored in the journal and be part of a key: the one check at the boundary.

What passes here is journaled, copied into later commands and hashed. A value that passed and could not be hashed would fail its
run at the same place on every resume.
"""

from __future__ import annotations

import math
from typing import Final, cast

from bartack.core.text import cut

DEEPEST: Final = 100
"""Levels of arrays and objects. What is put around a value later has to fit into what the journal takes (128)."""
KEYED: Final = range(-(2**53) + 1, 2**53)
"""Integers that can be part of a key (RFC 8785)."""
STORED: Final = range(-(2**63), 2**64)
"""Integers that can be stored."""
SHOWN: Final = 80
"""Characters of a place in a value that are shown."""

_Item = tuple[object, str, int]


def find_unsound(value: object, *, keyed: bool = True, place: str = "$") -> str:
    """Why a JSON value cannot be stored, or not be part of a key if it has to be; empty if it can.

    Args:
        value: The value. It may be nested deeper than this interpreter can recurse.
        keyed: It becomes part of the inputs of later commands, whose keys are computed from them.
        place: What the value is called in the answer.
    """
    integers, bits = (KEYED, "beyond ±(2^53 - 1)") if keyed else (STORED, "beyond 64 bits")
    left: list[_Item] = [(value, place, 0)]
    while left:
        item, where, depth = left.pop()
        problem = ""
        if isinstance(item, str):
            problem = _text_problem(item)
        elif isinstance(item, int):
            problem = "" if int(item) in integers else f"an integer {bits}"
        elif isinstance(item, float):
            problem = "" if math.isfinite(item) else "not a finite number"
        elif depth >= DEEPEST and isinstance(item, dict | list):
            problem = f"nested more than {DEEPEST} levels deep"
        elif isinstance(item, dict | list):
            problem = _open(cast("dict[str, object] | list[object]", item), where, depth, left)
        if problem:
            return f"{_short(where)} is {problem}"
    return ""


def _open(item: dict[str, object] | list[object], where: str, depth: int, left: list[_Item]) -> str:
    """Put the members of a container on the list; returns what is wrong with their names."""
    if isinstance(item, list):
        left += [(member, f"{where}[{index}]", depth + 1) for index, member in enumerate(item)]
        return ""
    for name, member in item.items():
        if _text_problem(name):
            return f"an object with a name that is {_text_problem(name)}"
        left.append((member, f"{where}.{name}" if depth < 8 else where, depth + 1))
    return ""


def _text_problem(text: str) -> str:
    if text.isascii():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "text with half a surrogate pair in it"
    return ""


def _short(where: str) -> str:
    return cut(where, SHOWN)
