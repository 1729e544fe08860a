"""The members of ``ctx`` that run other workers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final, Generic, Literal, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from bartack.core import typed
from bartack.runtime.context.definitions import OnFailure, Worker, WorkerCall, delegate_op, describe_calls
from bartack.runtime.context.part import Members, Seconds, check_options, encode_args, limit_here, nothing
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.steps import Collected, JoinArgs, StopArgs
from bartack.runtime.protocol.values import Buffer, Codec, codec
from bartack.runtime.scheduler.operations import AnyOp, StepOp
from bartack.runtime.scheduler.results import Failure, Outcome
from bartack.runtime.scheduler.scheduler import Scheduler

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T_co = TypeVar("T_co", covariant=True)

_decode_list: Final = typed.decoder(list[Collected]).decode
_decode_one: Final = typed.decoder(Collected).decode
_decode_error: Final = typed.decoder(ErrorData).decode
_TEXT: Final[Codec[str]] = codec(str)


class DelegateOptions(TypedDict, total=False):
    """How workers are run.

    Attributes:
        timeout_s: How long all of them may take.
        limit: How many run at a time.
    """

    timeout_s: Seconds | None
    limit: int | None


class Handle(Generic[T_co]):
    """A spawned worker. Await it for its result."""

    def __init__(self, scheduler: Scheduler, path: str, decode: Callable[[Buffer], T_co]) -> None:
        self.path = path
        self._scheduler = scheduler
        self._decode = decode

    def __await__(self) -> Generator[AnyOp, object, T_co]:
        """Wait for its end."""
        self._scheduler.check_here("await handle")
        op = StepOp("join", encode_args(JoinArgs(path=self.path)), self._decode, about=self.path)
        return (yield from op.__await__())

    def cancel(self, reason: str = "") -> StepOp[None]:
        """Cancel it: its open step, or its next one, has the outcome that it was cancelled."""
        self._scheduler.check_here("handle.cancel")
        args = encode_args(StopArgs(path=self.path, reason=reason))
        return StepOp("stop", args, nothing, about=self.path)

    def __repr__(self) -> str:
        return f"<handle of {self.path}>"


class WorkerMembers(Members):
    """Other workers."""

    @overload
    def delegate(
        self,
        calls: WorkerCall[T],
        *,
        on_failure: Literal["fail"] = "fail",
        **options: Unpack[DelegateOptions],
    ) -> StepOp[T]: ...
    @overload
    def delegate(
        self,
        calls: WorkerCall[T],
        *,
        on_failure: Literal["collect"],
        **options: Unpack[DelegateOptions],
    ) -> StepOp[Outcome[T]]: ...
    @overload
    def delegate(
        self,
        calls: tuple[WorkerCall[T1]],
        *,
        on_failure: Literal["fail"] = "fail",
        **options: Unpack[DelegateOptions],
    ) -> StepOp[tuple[T1]]: ...
    @overload
    def delegate(
        self,
        calls: tuple[WorkerCall[T1], WorkerCall[T2]],
        *,
        on_failure: Literal["fail"] = "fail",
        **options: Unpack[DelegateOptions],
    ) -> StepOp[tuple[T1, T2]]: ...
    @overload
    def delegate(
        self,
        calls: tuple[WorkerCall[T1], WorkerCall[T2], WorkerCall[T3]],
        *,
        on_failure: Literal["fail"] = "fail",
        **options: Unpack[DelegateOptions],
    ) -> StepOp[tuple[T1, T2, T3]]: ...
    @overload
    def delegate(
        self,
        calls: tuple[WorkerCall[T1], WorkerCall[T2], WorkerCall[T3], WorkerCall[T4]],
        *,
        on_failure: Literal["fail"] = "fail",
        **options: Unpack[DelegateOptions],
    ) -> StepOp[tuple[T1, T2, T3, T4]]: ...
    @overload
    def delegate(
        self,
        calls: tuple[WorkerCall[T1], WorkerCall[T2], WorkerCall[T3], WorkerCall[T4], WorkerCall[T5]],
        *,
        on_failure: Literal["fail"] = "fail",
        **options: Unpack[DelegateOptions],
    ) -> StepOp[tuple[T1, T2, T3, T4, T5]]: ...
    @overload
    def delegate(
        self,
        calls: list[WorkerCall[T]],
        *,
        on_failure: Literal["fail"] = "fail",
        **options: Unpack[DelegateOptions],
    ) -> StepOp[list[T]]: ...
    @overload
    def delegate(
        self,
        calls: Iterable[WorkerCall[T]],
        *,
        on_failure: Literal["collect"],
        **options: Unpack[DelegateOptions],
    ) -> StepOp[list[Outcome[T]]]: ...
    def delegate(
        self,
        calls: object,
        *more: object,
        on_failure: OnFailure = "fail",
        **options: Unpack[DelegateOptions],
    ) -> StepOp[object]:
        """Run workers side by side and wait for all of them; or run one.

        Args:
            calls: The workers with their arguments, or one.
            more: Nothing; several calls come in a list.
            on_failure: ``fail``: the first failure fails the session. ``collect``: failures are values.
            options: See ``DelegateOptions``.

        Returns:
            Their results in order, a tuple for a tuple; the result of the only one for one.

        Raises:
            WorkerError: One of them failed, and with it the session.
        """
        self._scheduler.check_here("ctx.delegate")
        check_options(options, DelegateOptions)
        if more:
            _refuse_more([calls, *more])
        described = _calls(calls)
        timeout_s = limit_here(self._scheduler, "delegate", options.get("timeout_s"))
        limit = options.get("limit")
        collect = on_failure == "collect"
        op = (_collecting_op if collect else _plain_op)(described, timeout_s, limit)
        if isinstance(calls, WorkerCall):
            return _as(_the_only_one, op)
        return _as(tuple, op) if isinstance(calls, tuple) and not collect else op

    @overload
    def spawn(self, call: WorkerCall[T], *, on_failure: Literal["fail"] = "fail") -> StepOp[Handle[T]]: ...
    @overload
    def spawn(self, call: WorkerCall[T], *, on_failure: Literal["collect"]) -> StepOp[Handle[Outcome[T]]]: ...
    def spawn(self, call: WorkerCall[object], *, on_failure: OnFailure = "fail") -> StepOp[Handle[object]]:
        """Start a worker without waiting for it. Its failure acts at once, awaited or not; this worker's end awaits it.

        Args:
            call: The worker with its arguments.
            on_failure: ``fail``: its failure fails the session. ``collect``: awaiting it gives an ``Outcome``.
        """
        self._scheduler.check_here("ctx.spawn")
        args, value, about = describe_calls(_calls([call]), on_failure, None, None)

        def joined(data: Buffer) -> object:
            return _outcome(call, _collected(data)) if on_failure == "collect" else _result(call, data)

        def decode(data: Buffer) -> Handle[object]:
            return Handle(self._scheduler, _TEXT.decode(data), joined)

        return StepOp("spawn", args, decode, about=about, value=value)


def _refuse_more(calls: list[object]) -> None:
    described = [cast("WorkerCall[object]", call) for call in calls if isinstance(call, WorkerCall)]
    for call in described:
        call.drop()
    names = ", ".join(f"{call.worker.name}(…)" for call in described)
    raise TypeError(f"put the calls in a list: ctx.delegate([{names}])")


def _calls(calls: object) -> list[WorkerCall[object]]:
    if isinstance(calls, WorkerCall):
        return [cast("WorkerCall[object]", calls)]
    if isinstance(calls, Worker):
        raise _not_called(cast("Worker[..., object]", calls))
    if not isinstance(calls, Iterable):
        raise TypeError("delegate takes a worker with its arguments, or a list or tuple of such")
    described = list(cast("Iterable[object]", calls))
    for call in described:
        if isinstance(call, Worker):
            raise _not_called(cast("Worker[..., object]", call))
        if not isinstance(call, WorkerCall):
            raise TypeError(f"{call!r} is not a worker with its arguments; write it as: child(…)")
    return cast("list[WorkerCall[object]]", described)


def _not_called(worker: Worker[..., object]) -> TypeError:
    return TypeError(f"{worker.name} is a worker without its arguments; call it: {worker.name}(…)")


def _the_only_one(results: Iterable[object]) -> object:
    [result] = results
    return result


def _as(convert: Callable[[list[object]], object], op: StepOp[list[object]]) -> StepOp[object]:
    """A step with the same results in another form."""
    decode = op.decode

    def decode_and_convert(data: Buffer) -> object:
        return convert(decode(data))

    op.replace()
    return StepOp(op.step, op.args, decode_and_convert, about=op.about, value=op.value)


def _plain_op(
    calls: list[WorkerCall[object]], timeout_s: float | None, limit: int | None
) -> StepOp[list[object]]:
    return delegate_op(calls, "fail", timeout_s, limit)


def _collecting_op(
    calls: list[WorkerCall[object]], timeout_s: float | None, limit: int | None
) -> StepOp[list[object]]:
    def decode(data: Buffer) -> list[object]:
        return [_outcome(call, one) for call, one in zip(calls, _decode_list(data), strict=True)]

    args, value, about = describe_calls(calls, "collect", timeout_s, limit)
    return StepOp("delegate", args, decode, about=about, value=value)


def _collected(data: Buffer) -> Collected:
    """How a collected child ended: a failure is marked as one, anything else is a result."""
    try:
        collected = _decode_one(data)
    except msgspec.ValidationError:
        return Collected(ok=True, value=msgspec.Raw(bytes(data)))
    failed = not collected.ok and collected.error is not None
    return collected if failed else Collected(ok=True, value=msgspec.Raw(bytes(data)))


def _outcome(call: WorkerCall[object], collected: Collected) -> Outcome[object]:
    if not collected.ok:
        assert collected.error is not None
        return Outcome(False, None, Failure.of(_decode_error(collected.error)))
    return Outcome(True, _result(call, b"null" if collected.value is None else collected.value))


def _result(call: WorkerCall[object], data: Buffer) -> object:
    return call.worker.shape.result.decode(data)
