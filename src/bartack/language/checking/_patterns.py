"""Patterns and the names they bind; names that nothing reads, and names that are not defined."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias

from bartack.language.checking._scope import Undefined
from bartack.language.checking._types import ANY, ARRAY, Field, Record, Type, literals_of, parts_of
from bartack.language.checking._walk import Walk
from bartack.language.checking._written_types import resolve
from bartack.language.checking.program import Local
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._near import OTHER_NAMES

_ASSIGNED = re.compile(r"[ \t]*=(?![=>])")
_COMMAND = re.compile(r"[a-z][a-z0-9_]{0,30}(?:[ \t]+--?[A-Za-z][A-Za-z0-9_-]{0,30})+[ \t]*(?=[#\r\n]|\Z)")
_FAR = 200
_SHORT = 40
_BRACED = re.compile(r"(?<!\$)(?<!\$@)\{([A-Za-z_][A-Za-z0-9_]*)\}")

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
            parts = parts_of(found)
            for at, element in enumerate(pattern.elements):
                bind(walk, element, role, parts[at] if at < len(parts) else ANY)
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
    braced: set[str] | None = None
    for local in walk.body.locals:
        if local.name in meant:
            continue
        if local.role != "parameter" and local not in walk.body.read and not local.name.startswith("_"):
            text = f"variable `{local.name}` is never read"
            braced = _braced_names(walk) if braced is None else braced
            inserted = local.name in braced
            help_ = f"in text its value is written `${{{local.name}}}`" if inserted else _unread_help(local)
            walk.report("PW201", text, local.node, helps=(help_,))


def _unread_help(local: Local) -> str:
    if local.role == "error":
        return "write `catch {` when the error does not matter"
    return f"write `_{local.name}` when that is meant" if local.role == "variable" else "write `_` instead"


def _braced_names(walk: Walk) -> set[str]:
    """The names that stand in plain braces in texts of the body, where other languages insert a value."""
    declaration = walk.body.declaration
    start, end = (0, walk.module.syntax.end) if declaration is None else declaration.span
    return set(_BRACED.findall(walk.module.source.text, start, end))


def report_undefined(walk: Walk) -> None:
    """Say which names of the body are not defined, each once."""
    walk.reached_for |= walk.script_names & walk.body.undefined.keys()
    for name, use in walk.body.undefined.items():
        use.near = _meant(walk, use)
        label = f"did you mean `{use.near}`?" if use.near and name not in walk.script_names else ""
        notes = (f"used {_times(use.more)} more below",) if use.more else ()
        walk.report(
            "PW120",
            f"`{name}` is not defined",
            use.node,
            label=label,
            helps=_undefined_helps(walk, name, use),
            notes=notes,
        )


def _meant(walk: Walk, use: Undefined) -> str | None:
    """The name that is meant by one that is not defined: only a variable can be assigned to."""
    if use.near and _is_first_assignment(walk, use.node):
        variables = {local.name for local in walk.body.locals} | walk.script_names
        return use.near if use.near in variables else None
    return use.near


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _undefined_helps(walk: Walk, name: str, use: Undefined) -> tuple[str, ...]:
    if name in walk.names.types or walk.find_type(name) is not None:
        return (f"`{name}` is a type, not a value",)
    if name in walk.script_names:
        return (f"`{name}` is a variable of the script; pass it as an argument",)
    if use.in_shell or (name.isupper() and len(name) > 1 and name not in OTHER_NAMES):
        return (f'to read an environment variable write `env("{name}")`',)
    command = written_command(walk, use.node)
    if command is not None:
        return (f"to run a program write `$ {command}`",)
    if not use.near and _is_first_assignment(walk, use.node):
        return (f"to declare it, write `{_declaration(walk, name, use.node)}`",)
    return (OTHER_NAMES[name],) if name in OTHER_NAMES else ()


def written_command(walk: Walk, node: tree.Node) -> str | None:
    """The line that begins with a name, if it looks like a program with its options."""
    text = walk.module.source.text
    found = _COMMAND.match(text, node.start)
    return found[0].rstrip() if found and _begins_line(text, node.start) else None


def _is_first_assignment(walk: Walk, node: tree.Node) -> bool:
    """Whether a name begins its line and is assigned to."""
    text = walk.module.source.text
    return bool(_ASSIGNED.match(text, node.end)) and _begins_line(text, node.start)


def _declaration(walk: Walk, name: str, node: tree.Node) -> str:
    """The line that assigns to a name, as a declaration; a long one only by its beginning."""
    rest = walk.module.source.text[node.end : node.end + _FAR].partition("\n")[0].rstrip()
    value = rest.lstrip(" \t=")
    short = len(value) <= _SHORT and "#" not in value and not value.endswith(("{", "(", "["))
    return f"var {name} = {value if short and value else '…'}"


def _begins_line(text: str, at: int) -> bool:
    """Whether only blanks stand before an offset on its line, and not too many."""
    before = text[max(0, at - _FAR) : at]
    return not before.rpartition("\n")[2].strip(" \t") and (at <= _FAR or "\n" in before)
