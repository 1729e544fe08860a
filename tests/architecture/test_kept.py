"""Nothing above the depot knows where runs are kept: it names no engine of files, and builds no path to what an engine keeps."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.modules import MODULES, SRC, module_of

import bartack.depot
import bartack.depot._directory
import bartack.journal.file

CONTRACT: Final = "Only the depot knows where journals are kept"
BELOW: Final = frozenset({"depot", "journal", "telemetry", "core", "errors"})

FILES: Final = frozenset({"journal.ndjson", "blobs", "hub.sock", "run.json", "lock.tree"})
"""What the depot keeps of a run in its directory."""

NAMED: Final = {
    "cli/look/_bundle.py": {"run.json"},  # a name in an archive
    "runtime/program/recording.py": {"journal.ndjson"},  # likewise
    "runtime/scheduler/requests.py": {"blobs"},  # for people: what there is no room for
    "config/own.py": {"blobs"},  # a setting
}
"""Modules that name such a file and do not look for it."""

IN_DIRECTORIES: Final = {
    "runtime/rundir/find.py": {"FileRuns"},  # the runs of a workspace
    "runtime/hub/create.py": {"FileRuns"},  # a new run of it
    "runtime/client/manage.py": {"FileRuns"},  # a fork beside its run
}
"""The only modules that know that runs are kept in directories; the others have a ``RunDir`` or a ``KeptRun``."""


def above() -> Iterator[tuple[str, Path]]:
    """The modules above the depot, by their names in the package."""
    for path in MODULES:
        name = path.relative_to(SRC / "bartack")
        if len(name.parts) > 1 and name.parts[0] not in BELOW:
            yield str(name), path


def texts_in(code: str) -> Iterator[str]:
    """The last parts of all paths that stand in a module as they are."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield text.rpartition("/")[2]


@pytest.mark.requirement("depot-knows-where")
def test_no_module_above_the_depot_names_a_file_that_the_depot_keeps() -> None:
    found = {
        name: sorted(FILES.intersection(texts_in(path.read_text(encoding="utf-8")))) for name, path in above()
    }

    assert {name: set(texts) for name, texts in found.items() if texts} == NAMED


@pytest.mark.requirement("depot-knows-where")
def test_the_file_engine_has_one_door_in_the_tree() -> None:
    """``bartack.journal`` has its names for users. Import-linter sees only the modules that are imported, and not the names."""
    names = {f"bartack.journal.{name}" for name in bartack.journal.file.__all__}

    wrong = [
        (name, sorted(names.intersection(module_of(path).imports)))
        for name, path in above()
        if names.intersection(module_of(path).imports)
    ]

    assert wrong == []


@pytest.mark.requirement("depot-knows-where")
def test_few_modules_know_that_runs_are_kept_in_directories() -> None:
    names = {"bartack.depot._directory.FileRun": "FileRun", "bartack.depot.FileRuns": "FileRuns"}
    assert bartack.depot._directory.FileRun.__name__ == "FileRun"
    assert "FileRuns" in bartack.depot.__all__

    found = {name: {names[one] for one in module_of(path).imports if one in names} for name, path in above()}

    assert {name: used for name, used in found.items() if used} == IN_DIRECTORIES


def test_every_package_above_the_depot_is_in_the_contract() -> None:
    config = tomllib.loads((SRC.parent / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["name"] == CONTRACT)

    packages = {name.partition("/")[0] for name, _ in above()}
    assert set(contract["source_modules"]) == {f"bartack.{package}" for package in packages}


def test_a_path_that_a_module_builds_is_seen() -> None:
    code = """path = run / "journal.ndjson"\nother = f"{run}/blobs"\nthird = b"x/hub.sock"\n"""

    assert FILES.intersection(texts_in(code)) == {"journal.ndjson", "blobs", "hub.sock"}
