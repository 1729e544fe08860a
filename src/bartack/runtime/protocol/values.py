"""Values on their way: Python to JSON and back, by the type of the value out and by the annotation in.

Nothing is converted silently. A value without one exact form in JSON is refused with its place; what comes back is
checked against the annotation. A value that went through here is a copy: the same on the first run and on replay.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast, runtime_checkable

import msgspec
from msgspec import inspect as shapes

from bartack.core import typed
from bartack.errors import BartackError, MessageTooLargeError, MessageValueError, TypeMismatchError
from bartack.runtime.protocol.source_places import place_of_caller, place_of_function

T_co = TypeVar("T_co", covariant=True)

_ANY: Final = "a value"
MAX_VALUE: Final = 16 * 1024 * 1024
DEEPEST: Final = 128

Buffer = bytes | bytearray | memoryview | msgspec.Raw


@runtime_checkable
class Unawaited(Protocol):
    """Something that has no value before it is awaited."""

    def not_awaited(self) -> BartackError:
        """What is wrong with using it as a value."""
        ...


class UnsupportedTypeError(TypeError):
    """An annotation names a type whose values cannot be serialised."""


class _Unsound(Exception):  # noqa: N818 - it never leaves this module
    """A value cannot be serialised; the place is put together on the way out."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.place = ""


class _TooLarge(Exception):  # noqa: N818 - it never leaves this module
    """A part of a value is too large already: the whole is not worth being encoded."""

    def __init__(self, size: int) -> None:
        self.size = size


# What can be serialised, by exact type.

_Check = Callable[[Any, int], None]


def _check(value: object, depth: int) -> None:
    (_CHECKS.get(type(value)) or _learn(type(value)))(value, depth)


def _check_nothing(value: object, depth: int) -> None:
    """Every value of this type can be serialised."""


def _check_str(value: str, depth: int) -> None:
    if len(value) > MAX_VALUE:
        raise _TooLarge(len(value))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Unsound("a lone surrogate") from None


def _check_bytes(value: bytes, depth: int) -> None:
    if len(value) > MAX_VALUE:
        raise _TooLarge(len(value))


def _check_int(value: int, depth: int) -> None:
    if not -(2**63) <= value < 2**64:
        raise _Unsound("an integer beyond 64 bits")


def _check_float(value: float, depth: int) -> None:
    if not math.isfinite(value):
        raise _Unsound(f"{value} is not a JSON number")


def _check_datetime(value: datetime.datetime, depth: int) -> None:
    if value.utcoffset() is None:
        raise _Unsound("naive datetime")


def _refuse_unawaited(value: Unawaited, depth: int) -> None:
    raise value.not_awaited()


def _check_elements(value: list[object], depth: int) -> None:
    _check_depth(depth)
    index = 0
    try:
        for index, element in enumerate(value):  # noqa: B007 - read where it fails
            (_CHECKS.get(type(element)) or _learn(type(element)))(element, depth + 1)
    except _Unsound as unsound:
        unsound.place = f"[{index}]{unsound.place}"
        raise


def _check_members(value: dict[object, object], depth: int) -> None:
    _check_depth(depth)
    key: object = ""
    try:
        for key, member in value.items():
            _check_key(key)
            (_CHECKS.get(type(member)) or _learn(type(member)))(member, depth + 1)
    except _Unsound as unsound:
        unsound.place = f"{_step_into(key)}{unsound.place}"
        raise


def _check_key(key: object) -> None:
    if type(key) is not str:
        raise _Unsound(f"a key that is not a string but {_name_of(type(key))}")
    _check_str(key, 0)


def _check_fields(names: tuple[str, ...]) -> _Check:
    def check(value: object, depth: int) -> None:
        _check_depth(depth)
        name = ""
        try:
            for name in names:
                _check(getattr(value, name), depth + 1)
        except _Unsound as unsound:
            unsound.place = f".{name}{unsound.place}"
            raise

    return check


def _check_enum(value: enum.Enum, depth: int) -> None:
    inner: object = value.value
    if type(inner) not in {str, int}:
        raise _Unsound(f"an Enum whose value is {_name_of(type(inner))}")
    _check(inner, depth)


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise _Unsound(f"nested more than {DEEPEST} deep")


