"""Exceptions on their way, and what is known of where they came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from bartack.errors import (
    BartackError,
    ReceiveTimeoutError,
    RunNotFoundError,
    SessionFailedError,
    ShellError,
    StepCancelledError,
    StepError,
    WorkerError,
    iter_errors,
)
from bartack.runtime.protocol.exceptions import (
    describe_error,
    mark_origin,
    origin_of,
    revive_error,
    revive_failure,
)
from bartack.runtime.protocol.frames import ErrorData


class QuotaError(Exception):
    """An exception of a program, with a constructor of its own."""

    def __init__(self, name: str, left: int = 0) -> None:
        super().__init__(name, left)
        self.name = name
        self.left = left
        self.retry_after: float | None = None


class Outer:
    class InnerError(Exception):
        pass


def travel(error: BaseException, worker: str = "main") -> Exception:
    """An exception as it arrives: through its bytes."""
    data = msgspec.json.encode(describe_error(error, worker))
    return revive_error(msgspec.json.decode(data, type=ErrorData))


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_an_error_of_bartack_comes_back_with_all_its_facts() -> None:
    back = travel(ShellError(["git", "push"], 128, "denied"))

    assert type(back) is ShellError
    assert (back.argv, back.status, back.stderr) == (["git", "push"], 128, "denied")
    assert str(back) == str(ShellError(["git", "push"], 128, "denied"))
    assert back.code == "BT318"


@pytest.mark.parametrize("kind", iter_errors(), ids=lambda kind: kind.__name__)
def test_every_error_of_bartack_comes_back_as_itself(kind: type[BartackError]) -> None:
    error = kind.__new__(kind, "text")
    error.args = ("text",)
    error.__dict__.update(message="text", fact=1)

    back = travel(error)

    assert type(back) is kind
    assert back.__dict__.items() >= {"message": "text", "fact": 1}.items()


def test_a_timeout_is_still_a_timeout() -> None:
    assert isinstance(travel(ReceiveTimeoutError("receive", 5.0, "explicit")), TimeoutError)


def test_an_exception_of_a_program_comes_back_as_itself() -> None:
    error = QuotaError("tokens", 3)
    error.retry_after = 2.5

    back = travel(error)

    assert type(back) is QuotaError
    assert (back.name, back.left, back.retry_after, back.args) == ("tokens", 3, 2.5, ("tokens", 3))


@pytest.mark.parametrize(
    "error", [ValueError("a", 1), KeyError("k"), ZeroDivisionError(), Outer.InnerError("x")], ids=repr
)
def test_an_importable_exception_comes_back_as_itself(error: Exception) -> None:
    back = travel(error)

    assert type(back) is type(error)
    assert back.args == error.args


def test_an_operating_system_error_keeps_its_file() -> None:
    back = travel(FileNotFoundError(2, "No such file", "a.txt"))

    assert isinstance(back, FileNotFoundError)
    assert (back.errno, back.filename) == (2, "a.txt")


def test_what_cannot_be_made_again_becomes_a_step_error() -> None:
    class LocalError(Exception):
        pass

    for error, kind in [
        (LocalError("x"), f"{LocalError.__qualname__}"),
        (SystemExit(3), "SystemExit"),
    ]:
        back = travel(error)

        assert type(back) is StepError
        assert back.kind == kind
        assert back.problem == str(error)


def test_facts_that_are_no_json_stand_as_their_repr_and_are_listed() -> None:
    error = QuotaError("a")
    error.__dict__["connection"] = print

    back = travel(error)

    assert back.__dict__["connection"] == "<built-in function print>"
    assert back.__dict__["not_json"] == ["connection"]


def test_an_exception_that_cannot_tell_its_text_does_not_hide_the_failure() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    assert describe_error(MuteError()).message == "MuteError"


def test_a_huge_exception_still_fits_into_a_frame() -> None:
    error: BaseException = QuotaError("x" * 1_000_000)
    for _ in range(20):
        cause, error = error, QuotaError("y" * 1_000_000)
        error.__cause__ = cause

    assert len(msgspec.json.encode(describe_error(error))) < 1024 * 1024


def test_the_chain_of_causes_is_kept() -> None:
    error = ValueError("outer")
    error.__cause__ = KeyError("inner")

    back = travel(error)

    assert isinstance(back.__cause__, KeyError)
    assert back.__cause__.args == ("inner",)


def test_the_stack_has_source_lines_and_none_of_bartack() -> None:
    def fail() -> None:
        raise ValueError("here")

    with pytest.raises(ValueError, match="here") as caught:
        fail()
    stack = describe_error(caught.value).stack

    assert stack[-1].function == "fail"
    assert stack[-1].text == 'raise ValueError("here")'
    assert stack[-1].file == __file__


@pytest.mark.parametrize("coding", ["utf-8", "latin-1"])
def test_source_lines_are_found_whatever_their_coding(tmp_path: Path, coding: str) -> None:
    file = tmp_path / "old.py"
    file.write_bytes(f"# coding: {coding}\ndef fail():\n    raise ValueError('größer')\n".encode(coding))
    names: dict[str, object] = {}
    exec(compile(file.read_bytes(), str(file), "exec"), names)  # noqa: S102 - our own text
    with pytest.raises(ValueError, match="größer") as caught:
        cast("Callable[[], None]", names["fail"])()

    assert describe_error(caught.value).stack[-1].text == "raise ValueError('größer')"


def test_source_lines_that_are_in_no_file_are_asked_of_their_loader() -> None:
    class Loader:
        def get_source(self, name: str) -> str:
            return "def fail():\n    raise ValueError('from nowhere')\n"

    names: dict[str, object] = {"__name__": "nowhere", "__loader__": Loader()}
    exec(compile(Loader().get_source(""), "nowhere.zip/old.py", "exec"), names)  # noqa: S102 - our own text
    with pytest.raises(ValueError, match="from nowhere") as caught:
        cast("Callable[[], None]", names["fail"])()

    assert describe_error(caught.value).stack[-1].text == "raise ValueError('from nowhere')"


def test_a_function_that_calls_itself_is_one_line_of_the_stack() -> None:
    def fall(levels: int) -> None:
        if levels:
            fall(levels - 1)
        raise ValueError("deep")

    with pytest.raises(ValueError, match="deep") as caught:
        fall(400)
    stack = describe_error(caught.value).stack

    assert [(line.text, line.repeated) for line in stack[-3:]] == [
        ("fall(400)", 0),
        ("fall(levels - 1)", 399),
        ('raise ValueError("deep")', 0),
    ]


def test_the_stack_of_the_place_where_it_began_is_kept() -> None:
    first = describe_error(raised(QuotaError("x")), "main/2:child")

    again = describe_error(raised(revive_error(first)), "main")

    assert again.worker == "main/2:child"
    assert [line.function for line in again.stack].count("raised") == 2


def test_the_first_worker_is_named() -> None:
    assert describe_error(ValueError("x"), "main/3:a").worker == "main/3:a"


def test_an_error_knows_the_step_it_is_the_outcome_of() -> None:
    error = revive_error(describe_error(ValueError("x")), ("main", 4))

    assert origin_of(error) == ("main", 4)
    assert origin_of(ValueError("x")) is None


def test_the_origin_survives_raise_from() -> None:
    first = revive_error(describe_error(ValueError("x")), ("main.2.1", 7))
    second = RuntimeError("wrapped")
    second.__cause__ = KeyError("between")
    second.__cause__.__cause__ = first

    assert origin_of(second) == ("main.2.1", 7)


def test_an_error_that_was_only_being_handled_is_no_origin() -> None:
    handled = revive_error(describe_error(ValueError("x")), ("main", 1))
    later = RuntimeError("a bug in the handler")
    later.__context__ = handled

    assert origin_of(later) is None


def test_causes_in_a_circle_end() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one

    assert origin_of(one) is None
    assert describe_error(one).cause is not None


def test_an_origin_can_be_set_without_losing_the_rest() -> None:
    error = mark_origin(revive_error(describe_error(ValueError("x"), "main/2:a")), ("main", 9))

    assert origin_of(error) == ("main", 9)
    assert describe_error(error, "main").worker == "main/2:a"


def test_the_failure_of_a_session_names_its_cause() -> None:
    failure = revive_failure(describe_error(ShellError(["false"], 1), "main/2:builder"))

    assert type(failure) is SessionFailedError
    assert (failure.worker, failure.error) == ("main/2:builder", "ShellError")
    assert isinstance(failure.__cause__, ShellError)


def test_a_failure_that_is_one_already_is_not_wrapped() -> None:
    failure = revive_failure(describe_error(SessionFailedError("main", "ValueError", "broken")))

    assert (failure.worker, failure.problem) == ("main", "broken")


def test_the_error_of_a_worker_has_its_cause() -> None:
    data = describe_error(WorkerError("main/2:a", "ValueError", "x"))
    data.cause = describe_error(ValueError("x"))

    back = revive_error(data)

    assert isinstance(back, WorkerError)
    assert isinstance(back.cause, ValueError)


def test_a_list_of_facts_stays_a_list() -> None:
    back = travel(RunNotFoundError("run-1", ("a", "b")))

    assert isinstance(back, RunNotFoundError)
    assert list(back.near) == ["a", "b"]
    assert "not_json" not in back.__dict__


def test_the_reason_of_a_cancellation_comes_back() -> None:
    back = travel(StepCancelledError("a sibling failed"))

    assert isinstance(back, StepCancelledError)
    assert back.reason == "a sibling failed"


def test_an_error_that_names_a_file_whose_name_is_no_text_travels() -> None:
    class OddError(Exception):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.name = name

    data = describe_error(OddError("b\udcffd"))

    back = msgspec.json.decode(msgspec.json.encode(data), type=ErrorData)
    assert back.message == "b\\udcffd"
    assert "udcff" in str(back.facts["name"])
