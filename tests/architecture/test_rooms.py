"""The rooms of the code: how many modules one has, which doors lead to it, and whether the signs on them are right."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.modules import MODULES, module_of

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src/bartack"
ROOMS: Final = sorted(path.parent for path in (PACKAGE / "runtime").rglob("__init__.py"))[1:]

LARGEST_ROOM: Final = 30
MOST_NAMES: Final = 26

FOR_TOOLS: Final = {"client", "copies", "rundir", "state", "protocol", "program", "patchwork"}
"""The rooms of ``runtime`` that the command line and the pipeline may enter."""

OF_THE_HUB: Final = {
    "carried",
    "create",
    "forwarding",
    "hub",
    "launch",
    "machine",
    "planned",
    "reopened",
    "serve",
    "workspace",
}
"""The modules of the hub that they need to make a run, to run one, to watch one, and to hand requests to one."""

FOR_TESTS: Final = {"memory", "kernel", "scheduler", "context", "worker_process"}


def room_of(name: str) -> tuple[str, str]:
    """The room of ``runtime`` that an import leads to, and the module in it."""
    parts = [*name.removeprefix("bartack.runtime.").split("."), "", ""]
    return parts[0], parts[1]


def entered(package: str) -> set[tuple[str, str]]:
    """The rooms and modules of ``runtime`` that a package imports; the door itself is not a room."""
    rooms = {room.name for room in ROOMS}
    found = {
        room_of(name)
        for path in (PACKAGE / package).rglob("*.py")
        for name in module_of(path).imports
        if name.startswith("bartack.runtime.")
    }
    return {place for place in found if place[0] in rooms}


def test_no_room_is_crowded() -> None:
    folders = Counter(path.parent for path in MODULES if path.name != "__init__.py")

    assert {str(folder): count for folder, count in folders.items() if count > LARGEST_ROOM} == {}


def test_three_modules_with_one_prefix_are_a_room_of_their_own() -> None:
    prefixes = Counter(
        (str(path.parent.relative_to(PACKAGE)), path.stem.lstrip("_").partition("_")[0])
        for path in MODULES
        if path.name != "__init__.py"
    )

    assert {place: count for place, count in prefixes.items() if count > 2} == {}


def test_the_door_of_a_room_says_what_it_owns_and_imports_nothing() -> None:
    doors = [room / "__init__.py" for room in ROOMS if room.name != "patchwork"]

    assert [str(door) for door in doors if module_of(door).docstring is None] == []
    assert [(str(door), name) for door in doors for name in module_of(door).imports] == []


def test_a_private_module_of_a_room_is_imported_by_that_room_only() -> None:
    wrong = [
        (str(path.relative_to(PACKAGE)), name)
        for path in MODULES
        for name in module_of(path).imports
        if name.startswith("bartack.runtime.")
        and room_of(name)[1].startswith("_")
        and not path.is_relative_to(PACKAGE / "runtime" / room_of(name)[0])
    ]

    assert wrong == []


def test_tools_enter_only_the_rooms_that_are_open_to_them() -> None:
    for package in ("cli", "web", "pipeline", "mcp", "node", "plugin", "tracking"):
        wrong = {
            place
            for place in entered(package)
            if place[0] not in FOR_TOOLS and not (place[0] == "hub" and place[1] in OF_THE_HUB)
        }
        assert wrong == set(), package


def test_only_tests_enter_the_rooms_of_the_kernel_and_of_workers() -> None:
    users = {
        (path.relative_to(PACKAGE).parts[0], room_of(name)[0])
        for path in MODULES
        for name in module_of(path).imports
        if name.startswith("bartack.runtime.") and room_of(name)[0] in FOR_TESTS
    }

    assert {user for user, _ in users} <= {"runtime", "testing"}


def test_no_door_has_too_many_names() -> None:
    exported = {
        str(door.relative_to(PACKAGE)): len(node.value.elts)
        for door in PACKAGE.glob("*/**/__init__.py")
        for node in ast.parse(door.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if isinstance(node.value, ast.List)
    }

    assert exported["runtime/__init__.py"] <= MOST_NAMES
    assert {door: count for door, count in exported.items() if count > MOST_NAMES} == {}


OF_PEOPLE: Final = {"conftest.py", "src/pkg/team.py"}
"""Files that a docstring may name because people have them."""

FILE: Final = re.compile(r"``?([a-z_/]+/)?(_?[a-z][a-z_]*\.py)``?")


def named_files(text: str) -> Iterator[str]:
    yield from ("".join(part or "" for part in found) for found in FILE.findall(text))


def is_there(name: str, beside: Path) -> bool:
    top = PACKAGE / beside.relative_to(PACKAGE).parts[0] if beside != PACKAGE else PACKAGE
    return any((base / name).exists() for base in (beside, top, PACKAGE, ROOT))


def test_every_file_that_a_docstring_names_is_there() -> None:
    wrong = [
        (str(path.relative_to(PACKAGE)), name)
        for path in MODULES
        for name in named_files(module_of(path).docstring or "")
        if name not in OF_PEOPLE and not is_there(name, path.parent)
    ]

    assert wrong == []


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

    assert [name for name in named_files(text) if not is_there(name, PACKAGE)] == []


def is_named(room: Path, page: str, door: str) -> bool:
    """Whether the page names the whole path of a folder, or the door of its package the path below that package."""
    path = room.relative_to(PACKAGE)
    return f"`{path.as_posix()}/`" in page or f"``{Path(*path.parts[1:]).as_posix()}/``" in door


def test_the_architecture_or_the_door_of_its_package_names_every_folder() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    folders = {path.parent for path in MODULES} - {PACKAGE}
    packages = {folder for folder in folders if folder.parent == PACKAGE}

    assert [package.name for package in packages if f"`{package.name}`" not in text] == []
    assert [
        str(folder.relative_to(PACKAGE))
        for folder in sorted(folders - packages)
        if not is_named(
            folder,
            text,
            module_of(PACKAGE / folder.relative_to(PACKAGE).parts[0] / "__init__.py").docstring or "",
        )
    ] == []


def test_a_folder_is_named_by_its_whole_path_only() -> None:
    assert is_named(PACKAGE / "web/api", "`web/api/`", "")
    assert is_named(PACKAGE / "cli/project/check", "", "see ``project/check/``")
    assert not is_named(PACKAGE / "web/api", "`agents/api/`", "")
    assert not is_named(PACKAGE / "cli/project/check", "", "see ``check/``")


MOST_WORDS: Final = 2500
"""As many as can be read in ten minutes. What a page has beyond that is looked up, not read: it belongs into the docstring of the
package that it is about, or into docs/reference/glossary.md."""


def test_the_architecture_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_the_door_of_a_package_names_the_file_to_read_first() -> None:
    doors = sorted(path for path in PACKAGE.glob("*/__init__.py"))

    assert [str(door) for door in doors if not list(named_files(module_of(door).docstring or ""))] == []