def _step_into(key: object) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


_CHECKS: Final[dict[type, _Check]] = {
    type(None): _check_nothing,
    bool: _check_nothing,
    int: _check_int,
    float: _check_float,
    str: _check_str,
    bytes: _check_bytes,
    datetime.datetime: _check_datetime,
    datetime.date: _check_nothing,
    datetime.timedelta: _check_nothing,
    uuid.UUID: _check_nothing,
    decimal.Decimal: _check_nothing,
    list: _check_elements,
    tuple: _check_elements,
    dict: _check_members,
    msgspec.Raw: _check_nothing,
}


def _learn(kind: type[object]) -> _Check:
    """How values of a type that was not met before are checked."""
    check = _CHECKS[kind] = _find_check(kind)
    return check


def _find_check(kind: type[object]) -> _Check:
    if issubclass(kind, enum.Enum):
        return _check_enum
    if issubclass(kind, pathlib.PurePath):
        return lambda value, depth: _check_str(str(value), depth)
    if issubclass(kind, msgspec.Struct):
        return _check_fields(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        return _check_fields(tuple(field.name for field in dataclasses.fields(kind) if field.init))
    names: tuple[str, ...] | None = getattr(kind, "_fields", None)
    if names is not None and tuple in kind.__mro__:
        return _check_fields(names)

    def refuse(value: object, depth: int) -> None:
        if isinstance(value, types.CoroutineType):
            raise _Unsound(f"a coroutine that was never awaited ({value.__qualname__})")
        raise _Unsound(_name_of(kind))

    return _refuse_unawaited if issubclass(kind, Unawaited) else refuse


def _name_of(kind: object) -> str:
    name = getattr(kind, "__qualname__", None)
    return name if isinstance(name, str) else str(kind)


# Out.


def _encode_hook(value: object) -> object:
    if isinstance(value, pathlib.PurePath):
        return str(value)
    raise _Unsound(_name_of(type(value)))


_encode = msgspec.json.Encoder(enc_hook=_encode_hook).encode


def encode(value: object, what: str = "", of: Callable[..., object] | None = None) -> bytes:
    """A value as JSON.

    Args:
        value: The value.
        what: What it is, for messages.
        of: The function that returned it; without it, the place in a message is that of the caller.

    Raises:
        MessageValueError: It, or something in it, cannot be serialised; the error names the place.
        MessageTooLargeError: It takes more than 16 MiB.
    """
    check = _CHECKS.get(type(value)) or _learn(type(value))
    try:
        check(value, 0)
        data = _encode(value)
    except _Unsound as unsound:
        raise MessageValueError(f"${unsound.place}", unsound.problem, what, _where(of)) from None
    except _TooLarge as large:
        raise MessageTooLargeError(what or _ANY, large.size, MAX_VALUE) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, BartackError):
            raise
        raise MessageValueError("$", str(error), what, _where(of)) from None
    if len(data) > MAX_VALUE:
        raise MessageTooLargeError(what or _ANY, len(data), MAX_VALUE)
    return data


def _where(of: Callable[..., object] | None) -> str:
    return place_of_caller() if of is None else place_of_function(of)


def plain_or_repr(value: object) -> object:
    """A JSON value as it is, copied; anything else as its ``repr``."""
    try:
        return msgspec.json.decode(encode(value))
    except (MessageValueError, MessageTooLargeError):
        try:
            return repr(value).encode("utf-8", "backslashreplace").decode()
        except Exception:  # noqa: BLE001 - a failing __repr__ must not hide the error it is part of
            return f"<{_name_of(type(value))}>"


# In.


def _decode_hook(kind: type, value: object) -> object:
    if isinstance(value, str) and issubclass(kind, pathlib.PurePath):
        return kind(value)
    if kind is object:
        return value
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


_MISMATCH: Final = re.compile(
    r"(?:Expected `(?P<expected>.*)`, got `(?P<found>.*?)`|(?P<other>.*?))(?: - at `(?P<place>.*)`)?",
    re.DOTALL,
)


