"""Patterns and the names they bind; names that nothing reads, and names that are not defined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from bartack.language import _tree as tree
from bartack.language._check_types import resolve
from bartack.language._check_walk import Walk
from bartack.language._program import Local
from bartack.language._types import ANY, ARRAY, Field, Record, Type, literals_of

Role: TypeAlias = Literal["parameter", "variable", "loop", "error"]


def bound_names(pattern: tree.Pattern) -> Iterator[str]:
    """The names a pattern binds."""
    match pattern:
        case tree.Binding():
            yield pattern.name.name
        case tree.ObjectPattern():
            yield from (field.key.name for field in pattern.fields if binds(field))
        case tree.ArrayPattern():
            for element in pattern.elements:
                yield from bound_names(element)
        case _:
            return


def binds(field: tree.PatternField) -> bool:
    """Whether a field of a pattern binds a name: keywords and strings do not."""
    return not field.key.quoted and field.key.name not in tree.KEYWORDS


def pattern_type(walk: Walk, pattern: tree.Pattern) -> Type | None:
    """Resolve the types in a pattern, and give the type it asks of a prompt; None when it asks for none."""
    match pattern:
        case tree.Binding(type=written):
            return resolve(walk, written) if written is not None else None
        case tree.ObjectPattern():
            return Record(tuple(_pattern_field(walk, field) for field in pattern.fields))
        case tree.ArrayPattern():
            for element in pattern.elements:
                pattern_type(walk, element)
            return ARRAY
        case _:
            return None


def _pattern_field(walk: Walk, field: tree.PatternField) -> Field:
    if field.type is not None:
        return Field(field.key.name, resolve(walk, field.type))
    if not binds(field) and field.key.name:
        text = f"the key `{field.key.name}` binds nothing"
        helps = ('take the whole value and write `value.key`, or match a value: `key: "…"`',)
        walk.report("PW213", text, field, helps=helps)
    return Field(field.key.name, ANY)


def bind(walk: Walk, pattern: tree.Pattern, role: Role, found: Type) -> None:
    """Declare the names of a pattern for a value of a type."""
    match pattern:
        case tree.Binding(type=written):
            kind = walk.module.types.get(written) if written is not None else None
            bind_name(walk, pattern.name, role, found if kind is None else kind, kind)
        case tree.ObjectPattern():
            for field in pattern.fields:
                if binds(field):
                    _bind_field(walk, field, role)
        case tree.ArrayPattern():
            for element in pattern.elements:
                bind(walk, element, role, ANY)
        case _:
            return


def _bind_field(walk: Walk, field: tree.PatternField, role: Role) -> None:
    kind = walk.module.types.get(field.type) if field.type is not None else None
    literal = kind is not None and literals_of(kind) is not None
    local = Local(field.key.name, role, field.key, 0, None)
    walk.declare(local, ANY if kind is None or not literal else kind)
    if literal:
        walk.body.read.add(local)


def bind_name(walk: Walk, name: tree.Identifier, role: Role, found: Type, written: Type | None) -> None:
    """Declare one name."""
    walk.declare(Local(name.name, role, name, 0, written), found)


def report_unread(walk: Walk) -> None:
    """Say which variables of the body nothing reads; one that a wrong name seems to mean was to be read."""
    meant = {use.near for use in walk.body.undefined.values()}
    if walk.body.declaration is None:
        meant |= walk.reached_for
    for local in walk.body.locals:
        if local.name in meant:
            continue
        if local.role != "parameter" and local not in walk.body.read and not local.name.startswith("_"):
            text = f"variable `{local.name}` is never read"
            walk.report("PW201", text, local.node, helps=(_unread_help(local),))


def _unread_help(local: Local) -> str:
    if local.role == "error":
        return "write `catch {` when the error does not matter"
    return f"write `_{local.name}` when that is meant" if local.role == "variable" else "write `_` instead"


def report_undefined(walk: Walk) -> None:
    """Say which names of the body are not defined, each once."""
    walk.reached_for |= walk.script_names & walk.body.undefined.keys()
    for name, use in walk.body.undefined.items():
        label = f"did you mean `{use.near}`?" if use.near and name not in walk.script_names else ""
        notes = (f"used {_times(use.more)} more below",) if use.more else ()
        walk.report(
            "PW120",
            f"`{name}` is not defined",
            use.node,
            label=label,
            helps=_undefined_helps(walk, name, in_shell=use.in_shell),
            notes=notes,
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _undefined_helps(walk: Walk, name: str, *, in_shell: bool) -> tuple[str, ...]:
    if name in walk.names.types or walk.find_type(name) is not None:
        return (f"`{name}` is a type, not a value",)
    if name in walk.script_names:
        return (f"`{name}` is a variable of the script; hand it over as an argument",)
    if in_shell or (name.isupper() and len(name) > 1):
        return (f'to read an environment variable write `env("{name}")`',)
    return ()
