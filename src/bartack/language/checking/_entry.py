"""Where a program starts: what is asked for, a script, the default export, `main`, or the only worker."""

from __future__ import annotations

from collections.abc import Sequence

from bartack.language.checking.program import CheckedModule, Declared, EntryPoint, Program
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Diagnostic, diagnose
from bartack.language.syntax._near import nearest
from bartack.language.syntax._source import Span

_MAINS = ("main", "__main__")


def find_entry(program: Program, chosen: Sequence[str] = ()) -> EntryPoint | Diagnostic:
    """The entry point of a program, or why there is none.

    Args:
        program: A checked program.
        chosen: Names of workers, skills, funs or `Trait.method`s of the entry module; several are delegated together.
    """
    module = program.entry
    if chosen:
        return _chosen(module, chosen)
    if _has_statements(module.syntax):
        return EntryPoint(script=True)
    known = _declarations(module)
    started = _default(module) or _main(known) or _only(known)
    return EntryPoint(script=False, declared=(started,)) if started else _none(module, known)


def _chosen(module: CheckedModule, chosen: Sequence[str]) -> EntryPoint | Diagnostic:
    known = _declarations(module)
    for name in chosen:
        if name not in known:
            near = nearest(name, known)
            label = f"did you mean `{near}`?" if near else ""
            text = f"no entry point `{name}`; candidates: {_listed(list(known))}"
            return diagnose("PW170", text, module.path, Span(0, 0), label=label)
    return EntryPoint(script=False, declared=tuple(known[name] for name in chosen))


def _has_statements(module: tree.Module) -> bool:
    items = (tree.Import, tree.Declaration, tree.Trait, tree.TypeDeclaration)
    return module.script is not None or any(not isinstance(unit, items) for unit in module.units)


def _declarations(module: CheckedModule) -> dict[str, Declared]:
    """What can be an entry, by the name it is chosen by."""
    known: dict[str, Declared] = {}
    for unit in module.syntax.units:
        if isinstance(unit, tree.Declaration) and unit.name.name:
            known.setdefault(unit.name.name, Declared(module.id, unit))
        elif isinstance(unit, tree.Trait):
            for method in _methods(unit):
                known.setdefault(f"{unit.name.name}.{method.name.name}", Declared(module.id, method, unit))
    return known


def _methods(trait: tree.Trait) -> list[tree.Declaration]:
    return [method for method in trait.methods if isinstance(method, tree.Declaration)]


def _default(module: CheckedModule) -> Declared | None:
    for unit in module.syntax.units:
        if isinstance(unit, tree.Declaration) and unit.default:
            return Declared(module.id, unit)
        if isinstance(unit, tree.Trait) and unit.default and _methods(unit):
            return Declared(module.id, _methods(unit)[0], unit)
    return None


def _main(known: dict[str, Declared]) -> Declared | None:
    return next((known[name] for name in _MAINS if name in known), None)


def _workers(known: dict[str, Declared]) -> list[str]:
    return [name for name, declared in known.items() if declared.node.word in {"worker", "skill"}]


def _only(known: dict[str, Declared]) -> Declared | None:
    workers = _workers(known)
    return known[workers[0]] if len(workers) == 1 else None


def _none(module: CheckedModule, known: dict[str, Declared]) -> Diagnostic:
    workers = _workers(known)
    if workers:
        text = (
            f"several entry points: {_listed(workers)}; choose with `--worker`, "
            "or give it several times to run them together"
        )
        return diagnose("PW171", text, module.path, known[workers[1]].node.name.span)
    text = f"no entry point; candidates: {_listed(list(known))}" if known else "no entry point"
    helps = ("declare `worker main() { … }`, or write statements at the top of the file",)
    return diagnose("PW170", text, module.path, Span(0, 0), helps=helps)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:8])
    return f"{shown}, …" if len(names) > 8 else shown or "none"
