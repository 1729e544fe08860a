from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.cli.runs.stories import Call, Story

from bartack.cli.look._age import parse_age
from bartack.errors import UsageError


def test_only_runs_that_are_over_are_deleted(
    call: Call, completed: Story, failed: Story, asking: Story
) -> None:
    shown = call("clean", "--yes")

    assert shown.returncode == 0
    assert shown.stdout.split()[:2] == [completed.id, "completed"]
    assert not completed.run.path.exists()
    assert failed.run.path.exists()
    assert asking.run.path.exists()
    assert sorted(path.name for path in completed.run.path.parent.iterdir()) == [failed.id, asking.id]


def test_a_dry_run_deletes_nothing(call: Call, completed: Story) -> None:
    shown = call("clean", "--dry-run", "--json")

    assert json.loads(shown.stdout)["deleted"] is False
    assert [run["run"] for run in json.loads(shown.stdout)["runs"]] == [completed.id]
    assert completed.run.path.exists()


def test_without_a_person_to_ask_nothing_is_deleted(call: Call, completed: Story) -> None:
    shown = call("clean")

    assert shown.returncode == 2
    assert "--yes" in shown.stderr
    assert completed.run.path.exists()


@pytest.mark.requirement("unfinished-runs-are-kept")
@pytest.mark.parametrize("name", ["failed", "asking"])
def test_a_run_that_could_be_resumed_must_be_named_with_the_option(
    call: Call, name: str, request: pytest.FixtureRequest
) -> None:
    told: Story = request.getfixturevalue(name)

    assert call("clean", told.id, "--yes").returncode == 2
    assert call("clean", "--unfinished", "--yes").returncode == 2
    assert told.run.path.exists()
    assert call("clean", told.id, "--unfinished", "--yes").returncode == 0
    assert not told.run.path.exists()


@pytest.mark.parametrize(("age", "gone"), [("1h", True), ("5000w", False)])
def test_only_runs_older_than_an_age_are_deleted(
    call: Call, completed: Story, age: str, *, gone: bool
) -> None:
    call("clean", "--older-than", age, "--yes")

    assert completed.run.path.exists() is not gone


def test_nothing_to_delete_is_no_error(call: Call, failed: Story) -> None:
    assert call("clean").stdout == "Nothing to delete.\n"


def test_ages_have_a_number_and_a_unit() -> None:
    assert parse_age("90s", "bartack clean") == timedelta(seconds=90)
    assert parse_age("2w", "bartack clean") == timedelta(days=14)
    for text in ("", "d", "5", "-1d", "1.5h", "1y"):
        with pytest.raises(UsageError):
            parse_age(text, "bartack clean")
