"""Types as they are written: what their names mean, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable

from bartack.language.checking._types import (
    ANY,
    BUILT_IN,
    NULL,
    ArrayOf,
    Field,
    LiteralOf,
    MapOf,
    Named,
    Record,
    Type,
    Union,
)
from bartack.language.checking._walk import Walk
from bartack.language.checking.program import DeclaredType, Namespace
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._near import OTHER_TYPES
from bartack.language.syntax.docs import read_doc


def declare_type(walk: Walk, node: tree.TypeDeclaration) -> DeclaredType:
    """Make a declared type, to be defined once all names are known."""
    named = Named(node.name.name, walk.module.id, read_doc(node.doc).text)
    return DeclaredType(walk.module.id, node, named)


def define_types(walk: Walk, declared: Iterable[DeclaredType]) -> None:
    """Give declared types their definitions, and report those that have no structure."""
    kinds = list(declared)
    for one in kinds:
        if isinstance(one.type, Named):
            one.type.definition = resolve(walk, one.node.type)
    for one in _hollow(kinds):
        walk.report("PW134", f"`{one.name}` is defined only by itself", one.node.name)


def _hollow(declared: list[DeclaredType]) -> list[DeclaredType]:
    """The types that lead back to themselves through names and unions alone.

    Takes away, again and again, what refers to nothing left, and what nothing left refers to.
    """
    mine = {id(one.type) for one in declared}
    outward = {id(one.type): [at for at in _references(one.type) if at in mine] for one in declared}
    left = _peeled(_peeled(outward, _reversed(outward)), None)
    return [one for one in declared if id(one.type) in left]


def _reversed(edges: dict[int, list[int]]) -> dict[int, list[int]]:
    back: dict[int, list[int]] = {node: [] for node in edges}
    for node, targets in edges.items():
        for target in targets:
            back[target].append(node)
    return back


def _peeled(edges: dict[int, list[int]], back: dict[int, list[int]] | None) -> dict[int, list[int]]:
    """The graph without nodes from which no endless path starts; turned round when `back` is None."""
    if back is None:
        edges, back = _reversed(edges), edges
    degree = {node: len(targets) for node, targets in edges.items()}
    ended = [node for node, count in degree.items() if not count]
    for node in ended:
        for source in back[node]:
            degree[source] -= 1
            if not degree[source]:
                ended.append(source)
    gone = set(ended)
    return {
        node: [target for target in targets if target not in gone]
        for node, targets in edges.items()
        if node not in gone
    }


def _references(kind: Type) -> list[int]:
    """The declared types that a declared type consists of, without anything around them."""
    waiting = [kind.definition] if isinstance(kind, Named) and kind.definition is not None else []
    found: list[int] = []
    while waiting:
        part = waiting.pop()
        if isinstance(part, Named):
            found.append(id(part))
        elif isinstance(part, Union):
            waiting.extend(part.members)
    return found


def resolve(walk: Walk, node: tree.Type) -> Type:
    """The type that is written here; `ANY` for what is wrong, which is reported."""
    kind = _RESOLVERS[type(node)](walk, node)
    walk.module.types[node] = kind
    return kind


def _named(walk: Walk, node: tree.Node) -> Type:
    assert isinstance(node, tree.NamedType)
    names = [name.name for name in node.names]
    argument = resolve(walk, node.argument) if node.argument is not None else None
    if "" in names or not names:
        return ANY
    if len(names) > 1:
        return _member(walk, node, names)
    declared = walk.find_type(names[0])
    if declared is not None:
        return declared.type if argument is None else _unknown(walk, node, names[0], generic=True)
    built_in = BUILT_IN.get(names[0])
    if built_in is None and walk.names.is_lost(names[0]):
        return ANY
    if built_in is None:
        return _unknown(walk, node, names[0], generic=False)
    return built_in if argument is None else _generic(walk, node, names[0], argument)


def _generic(walk: Walk, node: tree.NamedType, name: str, argument: Type) -> Type:
    if name == "array":
        return ArrayOf(argument)
    return MapOf(argument) if name == "object" else _unknown(walk, node, name, generic=True)


def _unknown(walk: Walk, node: tree.NamedType, name: str, *, generic: bool) -> Type:
    shown = f"{name}<…>" if generic or node.argument is not None else name
    known = (*BUILT_IN, *walk.names.types, *walk.names.imports)
    near = OTHER_TYPES.get(name) or (None if generic else walk.suggest(name, known))
    label = f"did you mean `{near}`?" if near else ""
    walk.report("PW133", f"unknown type `{shown}`", node, label=label)
    return ANY


def _member(walk: Walk, node: tree.NamedType, names: list[str]) -> Type:
    bound = walk.names.imports.get(names[0])
    if len(names) > 2 or bound is None or not isinstance(bound.symbol, Namespace):
        walk.report("PW133", f"unknown type `{'.'.join(names)}`", node)
        return ANY
    bound.used = True
    scope = walk.world.scopes.get(bound.symbol.module)
    if scope is None:
        return ANY
    found = scope.shown(names[1])
    if isinstance(found, DeclaredType) and node.argument is None:
        return found.type
    if scope.may_show(names[1]):
        return ANY
    helps = (f"write `export type {names[1]} = …` there",) if names[1] in scope.types else ()
    near = walk.suggest(names[1], scope.shown_names())
    label = f"did you mean `{near}`?" if near else ""
    text = f"`{names[0]}` has no visible type `{names[1]}`"
    walk.report("PW126", text, node.names[1], label=label, helps=helps)
    return ANY


def _literal(_walk: Walk, node: tree.Node) -> Type:
    assert isinstance(node, tree.LiteralType)
    return NULL if node.value is None else LiteralOf(node.value)


def _array(walk: Walk, node: tree.Node) -> Type:
    assert isinstance(node, tree.ArrayType)
    return ArrayOf(resolve(walk, node.element))


def _object(walk: Walk, node: tree.Node) -> Type:
    assert isinstance(node, tree.ObjectType)
    fields: dict[str, Field] = {}
    for field in node.fields:
        if field.key.name in fields:
            walk.report("PW223", f"key `{field.key.name}` is given twice, the last wins", field.key)
        kind = resolve(walk, field.type)
        fields[field.key.name] = Field(field.key.name, kind, field.optional)
    return Record(tuple(fields.values()))


def _union(walk: Walk, node: tree.Node) -> Type:
    assert isinstance(node, tree.UnionType)
    return Union(tuple(resolve(walk, member) for member in node.members))


def _paren(walk: Walk, node: tree.Node) -> Type:
    assert isinstance(node, tree.ParenType)
    return resolve(walk, node.type)


def _function(walk: Walk, node: tree.Node) -> Type:
    text = "unknown type `fun(…) -> …`: functions are not values"
    walk.report("PW133", text, node)
    return ANY


def _error(_walk: Walk, _node: tree.Node) -> Type:
    return ANY


_RESOLVERS = {
    tree.NamedType: _named,
    tree.LiteralType: _literal,
    tree.ArrayType: _array,
    tree.ObjectType: _object,
    tree.UnionType: _union,
    tree.ParenType: _paren,
    tree.FunctionType: _function,
    tree.Error: _error,
}
