"""Names: what a module declares and shows, and which local variables are visible where.

Owns scopes and lookup. Reporting is left to those who look up.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bartack.language.checking._library import NAMES, Signature
from bartack.language.checking._types import Type
from bartack.language.checking.program import (
    Builtin,
    CheckedModule,
    Declared,
    DeclaredTrait,
    DeclaredType,
    Local,
    Namespace,
    Symbol,
)
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._source import Span

BUILTINS = {name: Builtin(name) for name in NAMES}
"""The names every program has."""


class BoundImport(msgspec.Struct, eq=False):
    """A name that an import binds, where it does, and whether anything uses it."""

    symbol: Symbol
    node: tree.Identifier
    used: bool = False


class ModuleScope(msgspec.Struct, eq=False):
    """The names of a module: what it declares, and what its imports bind. Types have names of their own.

    A `broken` module has syntax errors: it may have meant to declare more.
    """

    module: CheckedModule
    broken: bool = False
    declared: dict[str, Declared | DeclaredTrait] = {}
    types: dict[str, DeclaredType] = {}
    imports: dict[str, BoundImport] = {}
    default: Declared | DeclaredTrait | None = None

    def value(self, name: str) -> Symbol | None:
        """What a name means as a value, outside of bodies."""
        found = self.declared.get(name)
        if found is not None:
            return found
        bound = self.imports.get(name)
        if bound is not None:
            bound.used = True
            return bound.symbol
        return BUILTINS.get(name)

    def type(self, name: str) -> DeclaredType | None:
        """The declared type with this name."""
        found = self.types.get(name)
        if found is None and name in self.imports:
            symbol = self.imports[name].symbol
            if isinstance(symbol, DeclaredType):
                self.imports[name].used = True
                return symbol
        return found

    def is_lost(self, name: str) -> bool:
        """Whether a name comes from an import that led nowhere, which has been reported."""
        bound = self.imports.get(name)
        return bound is not None and isinstance(bound.symbol, Namespace) and not bound.symbol.module

    def shown(self, name: str) -> Declared | DeclaredTrait | DeclaredType | None:
        """What other modules see under a name: workers, skills and traits always, the others when exported."""
        found = self.declared.get(name) or self.types.get(name)
        if found is None or (_is_hidden(found)):
            return None
        return found

    def may_show(self, name: str) -> bool:
        """Whether a name that is not shown may have been lost in text that made no sense."""
        return self.broken and name not in self.declared and name not in self.types

    def shown_names(self) -> list[str]:
        """Every name other modules see."""
        return [name for name in (*self.declared, *self.types) if self.shown(name)]

    def main(self) -> Declared | DeclaredTrait | None:
        """What a call of the module itself means: its default export, else what is named like the module."""
        if self.default is not None:
            return self.default
        found = self.shown(self.module.id.rpartition("/")[2])
        return found if isinstance(found, Declared) else None


def _is_hidden(found: Declared | DeclaredTrait | DeclaredType) -> bool:
    if isinstance(found, Declared):
        return found.node.word == "fun" and not (found.node.export or found.node.default)
    return isinstance(found, DeclaredType) and not found.node.export


class World(msgspec.Struct, eq=False):
    """All modules of a program with their names, and the signatures of all declarations."""

    scopes: dict[str, ModuleScope] = {}
    signatures: dict[tree.Declaration, Signature] = {}
    assigned: set[str] = set()
    """Every name of a variable or field that may be assigned to in some module."""


class Scope:
    """The variables and types of one block.

    `pending` are variables that a later statement of the block declares. `do_depth` is how many do-blocks it is in.
    """

    __slots__ = ("do_depth", "names", "parent", "pending", "types")

    def __init__(self, parent: Scope | None, do_depth: int) -> None:
        self.parent = parent
        self.do_depth = do_depth
        self.names: dict[str, Local] = {}
        self.types: dict[str, DeclaredType] = {}
        self.pending: set[str] = set()

    def outward(self) -> Iterator[Scope]:
        """This scope and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class Undefined(msgspec.Struct, eq=False):
    """A name that is not defined: where it is used first in a body, how, and how often after that."""

    node: tree.Node
    in_shell: bool
    near: str | None
    more: int = 0


class ResultUse(msgspec.Struct, frozen=True, eq=False):
    """A place where results are used: of one function, or of several workers of which at least one must return one."""

    callees: tuple[Declared, ...]
    span: Span


class Delegated(msgspec.Struct, frozen=True, eq=False):
    """The workers of a delegate, None for one that is not known; `exact` when each runs once, in this order."""

    callees: tuple[Declared | None, ...]
    exact: bool


class Body(msgspec.Struct, eq=False):
    """What is known while a body is checked: of a declaration, of a script, or of the top of the entry module."""

    declaration: tree.Declaration | None = None
    trait: tree.Trait | None = None
    result: Type | None = None
    methods: dict[str, tree.Declaration] = {}
    numbers: dict[str, int] = {}
    locals: list[Local] = []
    read: set[Local] = set()
    kinds: dict[Local, Type] = {}
    early: set[str] = set()
    undefined: dict[str, Undefined] = {}
    returns: bool = False
    do_depth: int = 0
    loops: int = 0
    loops_outside: int = 0
