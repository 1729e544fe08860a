"""From files to a program that runs: sources are read from a directory, checked, compiled and executed from there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from bartack.errors import ProgramFaultError, ProgramImportError
from bartack.language import (
    Checked,
    Compiled,
    Diagnostic,
    NotLoaded,
    check,
    compile_program,
    has_errors,
    render_all,
)
from bartack.runtime._calls import Worker
from bartack.runtime._context import Context
from bartack.runtime._frames import PATCHWORK, TOGETHER
from bartack.runtime._members import scheduler_of
from bartack.runtime.patchwork._delegate import PatchworkShape, delegate_op
from bartack.runtime.patchwork._fiber import Fiber
from bartack.runtime.patchwork._program import MAIN, MISSING, Declaration, PatchworkProgram, Unit
from bartack.runtime.patchwork._runtime import Runtime
from bartack.runtime.patchwork._stored import read_units, write_units


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
    """What is to be said about a program, as people read it."""
    modules = checked.program.modules
    return render_all(diagnostics, {module.path: module.source for module in modules}, files=len(modules))


class LoadedProgram(PatchworkProgram):
    """A program whose workers can be run."""

    def __init__(self, units: Iterable[Unit], folder: str = "") -> None:
        super().__init__(units, folder)
        self._workers: dict[str, Worker[..., object]] = {}

    def worker(self, declaration: Declaration) -> Worker[..., object]:
        """A declaration as a worker of the runtime."""
        return self.find_worker(f"{declaration.module}{PATCHWORK}:{declaration.name}")

    def find_worker(self, ref: str) -> Worker[..., object]:
        """The worker that ``module.pw:name`` means; several names joined by ``+`` are delegated together.

        Raises:
            ProgramImportError: There is none.
        """
        found = self._workers.get(ref)
        if found is None:
            module, _, names = ref.partition(":")
            parts = [self._declared(module, name) for name in names.split(TOGETHER)]
            made = self._make(parts[0]) if len(parts) == 1 else self._make_together(parts)
            found = self._workers[ref] = made
            found.ref = ref
        return found

    def _declared(self, module: str, name: str) -> Declaration:
        declaration = self.named(module.removesuffix(PATCHWORK), name)
        if declaration is None:
            raise ProgramImportError(module, f"it has no {name!r}")
        return declaration

    def _make(self, declaration: Declaration) -> Worker[..., object]:
        async def run(ctx: Context, *arguments: object, **named: object) -> object:
            rt = Runtime(self, ctx, scheduler_of(ctx))
            left = declaration.params[len(arguments) :] if named else ()
            given = [*arguments, *(named.get(name, MISSING) for name in left)]
            return await Fiber(lambda: rt.run(declaration, given))

        shape = PatchworkShape(declaration.required, len(declaration.params))
        name = declaration.name if declaration.word == "worker" else MAIN
        made: Worker[..., object] = Worker(run, shape, name=name, agent=declaration.agent)
        made.find = self.find_worker
        return made

    def _make_together(self, declarations: list[Declaration]) -> Worker[..., object]:
        """A worker that runs others side by side; each gets its own list of arguments."""

        async def run(ctx: Context, *arguments: object) -> object:
            rt = Runtime(self, ctx, scheduler_of(ctx))

            def delegate() -> object:
                calls = zip(declarations, arguments, strict=True)
                specs = [rt.spec(one.function, *_list(given)) for one, given in calls]
                return rt.perform_at(delegate_op(specs, None), declarations[0])

            return await Fiber(delegate)

        made: Worker[..., object] = Worker(
            run, PatchworkShape(len(declarations), len(declarations)), name=MAIN
        )
        made.find = self.find_worker
        return made


def _list(value: object) -> list[object]:
    return [*value] if isinstance(value, list) else []


def check_file(root: str | Path, entry: str) -> Checked:
    """Check the program whose entry is at a path from the root of its project."""
    return check(DiskLoader(root), entry)


def load_program(folder: str, entry: str) -> LoadedProgram:
    """The program whose sources are in a folder; what it was compiled to before is kept there, too.

    Raises:
        ProgramFaultError: It has errors.
    """
    units = read_units(folder, entry)
    if units is None:
        units = _units(check_file(folder, entry), entry)
        write_units(folder, entry, units)
    return LoadedProgram(units, folder)


def load_text(texts: Mapping[str, str], entry: str) -> LoadedProgram:
    """A program whose sources are in memory.

    Raises:
        ProgramFaultError: It has errors.
    """
    return LoadedProgram(_units(check(MemoryLoader(texts), entry), entry))


def _units(checked: Checked, entry: str) -> list[Unit]:
    codes = compile_checked(checked, entry).codes
    return [
        Unit(module.id, module.path, module.source.text, codes[module.id])
        for module in checked.program.modules
    ]
