"""Workers and steps as a program writes them down: what they take, what they give, and the calls that describe them.

``decorators.py`` has the decorators that make them.
"""

from __future__ import annotations

import inspect
import sys
import typing
import warnings
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final, Generic, Literal, ParamSpec, TypedDict, TypeVar, cast

import msgspec

from bartack.core import typed
from bartack.errors import ForgottenAwaitError, MessageValueError, TypeMismatchError
from bartack.runtime.context.part import Seconds, check_options, limit_of
from bartack.runtime.protocol.source_places import shown_place
from bartack.runtime.protocol.steps import CallArgs, DelegateArgs
from bartack.runtime.protocol.values import (
    ATOMS,
    PLAIN,
    Buffer,
    Codec,
    codec,
    encode,
    encode_atoms,
    object_schema,
)
from bartack.runtime.scheduler.body import BodyOp, BodyOptions, Retry
from bartack.runtime.scheduler.operations import AnyOp, StepOp, here, outside_worker

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_EMPTY: Final = inspect.Parameter.empty
_VARIADIC: Final = inspect.Parameter.VAR_POSITIONAL
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_encode_args = msgspec.json.Encoder().encode
_decode_call = typed.decoder(CallArgs).decode
_decode_list = typed.decoder(list[msgspec.Raw]).decode

OnFailure = Literal["fail", "collect"]

_Codecs = tuple[list[Codec[object]], dict[str, Codec[object]], Codec[object], Codec[Any]]
"""Of arguments by place, by name, of all further ones, and of the result."""


