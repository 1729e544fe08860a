"""The walk over a module: what all checks share.

One pass visits every node of a body once, in the order of the text. `Walk` holds what is known at each point and hands
each node to the handler of its kind; handlers are in `_statements.py`, `_expressions.py`,
`_chains.py`, `_text.py` and `_shell.py`, and `_check.py` puts them into one table. A handler of an
expression returns the expression's type as far as it is known, and `ANY` where it is not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

from bartack.language.checking._mail import MailUse
from bartack.language.checking._scope import (
    BUILTINS,
    Body,
    Delegated,
    ModuleScope,
    ResultUse,
    Scope,
    Undefined,
    World,
)
from bartack.language.checking._types import (
    ANY,
    ARRAY,
    NULL,
    OBJECT,
    ArrayOf,
    LiteralOf,
    MapOf,
    Record,
    Type,
    Union,
    definition_of,
    describe,
    join,
    kind_of_type,
    lacks,
    members_of,
    overlap,
)
from bartack.language.checking.program import Builtin, CheckedModule, DeclaredType, Local, Symbol
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Diagnostic, Fix, Secondary, diagnose
from bartack.language.syntax._near import OTHER_NAMES, OTHER_WORDS, nearest
from bartack.language.syntax._source import Span

Handler: TypeAlias = Callable[["Walk", Any, "Type | None"], Type]
"""Checks one node, given the type that is expected of it. `Any` because each handler takes one kind of node."""

_MOST_SUGGESTIONS = 100


class Walk:
    """Checks one module. Diagnostics are collected in `found`, meanings in the tables of `module`."""

    def __init__(
        self,
        scope: ModuleScope,
        world: World,
        handlers: dict[type[tree.Node], Handler],
        syntax_errors: list[int],
    ) -> None:
        self.module: CheckedModule = scope.module
        self.names = scope
        self.world = world
        self.found: list[Diagnostic] = []
        self.mail: list[MailUse] = []
        self.risky: list[tree.Node] = []
        self.top: Scope | None = None
        self.script_names: frozenset[str] = frozenset()
        self.reached_for: set[str] = set()
        """Names of the script that a function uses although it cannot see them."""
        self._methods: dict[tree.Trait, dict[str, tree.Declaration]] = {}
        self.received: dict[tree.Node, MailUse] = {}
        self.bodies: dict[tree.Declaration, bool] = {}
        """Whether a body has a `return` with a value, of all that were checked."""
        self.uses: list[ResultUse] = []
        self.delegated: dict[tree.Call, Delegated] = {}
        self.unused: tree.Node | None = None
        """The expression whose value the current statement does not use."""
        self.status_reads: list[int] = []
        self.specs = False
        self.spelled = False
        self.in_shell = False
        self.scope = Scope(None, 0)
        self.body = Body()
        self._handlers = handlers
        self._syntax_errors = syntax_errors
        self._suggestions = 0
        self.assigned = assigned_names(scope.module.source.text)

    # Reporting

    def report(
        self,
        code: str,
        message: str,
        at: tree.Node | Span,
        *,
        label: str = "",
        helps: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        secondary: tuple[Secondary, ...] = (),
        fix: Fix | None = None,
    ) -> None:
        """Say something about a place of this module."""
        span = at if isinstance(at, Span) else at.span
        self.found.append(
            diagnose(
                code,
                message,
                self.module.path,
                span,
                label=label,
                helps=helps,
                notes=notes,
                secondary=secondary,
                fix=fix,
            )
        )

    def is_sound(self, start: int, end: int) -> bool:
        """Whether the text between two offsets has no syntax errors, so that nothing of it was lost."""
        at = bisect_left(self._syntax_errors, start)
        return at >= len(self._syntax_errors) or self._syntax_errors[at] > end

    def reported_in(self, start: int, end: int) -> bool:
        """Whether an error is already known between two offsets, so that one mistake is reported once."""
        # The text is walked in its order: reports about this place are the last ones.
        for one in reversed(self.found):
            if one.span.start < start:
                break
            if one.span.start <= end and one.severity == "error":
                return True
        return not self.is_sound(start, end)

    def suggest(self, name: str, known: Iterable[str]) -> str | None:
        """The nearest of some names; nothing once a file has had many, since that takes time."""
        if self._suggestions >= _MOST_SUGGESTIONS:
            return None
        self._suggestions += 1
        return nearest(name, known)

    def fits(self, expected: Type, found: Type, at: tree.Node) -> bool:
        """Whether a value of one type may be of another; says so when not."""
        if expected is ANY or found is ANY or overlap(expected, found):
            return True
        for wanted, seen, place in _misfits(expected, found, at):
            text = f"expected `{describe(wanted)}`, found `{found_name(wanted, seen)}`"
            self.report("PW141", text, place)
        return False

    # Visiting

    def expression(self, node: tree.Node, expected: Type | None = None) -> Type:
        """Check an expression, or a part of text, and give its type."""
        return self._handlers[type(node)](self, node, expected)

    def statement(self, node: tree.Node) -> None:
        """Check a statement."""
        self._handlers[type(node)](self, node, None)

    # Scopes

    def enter(self) -> Scope:
        """Begin a scope inside the current one."""
        self.scope = Scope(self.scope, self.body.do_depth)
        return self.scope

    def leave(self) -> None:
        """End the current scope."""
        assert self.scope.parent is not None
        self.scope = self.scope.parent

    def declare(self, local: Local, kind: Type) -> None:
        """Make a variable known in the current scope."""
        name = local.name
        if name in {"", "_"}:
            return
        self.module.names[local.node] = local
        self.scope.pending.discard(name)
        before = self._before(name)
        if before is not None:
            self.declared_twice(name, local.node, before)
            self.body.read.update(one for one in (self.scope.names.get(name),) if one is not None)
        local.number = self.body.numbers.get(name, 0)
        self.body.numbers[name] = local.number + 1
        self.scope.names[name] = local
        self.body.locals.append(local)
        if before is not None or name in self.body.early:
            self.body.read.add(local)
        self.body.kinds[local] = ANY if name in self.assigned else shallow(kind)

    def _before(self, name: str) -> tree.Node | None:
        """Where a name is already declared in the current scope; the top of a module shares its declarations."""
        local = self.scope.names.get(name)
        if local is not None:
            return local.node
        if self.scope is not self.top:
            return None
        declared = self.names.declared.get(name)
        bound = self.names.imports.get(name)
        return declared.node.name if declared is not None else bound.node if bound is not None else None

    def methods_of(self, trait: tree.Trait) -> dict[str, tree.Declaration]:
        """The methods of a trait by name."""
        known = self._methods.get(trait)
        if known is None:
            methods = (method for method in trait.methods if isinstance(method, tree.Declaration))
            known = self._methods[trait] = {
                method.name.name: method for method in methods if method.name.name
            }
        return known

    def declared_twice(self, name: str, again: tree.Node, first: tree.Node) -> None:
        """Say that a name is declared twice in a scope."""
        self.report(
            "PW121",
            f"`{name}` is already declared here",
            again,
            label="declared again",
            secondary=(Secondary(first.span, "first declared here"),),
        )

    # Names

    def find(self, name: str) -> Symbol | None:
        """What a name means at this point, without saying or counting anything."""
        for scope in self.scope.outward():
            if name in scope.names:
                return scope.names[name]
        bound = self.names.imports.get(name)
        return self.names.declared.get(name) or (bound.symbol if bound else None) or BUILTINS.get(name)

    def find_type(self, name: str) -> DeclaredType | None:
        """The declared type with this name at this point."""
        for scope in self.scope.outward():
            if name in scope.types:
                return scope.types[name]
        return self.names.type(name)

    def use(self, name: str, node: tree.Node, *, reads: bool = True) -> Symbol | None:
        """Look a name up where it is used, and say when it is not defined or too early."""
        scope: Scope | None = self.scope
        while scope is not None:
            local = scope.names.get(name)
            if local is not None:
                if reads:
                    self.body.read.add(local)
                if self.body.do_depth > scope.do_depth:
                    local.shared = True
                self.module.names[node] = local
                return local
            if name in scope.pending:
                self._too_early(name, node)
                return None
            scope = scope.parent
        symbol = self.names.value(name)
        if symbol is None or isinstance(symbol, DeclaredType):
            self._undefined(name, node)
            return None
        self.module.names[node] = symbol
        return symbol

    def _too_early(self, name: str, node: tree.Node) -> None:
        if name not in self.body.early:
            self.body.early.add(name)
            self.report("PW122", f"`{name}` is used before its `var`", node)

    def _undefined(self, name: str, node: tree.Node) -> None:
        if not name:
            return
        known = self.body.undefined.get(name)
        if known is not None:
            known.more += 1
            return
        near = OTHER_WORDS.get(name) or (None if name in OTHER_NAMES else self.suggest(name, self._visible()))
        self.body.undefined[name] = Undefined(node, self.in_shell, near)

    def _visible(self) -> Iterable[str]:
        for scope in self.scope.outward():
            yield from scope.names
        yield from self.names.declared
        yield from self.names.imports
        yield from BUILTINS
        yield from ("true", "false", "null", "self")

    def kind_of(self, symbol: Symbol) -> Type:
        """The type of a variable or of a value of the library."""
        if isinstance(symbol, Local):
            return self.body.kinds.get(symbol, ANY)
        return ARRAY if isinstance(symbol, Builtin) else ANY

    def shape_of(self, symbol: Symbol) -> Type:
        """The type of a variable with what is inside it, as far as a written type says so and nothing changes it."""
        if isinstance(symbol, Local) and symbol.type is not None and symbol.name not in self.assigned:
            return symbol.type
        return self.kind_of(symbol)

    def may_change(self, field: str) -> bool:
        """Whether some module of the program assigns to a field of this name, or to one with a computed name."""
        return field in self.world.assigned or COMPUTED in self.world.assigned


COMPUTED = "]"
"""Stands among assigned names for an assignment to an element or a field with a computed name."""


def assigned_names(text: str) -> set[str]:
    """Every name that may be assigned to somewhere in a text, and maybe more.

    Looks at the text alone, so that it is known before the first use of a variable; `var x = 1` does not count.
    """
    found: set[str] = set()
    for sign in ("=", "++", "--"):
        at = text.find(sign)
        while at >= 0:
            name = _assigned_before(text, at, sign)
            if name:
                found.add(name)
            at = text.find(sign, at + len(sign))
    return found


def _assigned_before(text: str, at: int, sign: str) -> str:
    """The name before an assignment sign, unless it is a comparison or a declaration."""
    end = at
    if sign == "=":
        if text.startswith("=", at + 1) or text[at - 1 : at] in _COMPARING:
            return ""
        if text[at - 1 : at] in _COMPOUND:
            end -= 1
    while text[end - 1 : end] in _BLANKS:
        end -= 1
    if text[end - 1 : end] == COMPUTED:
        return COMPUTED
    start = end
    while start and (text[start - 1] == "_" or text[start - 1].isalnum()):
        start -= 1
    declared = text[max(start - 8, 0) : start].rstrip().endswith("var")
    return "" if declared else text[start:end]


_COMPARING = frozenset("=!<>")
_COMPOUND = frozenset("+-*/%")
_BLANKS = frozenset(" \t")


def shallow(kind: Type) -> Type:
    """What stays true of a variable's value while the program changes what is inside it."""
    kind = definition_of(kind)
    if isinstance(kind, ArrayOf):
        return ARRAY
    if isinstance(kind, (MapOf, Record)):
        return OBJECT
    if isinstance(kind, Union):
        return Union(tuple(dict.fromkeys(shallow(member) for member in members_of(kind))))
    return kind


