"""Chains: names and modules with members, calls and indexes after them."""

from __future__ import annotations

from bartack.language.checking._delegate import make_spec
from bartack.language.checking._expressions import not_a_value
from bartack.language.checking._functions import call_function, check_freely, namespace_main, namespace_member
from bartack.language.checking._members import follow
from bartack.language.checking._results import note_uses
from bartack.language.checking._self import library_mail, self_chain
from bartack.language.checking._types import ANY, Type
from bartack.language.checking._walk import Handler, Walk
from bartack.language.checking.program import (
    Builtin,
    Declared,
    DeclaredTrait,
    DeclaredType,
    Local,
    Namespace,
    Symbol,
)
from bartack.language.syntax import _tree as tree


def _chain(walk: Walk, node: tree.Chain, expected: Type | None) -> Type:
    base = node.base
    if all(isinstance(link, tree.AwaitMember) for link in node.links):
        return walk.expression(base, expected)
    if isinstance(base, tree.SelfValue):
        kind = self_chain(walk, node)
    elif isinstance(base, tree.Name):
        kind = _name_chain(walk, node, base)
    else:
        kind = follow(walk, node, 0, walk.expression(base))
    note_uses(walk, node)
    return kind


def _name_chain(walk: Walk, node: tree.Chain, base: tree.Name) -> Type:
    first = node.links[0]
    symbol = walk.use(base.name, base)
    if isinstance(symbol, Namespace):
        return _namespace_chain(walk, node, base, symbol)
    if isinstance(symbol, Declared) or (isinstance(symbol, Builtin) and symbol.name != "args"):
        if isinstance(first, tree.Call):
            return follow(walk, node, 1, _call(walk, node, symbol, first, base.name))
        not_a_value(walk, base, f"`{base.name}` is a function")
        return follow(walk, node, 0, ANY)
    if isinstance(symbol, DeclaredTrait):
        not_a_value(walk, base, f"`{base.name}` is a trait")
        return follow(walk, node, 0, ANY)
    if isinstance(symbol, Local) and isinstance(first, tree.Call):
        return _called_variable(walk, node, base, first)
    return follow(walk, node, 0, ANY if symbol is None else walk.shape_of(symbol))


def _called_variable(walk: Walk, node: tree.Chain, base: tree.Name, call: tree.Call) -> Type:
    helps: tuple[str, ...] = ()
    hidden = walk.names.value(base.name)
    if hidden is not None:
        helps = (f"the variable hides the function `{base.name}`; give it another name",)
    walk.report("PW141", f"`{base.name}` is a variable; it cannot be called", base, helps=helps)
    check_freely(walk, call.arguments)
    return follow(walk, node, 1, ANY)


def _call(walk: Walk, node: tree.Chain, symbol: Declared | Builtin, call: tree.Call, name: str) -> Type:
    if isinstance(symbol, Builtin) and symbol.name == "spec":
        return make_spec(walk, symbol, call)
    before = walk.specs
    kind = call_function(walk, symbol, call, name, spelled=bool(node.spelled) or walk.spelled)
    walk.specs = before
    if isinstance(symbol, Builtin):
        library_mail(walk, symbol.name, call)
    return kind


# Modules


def _namespace_chain(walk: Walk, node: tree.Chain, base: tree.Name, symbol: Namespace) -> Type:
    first = node.links[0]
    if isinstance(first, tree.Call):
        callee = namespace_main(walk, symbol, base)
        if callee is None:
            check_freely(walk, first.arguments)
            return follow(walk, node, 1, ANY)
        return follow(walk, node, 1, _call(walk, node, callee, first, base.name))
    if not isinstance(first, tree.Member):
        not_a_value(walk, base, f"`{base.name}` is a module")
        return follow(walk, node, 0, ANY)
    found = namespace_member(walk, base, first)
    name = f"{base.name}.{first.name.name}"
    second = node.links[1] if len(node.links) > 1 else None
    if isinstance(found, (Declared, Builtin)) and isinstance(second, tree.Call):
        return follow(walk, node, 2, _call(walk, node, found, second, first.name.name))
    if found is not None and not _is_args(found):
        sort = "type" if isinstance(found, DeclaredType) else "function"
        not_a_value(walk, base, f"`{name}` is a {sort}")
    elif isinstance(second, tree.Call):
        check_freely(walk, second.arguments)
        return follow(walk, node, 2, ANY)
    return follow(walk, node, 1, ANY)


def _is_args(symbol: Symbol) -> bool:
    return isinstance(symbol, Builtin) and symbol.name == "args"


HANDLERS: dict[type[tree.Node], Handler] = {tree.Chain: _chain}
