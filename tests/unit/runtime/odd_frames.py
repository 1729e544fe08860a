"""Frames that a worker may send in principle: every kind, every field, with values that no worker of ours sends."""

from __future__ import annotations

import types
from random import Random
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec

from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s

TEXTS: Final = (
    "",
    "main",
    "main.1.1",
    "main/1:child",
    "box",
    "@main",
    "q1",
    "m-1",
    "x\0y",
    "ü",
    "a" * 5000,
    "/",
    "..",
    "*",
)
INTEGERS: Final = (0, 1, 2, 3, -1, 2**31, 2**53, 2**63 - 1, -(2**63), 10**30)
FLOATS: Final = (0.0, 0.5, -1.0, 1e-9, 1e9, 1e308, -1e308)
JSON: Final[list[object]] = [
    msgspec.json.decode(text)
    for text in ("null", "true", "1", '"x"', "[]", "{}", "[[]]", '{"a":1}', '[{"args":[]}]', "1" + 30 * "0")
]


def odd(kind: object, random: Random, depth: int = 0) -> object:  # noqa: C901, PLR0911 - one line for each kind of type
    """A value of a type, most often one that fits."""
    if random.random() < 0.06:
        return random.choice(JSON)
    origin, inside = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return odd(random.choice(inside), random, depth)
    if origin is Literal:
        return random.choice(inside)
    if origin is list or kind is list:
        return [
            odd(inside[0] if inside else object, random, depth + 1)
            for _ in range(random.choice((0, 1, 1, 2)))
        ]
    if origin is tuple:
        return [odd(one, random, depth + 1) for one in inside if one is not ...]
    if origin is dict or kind is dict:
        key, value = inside or (str, object)
        return {
            str(odd(key, random, depth + 1)): odd(value, random, depth + 1)
            for _ in range(random.choice((0, 1)))
        }
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structure(kind, random, depth + 1) if depth < 6 else {}
    if kind is bool:
        return random.random() < 0.3
    if kind is int:
        return random.choice(INTEGERS)
    if kind is float:
        return random.choice(FLOATS)
    if kind is str:
        return random.choice(TEXTS)
    if kind is type(None):
        return None
    return random.choice(JSON)


def structure(kind: type[msgspec.Struct], random: Random, depth: int = 0) -> dict[str, object]:
    """An object with some or all of the fields of a type, and sometimes another one."""
    found: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        if field.required or random.random() < 0.5:
            found[field.encode_name] = odd(_bare(field.type), random, depth)
    config: Any = kind.__struct_config__
    if config.tag_field:
        found[config.tag_field] = config.tag
    if random.random() < 0.02:
        found["surprise"] = random.choice(JSON)
    return found


def _bare(kind: object) -> object:
    """A type without what ``Annotated`` adds to it: also values beyond its bounds are sent."""
    return get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


ARGUMENTS: Final = sorted(
    (
        one
        for one in vars(s).values()
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__name__.endswith("Args")
    ),
    key=lambda one: one.__name__,
)
KINDS: Final = (
    f.Step,
    f.Step,
    f.Step,
    f.Note,
    f.Begin,
    f.Done,
    f.Returned,
    f.Out,
    f.Cancel,
    f.Result,
    f.Failed,
    f.Ask,
    f.Slow,
)


def odd_frame(random: Random, steps: list[str]) -> bytes:
    """The body of a frame."""
    kind = random.choice(KINDS)
    found = structure(kind, random)
    if "step" in found and random.random() < 0.9:
        found["step"] = random.choice([*steps, "body", "now", "random", "read", "timeout", "gather"])
    if "p" in found and random.random() < 0.9:
        found["p"] = random.choice(["main", "main", "main.1.1"])
    if "n" in found and random.random() < 0.8:
        found["n"] = random.randrange(1, 12)
    if "a" in {field.name for field in msgspec.structs.fields(kind)} and random.random() < 0.95:
        found["a"] = structure(random.choice(ARGUMENTS), random)
    return msgspec.json.encode(found) if random.random() < 0.99 else random.randbytes(30)
