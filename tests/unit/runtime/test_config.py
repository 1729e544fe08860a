from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bartack.errors import ConfigError
from bartack.runtime._config import (
    SECTIONS,
    Config,
    check_settings,
    find_state_dir,
    find_workspace,
    keep_sets,
    kept_sets,
    load_config,
)


def write(folder: Path, text: str) -> Path:
    (folder / "bartack.toml").write_text(text)
    return folder


def test_everything_has_a_default(tmp_path: Path) -> None:
    assert load_config(tmp_path, environ={}) == Config()


def test_a_file_is_overridden_by_the_environment_and_that_by_assignments(tmp_path: Path) -> None:
    write(tmp_path, "[pipeline]\nmax_fix_rounds = 1\nmax_review_rounds = 1\nmax_spec_rounds = 1\n")
    environ = {"BARTACK_PIPELINE_MAX_REVIEW_ROUNDS": "2", "BARTACK_PIPELINE_MAX_SPEC_ROUNDS": "2"}

    found = load_config(tmp_path, ["pipeline.max_spec_rounds=3"], environ).pipeline

    assert (found.max_fix_rounds, found.max_review_rounds, found.max_spec_rounds) == (1, 2, 3)


@pytest.mark.parametrize(
    ("assignment", "section", "key", "value"),
    [
        ("tests.command=pytest -q", "tests", "command", "pytest -q"),
        ('tests.command=["make", "a test"]', "tests", "command", ["make", "a test"]),
        ("spec.file=7.md", "spec", "file", "7.md"),
        ("review.strict=false", "review", "strict", False),
        ("budget.usd=1.5", "budget", "usd", 1.5),
        ('tests.env={A = "b"}', "tests", "env", {"A": "b"}),
    ],
)
def test_a_value_is_read_as_what_the_setting_is(
    tmp_path: Path, assignment: str, section: str, key: str, value: object
) -> None:
    found = load_config(tmp_path, [assignment], {})

    assert getattr(getattr(found, section), key) == value


@pytest.mark.parametrize("section", list(SECTIONS))
def test_every_key_of_every_section_can_come_from_the_environment(tmp_path: Path, section: str) -> None:
    for field in msgspec.structs.fields(SECTIONS[section]):
        name = f"BARTACK_{section}_{field.encode_name}".upper()
        value = {"file": " ", "workspace": " ", "name": "two\nlines"}.get(field.encode_name, "[[1]]")

        with pytest.raises(ConfigError, match=f"{section}.{field.encode_name}"):
            load_config(tmp_path, environ={name: value})


@pytest.mark.requirement("unknown-settings-are-refused")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[pipelin]\n", "bartack.toml:1: pipelin: there is no such setting; did you mean 'pipeline'?"),
        (
            "[pipeline]\n\nmax_fix = 1\n",
            "bartack.toml:3: pipeline.max_fix: there is no such key; did you mean",
        ),
        ("[tests]\ntimeout_s = 0\n", "bartack.toml:2: tests.timeout_s: Expected `float` > 0.0"),
        ("[spec]\nsections = 3\n", "bartack.toml:2: spec.sections: Expected `array`, got `int`"),
        (
            '[[tasks]]\nid = "a"\ngoal = "g"\nfile = 1\n',
            "bartack.toml:4: tasks[0].file: there is no such key",
        ),
        ('[[tasks]]\nid = "a b"\ngoal = "g"\n', "tasks[0].id"),
        ("tests = 1\n", "bartack.toml:1: tests: it is no table"),
        ("[timeouts]\nshel = 1\n", "timeouts.shel: there is no such limit; did you mean 'shell'?"),
        ('[pipeline]\non_limit = "stop"\n', "pipeline.on_limit: Invalid enum value 'stop'"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_the_nearest_name(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text), environ={})

    assert told in caught.value.message


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    write(tmp_path, "[pipeline]\na = 1\nb = 2\n[tests]\nmode = 7\n[reviews]\n")

    found = [error.message for error in check_settings(tmp_path, {})]

    assert len(found) == 4
    assert check_settings(write(tmp_path, "= 1"), {})[0].code == "BT101"


