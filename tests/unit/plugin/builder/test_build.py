"""Building a plugin: what becomes what, the same bytes every time, and no file of another program is touched."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plugin.programs import DESK, SETTINGS, TEAM, write_desk, write_team

from bartack.errors import (
    BartackError,
    PluginDescriptionError,
    PluginInvalidError,
    PluginOutputError,
    PluginTraitError,
    ProgramFaultError,
    ProgramImportError,
)
from bartack.plugin import build_plugin, load_manifest, validate_plugin


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    return write_desk(tmp_path / "project")


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.requirement("plugin-has-the-parts-of-the-program")
def test_each_part_of_a_program_becomes_its_file(desk: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    built = build_plugin(desk, out)

    assert sorted(read(out)) == [
        ".claude-plugin/plugin.json",
        ".mcp.json",
        "README.md",
        "agents/triage.md",
        "commands/night-report.md",
        "commands/sort-inbox.md",
        "hooks/hooks.json",
        "program/desk.pw",
        "program/lib/sorting.pw",
        "program/manifest.json",
        "skills/sort-inbox/SKILL.md",
    ]
    assert (built.name, built.changed, built.warnings) == ("night-desk", True, ())
    assert read(out)["program/desk.pw"] == desk.read_bytes()
    assert json.loads(read(out)[".claude-plugin/plugin.json"]) == {
        "name": "night-desk",
        "version": "1.2.0",
        "description": "Sorts what comes in at night.",
        "author": {"name": "night-desk"},
        "license": "MIT",
        "keywords": ["mail"],
    }


def test_the_manifest_has_the_entries_with_their_parameters(desk: Path, tmp_path: Path) -> None:
    build_plugin(desk, tmp_path / "out")

    manifest = load_manifest(tmp_path / "out")

    assert {name: (one.kind, one.module, one.member) for name, one in manifest.entries.items()} == {
        "sort-inbox": ("skill", "desk.pw", "NightDesk.sort_inbox"),
        "night-report": ("command", "desk.pw", "NightDesk.report"),
        "triage": ("worker", "desk.pw", "triage"),
    }
    folder, limit = manifest.entries["sort-inbox"].params
    assert (folder.name, folder.type, folder.schema, folder.required, folder.doc) == (
        "folder",
        "string",
        {"type": "string"},
        True,
        "where to look",
    )
    assert (limit.name, limit.required) == ("limit", False)
    assert manifest.entries["sort-inbox"].returns == {"type": "integer"}
    assert manifest.entries["night-report"].returns == {}


def test_a_command_passes_its_arguments_as_data_to_the_tools_of_the_plugin(
    desk: Path, tmp_path: Path
) -> None:
    build_plugin(desk, tmp_path / "out")

    text = (tmp_path / "out/commands/sort-inbox.md").read_text()
    head, body = text.removeprefix("---\n").split("\n---\n")

    assert 'argument-hint: "<folder> [limit]"' in head
    assert '"mcp__plugin_night-desk_bartack__start_run"' in head
    assert "<arguments>\n$ARGUMENTS\n</arguments>" in body
    assert 'entry: "sort-inbox"' in body
    assert "- `folder` (string, required): where to look" in body


def test_a_skill_that_is_also_a_command_is_not_typed_by_people(desk: Path, tmp_path: Path) -> None:
    build_plugin(desk, tmp_path / "out")

    assert "\nuser-invocable: false\n" in (tmp_path / "out/skills/sort-inbox/SKILL.md").read_text()


def test_an_agent_has_the_colour_and_model_of_its_comment_and_no_arguments(
    desk: Path, tmp_path: Path
) -> None:
    build_plugin(desk, tmp_path / "out")

    text = (tmp_path / "out/agents/triage.md").read_text()

    assert 'model: "opus"\ncolor: "blue"\n' in text
    assert "$ARGUMENTS" not in text


@pytest.mark.requirement("plugin-is-byte-stable")
def test_two_builds_in_two_places_are_byte_equal(tmp_path: Path) -> None:
    outs = [tmp_path / "one/out", tmp_path / "a longer name/out"]
    for out in outs:
        build_plugin(write_desk(out.parent / "project"), out)

    assert read(outs[0]) == read(outs[1])
    assert str(tmp_path) not in str(read(outs[0]))
    assert all(data.endswith(b"\n") and b"\r" not in data for data in read(outs[0]).values())


def test_the_modes_do_not_depend_on_the_umask(desk: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        build_plugin(desk, tmp_path / "out")
    finally:
        os.umask(before)

    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").rglob("*")}
    assert modes == {0o644, 0o755}


def test_a_second_build_changes_nothing_and_check_agrees(desk: Path, tmp_path: Path) -> None:
    build_plugin(desk, tmp_path / "out")
    inode = (tmp_path / "out").stat().st_ino

    again = build_plugin(desk, tmp_path / "out")
    checked = build_plugin(desk, tmp_path / "out", check=True)

    assert (again.changed, checked.differences) == (False, ())
    assert (tmp_path / "out").stat().st_ino == inode


def test_check_lists_differences_and_writes_nothing(desk: Path, tmp_path: Path) -> None:
    build_plugin(desk, tmp_path / "out")
    desk.write_text(DESK.replace('@command "night-report"', '@command "evening-report"'))
    before = read(tmp_path / "out")

    found = build_plugin(desk, tmp_path / "out", check=True)

    assert "missing: commands/evening-report.md" in found.differences
    assert "no longer generated: commands/night-report.md" in found.differences
    assert "differs: program/desk.pw" in found.differences
    assert read(tmp_path / "out") == before


def test_files_that_are_no_longer_generated_are_removed_and_those_of_people_stay(
    desk: Path, tmp_path: Path
) -> None:
    build_plugin(desk, tmp_path / "out")
    (tmp_path / "out/LICENSE").write_text("mine")
    desk.write_text(DESK.replace('@command "night-report"', ""))

    build_plugin(desk, tmp_path / "out")

    assert not (tmp_path / "out/commands/night-report.md").exists()
    assert (tmp_path / "out/LICENSE").read_text() == "mine"


@pytest.mark.requirement("plugin-build-overwrites-nothing")
@pytest.mark.parametrize("name", ["README.md", ".mcp.json"])
def test_a_file_that_was_edited_is_kept_unless_forced(desk: Path, tmp_path: Path, name: str) -> None:
    build_plugin(desk, tmp_path / "out")
    path = tmp_path / "out" / name
    path.write_bytes(path.read_bytes().replace(b"desk", b"my-desk").replace(b"mcp", b"mcp2"))
    before = read(tmp_path / "out")

    with pytest.raises(PluginOutputError, match="edited"):
        build_plugin(desk, tmp_path / "out")
    assert read(tmp_path / "out") == before

    build_plugin(desk, tmp_path / "out", force=True)
    assert read(tmp_path / "out") != before


@pytest.mark.requirement("plugin-build-overwrites-nothing")
def test_a_folder_of_others_is_refused_unchanged(desk: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")

    with pytest.raises(PluginOutputError, match="not a former build"):
        build_plugin(desk, out)
    with pytest.raises(PluginOutputError, match="not a former build"):
        build_plugin(desk, out, force=True)

    assert read(out) == {"notes.txt": b"mine"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_file_in_place_of_the_folder_is_refused(desk: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")

    with pytest.raises(PluginOutputError, match="not a folder"):
        build_plugin(desk, tmp_path / "out")


def test_a_marketplace_names_its_plugin_and_is_built_again(desk: Path, tmp_path: Path) -> None:
    build_plugin(desk, tmp_path / "mk", marketplace=True)
    listed = json.loads((tmp_path / "mk/.claude-plugin/marketplace.json").read_text())

    assert listed["owner"] == {"name": "night-desk"}
    assert listed["plugins"] == [
        {
            "name": "night-desk",
            "source": "./plugins/night-desk",
            "description": "Sorts what comes in at night.",
            "version": "1.2.0",
        }
    ]
    assert not build_plugin(desk, tmp_path / "mk", marketplace=True).changed
    (tmp_path / "mk/.claude-plugin/marketplace.json").write_text("{}")
    with pytest.raises(PluginOutputError, match="edited"):
        build_plugin(desk, tmp_path / "mk", marketplace=True)


def change(old: str, new: str) -> Callable[[], str]:
    return lambda: DESK.replace(old, new)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (
            change("export trait", "trait"),
            PluginTraitError,
            r"desk\.pw:4:7: the trait NightDesk is not exported",
        ),
        (change("NightDesk: Agent", "NightDesk: Tool"), PluginTraitError, "does not have the base Agent"),
        (lambda: "worker main() {\n    return 1\n}\n", PluginTraitError, "no trait"),
        (lambda: DESK + "\nexport trait Other: Agent {\n}\n", PluginTraitError, "2 exported traits"),
        (change("trait NightDesk", "trait Claude"), PluginInvalidError, "of Claude Code"),
        (change("trait NightDesk", "trait " + "Long" * 8), PluginInvalidError, "at most 27"),
        (
            change("export worker triage", "export worker nightReport"),
            PluginInvalidError,
            "so does NightDesk.report",
        ),
        (
            change("    # Sort the inbox of a folder into queues.\n", ""),
            PluginDescriptionError,
            r"desk\.pw:9:9",
        ),
        (change("# Triage one letter.\n", ""), PluginDescriptionError, "agent triage has no description"),
        (change("Sort the inbox", "Sort <all> of the inbox"), PluginInvalidError, "'<' and '>'"),
        (
            change("where to look", "where to look, as in !`ls`"),
            PluginInvalidError,
            "executes a shell command",
        ),
        (change("where to look", "where @home is"), PluginInvalidError, "includes a file"),
        (change("where to look", "such as $ARGUMENTS"), PluginInvalidError, "more than once"),
        (change("where to look", "costs $5"), PluginInvalidError, "and a digit"),
        (change("@color blue", "@color beige"), PluginInvalidError, "beige"),
        (change("@model opus", "@model gpt"), PluginInvalidError, "gpt"),
        (change("return 1", "return )"), ProgramFaultError, "desk.pw"),
    ],
)
def test_what_cannot_be_a_plugin_is_refused_with_its_place(
    tmp_path: Path, text: Callable[[], str], error: type[BartackError], words: str
) -> None:
    desk = write_desk(tmp_path / "project", text())

    with pytest.raises(error, match=words):
        build_plugin(desk, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_of_several_traits_can_be_chosen(tmp_path: Path) -> None:
    method = "    # Open it.\n    @command\n    fun open_up() {\n        return 1\n    }\n"
    other = f"\n# Another desk.\nexport trait DayDesk: Agent {{\n{method}}}\n"
    desk = write_desk(tmp_path / "project", DESK + other)

    assert build_plugin(desk, tmp_path / "out", trait="DayDesk").name == "day-desk"
    with pytest.raises(PluginTraitError, match="there are: NightDesk, DayDesk"):
        build_plugin(desk, tmp_path / "out", trait="Desk")


def test_a_missing_description_of_a_command_is_a_warning(tmp_path: Path) -> None:
    desk = write_desk(tmp_path / "project", DESK.replace("    # Report the night.\n", ""))

    built = build_plugin(desk, tmp_path / "out")

    assert built.warnings == ("desk.pw:15:9: the command night-report has no description",)
    assert (
        'description: "Runs night-report of night-desk."'
        in (tmp_path / "out/commands/night-report.md").read_text()
    )


def test_a_placeholder_can_be_allowed(tmp_path: Path) -> None:
    desk = write_desk(tmp_path / "project", DESK.replace("# Triage one letter.\n", ""))

    built = build_plugin(desk, tmp_path / "out", allow_placeholder=True)

    assert len(built.warnings) == 1
    assert load_manifest(tmp_path / "out").entries["triage"].doc == "Runs triage of night-desk."


def test_a_skill_declaration_is_a_skill_and_names_are_made_of_words(tmp_path: Path) -> None:
    text = DESK + "\n# Fold it.\nskill foldALetter(x: string) {\n    return x\n}\n"
    build_plugin(write_desk(tmp_path / "project", text), tmp_path / "out")

    assert (tmp_path / "out/skills/fold-a-letter/SKILL.md").is_file()


def test_a_long_list_of_parameters_makes_a_short_hint(tmp_path: Path) -> None:
    many = ", ".join(f"parameter_{number}: string" for number in range(12))
    desk = write_desk(tmp_path / "project", DESK.replace("fun report()", f"fun report({many})"))

    build_plugin(desk, tmp_path / "out")

    head = (tmp_path / "out/commands/night-report.md").read_text().splitlines()
    hint = next(line for line in head if line.startswith("argument-hint"))
    assert hint.endswith(' …"')
    assert len(hint) <= 80 + len('argument-hint: ""')


# The settings.


def test_the_settings_name_and_describe_the_plugin(tmp_path: Path) -> None:
    settings = (
        '[project]\nname = "Post Office"\n[plugin]\nname = "my-desk"\nversion = "2.0.0"\ndescription = "A desk."\n'
        'homepage = "https://desk.example"\nrepository = "https://git.example/desk"\nlicense = "MIT"\nkeywords = ["mail"]\n'
    )
    build_plugin(write_desk(tmp_path / "one", settings=settings), tmp_path / "out")
    author = settings.replace("[plugin]", '[plugin]\nauthor = "Ada"')
    build_plugin(write_desk(tmp_path / "two", settings=author), tmp_path / "other")

    facts = json.loads((tmp_path / "out/.claude-plugin/plugin.json").read_text())
    assert facts == {
        "name": "my-desk",
        "version": "2.0.0",
        "description": "A desk.",
        "author": {"name": "Post Office"},
        "homepage": "https://desk.example",
        "repository": "https://git.example/desk",
        "license": "MIT",
        "keywords": ["mail"],
    }
    assert json.loads((tmp_path / "other/.claude-plugin/plugin.json").read_text())["author"] == {
        "name": "Ada"
    }


RECORDED = ["SessionStart", "PostToolUse", "PostToolUseFailure", "SubagentStop", "Stop", "SessionEnd"]


@pytest.mark.parametrize(("guard", "record"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_settings_choose_the_hooks(tmp_path: Path, *, guard: bool, record: bool) -> None:
    settings = f"[plugin.hooks]\nguard = {str(guard).lower()}\nrecord = {str(record).lower()}\n"
    build_plugin(write_desk(tmp_path / "project", settings=settings), tmp_path / "out")

    file = tmp_path / "out/hooks/hooks.json"
    assert file.exists() == (guard or record)
    hooks: dict[str, Any] = json.loads(file.read_text())["hooks"] if file.exists() else {}
    handlers: list[tuple[str, dict[str, Any]]] = [
        (event, handler) for event, groups in hooks.items() for group in groups for handler in group["hooks"]
    ]
    guarded = {event for event, handler in handlers if handler["args"] == ["hook", "guard"]}
    recorded = {event: handler for event, handler in handlers if handler["args"] == ["hook", "record", event]}
    assert ("PreToolUse" in guarded) == guard
    assert sorted(recorded) == (sorted(RECORDED) if record else [])
    assert len(handlers) == len(guarded) + len(recorded)
    waited_for = [event for event, handler in recorded.items() if not handler.get("async")]
    assert waited_for == (["Stop", "SessionEnd"] if record else [])
    assert all(handler["command"] == "bartack" for _, handler in handlers)


# Python.


def test_a_python_program_gives_the_same_kinds_of_files(tmp_path: Path) -> None:
    team = write_team(tmp_path / "project")

    built = build_plugin(team, tmp_path / "out")

    assert built.warnings == ()
    assert {"program/team.py", "program/lib.py", "skills/sort-inbox/SKILL.md", "agents/triage.md"} <= set(
        built.files
    )
    entry = load_manifest(tmp_path / "out").entries["sort-inbox"]
    assert (entry.module, entry.member, entry.doc) == (
        "team.py",
        "sort_inbox",
        "Sort the inbox of a folder into queues.",
    )
    assert [(one.name, one.type, one.schema, one.required, one.doc) for one in entry.params] == [
        ("folder", "str", {"type": "string"}, True, "where to look"),
        ("limit", "int", {"type": "integer"}, False, "how many at most"),
    ]
    assert entry.returns == {"type": "integer"}
    assert validate_plugin(tmp_path / "out", use_claude=False).ok


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("plugin = Plugin", "def later(): Plugin", PluginTraitError, "no plugin is declared"),
        ("workers=[triage])", "workers=[triage])\nother = Plugin('x')", PluginTraitError, "2 plugins"),
        (
            "letter: dict[str, str]",
            "*letters: str",
            PluginInvalidError,
            r"team\.py:2\d: triage takes \*letters",
        ),
        ("workers=[triage]", "workers=[order]", ProgramImportError, "is not a worker"),
        ('    """Triage one letter."""\n', "", PluginDescriptionError, "agent triage has no description"),
    ],
)
def test_a_python_program_that_declares_no_valid_plugin_is_refused(
    tmp_path: Path, old: str, new: str, error: type[BartackError], words: str
) -> None:
    team = write_team(tmp_path / "project", TEAM.replace(old, new))

    with pytest.raises(error, match=words):
        build_plugin(team, tmp_path / "out")


def test_a_python_program_has_no_traits(tmp_path: Path) -> None:
    with pytest.raises(PluginTraitError, match="only Patchwork"):
        build_plugin(write_team(tmp_path / "project"), tmp_path / "out", trait="Desk")


def test_settings_that_are_not_one_line_are_refused(tmp_path: Path) -> None:
    desk = write_desk(tmp_path / "project", settings=SETTINGS.replace("1.2.0", "first"))

    with pytest.raises(BartackError, match=r"plugin\.version"):
        build_plugin(desk, tmp_path / "out")