class Codec(Generic[T_co]):
    """How values of one annotation come back, and whether a value fits it."""

    __slots__ = ("_decode", "atoms", "name")

    def __init__(self, annotation: object) -> None:
        self.name = _name_of(annotation) if isinstance(annotation, type) else str(annotation)
        self.atoms = _atoms_of(annotation)
        """Those atoms that the annotation allows: they come back as they are."""
        check_annotation(annotation)
        self._decode: Callable[[Buffer], T_co] = _make_decoder(annotation)

    def decode(self, data: Buffer) -> T_co:
        """A value from JSON.

        Raises:
            TypeMismatchError: It is not of the annotated type.
        """
        try:
            return self._decode(data)
        except msgspec.DecodeError as error:
            raise self._mismatch(str(error)) from None

    def encode(self, value: object, what: str = "", of: Callable[..., object] | None = None) -> bytes:
        """A value as JSON, after a look whether it will come back. For the arguments see ``encode``.

        Raises:
            MessageValueError: It, or something in it, cannot be serialised.
            MessageTooLargeError: It takes more than 16 MiB.
            TypeMismatchError: It is not of the annotated type.
        """
        data = encode(value, what, of)
        if type(value) not in self.atoms and self is not PLAIN:
            try:
                self._decode(data)
            except msgspec.DecodeError as error:
                raise self._refusal(value, str(error), what, _where(of)) from None
        return data

    def _refusal(self, value: object, text: str, what: str, where: str) -> TypeMismatchError:
        """The error for a value that is not of the annotated type; it is named by its own type."""
        error = self._mismatch(text, what, where)
        if error.place != "$":
            return error
        error = TypeMismatchError("$", error.expected, _name_of(type(value)), what, where)
        if hasattr(value, "stdout") and error.expected == "str":
            error.remedy = (
                "Take the text of the result: write str(result), or result.stdout; or correct the annotation."
            )
        return error

    def _mismatch(self, text: str, what: str = "", where: str = "") -> TypeMismatchError:
        found = _MISMATCH.fullmatch(text)
        assert found is not None
        expected = found["expected"] or self.name
        actual = found["found"] or found["other"]
        return TypeMismatchError(found["place"] or "$", expected, actual, what, where)


ATOMS: Final = (str, int, float, bool, type(None))
"""Types of immutable values: a copy of them is themselves."""


def _atoms_of(annotation: object) -> frozenset[object]:
    if annotation is Any:
        return frozenset(ATOMS)
    is_union = typing.get_origin(annotation) in {types.UnionType, typing.Union}
    parts = typing.get_args(annotation) if is_union else (annotation,)
    return frozenset(parts) if all(part in ATOMS for part in parts) else frozenset()


def encode_atoms(kinds: Iterable[Codec[object]], values: Sequence[object]) -> bytes | None:
    """Values as a JSON list, if each is an atom of its codec; ``None`` if one is not, or cannot be encoded."""
    try:
        for kind, value in zip(kinds, values):  # noqa: B905 - as many as there are values; the check takes as long as encoding them
            if type(value) not in kind.atoms:
                return None
            _CHECKS[type(value)](value, 0)
    except (_Unsound, _TooLarge):
        return None
    data = _encode(values)
    return data if len(data) <= MAX_VALUE else None


def _make_decoder(annotation: object) -> Callable[[Buffer], Any]:
    try:
        decoder = typed.decoder(cast("type[object]", annotation), dec_hook=_decode_hook)
    except TypeError as error:
        raise UnsupportedTypeError(str(error)) from None
    return decoder.decode


_codecs: Final[dict[object, Codec[Any]]] = {}


def codec(annotation: object) -> Codec[Any]:
    """The codec of an annotation.

    Raises:
        UnsupportedTypeError: Values of it cannot be serialised.
    """
    try:
        found = _codecs.get(annotation)
    except TypeError:
        return Codec(annotation)
    if found is None:
        found = _codecs[annotation] = Codec(annotation)
    return found


# Annotations.