@pytest.mark.parametrize("assignment", ["pipeline.review", "=1", " = 1"])
def test_an_assignment_needs_a_key_and_a_value(tmp_path: Path, assignment: str) -> None:
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        load_config(tmp_path, [assignment], {})


def test_the_tests_are_judged_by_a_command_if_there_is_one() -> None:
    tests = Config().tests

    assert tests.judged_by == "report"
    assert msgspec.structs.replace(tests, command="make test").judged_by == "command"
    assert msgspec.structs.replace(tests, command="make test", mode="off").judged_by == "off"
    assert msgspec.structs.replace(tests, command="  ").argv == []


@pytest.mark.parametrize(
    ("sets", "blamed"),
    [
        (["pipeline.bogus=1"], "--set pipeline.bogus=1"),
        (["pipeline.max_review_rounds=many"], "--set pipeline.max_review_rounds=many"),
        (["pipelin.max_review_rounds=2"], "--set pipelin.max_review_rounds=2"),
        (["agents.cook.kind=odd"], "--set agents.cook.kind=odd"),
        (["tasks=[{bogus = 1}]"], "--set tasks=[{bogus = 1}]"),
        (["pipeline.max_spec_rounds=2"], "BARTACK_PIPELINE_MAX_FIX_ROUNDS: pipeline.max_fix_rounds"),
    ],
)
def test_a_setting_that_is_not_from_the_file_is_not_blamed_on_it(
    tmp_path: Path, sets: list[str], blamed: str
) -> None:
    write(tmp_path, "[pipeline]\nmax_review_rounds = 1\n")
    variable = blamed.partition(":")[0]
    environ = {variable: "many"} if variable.startswith("BARTACK_") else {}

    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, sets, environ)

    assert caught.value.setting == blamed


def test_what_is_wrong_in_the_file_is_blamed_on_it_whatever_else_is_given(tmp_path: Path) -> None:
    write(tmp_path, "[pipelin]\nmax_review_rounds = 1\n")

    with pytest.raises(ConfigError, match=r"^bartack\.toml:1: pipelin: "):
        load_config(tmp_path, ["pipelin.max_review_rounds=2"], {})


@pytest.mark.parametrize(
    "text",
    [
        'state_dir = "kept"\nbogus = 1\n[project]\nworkspace = "code"\n[pipeline]\nreviw = true\n',
        'state_dir = "kept"\n= broken\n[project]  # where\nworkspace = "code"\n',
        'state_dir = "kept"\n[project]\nworkspace = "code"\n[pipeline\nworkspace = "x"\nstate_dir = "y"\n',
    ],
)
def test_runs_are_found_whatever_else_is_wrong_with_the_settings(tmp_path: Path, text: str) -> None:
    (tmp_path / "code").mkdir()
    write(tmp_path, text)

    place = find_workspace(tmp_path, {})

    assert place == tmp_path / "code"
    assert find_state_dir(place, {}) == place / "kept"
    with pytest.raises(ConfigError):
        load_config(place, environ={})


def test_where_runs_are_must_be_a_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="state_dir"):
        find_state_dir(write(tmp_path, "state_dir = 5\n"), {})


def test_settings_of_a_run_are_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    assert kept_sets(tmp_path) == []
    keep_sets(tmp_path, ["budget.usd=1"])
    before = tmp_path / "before"
    before.hardlink_to(tmp_path / "work/sets.json")

    keep_sets(tmp_path, ["budget.usd=2"])

    assert kept_sets(tmp_path) == ["budget.usd=1", "budget.usd=2"]
    assert before.read_bytes() == b'["budget.usd=1"]'  # it was replaced, not written over