def _misfits(expected: Type, found: Type, at: tree.Node) -> Iterator[tuple[Type, Type, tree.Node]]:
    """The innermost places of a value that is written out where something does not fit."""
    inner = tree.bare(cast("tree.Expression", at))
    wanted = definition_of(expected)
    parts: list[tuple[Type, Type, tree.Node]] = []
    if isinstance(inner, tree.Array) and isinstance(found, ArrayOf) and isinstance(wanted, ArrayOf):
        nodes = [element for element in inner.elements if not isinstance(element, tree.Spread)]
        parts = [(wanted.element, part, node) for part, node in zip(found.parts, nodes, strict=True)]
    elif isinstance(inner, tree.Object) and isinstance(found, Record) and not lacks(found, wanted):
        parts = list(_field_parts(wanted, found, inner))
    wrong = [part for part in parts if not overlap(part[0], part[1])]
    if not wrong:
        yield expected, found, at
    for part in wrong:
        yield from _misfits(*part)


def _field_parts(wanted: Type, found: Record, node: tree.Object) -> Iterator[tuple[Type, Type, tree.Node]]:
    """What is wanted of each field that is written out, and what it is."""
    values = {field.key.name: field.value for field in node.fields if isinstance(field, tree.ObjectField)}
    for field in found.fields:
        kind = field_type(wanted, field.name)
        if kind is not None:
            yield kind, field.type, values[field.name]


def field_type(kind: Type, name: str) -> Type | None:
    """What is known of a field of an object of this type; None when it says nothing of it."""
    kind = definition_of(kind)
    if isinstance(kind, MapOf):
        return None if kind.value is ANY else kind.value
    if isinstance(kind, Record):
        found = next((field for field in kind.fields if field.name == name), None)
        if found is None:
            return None
        return Union((found.type, NULL)) if found.optional else found.type
    if not isinstance(kind, Union):
        return None
    kinds = [field_type(member, name) for member in members_of(kind)]
    return None if None in kinds else join([one for one in kinds if one is not None])


def found_name(expected: Type, found: Type) -> str:
    """How a message names what was found: a literal by its kind, unless only its value is wrong."""
    if isinstance(found, LiteralOf):
        kinds = [kind_of_type(member) for member in members_of(expected)]
        kind = kind_of_type(found)
        if kind is not None and kind not in kinds:
            return kind.name
    return describe(found)


def is_known(kind: Type) -> bool:
    """Whether anything is known of a type."""
    return definition_of(kind) is not ANY


def may_be(kind: Type, *others: Type) -> bool:
    """Whether a value of a type may be of one of the others."""
    return any(overlap(kind, other) for other in others)