_TRAVELLING: Final = (
    shapes.AnyType,
    shapes.NoneType,
    shapes.BoolType,
    shapes.IntType,
    shapes.FloatType,
    shapes.StrType,
    shapes.BytesType,
    shapes.DateTimeType,
    shapes.DateType,
    shapes.TimeDeltaType,
    shapes.UUIDType,
    shapes.DecimalType,
    shapes.EnumType,
    shapes.LiteralType,
)


def check_annotation(annotation: object) -> None:
    """Raise unless values of an annotation can be serialised.

    Raises:
        UnsupportedTypeError: They do not; the error names the type.
    """
    try:
        shape = shapes.type_info(annotation)
    except (TypeError, NameError) as error:
        raise UnsupportedTypeError(str(error)) from None
    _check_shape(shape, set())


def _check_shape(shape: shapes.Type, seen: set[type]) -> None:
    if isinstance(shape, _TRAVELLING):
        return
    if isinstance(shape, shapes.CustomType) and (
        shape.cls is object or issubclass(shape.cls, pathlib.PurePath)
    ):
        return
    for part in _parts(shape, seen):
        _check_shape(part, seen)


def _parts(shape: shapes.Type, seen: set[type]) -> list[shapes.Type]:
    """The shapes a shape is made of."""
    parts: list[shapes.Type] = []
    match shape:
        case shapes.ListType() | shapes.VarTupleType():
            parts = [shape.item_type]
        case shapes.TupleType():
            parts = list(shape.item_types)
        case shapes.UnionType():
            parts = list(shape.types)
        case shapes.Metadata():
            parts = [shape.type]
        case shapes.DictType():
            _check_key_shape(shape.key_type)
            parts = [shape.value_type]
        case shapes.StructType() | shapes.DataclassType() | shapes.TypedDictType() | shapes.NamedTupleType():
            if shape.cls not in seen:
                seen.add(shape.cls)
                parts = [field.type for field in shape.fields]
        case _:
            raise UnsupportedTypeError(f"{_describe_shape(shape)} cannot be serialised")
    return parts


def _check_key_shape(key: shapes.Type) -> None:
    if isinstance(key, shapes.Metadata):
        key = key.type
    texts = isinstance(key, shapes.LiteralType) and all(isinstance(value, str) for value in key.values)
    if not texts and not isinstance(key, shapes.StrType | shapes.AnyType):
        raise UnsupportedTypeError(f"keys of type {_describe_shape(key)} cannot be serialised, only str")


def _describe_shape(shape: shapes.Type) -> str:
    if isinstance(shape, shapes.CustomType):
        return _name_of(shape.cls)
    return type(shape).__name__.removesuffix("Type").lower()


def schema_of(annotation: object) -> dict[str, object] | None:
    """The JSON schema of an annotation; ``None`` for text, which needs none.

    Raises:
        UnsupportedTypeError: Values of it cannot be serialised.
    """
    if annotation is str:
        return None
    check_annotation(annotation)
    return msgspec.json.schema(annotation, schema_hook=_schema_hook)


def object_schema(fields: Mapping[str, object], required: Sequence[str]) -> dict[str, object]:
    """The JSON schema of an object with exactly these members, by their annotations.

    Raises:
        UnsupportedTypeError: Values of one cannot be serialised.
    """
    for annotation in fields.values():
        check_annotation(annotation)
    schemas, shared = msgspec.json.schema_components(
        list(fields.values()), schema_hook=_schema_hook, ref_template="#/$defs/{name}"
    )
    schema: dict[str, object] = {
        "type": "object",
        "properties": dict(zip(fields, schemas, strict=True)),
        "required": list(required),
        "additionalProperties": False,
    }
    return {**schema, "$defs": shared} if shared else schema


def _schema_hook(kind: type[object]) -> dict[str, object]:
    if issubclass(kind, pathlib.PurePath):
        return {"type": "string"}
    if kind is object:
        return {"description": "any value"}
    raise UnsupportedTypeError(f"{_name_of(kind)} cannot be serialised")


PLAIN: Final[Codec[Any]] = codec(Any)
"""Any JSON value, as it is."""
