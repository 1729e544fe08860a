from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

import bartack
from bartack.agents.program_config import NdjsonConfig
from bartack.config.environment import OURS
from bartack.config.load import (
    SECTIONS,
    Config,
    find_state_dir,
    find_workspace,
    keep_sets,
    kept_sets,
    load_config,
    read_settings,
)
from bartack.errors import ConfigError


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


LINES = (
    "name",
    "team",
    "pool",
    "description",
    "author",
    "homepage",
    "repository",
    "license",
    "blobs",
    "run_as",
)
VALUES = {
    "on": "two\nlines",
    "file": " ",
    "workspace": " ",
    "secret_file": "two\nlines",
    **dict.fromkeys(LINES, "two\nlines"),
}
"""What a setting refuses that accepts almost any text."""


@pytest.mark.parametrize("section", list(SECTIONS))
def test_every_key_of_every_section_can_come_from_the_environment(tmp_path: Path, section: str) -> None:
    for field in msgspec.structs.fields(SECTIONS[section]):
        name = f"BARTACK_{section}_{field.encode_name}".upper()
        value = VALUES.get(field.encode_name, "[[1]]")

        with pytest.raises(ConfigError, match=f"{section}.{field.encode_name}"):
            load_config(tmp_path, environ={name: value})


@pytest.mark.requirement("unknown-settings-are-refused")
@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("[pipelin]\n", "bartack.toml:1:1: pipelin: there is no such setting; did you mean 'pipeline'?"),
        (
            "[pipeline]\n\nmax_fix = 1\n",
            "bartack.toml:3:1: pipeline.max_fix: there is no such key; did you mean",
        ),
        ("[tests]\ntimeout_s = 0\n", "bartack.toml:2:1: tests.timeout_s: Expected `float` > 0.0"),
        ("[spec]\nsections = 3\n", "bartack.toml:2:1: spec.sections: Expected `array`, got `int`"),
        (
            '[[tasks]]\nid = "a"\ngoal = "g"\nfile = 1\n',
            "bartack.toml:4:1: tasks[0].file: there is no such key",
        ),
        ('[[tasks]]\nid = "a b"\ngoal = "g"\n', "tasks[0].id"),
        ("tests = 1\n", "bartack.toml:1:1: tests: it is not a table"),
        ("[timeouts]\nshel = 1\n", "timeouts.shel: there is no such limit; did you mean 'shell'?"),
        (
            '[pipeline]\non_limit = "stop"\n',
            "pipeline.on_limit: there is no value 'stop' (there are: auto, ask, fail)",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_its_line_and_the_nearest_name(
    tmp_path: Path, text: str, reported: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, text), environ={})

    assert reported in caught.value.message


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    write(tmp_path, "[pipeline]\na = 1\nb = 2\n[tests]\nmode = 7\n[reviews]\n")

    found = read_settings(tmp_path, (), {}).problems

    assert [problem.setting for problem in found] == ["pipeline.a", "pipeline.b", "tests.mode", "reviews"]
    with pytest.raises(
        ConfigError, match=r"^bartack\.toml:2:1: pipeline\.a: .*\(3 more problems: bartack check"
    ):
        load_config(tmp_path, environ={})


ALL_WRONG = """\
durabillity = "power"
pipeline.reviw = true
pipeline = {max_rounds = 0, on_limit = "aks", roles = {bilder = "x", builder = 1}}
"""
MANY_TASKS = """\
tests = {env = {"A=B" = "x", C = 1}, timeout_s = inf}
state_dir = " "
[agents.stub]
command = ["x", 1]
stal_s = 3
retries = 0
env = {API_KEY = "x"}
[agents.odd]
kind = "ndjsn"
comand = "x"
[agents."no/name"]
script = "s"
[[tasks]]
id = "a"
  depends = []
[[tasks]]
id = "b b"
files = ["x", 3]
[mailboxes.desk]
capacity = 0
max_byte = 1
[mailboxes."$x"]
[timeouts]
shell = -1
shel = 1
[dead_letters]
base = -1
cap = nan
"""


