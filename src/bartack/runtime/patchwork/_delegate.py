"""Workers of a Patchwork program: how the runtime sees them, and how several run side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, cast

import msgspec

from bartack.core import typed
from bartack.errors import TypeMismatchError
from bartack.runtime.context.definitions import OnFailure, Shape, Worker
from bartack.runtime.patchwork._mailboxes import milliseconds, options_of
from bartack.runtime.patchwork._values import decoded, integer, plain
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.steps import CallArgs, Collected, DelegateArgs
from bartack.runtime.protocol.values import PLAIN, Buffer, Codec, encode
from bartack.runtime.scheduler.operations import StepOp

_decode_call: Final = typed.decoder(CallArgs).decode
_decode_list: Final = typed.decoder(list[msgspec.Raw]).decode
_decode_collected: Final = typed.decoder(list[Collected]).decode
_decode_error: Final = typed.decoder(ErrorData).decode
_encode_args: Final = msgspec.json.Encoder().encode

_OPTIONS: Final = frozenset({"on_failure", "timeout_ms", "limit"})


class PatchworkCodec(Codec[object]):
    """Results of workers: JSON values, with what is opaque as the object that stands for it."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = "a JSON value"

    def decode(self, data: Buffer) -> object:
        """See ``Codec.decode``."""
        return decoded(data)

    def encode(self, value: object, what: str = "", of: Callable[..., object] | None = None) -> bytes:
        """See ``Codec.encode``."""
        return encode(plain(value), what, of)


_RESULT: Final = PatchworkCodec()


class PatchworkShape(Shape):
    """The parameters of a worker: JSON values, by position. Types are checked by the worker itself."""

    def __init__(self, required: int, most: int) -> None:
        self._required_count = required
        self._most = most

    def resolve(self) -> None:
        """See ``Shape.resolve``: there is nothing to look up."""

    @cached_property
    def result(self) -> Codec[object]:
        """See ``Shape.result``."""
        return _RESULT

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """See ``Shape.check``."""
        if kwargs or not self._required_count <= len(args) <= self._most:
            raise TypeError(f"{self._required_count} to {self._most} arguments by position are taken")

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object], what: str) -> bytes:
        """See ``Shape.encode``."""
        given = b",".join([encode(plain(value), what) for value in args])
        if not kwargs:
            return b'{"args":[' + given + b"]}"
        named = {name: plain(value) for name, value in kwargs.items()}
        return b'{"args":[' + given + b'],"kwargs":' + encode(named, what) + b"}"

    def decode(self, data: Buffer) -> tuple[list[object], dict[str, object]]:
        """See ``Shape.decode``."""
        call = _decode_call(data)
        return [decoded(raw) for raw in call.args], {name: decoded(raw) for name, raw in call.kwargs.items()}


class SpecMaker:
    """Makes a spec of a worker for each value it is applied to."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function


class SpecValue:
    """A worker with its arguments, to be delegated."""

    __slots__ = ("arguments", "named", "worker")
    kind_name: Final = "spec"

    def __init__(
        self,
        worker: Worker[..., object],
        arguments: tuple[object, ...],
        named: Mapping[str, object] | None = None,
    ) -> None:
        self.worker = worker
        self.arguments = arguments
        self.named = named or {}


def delegate_op(specs: Sequence[SpecValue], options: object, *, single: bool = False) -> StepOp[list[object]]:
    """Run workers side by side; results in order.

    Raises:
        TypeMismatchError: An option is unknown, or has a wrong value.
    """
    on_failure, timeout_s, limit = check_delegate_options(options)
    args = DelegateArgs(
        workers=[spec.worker.ref for spec in specs],
        on_failure=on_failure,
        timeout_s=timeout_s,
        limit=limit,
        single=single,
    )
    calls = [
        spec.worker.shape.encode(spec.arguments, spec.named, f"the arguments of {spec.worker.name}")
        for spec in specs
    ]
    names = ", ".join(spec.worker.name for spec in specs[:5])
    written = _encode_args([args.workers, on_failure])
    decode = _collected if on_failure == "collect" else _results
    return StepOp(
        "delegate",
        _encode_args(args),
        decode,
        about=names,
        value=b"[" + b",".join(calls) + b"]",
        written=written,
    )


def check_delegate_options(options: object) -> tuple[OnFailure, float | None, int | None]:
    """The options ``on_failure``, ``timeout_ms`` in seconds, and ``limit``.

    Raises:
        TypeMismatchError: An option is unknown, or has a wrong value.
    """
    given = options_of(options, "delegate()", _OPTIONS)
    timeout, limit = given.get("timeout_ms"), given.get("limit")
    return (
        _on_failure(given.get("on_failure")),
        None if timeout is None else milliseconds(timeout, "the option timeout_ms of delegate()"),
        None if limit is None else _positive(limit),
    )


def _on_failure(value: object) -> OnFailure:
    if value is None or value == "fail":
        return "fail"
    if value == "collect":
        return "collect"
    raise TypeMismatchError("the option on_failure of delegate()", '"fail" or "collect"', repr(value))


def _positive(value: object) -> int:
    limit = integer(value, "the option limit of delegate()")
    if limit < 1:
        raise TypeMismatchError("the option limit of delegate()", "a number from 1", str(limit))
    return limit


def _results(data: Buffer) -> list[object]:
    return [decoded(raw) for raw in _decode_list(data)]


def _collected(data: Buffer) -> list[object]:
    return [_outcome(one) for one in _decode_collected(data)]


def _outcome(collected: Collected) -> object:
    if collected.ok:
        return {"ok": True, "value": None if collected.value is None else decoded(collected.value)}
    assert collected.error is not None
    error = _decode_error(collected.error)
    failure = {
        "kind": error.type.rpartition(":")[2],
        "message": error.message,
        "value": PLAIN.decode(encode(error.facts.get("thrown"))),
        "worker": error.worker,
    }
    return {"ok": False, "error": cast("object", failure)}
