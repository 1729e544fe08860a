"""The scenarios of ``scenarios.toml`` and the tests of this directory belong to each other, and none waits for ``make soak``."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from tests.realcli.test_soaked import HERE, known

ROOT: Final = Path(__file__).parents[2]
COUNT: Final = 41


class Scenario(msgspec.Struct, forbid_unknown_fields=True):
    """What has to hold, and the tests that show it: ``file::function``, with or without a case."""

    case: str
    tests: list[str]


@cache
def table() -> tuple[dict[str, Scenario], list[str]]:
    """The scenarios, and the tests of what is not one."""
    read = msgspec.toml.decode((HERE / "scenarios.toml").read_bytes(), type=dict[str, object])
    other = msgspec.convert(read.pop("other"), type=list[str])
    return msgspec.convert(read, type=dict[str, Scenario]), other


def function_of(test: str) -> str:
    return test.partition("[")[0]


def test_the_scenarios_are_numbered_without_gaps() -> None:
    scenarios, _ = table()

    assert list(scenarios) == [f"e{number:02}" for number in range(1, COUNT + 1)]
    assert [name for name, scenario in scenarios.items() if not scenario.case or not scenario.tests] == []


def test_every_test_is_named_once_or_belongs_to_scenarios() -> None:
    scenarios, other = table()
    named = {function_of(test) for scenario in scenarios.values() for test in scenario.tests}

    assert other == sorted(set(other))
    assert sorted(named & set(other)) == []
    assert sorted({*named, *other} ^ set(known())) == []


def test_each_scenario_has_a_test_that_is_run_each_time() -> None:
    """What pytest would run here without a soak: cases that are named have to be among it."""
    environ = {name: value for name, value in os.environ.items() if name != "SOAK"}
    words = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/realcli",
    ]
    listed = subprocess.run(
        words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    run = {line.rpartition("realcli/")[2] for line in listed.stdout.splitlines() if "::" in line}
    functions = {function_of(test) for test in run}
    scenarios, _ = table()

    assert [
        f"{name}: {test}"
        for name, scenario in scenarios.items()
        for test in scenario.tests
        if "[" in test and test not in run
    ] == []
    assert [
        name
        for name, scenario in scenarios.items()
        if not any(test in run or test in functions for test in scenario.tests)
    ] == []
