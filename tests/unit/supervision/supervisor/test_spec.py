"""What cannot work is refused when it is described, with the field and the rule."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Any, get_args

import pytest

from bartack.errors import ChildSpecError
from bartack.resilience import Backoff
from bartack.supervision import ChildSpec, RestartPolicy, SupervisorSpec
from bartack.supervision.supervisor._restart import Intensity
from bartack.supervision.supervisor.spec import CHILD_BACKOFF, Kind, Restart, Strategy


async def nothing() -> None:
    await asyncio.sleep(0)


async def takes_one(_: int) -> None:
    await asyncio.sleep(0)


def function() -> None: ...


class Callable:
    """Something that is called like an async function, and is none."""

    async def __call__(self) -> None:
        await asyncio.sleep(0)


class Plain:
    """Something with a method that belongs to an object, and an object that can be called."""

    def method(self) -> None: ...

    def __call__(self) -> None: ...


TRUE = ["true"]
EMPTY = SupervisorSpec()


def made(name: Any = "a", start: Any = nothing, **options: Any) -> ChildSpec:
    return ChildSpec(name, start, **options)


BAD_CHILDREN: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": ""}),
    ("name", {"name": "a b"}),
    ("name", {"name": "a/b"}),
    ("name", {"name": "a" * 65}),
    ("name", {"name": 7}),
    ("start", {"start": "sleep 5"}),
    ("start", {"start": b"sleep"}),
    ("start", {"start": []}),
    ("start", {"start": ["sleep", 5]}),
    ("start", {"start": ["", "x"]}),
    ("start", {"start": ["a\0b"]}),
    ("start", {"start": 5}),
    ("start", {"start": None}),
    ("start", {"start": lambda: None}),
    ("start", {"start": partial(function)}),
    ("start", {"start": Plain().method}),
    ("start", {"start": Plain()}),
    ("kind", {"kind": "thread"}),
    ("kind", {"kind": "worker"}),
    ("kind", {"kind": "process"}),
    ("kind", {"kind": "task", "start": TRUE}),
    ("kind", {"kind": "task", "start": function}),
    ("kind", {"kind": "supervisor", "start": TRUE}),
    ("restart", {"restart": "always"}),
    ("restart", {"restart": None}),
    ("shutdown", {"shutdown": -1}),
    ("shutdown", {"shutdown": math.inf}),
    ("shutdown", {"shutdown": math.nan}),
    ("shutdown", {"shutdown": "infinity"}),
    ("shutdown", {"shutdown": True}),
    ("start_timeout", {"start_timeout": 0}),
    ("start_timeout", {"start_timeout": math.inf}),
    ("start_timeout", {"start_timeout": "1"}),
    ("ready", {"ready": "soon"}),
    ("ready", {"ready": "hello"}),
    ("ready", {"ready": "line:up"}),
    ("ready", {"ready": "line:(", "start": TRUE}),
    ("ready", {"ready": "line:up", "start": TRUE, "stdio": "null"}),
    ("ready", {"ready": function}),
    ("ready", {"ready": nothing, "start": EMPTY}),
    ("ready", {"ready": 1}),
    ("backoff", {"backoff": Backoff(), "restart": "temporary"}),
    ("backoff", {"backoff": 1.0}),
    ("backoff", {"backoff": Backoff(-1.0)}),
    ("backoff", {"backoff": Backoff(1.0, -1.0)}),
    ("backoff", {"backoff": Backoff(factor=0.5)}),
    ("backoff", {"backoff": Backoff(math.inf)}),
    ("env", {"env": {"A": "1"}}),
    ("env", {"env": {"A=B": "1"}, "start": TRUE}),
    ("env", {"env": {"": "1"}, "start": TRUE}),
    ("env", {"env": {"A": 1}, "start": TRUE}),
    ("env", {"env": {"A": "\0"}, "start": TRUE}),
    ("env", {"env": ["A"], "start": TRUE}),
    ("cwd", {"cwd": "/"}),
    ("stdio", {"stdio": "file", "start": TRUE}),
    ("stdio", {"stdio": "null"}),
    ("normal_codes", {"normal_codes": {0, 3}}),
    ("normal_codes", {"normal_codes": {256}, "start": TRUE}),
    ("normal_codes", {"normal_codes": {"0"}, "start": TRUE}),
    ("metadata", {"metadata": {"a": object()}}),
    ("metadata", {"metadata": {1: "a"}}),
    ("metadata", {"metadata": ["a"]}),
    ("metadata", {"metadata": {"a": "x" * 5000}}),
]


@pytest.mark.parametrize(("field", "options"), BAD_CHILDREN)
@pytest.mark.requirement("nonsense-is-refused")
def test_a_child_that_could_not_work_is_refused(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(ChildSpecError) as caught:
        made(**options)

    assert caught.value.field == field
    assert caught.value.code == "BT502"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("strategy", {"strategy": "one_for_two"}),
        ("strategy", {"strategy": None}),
        ("max_restarts", {"max_restarts": -1}),
        ("max_restarts", {"max_restarts": 1.5}),
        ("max_restarts", {"max_restarts": True}),
        ("max_seconds", {"max_seconds": 0}),
        ("max_seconds", {"max_seconds": -5.0}),
        ("max_seconds", {"max_seconds": math.inf}),
        ("children", {"children": (made("a"), made("b"), made("a"))}),
        ("children", {"children": (nothing,)}),
        ("children", {"children": made("a")}),
        ("backoff", {"children": (made(),), "max_restarts": 5}),
        ("backoff", {"children": (made(backoff=Backoff(0.1, 2.0)),), "max_restarts": 3, "max_seconds": 6.0}),
    ],
)
@pytest.mark.requirement("nonsense-is-refused")
def test_a_supervisor_that_could_not_work_is_refused(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(ChildSpecError) as caught:
        SupervisorSpec(**options)

    assert caught.value.field == field


def test_restarts_that_can_become_too_many_are_allowed() -> None:
    SupervisorSpec(children=(made(backoff=Backoff(0.1, 2.0)),), max_restarts=3, max_seconds=6.01)
    SupervisorSpec(children=(made(restart="temporary"),), max_restarts=1000)
    SupervisorSpec(children=(made(backoff=Backoff(0.0)),), max_restarts=1000)
    SupervisorSpec(children=(made(),), max_restarts=0, max_seconds=0.001)


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (nothing, "task"),
        (partial(takes_one, 1), "task"),
        (Callable(), "task"),
        (["true"], "process"),
        (("true",), "process"),
        (function, "process"),
        (EMPTY, "supervisor"),
    ],
)
def test_what_a_child_is_follows_from_how_it_starts(start: Any, kind: Kind) -> None:
    assert made(start=start).kind == kind
    assert made(start=start, kind=kind).kind == kind


def test_a_child_has_the_defaults_of_the_page() -> None:
    spec = made()

    assert (spec.restart, spec.shutdown, spec.start_timeout, spec.ready) == (
        "permanent",
        5.0,
        10.0,
        "started",
    )
    assert spec.backoff == CHILD_BACKOFF
    assert CHILD_BACKOFF[:2] == (0.05, 1.0)
    assert made(restart="temporary").backoff is None
    assert made(start=TRUE).normal_codes == {0}


def test_a_supervisor_has_the_time_of_all_its_children_and_one_second_more() -> None:
    nested = SupervisorSpec(children=(made("a", shutdown=2.0), made("b", shutdown="kill"), made("c")))

    assert made(start=nested).shutdown == 8.0
    assert made(start=nested, shutdown=1).shutdown == 1


def test_what_is_given_later_does_not_change_a_specification() -> None:
    words, env = ["sleep", "1"], {"A": "1"}
    spec = made(start=words, env=env)

    words.append("2")
    env["A"] = "2"

    assert spec.start == ("sleep", "1")
    assert spec.env == {"A": "1"}


def test_the_choices_are_those_of_the_page() -> None:
    assert get_args(Strategy) == ("one_for_one", "one_for_all", "rest_for_one")
    assert get_args(Restart) == ("permanent", "transient", "temporary")


def test_a_window_forgets_what_is_older_than_itself() -> None:
    intensity = Intensity(2, 5.0)
    second = 1_000_000_000

    assert intensity.admit(0)
    assert intensity.admit(5 * second)
    assert not intensity.admit(5 * second)
    assert intensity.count(5 * second + 1) == 2
    assert intensity.count(10 * second + 1) == 0


def longest(_: float, high: float) -> float:
    return high


def test_a_policy_gives_up_at_its_limit_and_waits_longer_before() -> None:
    policy = RestartPolicy(3, Backoff(0.05, 1.0, uniform=longest), free=1)

    assert [policy.is_over(failures) for failures in range(1, 5)] == [False, False, True, True]
    assert [policy.wait_s(failures) for failures in range(5)] == [0.0, 0.0, 0.05, 0.1, 0.2]


def test_a_backoff_never_overflows() -> None:
    assert Backoff(1.0, 9.0, factor=10.0).bound_s(100_000) == 9.0
    assert Backoff(0.0, 9.0, factor=10.0).bound_s(100_000) == 0.0
    assert [Backoff(1.0, 30.0, factor=3.0).bound_s(n) for n in range(5)] == [0, 1, 3, 9, 27]