@pytest.mark.requirement("unknown-settings-are-refused")
def test_each_problem_has_its_line_and_column_whatever_the_shape_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, ALL_WRONG.replace("pipeline.reviw = true\n", ""))
    inline = read_settings(tmp_path, (), {}).problems
    write(tmp_path, MANY_TASKS)
    tables = read_settings(tmp_path, (), {}).problems
    write(tmp_path, "pipeline.reviw = true\n[tests]\nenv.A = 1\n")
    dots = read_settings(tmp_path, (), {}).problems

    assert [(one.setting, one.line, one.column, one.suggestion) for one in (*inline, *dots)] == [
        ("durabillity", 1, 1, "durability"),
        ("pipeline.max_rounds", 2, 13, ""),
        ("pipeline.on_limit", 2, 29, "ask"),
        ("pipeline.roles.bilder", 2, 56, "builder"),
        ("pipeline.roles.builder", 2, 70, ""),
        ("pipeline.reviw", 1, 1, "review"),
        ("tests.env.A", 3, 1, ""),
    ]
    assert [(one.setting, one.line, one.column, one.suggestion) for one in tables] == [
        ('tests.env."A=B"', 1, 17, ""),
        ("tests.env.C", 1, 30, ""),
        ("tests.timeout_s", 1, 38, ""),
        ("state_dir", 2, 1, ""),
        ("agents.stub.command[1]", 4, 17, ""),
        ("agents.stub.stal_s", 5, 1, "stall_s"),
        ("agents.stub.retries", 6, 1, ""),
        ("agents.odd.kind", 9, 1, "ndjson"),
        ("agents.odd.comand", 10, 1, "command"),
        ('agents."no/name"', 11, 1, ""),
        ("agents.stub.env.API_KEY", 7, 8, ""),
        ("tasks[0].depends", 15, 3, "depends_on"),
        ("tasks[0].goal", 13, 1, ""),
        ("tasks[1].id", 17, 1, ""),
        ("tasks[1].files[1]", 18, 15, ""),
        ("tasks[1].goal", 16, 1, ""),
        ("mailboxes.desk.capacity", 20, 1, ""),
        ("mailboxes.desk.max_byte", 21, 1, "max_bytes"),
        ('mailboxes."$x"', 22, 1, ""),
        ("timeouts.shell", 24, 1, ""),
        ("timeouts.shel", 25, 1, "shell"),
        ("dead_letters.base", 27, 1, ""),
        ("dead_letters.cap", 28, 1, ""),
    ]
    assert {one.code for one in tables} == {"BT101", "BT801"}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("= 1", "bartack.toml:1:1"),
        ("[tests]\nmode = \n", "bartack.toml:2:8"),
        ("[tests]\ncommand = [1,\n\n", "bartack.toml:2"),
    ],
)
def test_a_file_that_is_not_toml_is_reported_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{place}: it is not TOML: "):
        load_config(write(tmp_path, text), environ={})
    (tmp_path / "bartack.toml").write_bytes(b"# fine\nname = '\xff'\n")
    with pytest.raises(ConfigError, match=r"^bartack\.toml:2: it is not UTF-8 text"):
        load_config(tmp_path, environ={})


def test_a_file_that_is_nested_too_deeply_is_not_toml(tmp_path: Path) -> None:
    write(tmp_path, f"x = {'[' * 5000}{']' * 5000}")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    try:
        with pytest.raises(ConfigError, match=r"^bartack\.toml: it is not TOML: "):
            load_config(tmp_path, environ={})
    finally:
        sys.setrecursionlimit(limit)  # other tests may have raised it


