"""Exceptions of people's own classes: they arrive as themselves, whatever their constructors, on the first run and on replay."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import subprocess
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from bartack import Context, step, worker
from bartack.errors import StepError
from bartack.runtime.protocol.exceptions import describe_error, revive_error
from bartack.runtime.protocol.frames import ErrorData
from bartack.testing import run_worker, start_worker


class KeywordError(Exception):
    def __init__(self, *, code: int, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.code = code
        self.detail = detail


class SeveralError(Exception):
    def __init__(self, first: str, second: int, *rest: str) -> None:
        super().__init__(f"{first} and {second}")
        self.first, self.second, self.rest = first, second, rest


class SilentError(Exception):
    """Does not call the constructor of its base, and makes its text of its attributes."""

    def __init__(self, path: Path, line: int) -> None:
        self._path = path
        self._line = line

    def __str__(self) -> str:
        return f"{self._path.name}:{self._line}"


class SlotsError(Exception):
    __slots__ = ("__hidden", "code")

    def __init__(self, code: int) -> None:
        super().__init__("slots")
        self.code = code
        self.__hidden = f"<{code}>"

    @property
    def hidden(self) -> str:
        return self.__hidden


class ReducedError(Exception):
    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url}: {status}")
        self.url, self.status = url, status

    def __reduce__(self) -> tuple[object, ...]:
        return (ReducedError, (self.url, self.status))


class ConnectedError(Exception):
    """Holds what can neither travel nor be pickled, and makes its text of it."""

    def __init__(self, status: int) -> None:
        super().__init__("refused")
        self.status = status
        self.response: Any = type("Response", (), {"reason": "busy", "lock": threading.Lock()})()

    def __str__(self) -> str:
        return f"refused: {self.response.reason}"


class Level(enum.Enum):
    HIGH = "high"


@dataclasses.dataclass(frozen=True)
class Place:
    file: str
    line: int


class RichError(Exception):
    def __init__(self, **facts: object) -> None:
        super().__init__(*facts.values())
        self.__dict__.update(facts)


class FileError(OSError):
    def __init__(self, number: int, text: str, *, retries: int) -> None:
        super().__init__(number, text)
        self.retries = retries


class StrictError(Exception):
    """Refuses to be made in any other way than it was."""

    def __init__(self, token: object) -> None:
        if not isinstance(token, threading.Event):
            raise TypeError("not for you")
        super().__init__("strict")


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int
    reason: str


def noted() -> Exception:
    error = KeyError("k")
    error.add_note("look at the map")
    return error


FACTS: dict[str, object] = {
    "when": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC),
    "day": datetime.date(2026, 1, 31),
    "price": decimal.Decimal("1.10"),
    "id": uuid.UUID(int=7),
    "path": Path("a/b"),
    "pair": (1, "two"),
    "names": {"a", "b"},
    "raw": b"\x00\xff",
    "level": Level.HIGH,
    "place": Place("a.py", 3),
    "plain": {"a": [1, None, 2.5]},
}

SAME: list[Callable[[], Exception]] = [
    lambda: KeywordError(code=3, detail="broken"),
    lambda: SeveralError("one", 2, "three", "four"),
    lambda: SilentError(Path("src/a.py"), 7),
    lambda: SlotsError(5),
    lambda: ReducedError("http://a", 503),
    lambda: RichError(**FACTS),
    lambda: FileError(2, "gone", retries=3),
    lambda: StrictError(threading.Event()),
    lambda: FrozenError(4, "cold"),
    lambda: subprocess.CalledProcessError(2, ["git", "push"], "out", "err"),
    lambda: json.JSONDecodeError("odd", "{", 1),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    lambda: SyntaxError("bad", ("a.py", 3, 1, "x ==", 3, 4)),
    lambda: ValueError({1, 2}),
    noted,
]


def travel(error: BaseException) -> Exception:
    """An exception as it arrives: through its bytes, as often as it is passed on."""
    back: BaseException = error
    for _ in range(2):
        data = msgspec.json.encode(describe_error(back, "main"))
        back = revive_error(msgspec.json.decode(data, type=ErrorData))
    assert isinstance(back, Exception)
    return back


def attributes(error: BaseException) -> dict[str, object]:
    return {name: value for name, value in vars(error).items() if name != "__bartack_outcome__"}


@pytest.mark.requirement("own-exceptions-arrive-as-themselves")
@pytest.mark.parametrize("make", SAME, ids=lambda make: type(make()).__name__)
def test_an_exception_comes_back_as_itself_with_text_arguments_and_attributes(
    make: Callable[[], Exception],
) -> None:
    error = make()

    back = travel(error)

    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert attributes(back) == attributes(error)


def test_slots_come_back() -> None:
    back = travel(SlotsError(5))

    assert isinstance(back, SlotsError)
    assert (back.code, back.hidden) == (5, "<5>")


def test_what_cannot_travel_is_text_and_the_exception_still_of_its_class() -> None:
    back = travel(ConnectedError(503))

    assert isinstance(back, ConnectedError)
    assert back.status == 503
    assert "Response" in back.response
    assert str(back) == "refused: busy"


def test_a_group_comes_back_with_what_is_in_it() -> None:
    group = ExceptionGroup(
        "two of them", [KeywordError(code=1, detail="a"), ExceptionGroup("b", [KeyError("c")])]
    )

    back = cast("ExceptionGroup[Exception]", travel(group))

    assert type(back) is ExceptionGroup
    assert back.message == "two of them"
    first, second = back.exceptions
    assert isinstance(first, KeywordError)
    assert first.code == 1
    assert type(second) is ExceptionGroup
    assert repr(second) == "ExceptionGroup('b', [KeyError('c')])"


def test_what_earlier_versions_recorded_comes_back_as_it_did_there() -> None:
    """A worker that has handled a ``StepError`` must meet it again on replay."""
    old = ErrorData(
        type=f"{__name__}:KeywordError", message="broken (3)", args=["broken (3)"], facts={"code": 3}
    )

    assert type(revive_error(old)) is StepError


# In programs.


@step
def break_down(code: int) -> int:
    raise KeywordError(code=code, detail="step")


@worker
async def broken(ctx: Context, code: int) -> int:
    raise KeywordError(code=code, detail="worker")


@worker
async def careful(ctx: Context) -> list[object]:
    seen: list[object] = []
    try:
        await break_down(3)
    except KeywordError as error:
        seen += [error.code, error.detail, str(error)]
    await ctx.sleep(1)
    one = await ctx.delegate(broken(4), on_failure="collect")
    [many] = await ctx.delegate([broken(5)], on_failure="collect")
    for outcome in (one, many):
        try:
            outcome.unwrap()
        except KeywordError as error:
            seen.append(error.code)
    return seen


EXPECTED = [3, "step", "step (3)", 4, 5]


@pytest.mark.requirement("own-exceptions-arrive-as-themselves")
def test_own_exceptions_of_steps_and_workers_are_caught_as_themselves_also_on_replay() -> None:
    first = run_worker(careful())
    with start_worker(careful()) as again:
        again.wait_for("step.failed")
        again.crash()
        again.resume()
        again.finish()

    assert first.result == EXPECTED
    assert again.result == EXPECTED
    assert sum(record.kind == "body" for record in again.steps) == 1


# One worker as a value.


@worker
async def fine(ctx: Context, code: int) -> int:
    return code


@worker
async def one_by_one(ctx: Context) -> list[object]:
    good = await ctx.delegate(fine(1), on_failure="collect")
    bad = await ctx.delegate(broken(2), on_failure="collect")
    plain = await ctx.delegate(fine(3))
    assert bad.error is not None
    return [good.ok, good.value, bad.ok, bad.error.kind, bad.error.value["code"], plain]


@pytest.mark.requirement("one-failure-as-a-value")
def test_the_failure_of_one_worker_is_a_value() -> None:
    assert run_worker(one_by_one()).result == [True, 1, False, "KeywordError", 2, 3]
