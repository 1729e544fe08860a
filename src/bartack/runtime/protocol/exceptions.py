"""Exceptions on their way through sockets and the journal, there and back.

An error of Bartack comes back as itself with all its facts. So does any other exception whose class can be imported
(``exception_state.py``); the rest becomes a ``StepError`` with its name and message. An exception that is the outcome of a step
remembers which one, so that a failure can be led back to it.
"""

from __future__ import annotations

import contextlib
import linecache
import re
from itertools import islice
from types import CodeType, TracebackType
from typing import Final, TypeVar, cast

import msgspec

from bartack.config.project import PATCHWORK
from bartack.core import typed
from bartack.errors import BartackError, BroadcastError, DeliveryError, SessionFailedError, StepError
from bartack.messaging import BroadcastResult, SendOutcome
from bartack.runtime.protocol.exception_state import MAX_TEXT, cut, find_object, remake, take_state
from bartack.runtime.protocol.frames import ErrorData, ErrorState, StackLine
from bartack.runtime.protocol.source_places import is_own, sound
from bartack.runtime.protocol.values import plain_or_repr

E = TypeVar("E", bound=BaseException)

_MARK: Final = "__bartack_outcome__"
_WITH_RESULT: Final = (DeliveryError, BroadcastError)
_MAX_STACK: Final = 50
_MAX_CAUSES: Final = 10


class _Outcome:
    """What is remembered of an exception that came out of a step."""

    __slots__ = ("data", "step")

    def __init__(self, step: tuple[str, int] | None, data: ErrorData | None) -> None:
        self.step = step
        self.data = data


# Out.


def describe_error(error: BaseException, worker: str = "") -> ErrorData:
    """The serialised form of an exception."""
    return _describe(error, worker, _MAX_CAUSES)


def _describe(error: BaseException, worker: str, causes: int) -> ErrorData:
    kind = type(error)
    before = _outcome_of(error)
    first = before.data if before is not None else None
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    facts, state = (
        _facts_of(error) if isinstance(error, BartackError) else _facts_and_state_of(error, worker, causes)
    )
    return ErrorData(
        type=f"{kind.__module__}:{kind.__qualname__}",
        message=_text_of(error),
        code=error.code if isinstance(error, BartackError) else "",
        args=_arguments_of(error),
        facts=facts,
        state=state,
        worker=(first.worker if first is not None else "") or worker,
        stack=[*stack_of(error.__traceback__), *(first.stack if first is not None else ())][-_MAX_STACK:],
        cause=_describe(cause, worker, causes - 1) if cause is not None and causes else None,
    )


def _text_of(error: BaseException) -> str:
    try:
        return sound(str(error)[:MAX_TEXT])
    except Exception:  # noqa: BLE001 - a failing __str__ must not hide the error
        return type(error).__name__


def _arguments_of(error: BaseException) -> list[object] | None:
    """What its constructor was given, if all of it is JSON."""
    arguments: list[object] = list(error.args)
    if isinstance(error, OSError) and len(arguments) == 2 and isinstance(error.filename, str):
        arguments.append(error.filename)
    copied = [cut(plain_or_repr(argument)) for argument in arguments]
    return copied if all(map(_is_same, arguments, copied)) else None


def _is_same(value: object, copied: object) -> bool:
    """Whether a value is still itself after it was JSON."""
    return type(value) is type(copied) and value == copied


def _facts_and_state_of(
    error: BaseException, worker: str, causes: int
) -> tuple[dict[str, object], ErrorState]:
    facts: dict[str, object] = {}

    def describe(inner: BaseException) -> ErrorData:
        return _describe(inner, worker, max(causes - 1, 0))

    return facts, take_state(error, facts, _MARK, describe)


def _facts_of(error: BartackError) -> tuple[dict[str, object], None]:
    """Its attributes; those that are not JSON, or too long, by their ``repr``, and listed."""
    facts: dict[str, object] = {}
    changed: list[str] = []
    attributes = cast("dict[str, object]", getattr(error, "__dict__", {}))
    for name, value in attributes.items():
        if not name.startswith("_"):
            facts[name] = copied = cut(plain_or_repr(value))
            if isinstance(copied, str) and copied != value:
                changed.append(name)
    if changed:
        facts["not_json"] = changed
    return facts, None


def stack_of(trace: TracebackType | None) -> list[StackLine]:
    """The lines of a traceback that are not Bartack's own, innermost last; equal ones in a row are one."""
    lines: list[StackLine] = []
    sources: dict[str, list[bytes]] = {}
    last: tuple[CodeType, int] | None = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_own(code.co_filename):
            here = code, trace.tb_lasti
            if here == last:
                lines[-1].repeated += 1
            else:
                lines.append(_stack_line(trace, code, sources))
            last = here
        trace = trace.tb_next
    return lines[-_MAX_STACK:]


