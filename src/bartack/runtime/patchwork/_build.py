"""From sources to code: modules are read, checked and compiled. Nothing of a program is executed here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from bartack.errors import ProgramFaultError
from bartack.language import (
    Checked,
    Compiled,
    Diagnostic,
    Loader,
    check,
    compile_program,
    has_errors,
    render_all,
)
from bartack.language.checking.modules import NotLoaded
from bartack.runtime.patchwork._program import Unit


class DiskLoader:
    """Reads the modules of a project from its directory."""

    def __init__(self, root: str | Path) -> None:
        self._root = os.path.realpath(root)

    def __call__(self, path: str) -> bytes | NotLoaded:
        """The bytes of a module, or why there are none."""
        place = self._root
        for name in path.split("/"):
            names = _names_in(place)
            if name not in names:
                near = next((other for other in names if other.lower() == name.lower()), "")
                return NotLoaded("missing", near)
            place = os.path.join(place, name)
        real = os.path.realpath(place)
        if not real.startswith(self._root.rstrip(os.sep) + os.sep):
            return NotLoaded("outside")
        if not os.path.isfile(real):
            return NotLoaded("missing")
        try:
            return Path(real).read_bytes()
        except OSError:
            return NotLoaded("unreadable")


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


class MemoryLoader:
    """Modules that are in memory, for tests."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def __call__(self, path: str) -> str | NotLoaded:
        """The text of a module, or why there is none."""
        return self._texts.get(path) or NotLoaded("missing")


def compile_checked(checked: Checked, shown: str) -> Compiled:
    """Compile a program.

    Raises:
        ProgramFaultError: It has errors; the error has the whole report.
    """
    diagnostics = checked.diagnostics
    if not has_errors(diagnostics):
        compiled = compile_program(checked.program)
        if not compiled.diagnostics:
            return compiled
        diagnostics = (*diagnostics, *compiled.diagnostics)
    raise ProgramFaultError(shown, report(checked, diagnostics))


def report(checked: Checked, diagnostics: Iterable[Diagnostic]) -> str:
    """The diagnostics of a program, as people read them."""
    modules = checked.program.modules
    return render_all(diagnostics, {module.path: module.source for module in modules}, files=len(modules))


def check_file(root: str | Path, entry: str) -> Checked:
    """Check the program whose entry is at a path from the root of its project."""
    return check(DiskLoader(root), entry)


def build(loader: Loader, entry: str) -> list[Unit]:
    """The modules of a program as code.

    Raises:
        ProgramFaultError: It has errors.
    """
    checked = check(loader, entry)
    codes = compile_checked(checked, entry).codes
    return [
        Unit(module.id, module.path, module.source.text, codes[module.id])
        for module in checked.program.modules
    ]
