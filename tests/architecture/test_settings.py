"""Every setting has a test that shows what it does, and a row on the page of settings.

Which test that is stands in ``tests/settings.toml``; whoever adds a setting adds a test, its line there, and its row.
"""

from __future__ import annotations

import ast
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from bartack.agents.config import KINDS
from bartack.config.load import Config, check_resumed
from bartack.errors import ConfigError

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests/settings.toml"
PAGE = ROOT / "docs/reference/settings.md"
NO_DEFAULT = object()
IN_WORDS = frozenset(
    {
        "",
        "\N{EN DASH}",
        "the name of the directory",
        "the only agent",
        "built in for common models",
        "by the name or the other keys",
        "by kind",
        "by role",
        "by action",
        "its own choice",
        "the oldest known to work",
        "those that outlive a step",
        "all kinds",
        "the agent that lists it",
        "the built-in templates",
        "Status, Decisions, Changelog",
    }
)
"""Defaults that are not a value, or are explained better than by one."""


def settings_of(kind: object, place: str) -> Iterator[str]:
    """The settings below a place, by the type of what may stand there."""
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType | typing._UnionGenericAlias):  # type: ignore[attr-defined]  # - both forms of a union
        structs = [part for part in arguments if isinstance(part, type) and issubclass(part, msgspec.Struct)]
        if structs:
            yield f"{place}.kind"
            for part in structs:
                yield from settings_of(part, place)
            return
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        for field in msgspec.structs.fields(kind):
            below = f"{place}.{field.encode_name}" if field.name != "named" else place
            yield from settings_of(hints[field.name], below.lstrip("."))
    elif typing.get_origin(kind) is dict and not _is_plain(arguments[1]):
        yield from settings_of(arguments[1], f"{place}.NAME")
    elif typing.get_origin(kind) is list and not _is_plain(arguments[0]):
        yield from settings_of(arguments[0], place)
    else:
        yield place


def defaults_of(kind: object, place: str, default: object = NO_DEFAULT) -> Iterator[tuple[str, object]]:
    """The same with their defaults; a setting that several kinds of agents have comes once for each."""
    arguments = typing.get_args(kind)
    parts = arguments if isinstance(kind, types.UnionType | typing._UnionGenericAlias) else (kind,)  # type: ignore[attr-defined]  # - both forms of a union
    structs = [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]
    for part in structs:
        hints = typing.get_type_hints(part)
        for field in msgspec.structs.fields(part):
            below = f"{place}.{field.encode_name}" if field.name != "named" else place
            given = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            yield from defaults_of(hints[field.name], below.lstrip("."), given)
    if structs:
        return
    if typing.get_origin(kind) is dict and not _is_plain(arguments[1]):
        yield from defaults_of(arguments[1], f"{place}.NAME")
    elif typing.get_origin(kind) is list and not _is_plain(arguments[0]):
        yield from defaults_of(arguments[0], place)
    else:
        yield place, default


def _is_plain(kind: object) -> bool:
    parts = typing.get_args(kind) or (kind,)
    return not any(isinstance(part, type) and issubclass(part, msgspec.Struct) for part in parts)


def all_settings() -> set[str]:
    return set(settings_of(Config, ""))


def registered() -> dict[str, str]:
    """The test of each setting."""
    table = msgspec.toml.decode(TABLE.read_bytes(), type=dict[str, str | dict[str, str]])
    found: dict[str, str] = {}
    for name, given in table.items():
        below = (
            {name: given}
            if isinstance(given, str)
            else {f"{name}.{key}": test for key, test in given.items()}
        )
        found |= below
    return found


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_settings_are_found_by_their_types() -> None:
    found = all_settings()

    assert {"state_dir", "project.name", "redaction.except", "tasks.goal", "mailboxes.NAME.capacity"} <= found
    assert {"agents.default", "agents.NAME.kind", "agents.NAME.script", "agents.NAME.retries"} <= found


@pytest.mark.requirement("settings-have-effects")
def test_every_setting_has_a_test_that_shows_its_effect() -> None:
    assert sorted(all_settings() - set(registered())) == []


def test_no_test_shows_the_effect_of_a_setting_that_is_not_there() -> None:
    assert sorted(set(registered()) - all_settings()) == []


def test_the_tests_that_are_named_are_there() -> None:
    missing: list[str] = []
    for setting, test in registered().items():
        file, _, name = test.partition("::")
        path = ROOT / "tests" / file
        if not path.is_file() or name not in names_in(path):
            missing.append(f"{setting}: {test}")

    assert missing == []


def test_every_setting_has_a_row_on_its_page() -> None:
    rows = re.findall(r"^\| `([^`]+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(rows) == sorted(set(rows))
    assert sorted(all_settings() ^ set(rows)) == []


def rows_of_page() -> dict[str, tuple[str, str]]:
    """What the page says of each setting: its default, and its effect."""
    found = re.findall(
        r"^\| `([^`]+)`(?: †)? \| (.*?) ?\| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name: (default.strip(), effect) for name, default, effect in found}


def test_the_page_has_the_defaults_of_the_code() -> None:
    rows, wrong = rows_of_page(), list[str]()
    for setting, default in defaults_of(Config, ""):
        shown, effect = rows[setting]
        if shown in IN_WORDS or default is NO_DEFAULT or default is msgspec.NODEFAULT:
            continue
        said = None if shown == "none" else msgspec.json.decode(shown.strip("`"))
        # What differs between kinds of agents is in the effect, with the kinds.
        if said != default and not re.search(rf"\b{re.escape(written(default))}\b for `", effect):
            wrong.append(f"{setting}: the page has {shown}, the code {default!r}")

    assert wrong == []


def written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_defaults_in_words_are_those_of_settings_that_are_there() -> None:
    assert sorted(IN_WORDS - {shown for shown, _ in rows_of_page().values()}) == []


def test_the_page_names_every_kind_of_agent_and_what_each_gets_of_the_environment() -> None:
    rows = rows_of_page()

    assert [kind for kind in KINDS if f'`"{kind}"`' not in rows["agents.NAME.kind"][1]] == []
    passed = rows["agents.NAME.pass_env"][1]
    for name, kind in KINDS.items():
        names = defaults_by_field(kind).get("pass_env", [])
        assert isinstance(names, list)
        listed = ", ".join(f"`{one}`" for one in typing.cast("list[str]", names))
        assert f"for `{name}`: {listed}" in passed.replace("For", "for") or not names


def defaults_by_field(kind: type[msgspec.Struct]) -> dict[str, object]:
    return {name: default for name, default in defaults_of(kind, "") if default is not NO_DEFAULT}


def test_the_page_marks_what_may_change_when_a_run_is_resumed() -> None:
    rows = re.findall(r"^\| `([^`]+)`( †)?", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    marked = {name for name, mark in rows if mark}
    assert sorted(marked ^ {name for name, _ in rows if not _is_pinned(name)}) == []


def _is_pinned(setting: str) -> bool:
    try:
        check_resumed([f"{setting}=1"])
    except ConfigError:
        return True
    return False
