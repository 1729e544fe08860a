"""Which failures a worker can be set back to, and what that undoes."""

from __future__ import annotations

import pytest

from bartack.runtime.state import blame as _blame
from bartack.runtime.state.blame import FailedStep, FailedSteps, follows


def failed(
    seq: int, *, p: str = "main", n: int = 1, cancelled: bool = False, blame: FailedSteps | None = None
) -> FailedSteps:
    blame = blame or FailedSteps()
    blame.fail(p, n, FailedStep(seq, "shell", "fp"), cancelled=cancelled)
    return blame


@pytest.mark.parametrize(
    ("p", "step", "expected"),
    [
        ("main", ("main", 3), True),
        ("main", ("main.3.1", 1), True),
        ("main.3", ("main.30.1", 1), False),
        ("main.3.1", ("main.3.2", 1), False),
        ("main.5.1", ("main", 4), True),
        ("main.3.1", ("main", 4), False),
        ("main.5.1.2.1", ("main", 4), True),
        ("main/1.1:child", ("main", 1), False),
    ],
)
def test_a_branch_goes_on_where_a_step_was(p: str, step: tuple[str, int], *, expected: bool) -> None:
    assert follows(p, step) is expected


@pytest.mark.parametrize("step", ["send", "receive", "think", "ask", "delegate", "body", "ack"])
def test_a_failure_is_handled_by_what_matters(step: str) -> None:
    blame = failed(10)

    blame.finish("main", 2, step, 11)

    assert blame.steps == {}


@pytest.mark.parametrize("step", ["shell", "write", "append", "print", "log", "now", "timeout", "nack"])
def test_tidying_up_handles_nothing(step: str) -> None:
    blame = failed(10)

    blame.finish("main", 2, step, 11)

    assert list(blame.steps) == [("main", 1)]
    assert blame.standing(("main", 1), 10) == (set(), {("main", 1), ("main", 2)})


def test_what_another_branch_did_stands_until_it_was_cancelled() -> None:
    blame = failed(10, p="main.4.1")
    blame.finish("main.4.2", 1, "send", 11)
    failed(12, p="main.4.2", n=2, cancelled=True, blame=blame)
    blame.finish("main.4.2", 3, "shell", 13)
    blame.finish("main.4.3", 1, "send", 14)

    kept, undone = blame.standing(("main.4.1", 1), 10)

    assert kept == {11, 14}
    assert undone == {("main.4.1", 1), ("main.4.2", 2), ("main.4.2", 3)}


def test_the_cancellation_of_an_inner_branch_ends_what_stands_of_the_outer_one() -> None:
    blame = failed(10, p="main.4.1")
    blame.finish("main.4.2", 1, "send", 11)
    failed(12, p="main.4.2.2.1", n=1, cancelled=True, blame=blame)
    blame.finish("main.4.2", 3, "nack", 13)

    kept, undone = blame.standing(("main.4.1", 1), 10)

    assert kept == {11}
    assert undone == {("main.4.1", 1), ("main.4.2.2.1", 1), ("main.4.2", 3)}


def test_a_cancelled_branch_that_does_something_that_matters_has_handled_the_failure() -> None:
    blame = failed(10, p="main.4.1")
    failed(11, p="main.4.2", n=1, cancelled=True, blame=blame)

    blame.finish("main.4.2", 2, "send", 12)

    assert ("main.4.1", 1) not in blame.steps


def test_the_branch_around_a_failed_one_handles_it() -> None:
    blame = failed(10, p="main.4.1")

    blame.finish("main", 5, "send", 11)

    assert blame.steps == {}


def test_behind_a_rewind_nothing_is_to_blame_but_what_stands() -> None:
    blame = failed(10, p="main.4.1")
    failed(11, p="main.4.2", blame=blame)
    kept, _ = blame.standing(("main.4.1", 1), 10)

    blame.rewind(kept, 10)

    assert list(blame.steps) == [("main.4.2", 1)]


def test_a_failure_far_behind_is_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blame, "MANY", 100)
    blame = failed(10, p="main.4.1")
    for seq in range(11, 11 + 100 - 1):
        blame.finish("main.4.2", seq, "send", seq)
    assert list(blame.steps) == [("main.4.1", 1)]

    for seq in range(110, 120):
        blame.finish("main.4.2", seq, "send", seq)

    assert blame.steps == {}
