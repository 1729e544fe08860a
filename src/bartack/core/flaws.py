"""What is wrong with a value that a person wrote, such as a table of settings: everything, not only the first thing.

``msgspec`` says whether a value is of a type and stops at the first thing that is not. This walks a value side by side with its
type, asks ``msgspec`` about each small part, and adds the nearest name that there is.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias, cast

from bartack.errors import ConfigError

if TYPE_CHECKING:
    import msgspec

KeyPath: TypeAlias = tuple[str | int, ...]
"""Where something is in a value: names of keys, and numbers of elements."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class Flaw(NamedTuple):
    """Something that is wrong with a value.

    Attributes:
        path: Where it is.
        problem: What is wrong, with the nearest name.
        near: That name by itself; empty if there is none.
    """

    path: KeyPath
    problem: str
    near: str = ""


def dotted(path: KeyPath) -> str:
    """A path as people write it: ``tasks[0].goal``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE.fullmatch(part) else f'"{part}"'
            text += f".{name}" if text else name
    return text


def unknown_name(path: KeyPath, given: str, known: Sequence[str], problem: str) -> Flaw:
    """The flaw of an unknown name, with the nearest known one, or all of them."""
    from difflib import get_close_matches  # noqa: PLC0415 - only who makes a mistake needs it

    near = get_close_matches(given, known, 1)
    if near:
        return Flaw(path, f"{problem}; did you mean {near[0]!r}?", near[0])
    listed = f"there are: {', '.join(known)}" if known else "there are none"
    return Flaw(path, f"{problem} ({listed})")


def find_flaws(value: object, wanted: object, path: KeyPath = ()) -> Iterator[Flaw]:
    """Everything that keeps a value from being of a type.

    Args:
        value: What was read: tables, lists, texts, numbers.
        wanted: The type, as ``msgspec`` takes it.
        path: Where the value is.
    """
    found = False
    for flaw in _below(value, wanted, path):
        found = True
        yield flaw
    if not found:
        yield from _whole(value, wanted, path)


def _below(value: object, wanted: object, path: KeyPath) -> Iterator[Flaw]:
    """The flaws of the parts of a value, where it has parts and its type says what they are."""
    plain = typing.get_args(wanted)[0] if typing.get_origin(wanted) is Annotated else wanted
    origin, arguments = typing.get_origin(plain), typing.get_args(plain)
    if _is_struct(plain):
        yield from _in_struct(value, plain, path)
    elif origin is list and isinstance(value, list):
        for index, element in enumerate(cast("list[object]", value)):
            yield from find_flaws(element, arguments[0], (*path, index))
    elif origin is dict and isinstance(value, dict):
        for key, element in cast("dict[str, object]", value).items():
            yield from _key_flaws(key, arguments[0], (*path, key)) or find_flaws(
                element, arguments[1], (*path, key)
            )


def _is_struct(wanted: object) -> typing.TypeGuard[type[msgspec.Struct]]:
    import msgspec  # noqa: PLC0415 - slow to import; most who import this package never need it

    return isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)


def _in_struct(value: object, wanted: type[msgspec.Struct], path: KeyPath) -> Iterator[Flaw]:
    import msgspec  # noqa: PLC0415 - see above

    if not isinstance(value, Mapping):
        yield Flaw(path, "it is not a table")
        return
    given = cast("Mapping[str, object]", value)
    fields = {field.encode_name: field for field in msgspec.structs.fields(wanted)}
    tag = wanted.__struct_config__.tag_field
    for key, element in given.items():
        if key in fields:
            yield from find_flaws(element, fields[key].type, (*path, key))
        elif key != tag:
            yield unknown_name((*path, key), key, list(fields), "there is no such key")
    for key, field in fields.items():
        if field.required and key not in given:
            yield Flaw((*path, key), "it is missing")


def _key_flaws(key: str, wanted: object, path: KeyPath) -> list[Flaw]:
    if typing.get_origin(wanted) is Literal and key not in typing.get_args(wanted):
        return [unknown_name(path, key, _texts(wanted), "there is no such key")]
    return list(_whole(key, wanted, path))


def _whole(value: object, wanted: object, path: KeyPath) -> Iterator[Flaw]:
    """What is wrong with a value as a whole, or with a part of it that only ``msgspec`` can find."""
    import msgspec  # noqa: PLC0415 - see above

    from bartack.core import typed  # noqa: PLC0415 - see above

    choices = _choices(wanted)
    if choices and isinstance(value, str):
        if value not in choices:
            yield unknown_name(path, value, choices, f"there is no value {value!r}")
        return
    try:
        typed.convert(value, type=cast("type[object]", wanted))
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        if not place and "matching regex" in problem:
            problem = _described(wanted, problem)
        yield Flaw((*path, *_parts(place)), problem)
    except ConfigError as error:  # the type has a rule of its own, and names the key by its end
        yield Flaw((*path, error.setting.rpartition(".")[2]), error.problem)


def _described(wanted: object, problem: str) -> str:
    """What a type wants, in the words of its description: a regular expression is for machines."""
    import msgspec  # noqa: PLC0415 - see above

    metas = [part for part in typing.get_args(wanted)[1:] if isinstance(part, msgspec.Meta)]
    words = next((meta.description for meta in metas if meta.description), None)
    return problem if words is None else f"it has to be {words}"


def _choices(wanted: object) -> list[str]:
    """The texts to choose from, where a type is nothing but those, or nothing at all."""
    parts = [part for part in typing.get_args(wanted) if part is not type(None)]
    if typing.get_origin(wanted) is not Literal and len(parts) == 1:
        return _choices(parts[0])
    return _texts(wanted) if typing.get_origin(wanted) is Literal else []


def _texts(wanted: object) -> list[str]:
    return [text for text in typing.get_args(wanted) if isinstance(text, str)]


def _parts(place: str) -> KeyPath:
    """A place as ``msgspec`` writes it, ``$.key[0]``, in parts; what stands for any key is left out."""
    found = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", place)
    return tuple(int(index) if index else name for name, index in found)
