"""Checks of many files at once: which of them are programs, and the diagnostics of all of them together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bartack.config.project import project_root
from bartack.language import Checked, Diagnostic, Source
from bartack.runtime.patchwork._build import check_file

_OF_PROGRAMS: Final = frozenset(("PW210", "PW211", "PW212"))
"""Reported for a file only when every program with this file agrees: another one may hold the other half."""


class Survey(NamedTuple):
    """What was found in files: diagnostics in their order, and the sources of all files by the names shown."""

    diagnostics: tuple[Diagnostic, ...]
    sources: dict[str, Source]


class _Module(NamedTuple):
    """A file of a project."""

    root: Path
    path: str

    @property
    def shown(self) -> str:
        """How messages name the file: from the current directory, if it is below it."""
        full = os.path.join(self.root, self.path)
        near = os.path.relpath(full)
        return full if near.startswith(os.pardir + os.sep) else near


def survey(files: Sequence[Path]) -> Survey:
    """Check files with everything they import.

    A file that another one imports is checked as a part of that program, and each diagnostic is given once.
    """
    programs = _programs(_placed(file) for file in files)
    sources = {
        _Module(root, module.path).shown: Source(module.source.text, _Module(root, module.path).shown)
        for root, checked in programs
        for module in checked.program.modules
    }
    return Survey(tuple(_merged(programs)), sources)


def _placed(file: Path) -> _Module:
    file = Path(os.path.abspath(file))
    root = project_root(file, file.parent)
    return _Module(root, file.relative_to(root).as_posix())


def _programs(files: Iterable[_Module]) -> list[tuple[Path, Checked]]:
    """The programs that hold the files, none of them a part of another."""
    found: dict[_Module, Checked] = {}
    parts: set[_Module] = set()
    for file in files:
        if file not in parts and file not in found:
            checked = found[file] = check_file(file.root, file.path)
            parts.update(_Module(file.root, module.path) for module in checked.program.modules[1:])
    return [(file.root, checked) for file, checked in found.items() if file not in parts]


def _merged(programs: Sequence[tuple[Path, Checked]]) -> Iterable[Diagnostic]:
    holders: dict[str, int] = {}
    counted: dict[Diagnostic, int] = {}
    for root, checked in programs:
        for module in checked.program.modules:
            shown = _Module(root, module.path).shown
            holders[shown] = holders.get(shown, 0) + 1
        for one in checked.diagnostics:
            named = _renamed(root, one)
            counted[named] = counted.get(named, 0) + 1
    for one, count in counted.items():
        if one.code not in _OF_PROGRAMS or count == holders[one.file]:
            yield one


def _renamed(root: Path, one: Diagnostic) -> Diagnostic:
    """A diagnostic with files named as messages show them."""
    secondary = tuple(
        other._replace(file=_Module(root, other.file).shown) if other.file else other
        for other in one.secondary
    )
    return one._replace(file=_Module(root, one.file).shown, secondary=secondary)