@pytest.mark.requirement("unknown-settings-are-refused")
@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [
        ("BARTACK_PIPELINE_UNKNOWN", ""),
        ("BARTACK_PIPELINE_MAX_ROUND", "BARTACK_PIPELINE_MAX_ROUNDS"),
        ("BARTACK_PIPELIN_MAX_ROUNDS", "BARTACK_PIPELINE_MAX_ROUNDS"),
        ("BARTACK_AGENTS_COOK_RETRYS", "BARTACK_AGENTS_COOK_RETRIES"),
        ("BARTACK_TIMEOUT_SHEL", "BARTACK_TIMEOUT_SHELL"),
        ("BARTACK_DURABLITY", "BARTACK_DURABILITY"),
    ],
)
def test_a_variable_that_is_nearly_a_setting_is_an_error(
    tmp_path: Path, variable: str, suggestion: str
) -> None:
    write(tmp_path, '[agents.cook]\ncommand = "x"\n')

    [problem] = read_settings(tmp_path, (), {variable: "1"}).problems

    assert (problem.place, problem.suggestion) == (variable, suggestion)
    assert "it does not override a setting" in problem.problem
    with pytest.raises(ConfigError, match=variable):
        load_config(tmp_path, environ={variable: "1"})


def test_variables_that_are_not_settings_are_left_alone(tmp_path: Path) -> None:
    environ = {"BARTACK_HOUSE": "1", "BARTACK_RUN": "r", "BARTACK_TIMEOUT_SHELL": "3", "BARTACKX": "1"}
    elsewhere = {"BARTACK_AGENTS_CODEX_MODEL": "x", "BARTACK_MAILBOXES_DESK_CAPACITY": "1"}

    assert load_config(tmp_path, environ={**environ, **elsewhere}) == Config()


def test_a_variable_that_is_empty_is_not_set(tmp_path: Path) -> None:
    assert load_config(tmp_path, environ={"BARTACK_BUDGET_USD": "", "BARTACK_DURABILITY": ""}) == Config()


def test_every_variable_that_the_code_names_is_known() -> None:
    source = Path(bartack.__file__).parent
    named = {
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"\"(BARTACK_[A-Z_]*[A-Z])\"", file.read_text("utf-8"))
    }

    of_tests = {name for name in named if name.startswith("BARTACK_TEST_")} | {"BARTACK_SANDBOX"}
    assert len(named) > 10
    assert sorted(named - OURS - of_tests - {"BARTACK_PROJECT_WORKSPACE"}) == []


def test_settings_of_agents_limits_and_letters_can_come_from_the_environment(tmp_path: Path) -> None:
    write(tmp_path, '[agents."my-cook.2"]\ncommand = "x"\n[mailboxes.desk]\n')
    environ = {
        "BARTACK_AGENTS_MY_COOK_2_RETRIES": "7",
        "BARTACK_AGENTS_TIMEOUT_S": "8",
        "BARTACK_MAILBOXES_DESK_CAPACITY": "9",
        "BARTACK_DEAD_LETTERS_CAP": "10",
        "BARTACK_TIMEOUTS_SHELL": "11",
        "BARTACK_TELEMETRY_OTEL": "true",
        "BARTACK_DURABILITY": "process",
    }

    found = load_config(tmp_path, environ=environ)

    cook = found.agents.named["my-cook.2"]
    assert isinstance(cook, NdjsonConfig)
    assert (cook.retries, found.agents.timeout_s, found.mailboxes["desk"].capacity) == (7, 8, 9)
    assert (found.dead_letters.cap, found.timeouts["shell"]) == (10, 11)
    assert (found.telemetry.otel, found.durability) == (True, "process")


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

    with pytest.raises(ConfigError, match=r"^bartack\.toml:1:1: pipelin: "):
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
    before.hardlink_to(tmp_path / "sets.json")

    keep_sets(tmp_path, ["budget.usd=2"])

    assert kept_sets(tmp_path) == ["budget.usd=1", "budget.usd=2"]
    assert before.read_bytes() == b'["budget.usd=1"]'  # it was replaced, not written over
