"""Reading the answers of people: what was typed, as the value that was asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, cast

import msgspec

from bartack.agents.reply import Fault, check_value
from bartack.errors import MessageValueError, TypeMismatchError
from bartack.runtime.protocol import steps as s
from bartack.runtime.protocol.values import encode

_TYPES: Final[dict[str, type]] = {"str": str, "bool": bool, "int": int, "float": float}


_YES: Final = frozenset({"y", "yes", "true", "on", "1"})


_NO: Final = frozenset({"n", "no", "false", "off", "0"})


def read_typed(type_: str, text: str, options: Sequence[str] = ()) -> msgspec.Raw:
    """What a person has typed: as the answer to a question for JSON it is JSON, unless it is one of the options."""
    if type_ == "json" and text not in options:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(text)))
    return msgspec.Raw(msgspec.json.encode(text))


def check_answer(args: s.AskArgs, value: msgspec.Raw) -> msgspec.Raw:
    """The answer as the program will see it: text that people type is read as what was asked for.

    Raises:
        TypeMismatchError: It is not of that kind, or none of the options.
    """
    answer = msgspec.json.decode(value)
    checked = _check_schema(args, answer) if args.type == "json" else _check_simple(args, answer)
    try:
        return msgspec.Raw(encode(checked))
    except MessageValueError as error:
        raise TypeMismatchError("answer", args.type, str(error)) from None


def _check_simple(args: s.AskArgs, answer: object) -> object:
    if isinstance(answer, str) and args.type != "str":
        answer = _read(args.type, answer)
    expected = _TYPES.get(args.type)
    if expected is float and type(answer) is int:
        answer = float(answer)
    if expected is not None and type(answer) is not expected:
        raise TypeMismatchError("answer", args.type, type(answer).__name__)
    if args.options is not None and answer not in args.options:
        chosen = _choice(args.options, answer)
        if chosen is None:
            raise TypeMismatchError("answer", " or ".join(args.options), str(answer))
        answer = args.options[chosen]
    return answer


def _check_schema(args: s.AskArgs, answer: object) -> object:
    """The first reading of an answer that fits: as it is, as the JSON that it is the text of, as the number of a choice."""
    schema: dict[str, object] = args.schema or {}
    faults: list[Fault] = []
    for reading in _readings(args, answer):
        checked, found = check_value(reading, schema)
        if not found:
            return checked
        faults = found
    raise TypeMismatchError(f"answer{faults[0].path[1:]}", faults[0].expected, faults[0].found)


def _readings(args: s.AskArgs, answer: object) -> Iterator[object]:
    yield answer
    if isinstance(answer, str):
        with contextlib.suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            yield msgspec.json.decode(answer)
    chosen = _choice(args.options or [], answer)
    choices = (args.schema or {}).get("enum")
    if chosen is not None and isinstance(choices, list):
        yield cast("list[object]", choices)[chosen]


def _choice(options: list[str], answer: object) -> int | None:
    """The place of the option whose number a person has given."""
    text = str(answer).strip()
    number = int(text) if text.isdecimal() else 0
    return number - 1 if 1 <= number <= len(options) else None


def _read(type_: str, text: str) -> object:
    word = text.strip().lower()
    if type_ == "bool":
        return True if word in _YES else False if word in _NO else text
    try:
        return int(word) if type_ == "int" else float(word)
    except ValueError:
        return text
