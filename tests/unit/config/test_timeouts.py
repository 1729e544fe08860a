"""How long waits may take: the table, what overrides it, and that every kind is used."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.runtime.stage import Stage

from bartack import Context, worker
from bartack.config.timeouts import DEFAULTS, Limit, Timeouts, default_limit, limits_in_force
from bartack.errors import ReceiveTimeoutError
from bartack.runtime.state import entries as e
from bartack.testing import run_worker

ROOT = Path(__file__).parents[3]
NO_SETTINGS: dict[str, float] = {}


@pytest.mark.parametrize(
    ("environ", "settings", "expected"),
    [
        ({}, NO_SETTINGS, (600.0, "default")),
        ({}, {"shell": 7.0}, (7.0, "timeouts.shell")),
        ({"BARTACK_TIMEOUT_SHELL": "3"}, {"shell": 7.0}, (3.0, "BARTACK_TIMEOUT_SHELL")),
        ({"BARTACK_TIMEOUT_FACTOR": "2"}, {"shell": 7.0}, (14.0, "timeouts.shell times 2")),
        ({"BARTACK_TIMEOUT_FACTOR": "0.5"}, NO_SETTINGS, (300.0, "default times 0.5")),
        (
            {"BARTACK_TIMEOUT_FACTOR": "2", "BARTACK_TIMEOUT_SHELL": "3"},
            NO_SETTINGS,
            (3.0, "BARTACK_TIMEOUT_SHELL"),
        ),
        ({"BARTACK_TIMEOUT_FACTOR": "101"}, NO_SETTINGS, (600.0, "default")),
        ({"BARTACK_TIMEOUT_FACTOR": "0.05"}, NO_SETTINGS, (600.0, "default")),
        ({"BARTACK_TIMEOUT_FACTOR": "much", "BARTACK_TIMEOUT_SHELL": "-1"}, NO_SETTINGS, (600.0, "default")),
    ],
)
def test_the_first_that_says_something_counts_and_the_factor_only_for_what_was_not_set_now(
    environ: dict[str, str], settings: dict[str, float], expected: tuple[float, str]
) -> None:
    assert Timeouts(environ, settings).explain("shell") == expected


def test_the_table_in_force_has_every_kind_with_its_source() -> None:
    table = limits_in_force({"BARTACK_TIMEOUT_SEND": "1"}, {"lock": 2.0})

    assert [limit.kind for limit in table] == list(DEFAULTS)
    assert Limit("send", 1.0, "BARTACK_TIMEOUT_SEND") in table
    assert Limit("lock", 2.0, "timeouts.lock") in table
    assert Limit("call", 30.0, "default") in table


def test_without_settings_the_limit_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_TIMEOUT_HUB_JOIN", "4")

    assert default_limit("hub_join") == 4.0


@pytest.mark.parametrize("kind", DEFAULTS)
def test_every_kind_is_used_where_something_waits(kind: str) -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "src/bartack/runtime").rglob("*.py"))

    assert re.search(rf'(limit|limit_s|explain|_resolved)\(([\w.]+, )*"{kind}"', code)


def test_the_page_names_every_kind_with_its_default() -> None:
    page = (ROOT / "docs/reference/run-directory.md").read_text("utf-8").split("Kinds of timeouts:")[1]
    shown = {kind: float(seconds) for kind, seconds in re.findall(r"`(\w+)`\s+(\d+)", page)}

    assert shown == dict(DEFAULTS)


def test_a_process_that_does_not_say_hello_in_time_is_ended_and_started_again() -> None:
    stage = Stage()
    stage.shy.add("main")
    with suppress(KeyError):  # it has not said hello
        stage.begin()
    stage.wait(DEFAULTS["child_start"] + 1.0)

    assert stage.stopped == ["main"]
    (entry,) = stage.entries("worker.crashed")
    assert entry.decode(e.WorkerCrashed).reason == "hello_timeout"


def test_a_process_that_says_hello_in_time_is_left_alone() -> None:
    stage = Stage()
    stage.begin()
    stage.wait(DEFAULTS["child_start"] + 1.0)

    assert stage.stopped == []


@worker
async def waits(ctx: Context) -> list[str]:
    reported: list[str] = []

    async def receive(seconds: float | None = None) -> None:
        try:
            await ctx.session.mailbox.box.receive(seconds)
        except ReceiveTimeoutError as error:
            reported.append(f"{error.waited_s:g}")

    with ctx.timeouts(receive=5.0):
        await receive()
        await receive(2.0)
        with ctx.timeouts(receive=1.0, call=3.0):
            await ctx.gather(receive())
        await receive()
    return reported


def test_a_block_sets_the_limits_of_the_waits_in_it_that_are_given_none() -> None:
    assert run_worker(waits()).result == ["5", "2", "1", "5"]


@worker
async def beside(ctx: Context) -> list[str]:
    reported: list[str] = []

    async def receive(name: str, pause: float, limit: float) -> None:
        with ctx.timeouts(receive=limit):
            await ctx.sleep(pause)
            try:
                await ctx.session.mailbox[name].receive()
            except ReceiveTimeoutError as error:
                reported.append(f"{name} {error.waited_s:g}")

    await ctx.gather(receive("a", 1.0, 5.0), receive("b", 2.0, 9.0))
    return reported


def test_the_block_of_one_branch_is_none_of_another() -> None:
    assert run_worker(beside()).result == ["a 5", "b 9"]


@worker
async def wrong(ctx: Context) -> list[str]:
    reported: list[str] = []
    for limits in ({"recieve": 1.0}, {"receive": -1.0}):
        try:
            ctx.timeouts(**limits)
        except ValueError as error:
            reported.append(str(error))
    return reported


def test_a_limit_that_does_not_exist_or_is_negative_is_refused() -> None:
    unknown, negative = run_worker(wrong()).result

    assert unknown == ("unknown limit 'recieve' (known: receive, call, shell, prompt, delegate)")
    assert "must not be negative" in negative