def _stack_line(trace: TracebackType, code: CodeType, sources: dict[str, list[bytes]]) -> StackLine:
    file = code.co_filename
    if file.endswith(PATCHWORK):
        line, column, width = place_in(code, trace.tb_lasti, trace.tb_lineno)
    else:
        line, column, width = trace.tb_lineno, 0, 0
    text = _source_line(file, line, sources) or linecache.getline(file, line, trace.tb_frame.f_globals)
    return StackLine(sound(file), line, _function_name(code), text.strip(), column, width)


def _source_line(file: str, line: int, sources: dict[str, list[bytes]]) -> str:
    """A line of a source file that is UTF-8; nothing of any other.

    ``linecache`` finds every file there is, and takes its time for that where it was never used before: in the process of a worker,
    whose failure all the others wait for.
    """
    lines = sources.get(file)
    if lines is None:
        try:
            with open(file, "rb") as source:
                lines = source.read().split(b"\n")
        except OSError:
            lines = []
        sources[file] = lines
    try:
        return lines[line - 1].decode() if 0 < line <= len(lines) else ""
    except UnicodeDecodeError:
        return ""


def place_in(code: CodeType, instruction: int, line: int) -> tuple[int, int, int]:
    """Line, column from 1 and width, in characters, of an instruction; column 0 if it is not known."""
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None or None in position:
        return line, 0, 0
    first, last, start, end = cast("tuple[int, int, int, int]", position)
    text = linecache.getline(code.co_filename, first).encode()
    column = len(text[:start].decode("utf-8", "ignore"))
    stop = end if last == first else len(text.rstrip())
    return first, column + 1, max(len(text[start:stop].decode("utf-8", "ignore")), 1)


def _function_name(code: CodeType) -> str:
    """What people call a function; those of Patchwork have a prefix in Python, and parts of them are functions, too."""
    if not code.co_filename.endswith(PATCHWORK):
        return code.co_name
    return re.sub(r"^pw\d*_", "", code.co_qualname.partition(".<locals>")[0])


# Back.


def revive_error(data: ErrorData, step: tuple[str, int] | None = None) -> Exception:
    """The exception that was described; ``step`` is the one whose outcome it is."""
    error = _remake(data)
    if data.cause is not None:
        object.__setattr__(error, "__cause__", revive_error(data.cause))
    object.__setattr__(error, _MARK, _Outcome(step, data))  # an exception may be a frozen dataclass
    return error


def revive_failure(data: ErrorData) -> SessionFailedError:
    """The failure of a session, as its workers get it."""
    error = revive_error(data)
    if isinstance(error, SessionFailedError):
        return error
    failure = SessionFailedError(data.worker, data.type.rpartition(":")[2], data.message)
    failure.__cause__ = error
    return failure


def _remake(data: ErrorData) -> Exception:
    found = _find_class(data.type)
    if found is not None and issubclass(found, BartackError):
        return _remake_own(found, data)
    if found is not None and data.state is not None:
        return remake(found, data, revive_error) or _stand_in(data)
    if found is not None and data.args is not None:
        try:
            error = found(*data.args)
            error.__dict__.update(data.facts)
        except Exception:  # noqa: BLE001 - a constructor of the program: whatever it raises, it cannot be made again
            return _stand_in(data)
        if type(error) is found:
            return error
    return _stand_in(data)


def _remake_own(kind: type[BartackError], data: ErrorData) -> BartackError:
    error = kind.__new__(kind, data.message)
    error.args = (data.message,)
    error.__dict__.update(message=data.message)
    error.__dict__.update(data.facts)
    if isinstance(error, _WITH_RESULT):
        _restore_result(error, data.facts)
    return error


def _restore_result(error: DeliveryError | BroadcastError, facts: dict[str, object]) -> None:
    with contextlib.suppress(msgspec.ValidationError):  # it was too long to be sent as more than text
        if isinstance(error, DeliveryError):
            error.outcome = typed.convert(facts.get("outcome"), type=SendOutcome)
        else:
            error.result = typed.convert(facts.get("result"), type=BroadcastResult)


def _stand_in(data: ErrorData) -> StepError:
    return StepError(data.type.rpartition(":")[2], data.message, dict(data.facts))


def _find_class(name: str) -> type[Exception] | None:
    try:
        found = find_object(name)
    except Exception:  # noqa: BLE001 - importing a module of the program: whatever it raises, the class is not available
        return None
    return found if isinstance(found, type) and issubclass(found, Exception) else None


# Where an exception came from.


def mark_origin(error: E, step: tuple[str, int]) -> E:
    """Remember that an exception is the outcome of a step."""
    before = _outcome_of(error)
    object.__setattr__(error, _MARK, _Outcome(step, before.data if before is not None else None))
    return error


def origin_of(error: BaseException) -> tuple[str, int] | None:
    """The step whose outcome an exception is, also if it was passed on by ``raise … from``."""
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        outcome = _outcome_of(current)
        if outcome is not None and outcome.step is not None:
            return outcome.step
        current = current.__cause__
    return None


def _outcome_of(error: BaseException) -> _Outcome | None:
    return cast("_Outcome | None", getattr(error, _MARK, None))
