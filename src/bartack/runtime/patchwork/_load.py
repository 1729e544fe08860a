"""Programs that run: their code is executed from a directory with their sources, and their workers are found by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from bartack.config.project import PATCHWORK
from bartack.core import typed
from bartack.errors import ProgramImportError
from bartack.runtime.context.context import Context
from bartack.runtime.context.definitions import Worker
from bartack.runtime.context.part import scheduler_of
from bartack.runtime.patchwork._delegate import PatchworkShape, SpecValue, delegate_op
from bartack.runtime.patchwork._fiber import Fiber
from bartack.runtime.patchwork._program import MAIN, MISSING, Declaration, PatchworkProgram, Unit
from bartack.runtime.patchwork._runtime import Runtime
from bartack.runtime.patchwork._stored import read_units, write_units
from bartack.runtime.protocol.frames import TOGETHER


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
            ProgramImportError: The program has no such worker.
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
        """A worker that runs others side by side; each gets its own arguments, by position and by name."""

        async def run(ctx: Context, *arguments: object) -> object:
            rt = Runtime(self, ctx, scheduler_of(ctx))
            calls = zip(declarations, arguments, strict=True)
            specs = [self._spec(declaration, _read_call(given)) for declaration, given in calls]

            def delegate() -> object:
                return rt.perform_at(delegate_op(specs, None), declarations[0])

            return await Fiber(delegate)

        made: Worker[..., object] = Worker(
            run, PatchworkShape(len(declarations), len(declarations)), name=MAIN
        )
        made.find = self.find_worker
        return made

    def _spec(self, declaration: Declaration, call: _Call) -> SpecValue:
        return SpecValue(self.worker(declaration), tuple(call.args), call.kwargs)


class _Call(msgspec.Struct):
    """The arguments of one of several workers, as they were made from the command line."""

    args: list[object] = []
    kwargs: dict[str, object] = {}


def _read_call(given: object) -> _Call:
    return typed.convert(given, _Call)


def load_program(folder: str, entry: str) -> LoadedProgram:
    """The program whose sources are in a folder; what it was compiled to before is kept there, too.

    Raises:
        ProgramFaultError: It has errors.
    """
    units = read_units(folder, entry)
    if units is None:
        from bartack.runtime.patchwork._build import DiskLoader, build  # noqa: PLC0415 - only the first process compiles

        units = build(DiskLoader(folder), entry)
        write_units(folder, entry, units)
    return LoadedProgram(units, folder)


def load_text(texts: Mapping[str, str], entry: str) -> LoadedProgram:
    """A program whose sources are in memory.

    Raises:
        ProgramFaultError: It has errors.
    """
    from bartack.runtime.patchwork._build import MemoryLoader, build  # noqa: PLC0415 - only the first process compiles

    return LoadedProgram(build(MemoryLoader(texts), entry))