class Shape:
    """The parameters and the result of a function, with the codec of each. All of it is looked up at first use."""

    def __init__(self, function: Callable[..., object], *, skip: int = 0) -> None:
        self._function = function
        self._skip = skip
        self._known: _Codecs | None = None

    @cached_property
    def signature(self) -> inspect.Signature:
        """What the function takes."""
        return inspect.signature(self._function)

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(self.signature.parameters.values())[self._skip :]

    @cached_property
    def _counts(self) -> range:
        """How many arguments it takes by their places, if it takes all of them so; else none."""
        if any(parameter.kind not in _POSITIONAL for parameter in self._parameters):
            return range(0)
        required = sum(parameter.default is _EMPTY for parameter in self._parameters)
        return range(required, len(self._parameters) + 1)

    def resolve(self) -> None:
        """Look the annotations up.

        Raises:
            UnsupportedTypeError: Values of one cannot be serialised.
            NameError: One names something that is not there (yet).
        """
        hints = self._hints()
        codecs = {
            parameter.name: codec(hints.get(parameter.name, typing.Any)) for parameter in self._parameters
        }
        rest = next((parameter.name for parameter in self._parameters if parameter.kind is _VARIADIC), "")
        places = [codecs[parameter.name] for parameter in self._parameters if parameter.kind in _POSITIONAL]
        result = hints.get("return", typing.Any)
        self._known = (
            places,
            codecs,
            codecs.get(rest, PLAIN),
            codec(type(None) if result is None else result),
        )

    def _hints(self) -> dict[str, object]:
        """The annotations, without those of skipped parameters, which need not be resolvable."""
        skipped = set(list(self.signature.parameters)[: self._skip])
        own = cast("dict[str, object]", getattr(self._function, "__annotations__", {}))
        wanted = SimpleNamespace(
            __annotations__={name: hint for name, hint in own.items() if name not in skipped}
        )
        names = getattr(inspect.unwrap(self._function), "__globals__", {})
        return typing.get_type_hints(wanted, globalns=names, include_extras=True)

    @cached_property
    def result(self) -> Codec[Any]:
        """The codec of what the function returns."""
        return self._codecs()[3]

    @cached_property
    def _places(self) -> list[Codec[object]]:
        """The codecs of arguments that are given by their places."""
        return self._codecs()[0]

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise ``TypeError`` unless the function takes these arguments."""
        if self._skip and args and type(args[0]).__name__ == "Context":
            raise TypeError(f"{self._in_words()}; leave ctx out")
        if kwargs or len(args) not in self._counts:
            try:
                self.signature.bind(*[None] * self._skip, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self._in_words()}: {error}") from None

    def _in_words(self) -> str:
        return f"{self._function.__name__} takes ({', '.join(map(str, self._parameters))})"

    def take(
        self, args: Sequence[object], kwargs: Mapping[str, object], what: str
    ) -> tuple[bytes, Sequence[object], Mapping[str, object]]:
        """Arguments in their encoded form, and as copies that the caller cannot change.

        Raises:
            TypeError: The function does not take them.
            MessageValueError: One cannot be serialised.
            TypeMismatchError: One is not of its annotated type.
        """
        if not kwargs and len(args) in self._counts:
            # Most are atoms, which need neither to be encoded one by one nor to be copied.
            atoms = encode_atoms(self._places, args)
            if atoms is not None:
                return b'{"args":%b}' % atoms, args, kwargs
        self.check(args, kwargs)
        data = self.encode(args, kwargs, what)
        return data, *self._copy(args, kwargs, data)

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object], what: str) -> bytes:
        """The encoded form of arguments.

        Raises:
            MessageValueError: One cannot be serialised.
            TypeMismatchError: One is not of its annotated type.
        """
        places, named, _, _ = self._codecs()
        if len(args) > len(places):
            places = self._by_place(len(args))
        try:
            parts = [kind.encode(value, what) for kind, value in zip(places, args, strict=False)]
        except (TypeMismatchError, MessageValueError):
            self._blame(places, args, what)
            raise
        data = b'{"args":[%b]' % b",".join(parts)
        if kwargs:
            members = [
                encode(name)
                + b":"
                + named[name].encode(value, what.replace("the arguments of", f"the argument {name!r} of"))
                for name, value in sorted(kwargs.items())
            ]
            data += b',"kwargs":{' + b",".join(members) + b"}"
        return data + b"}"

    def _blame(self, places: Sequence[Codec[object]], args: Sequence[object], what: str) -> None:
        """Encode once more the arguments of which one does not fit: the error names its parameter."""
        last = self._parameters[-1].name if self._parameters else ""
        for place, (kind, value) in enumerate(zip(places, args, strict=False)):
            name = self._parameters[place].name if place < len(self._parameters) else last
            kind.encode(value, what.replace("the arguments of", f"the argument {name!r} of"))

    def decode(self, data: Buffer) -> tuple[list[object], dict[str, object]]:
        """Arguments from their encoded form.

        Raises:
            TypeMismatchError: One is not of its annotated type.
        """
        call = _decode_call(data)
        _, named, _, _ = self._codecs()
        args = [kind.decode(raw) for kind, raw in zip(self._by_place(len(call.args)), call.args, strict=True)]
        return args, {name: named.get(name, PLAIN).decode(raw) for name, raw in call.kwargs.items()}

    def decode_named(self, arguments: Mapping[str, msgspec.Raw]) -> dict[str, object]:
        """Arguments from outside the program, each by its name.

        Raises:
            TypeMismatchError: One is not of its annotated type, is missing, or nothing takes it.
        """
        _, named, _, _ = self._codecs()
        unknown = next((name for name in arguments if name not in named), None)
        if unknown is not None:
            raise TypeMismatchError("$", f"only {', '.join(named) or 'no arguments'}", unknown)
        for parameter in self._parameters:
            if parameter.default is _EMPTY and parameter.name not in arguments:
                raise TypeMismatchError(f"$.{parameter.name}", named[parameter.name].name, "nothing")
        return {name: _decode_member(named[name], name, raw) for name, raw in arguments.items()}

    def schema(self) -> dict[str, object]:
        """The JSON schema of the arguments, as an object of them.

        Raises:
            UnsupportedTypeError: Values of an annotation cannot be serialised.
            NameError: An annotation names something that is not there.
        """
        hints = self._hints()
        self.resolve()
        fields = {parameter.name: hints.get(parameter.name, typing.Any) for parameter in self._parameters}
        required = [parameter.name for parameter in self._parameters if parameter.default is _EMPTY]
        return object_schema(fields, required)

    def _copy(
        self, args: Sequence[object], kwargs: Mapping[str, object], data: bytes
    ) -> tuple[Sequence[object], Mapping[str, object]]:
        """Arguments that the caller cannot change: themselves if they are immutable, else made of their encoded form."""
        if not kwargs and all(type(value) in ATOMS for value in args):
            return args, kwargs
        return self.decode(data)

    def _codecs(self) -> _Codecs:
        if self._known is None:
            self.resolve()
            assert self._known is not None
        return self._known

    def _by_place(self, count: int) -> list[Codec[object]]:
        places, _, rest, _ = self._codecs()
        return places[:count] if count <= len(places) else places + [rest] * (count - len(places))


def _decode_member(kind: Codec[object], name: str, raw: msgspec.Raw) -> object:
    try:
        return kind.decode(raw)
    except TypeMismatchError as error:
        raise TypeMismatchError(f"$.{name}{error.place[1:]}", error.expected, error.found) from None


# Workers.


class Worker(Generic[P, R_co]):
    """A function that runs as a worker. Calling it describes a run of it; awaiting the description runs it."""

    def __init__(
        self,
        function: Callable[..., Awaitable[R_co]],
        shape: Shape,
        *,
        name: str,
        agent: str = "",
        timeout_s: float | None = None,
    ) -> None:
        self.function = function
        self.shape = shape
        self.name = name
        self.agent = agent
        self.timeout_s = timeout_s
        self.ref = f"{function.__module__}:{name}"
        """How other processes find it."""
        self.find: Callable[[str], Worker[..., object]] | None = None
        """Finds the other workers of its program, if they cannot be imported."""
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> WorkerCall[R_co]:
        """A description of a run with these arguments."""
        self.shape.check(args, kwargs)
        caller = sys._getframe(1)  # noqa: SLF001 - the only way to know where a description was dropped
        return WorkerCall(self, args, kwargs, (caller.f_code.co_filename, caller.f_lineno))

    def __repr__(self) -> str:
        return f"<worker {self.ref}>"


class WorkerCall(Generic[R_co]):
    """A worker with its arguments, to be awaited, delegated, spawned or run. It cannot be changed."""

    __slots__ = ("_place", "_used", "args", "kwargs", "worker")

    worker: Worker[..., R_co]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    _place: tuple[str, int]
    _used: bool

    def __init__(
        self,
        worker: Worker[..., R_co],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        place: tuple[str, int],
    ) -> None:
        set_ = object.__setattr__
        set_(self, "worker", worker)
        set_(self, "args", args)
        set_(self, "kwargs", kwargs)
        set_(self, "_place", place)
        set_(self, "_used", False)

    def encode(self) -> bytes:
        """The encoded arguments; from here on the description counts as used."""
        object.__setattr__(self, "_used", True)
        return self.worker.shape.encode(self.args, self.kwargs, f"the arguments of {self.worker.name}")

    def drop(self) -> None:
        """It was given to a call that refuses it: it need not be run."""
        object.__setattr__(self, "_used", True)

    def not_awaited(self) -> ForgottenAwaitError:
        """See ``Unawaited.not_awaited``."""
        return ForgottenAwaitError(f"the worker {self.worker.name}", shown_place(*self._place))

    def __await__(self) -> Generator[AnyOp, object, R_co]:
        """Run it as a child and wait for its result."""
        if here.watcher is None:
            raise outside_worker(self.worker.name)
        results = yield from delegate_op([self], "fail", None, None).__await__()
        return results[0]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a description of a worker cannot be changed ({name})")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a description of a worker cannot be changed ({name})")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WorkerCall):
            return NotImplemented
        same = cast("WorkerCall[object]", other)
        return (self.worker, self.args, self.kwargs) == (same.worker, same.args, same.kwargs)

    def __hash__(self) -> int:
        # Arguments may be lists, which have none.
        return hash((self.worker.ref, len(self.args), *self.kwargs))

    def __del__(self) -> None:
        if not self._used and not sys.is_finalizing():
            file, line = self._place
            frame = sys._getframe(1)  # noqa: SLF001 - the only way to see where it was thrown away
            # Which code has made it is not known; if it was another one, there is the warning.
            if here.watcher is not None and here.watcher.forget(
                f"the worker {self.worker.name}", shown_place(file, line), None, frame
            ):
                return
            warnings.warn_explicit(
                f"{self.worker.name}(…) was described and never run; await it or delegate it",
                RuntimeWarning,
                file,
                line,
            )

    def __repr__(self) -> str:
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{self.worker.name}({', '.join(words)})"


def delegate_op(
    calls: Sequence[WorkerCall[R]], on_failure: OnFailure, timeout_s: float | None, limit: int | None
) -> StepOp[list[R]]:
    """Run workers side by side; results in order."""

    def decode(data: Buffer) -> list[R]:
        return [
            cast("R", call.worker.shape.result.decode(raw))
            for call, raw in zip(calls, _decode_list(data), strict=True)
        ]

    args, value, about = describe_calls(calls, on_failure, timeout_s, limit)
    return StepOp("delegate", args, decode, about=about, value=value)


def describe_calls(
    calls: Sequence[WorkerCall[R]], on_failure: OnFailure, timeout_s: float | None, limit: int | None
) -> tuple[bytes, bytes, str]:
    """The arguments, the payload and a short text of a step that starts workers."""
    names = [call.worker.ref for call in calls]
    args = DelegateArgs(workers=names, on_failure=on_failure, timeout_s=timeout_s, limit=limit)
    value = b"[" + b",".join([call.encode() for call in calls]) + b"]"
    return _encode_args(args), value, ", ".join(call.worker.name for call in calls[:5])


# Steps.


class StepOptions(TypedDict, total=False):
    """How a step is executed; see ``@step``."""

    name: str | None
    once: bool
    retry: Retry | None
    timeout_s: Seconds | None
    max_crashes: int
    changes: bool


def body_options(function: Callable[..., object], options: StepOptions) -> BodyOptions:
    """How the body of a step is executed.

    Raises:
        TypeError: An option is unknown.
        ValueError: The options contradict each other.
    """
    check_options(options, StepOptions)
    once, retry = options.get("once", False), options.get("retry")
    timeout_s, max_crashes = limit_of(options.get("timeout_s")), options.get("max_crashes", 3)
    if once and retry is not None and retry.on is None:
        raise ValueError(
            "once with retry needs the exceptions after which it may be tried again: Retry(on=(…))"
        )
    if max_crashes < 1:
        raise ValueError("max_crashes must be at least 1")
    if timeout_s is not None and timeout_s <= 0:
        raise ValueError("timeout_s must be more than 0")
    return BodyOptions(
        name=options.get("name") or f"{function.__module__}.{function.__qualname__}",
        once=once,
        retry=retry,
        timeout_s=timeout_s,
        max_crashes=max_crashes,
        changes=options.get("changes", True),
        is_async=inspect.iscoroutinefunction(function),
    )


class StepFunction(Generic[P, R_co]):
    """A function whose calls are steps. ``function`` is the plain function."""

    def __init__(self, function: Callable[..., object], shape: Shape, options: BodyOptions) -> None:
        self.function = function
        self.options = options
        self._shape = shape
        self._what = f"the arguments of {options.name}"
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> BodyOp[R_co]:
        """The step with these arguments, to be awaited in a worker."""
        if here.watcher is None:
            raise outside_worker(self.options.name)
        written, own_args, own_kwargs = self._shape.take(args, kwargs, self._what)
        return BodyOp(self.options, self.function, own_args, own_kwargs, written, self._shape.result)

    def prepare(self) -> None:
        """Look up what its arguments and its result are, which else the first call has to do."""
        self._shape.resolve()

    def __repr__(self) -> str:
        return f"<step {self.options.name}>"
