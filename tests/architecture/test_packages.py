"""Doors, private modules, direction of imports, and what an import costs."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from tests.architecture.modules import MODULES, SRC, module_of, package_of

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in (SRC / "bartack").glob("*/__init__.py"))

JOURNAL_NAMES = {"Journal", "FileJournal", "MemoryJournal", "Entry", "open_journal"}


def dotted(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def private_home(name: str) -> str | None:
    """The package that a private module belongs to; ``None`` if no part of ``name`` is private.

    The rooms of the runtime keep their private modules to themselves; in other packages a room is only a folder.
    """
    parts = name.split(".")
    for index, part in enumerate(parts):
        if part.startswith("_") and not part.startswith("__"):
            return ".".join(parts[: index if parts[1] == "runtime" else min(index, 2)])
    return None


def is_foreign(name: str, path: Path) -> bool:
    home = private_home(name)
    return home is not None and not f"{package_of(path)}.".startswith(f"{home}.")


def foreign_imports(path: Path) -> list[str]:
    return [
        name for name in module_of(path).imports if name.startswith("bartack.") and is_foreign(name, path)
    ]


def run_python(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    found: list[str] = json.loads(done.stdout)
    return found


DOORS = [
    package
    for package in PACKAGES
    if package != "errors" and hasattr(importlib.import_module(f"bartack.{package}"), "__all__")
]
"""Other packages have a door in each module; that of ``errors`` is the tree in its docstring, see tests/unit/test_errors.py."""


@pytest.mark.parametrize("package", DOORS)
def test_a_package_exports_what_its_door_lists_and_nothing_private(package: str) -> None:
    door = importlib.import_module(f"bartack.{package}")
    exported: list[str] = door.__all__

    assert [name for name in exported if name.startswith("_") or not hasattr(door, name)] == []


@pytest.mark.parametrize("package", DOORS)
def test_every_exported_class_and_function_says_what_it_promises(package: str) -> None:
    door = importlib.import_module(f"bartack.{package}")
    exported = {name: getattr(door, name) for name in door.__all__}

    silent = [
        name
        for name, thing in exported.items()
        if getattr(thing, "__module__", "").startswith("bartack") and not thing.__doc__
    ]
    assert silent == []


def test_the_journal_exports_the_names_that_users_need() -> None:
    assert set(importlib.import_module("bartack.journal").__all__) >= JOURNAL_NAMES


def test_a_module_is_public_only_if_another_package_imports_it() -> None:
    """Those of the runtime are told apart by contracts. What is for tests may have no user here."""
    inside = [path for path in MODULES if len(path.relative_to(SRC).parts) > 2]
    public = {
        dotted(path): home
        for path in inside
        if not path.name.startswith("_")
        and (home := path.relative_to(SRC).parts[1]) not in {"runtime", "config", "testing"}
    }

    used = {
        module
        for path in MODULES
        for name in module_of(path).imports
        for module in (name, name.rpartition(".")[0])
        if module in public and path.relative_to(SRC).parts[1] != public[module]
    }
    assert set(public) - used == set()


@pytest.mark.requirement("doors-are-kept")
def test_a_private_module_is_imported_by_its_own_package_only() -> None:
    assert [(dotted(path), name) for path in MODULES for name in foreign_imports(path)] == []


def test_an_import_from_inside_another_package_is_seen() -> None:
    module = SRC / "bartack/journal/_made_up.py"

    assert is_foreign("bartack.core._statx.ask_birth", module)
    assert not is_foreign("bartack.core.disk.RealDisk", module)
    assert not is_foreign("bartack.journal._format", module)


def test_every_module_says_what_it_owns() -> None:
    assert [dotted(path) for path in MODULES if not module_of(path).docstring] == []


@pytest.mark.requirement("imports-go-down")
def test_no_import_cycle_at_any_depth() -> None:
    graph = grimp.build_graph("bartack", cache_dir=None)

    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()


@pytest.mark.requirement("imports-go-down")
def test_imports_only_go_down() -> None:
    # In a process of its own: it switches off the loggers that are there, and other tests listen to ours.
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "pyproject.toml")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout


def test_the_versions_of_python_that_are_named_are_those_that_are_tested() -> None:
    classifiers: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "classifiers"
    ]
    named = [word for line in classifiers if (word := line.rpartition(" :: ")[2]).startswith("3.")]
    listed = re.search(r"supported=\((.*)\)", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert listed is not None

    # CI looks for newer ones, too, and says that they are not there.
    assert listed[1].split()[: len(named)] == named
    assert f"tested with {named[0]} to {named[-1]}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_package_has_its_layer() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers: list[str] = config["tool"]["importlinter"]["contracts"][0]["layers"]

    placed = {name.strip() for layer in layers for name in layer.split("|")}
    assert placed == set(PACKAGES)


@pytest.mark.requirement("import-is-light")
def test_importing_bartack_loads_no_asyncio_and_no_third_party_but_msgspec() -> None:
    loaded = run_python(
        "import json, sys; before = set(sys.modules); import bartack\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )

    assert "asyncio" not in loaded
    assert {name for name in loaded if name not in sys.stdlib_module_names} <= {"bartack", "msgspec"}


@pytest.mark.parametrize("package", ["core", "telemetry", "journal"])
def test_the_foundation_needs_no_asyncio(package: str) -> None:
    assert (
        run_python(
            f"import json, sys, bartack.{package}\nprint(json.dumps([*{{'asyncio'}} & set(sys.modules)]))"
        )
        == []
    )


def test_open_telemetry_is_imported_by_its_own_package_only() -> None:
    users = {
        package_of(path)
        for path in MODULES
        for name in module_of(path).imports
        if name.split(".")[0] == "opentelemetry"
    }

    assert users == {"bartack.telemetry.otel"}


def test_nothing_loads_open_telemetry_unless_somebody_asks_for_it() -> None:
    loaded = run_python(
        "import json, sys, bartack, bartack.telemetry, bartack.cli, bartack.runtime.hub.serve\n"
        "print(json.dumps([name for name in sys.modules if name.split('.')[0] == 'opentelemetry']))"
    )

    assert loaded == []
