"""The rules of a plugin: each of them, broken once, is reported with file, line and key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.plugin.programs import write_desk

from bartack.plugin import build_plugin, validate_plugin
from bartack.plugin._folder import read_folder
from bartack.plugin.rules._check import check_files, check_sums
from bartack.plugin.rules._front_matter import Value, read_head, write_head
from bartack.plugin.rules._names import kebab, name_problem, tool_name

SKILL = "skills/sort-inbox/SKILL.md"
COMMAND = "commands/sort-inbox.md"
AGENT = "agents/triage.md"
HOOKS = "hooks/hooks.json"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("plugin")
    build_plugin(write_desk(folder / "project"), folder / "out")
    return read_folder(folder / "out")


def found(files: dict[str, bytes], file: str, old: str, new: str) -> list[str]:
    text = files[file].decode()
    assert old in text
    return [str(one) for one in check_files({**files, file: text.replace(old, new, 1).encode()})]


def test_a_built_plugin_breaks_no_rule(files: dict[str, bytes]) -> None:
    assert check_files(files) == []
    assert check_sums(files) == []


BROKEN = [
    (
        SKILL,
        'name: "sort-inbox"',
        'name: "Sort Inbox"',
        f"{SKILL}:2: name: it is 'Sort Inbox', but the folder",
    ),
    (SKILL, 'name: "sort-inbox"\n', "", f"{SKILL}: name: it is missing"),
    (SKILL, 'name: "sort', 'nmae: "sort', f"{SKILL}:2: nmae: a skill has no such key"),
    (COMMAND, "description:", 'name: "x"\ndescription:', f"{COMMAND}:2: name: a command has no such key"),
    (AGENT, 'name: "triage"', 'name: "triager"', f"{AGENT}:2: name: it is 'triager', but the file"),
    (
        SKILL,
        "Sort the inbox of a folder into queues.",
        "x" * 1025,
        f"{SKILL}:3: description: it has 1025",
    ),
    (SKILL, "Sort the inbox of a folder into queues.", "", f"{SKILL}:3: description: it is missing"),
    (SKILL, "Sort the inbox of", "Sort\\nthe inbox of", f"{SKILL}:3: description: it is not one line"),
    (SKILL, "Sort the inbox of", "Sort <the> inbox of", f"{SKILL}:3: description: '<' and '>'"),
    (SKILL, "<folder> [limit]", "x" * 81, f"{SKILL}:4: argument-hint: it is not one line of at most 80"),
    (SKILL, "user-invocable: false", 'user-invocable: "no"', f"{SKILL}:6: user-invocable: it is neither"),
    (SKILL, "user-invocable: false\n", "", f"{COMMAND}: name: the skill of the same name"),
    (
        COMMAND,
        "allowed-tools: [",
        'allowed-tools: ["Bash", ',
        f"{COMMAND}:4: allowed-tools: Bash without",
    ),
    (
        COMMAND,
        "allowed-tools: [",
        'allowed-tools: ["Bash(*)", ',
        f"{COMMAND}:4: allowed-tools: Bash without",
    ),
    (COMMAND, "allowed-tools: [", 'allowed-tools: ["*", ', f"{COMMAND}:4: allowed-tools: '*' is neither"),
    (COMMAND, "allowed-tools: [", f'allowed-tools: ["{"x" * 65}", ', "a name of 65 characters"),
    (
        COMMAND,
        "description:",
        'allowed-tools: "Read"\ndescription:',
        f"{COMMAND}:2: allowed-tools: it is not a list",
    ),
    (AGENT, 'color: "blue"', 'color: "beige"', f"{AGENT}:6: color: 'beige' is not one of red"),
    (AGENT, 'model: "opus"', 'model: "gpt-4"', f"{AGENT}:5: model: 'gpt-4' is neither"),
    (AGENT, 'color: "blue"', "maxTurns: 0", f"{AGENT}:6: maxTurns: it is not an integer from 1"),
    (
        SKILL,
        'name: "sort-inbox"',
        'name: "sort-inbox"\nname: "x"',
        f"{SKILL}:3: name: the key is given twice",
    ),
    (SKILL, 'name: "sort-inbox"', "name: sort-inbox", f"{SKILL}:2: name: the value is not a"),
    (SKILL, 'name: "sort-inbox"', "name: 'sort-inbox'", f"{SKILL}:2: name: the value is not a"),
    (SKILL, 'name: "sort-inbox"', 'name: ["a", 1]', f"{SKILL}:2: name: the value is not a"),
    (SKILL, 'name: "sort-inbox"', 'name:\t"sort-inbox"', f"{SKILL}:2: there is a tab"),
    (SKILL, 'name: "sort-inbox"', "# comment", f"{SKILL}:2: the line is not 'key: value'"),
    (SKILL, "---\n\nSort", "\nSort", f"{SKILL}:1: the line '---' after the keys is missing"),
    (SKILL, "---\nname", "name", f"{SKILL}:1: the file does not start with"),
    (COMMAND, "Parameters:", "Now: !`id`", f"{COMMAND}:9: '!`' executes"),
    (COMMAND, "Parameters:", "See @notes.txt", f"{COMMAND}:9: '@' at the start"),
    (COMMAND, "Parameters:", "$ARGUMENTS", f"{COMMAND}:17: $ARGUMENTS stands there more than once"),
    (COMMAND, "Parameters:", "Use $1", f"{COMMAND}:9: '$' and a digit"),
    (COMMAND, 'entry: "sort-inbox"', 'entry: "sort"', f"{COMMAND}: its body starts no entry"),
    (HOOKS, '"PreToolUse"', '"PreTool"', f"{HOOKS}:3: hooks.PreTool: there is no such event"),
    (
        HOOKS,
        '"timeout": 5',
        '"timeout": 5000',
        f"{HOOKS}:13: hooks.PreToolUse.timeout: it is not an integer from 1 to 60",
    ),
    (HOOKS, '"timeout": 5', '"timeout": true', "hooks.PreToolUse.timeout"),
    (HOOKS, '"timeout": 5', '"timeot": 5', "hooks.PreToolUse.timeot: a handler has no such key"),
    (HOOKS, '"type": "command"', '"type": "http"', "hooks.PreToolUse.type: it is not 'command'"),
    (HOOKS, '"command": "bartack"', '"command": "bartack; id"', f"{HOOKS}:8: hooks.PreToolUse.command"),
    (HOOKS, '"command": "bartack"', '"command": "../bin/x"', "a path has to be absolute"),
    (HOOKS, '"args": [', '"words": [', "without args a shell is used"),
    (".mcp.json", '"bartack": {', '"other": {', ".mcp.json:2: mcpServers: it does not have exactly one"),
    (".mcp.json", "${CLAUDE_PLUGIN_ROOT}", "/home", ".mcp.json:5: args: they do not end with"),
    (
        ".claude-plugin/plugin.json",
        '"version"',
        '"versoin"',
        "plugin.json:3: versoin: a plugin has no such key",
    ),
    (".claude-plugin/plugin.json", "1.2.0", "one", "plugin.json:3: version: it is not a version"),
    (".claude-plugin/plugin.json", "night-desk", "Night", "plugin.json:2: name: 'Night' is not a name"),
    (".claude-plugin/plugin.json", "{", "[", "plugin.json:2: it is not JSON"),
    (".claude-plugin/plugin.json", '"version"', '"name"', "plugin.json: name: the key is given twice"),
    ("program/manifest.json", '"module": "desk.pw"', '"module": "desk2.pw"', "entries.sort-inbox.module"),
    ("program/manifest.json", '"format": 1', '"format": "1"', "program/manifest.json: Expected `int`"),
]
"""For each rule: a file, what is replaced in it by what, and the words of the finding."""


@pytest.mark.requirement("plugin-rules-are-strict")
@pytest.mark.parametrize(("file", "old", "new", "expected"), BROKEN)
def test_a_broken_rule_is_reported_with_its_place(
    files: dict[str, bytes], file: str, old: str, new: str, expected: str
) -> None:
    problems = found(files, file, old, new)

    assert [problem for problem in problems if expected in problem] != [], problems


@pytest.mark.parametrize("file", [".mcp.json", ".claude-plugin/plugin.json", "program/manifest.json"])
def test_a_missing_file_is_reported(files: dict[str, bytes], file: str) -> None:
    problems = check_files({name: data for name, data in files.items() if name != file})

    assert [str(one) for one in problems] == [f"{file}: it is missing"]


def test_a_file_in_a_place_where_it_has_no_meaning_is_reported(files: dict[str, bytes]) -> None:
    problems = check_files({**files, "skills/other.md": b"text\n", "commands/x/y.md": b"\xff"})

    assert [str(one) for one in problems] == [
        "commands/x/y.md:1: it is not UTF-8",
        "skills/other.md: Claude Code does not look for it there",
    ]


def test_changed_missing_and_added_files_of_the_program_are_found(files: dict[str, bytes]) -> None:
    changed = {**files, "README.md": b"mine\n", "program/more.pw": b"\n"}
    del changed["program/lib/sorting.pw"]

    assert {str(one) for one in check_sums(changed)} == {
        "README.md: it was changed after the build",
        "program/lib/sorting.pw: it is missing",
        "program/more.pw: it is not part of the build",
    }


def test_an_installed_plugin_may_have_other_commands(files: dict[str, bytes]) -> None:
    changed = {**files, ".mcp.json": b"{}", HOOKS: b"{}"}

    assert check_sums(changed, installed=True) == []
    assert len(check_sums(changed)) == 2


def test_the_longest_name_of_a_tool_is_allowed_by_models() -> None:
    assert len(tool_name("x" * 27, "receive_message")) == 64


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("sortInbox", "sort-inbox"),
        ("sort_inbox", "sort-inbox"),
        ("NightDesk", "night-desk"),
        ("HTTPServer2", "http-server2"),
        ("__x__", "x"),
        ("a", "a"),
    ],
)
def test_a_name_is_made_of_words(name: str, made: str) -> None:
    assert kebab(name) == made


@pytest.mark.parametrize(
    "name", ["", "A", "a--b", "-a", "a-", "1a", "a_b", "ä", "clear", "bartack", "x" * 65]
)
def test_a_name_that_is_not_allowed_is_refused(name: str) -> None:
    assert name_problem(name)


# The front matter.

LINES = st.text(st.characters(exclude_categories=("Cs", "Cc")))
VALUES: st.SearchStrategy[Value] = st.one_of(
    LINES, st.booleans(), st.integers(-(10**17), 10**17), st.lists(LINES, max_size=3)
)
KEYS = st.from_regex(r"[a-z][A-Za-z0-9_-]{0,20}", fullmatch=True)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.lists(LINES, min_size=1, max_size=3))
def test_a_head_is_read_as_it_was_written(values: dict[str, Value], lines: list[str]) -> None:
    body = "\n".join([*lines, "end"])

    head = read_head("x.md", write_head(values, body))

    assert head.findings == []
    assert head.values == values
    assert head.body == f"\n{body}\n"


@given(st.text())
def test_no_text_makes_the_reader_fail(text: str) -> None:
    read_head("x.md", "---\n" + text)
    check_files(
        {"commands/x.md": text.encode("utf-8", "surrogatepass"), HOOKS: text.encode("utf-8", "replace")}
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_no_json_makes_the_rules_fail(value: object) -> None:
    data = json.dumps({"hooks": value, "mcpServers": value, "name": value, "plugins": value}).encode()

    assert check_files({".claude-plugin/plugin.json": data, HOOKS: data, ".mcp.json": data})


# Whole folders.


def test_a_link_in_a_plugin_is_reported(tmp_path: Path) -> None:
    build_plugin(write_desk(tmp_path / "project"), tmp_path / "out")
    (tmp_path / "out/program/secret").symlink_to("/etc/hostname")

    problems = [str(one) for one in validate_plugin(tmp_path / "out", use_claude=False).findings]

    assert [one for one in problems if one.startswith("program/secret: it is a link")]


def test_a_program_with_errors_and_an_entry_that_is_not_there_are_reported(tmp_path: Path) -> None:
    build_plugin(write_desk(tmp_path / "project"), tmp_path / "out")
    program = tmp_path / "out/program/desk.pw"
    program.write_text(program.read_text().replace("fun report()", "fun reports()"))
    renamed = [str(one) for one in validate_plugin(tmp_path / "out", use_claude=False).findings]
    program.write_text("worker (\n")
    broken = [str(one) for one in validate_plugin(tmp_path / "out", use_claude=False).findings]

    assert "program/desk.pw: it was changed after the build" in renamed
    assert [one for one in renamed if "entries.night-report.member: no entry point `NightDesk.report`" in one]
    assert [one for one in broken if one.startswith("program/desk.pw: ") and "changed" not in one]


def test_the_plugins_of_a_marketplace_are_validated_with_it(tmp_path: Path) -> None:
    build_plugin(write_desk(tmp_path / "project"), tmp_path / "mk", marketplace=True)
    assert validate_plugin(tmp_path / "mk", use_claude=False).ok
    (tmp_path / "mk/plugins/night-desk/README.md").write_text("mine\n")
    file = tmp_path / "mk/.claude-plugin/marketplace.json"
    file.write_text(file.read_text().replace("./plugins/night-desk", "../elsewhere"))

    problems = [str(one) for one in validate_plugin(tmp_path / "mk", use_claude=False).findings]

    assert problems == [
        ".claude-plugin/marketplace.json:10: source: it is not the folder of the plugin below ./plugins",
        "plugins/night-desk/README.md: it was changed after the build",
    ]
