"""Types as Python expressions: simple ones by name, all others as constants of the module.

Declared types may be recursive and used across modules: they have a key in the program, and the module that declares
one defines it under that key.
"""

from __future__ import annotations

import ast
from typing import assert_never

from bartack.language.checking._types import (
    BUILT_IN,
    ArrayOf,
    Field,
    LiteralOf,
    MapOf,
    Named,
    Record,
    Scalar,
    Type,
    Union,
)
from bartack.language.compiling._nodes import Maker
from bartack.language.syntax import _tree as tree


class Keys:
    """The keys of the declared types of a program."""

    def __init__(self) -> None:
        self._keys: dict[Named, str] = {}
        self._taken: dict[str, int] = {}

    def of(self, named: Named) -> str:
        """The key of a declared type."""
        key = self._keys.get(named)
        if key is None:
            plain = f"{named.module}:{named.name}"
            count = self._taken[plain] = self._taken.get(plain, 0) + 1
            key = self._keys[named] = plain if count == 1 else f"{plain}#{count}"
        return key

    @property
    def known(self) -> list[Named]:
        """The declared types that were met."""
        return list(self._keys)


class TypeTable:
    """The types of one module."""

    def __init__(self, make: Maker, keys: Keys, top: tree.Node) -> None:
        self._make = make
        self._keys = keys
        self._top = top
        self._names: dict[int, str] = {}
        self._written: dict[str, str] = {}
        self._taken: set[str] = set()
        self._kept: list[Type] = []
        self.constants: list[ast.stmt] = []

    def reference(self, node: tree.Node, kind: Type) -> ast.expr:
        """An expression for a type: a name of the language, or of a constant of the module."""
        if isinstance(kind, Scalar) and kind.name in BUILT_IN:
            return self._make.constant(node, kind.name)
        name = self._names.get(id(kind))
        if name is None:
            name = self._names[id(kind)] = self._constant(kind)
            self._kept.append(kind)
        return self._make.name(node, name)

    def _constant(self, kind: Type) -> str:
        """The name of a constant for a type; equal types have the same."""
        made = self._structure(kind)
        written = ast.dump(made)
        name = self._written.get(written)
        if name is None:
            name = f"type_{kind.name}" if isinstance(kind, Named) else f"type_{len(self._written) + 1}"
            while name in self._taken:
                name = f"{name}_"
            self._taken.add(name)
            self._written[written] = name
            self.constants.append(self._make.assign(self._top, name, made))
        return name

    def define(self, named: Named) -> ast.stmt:
        """The definition of a declared type of this module."""
        make, top = self._make, self._top
        definition = self.reference(top, named.definition) if named.definition is not None else None
        description = make.constant(top, named.description) if named.description else None
        key = make.constant(top, self._keys.of(named))
        function = make.name(top, "rt_define")
        return make.expression(
            top,
            make.call(
                top, function, [key, definition or make.constant(top, "any")], {"description": description}
            ),
        )

    def _structure(self, kind: Type) -> ast.expr:
        make, top = self._make, self._top
        made: ast.expr
        match kind:
            case Scalar():
                made = make.constant(top, kind.name)
            case Named():
                made = self._call("rt_named", make.constant(top, self._keys.of(kind)))
            case LiteralOf():
                made = self._call("rt_literal", make.constant(top, kind.value))
            case ArrayOf():
                made = self._call("rt_array", self.reference(top, kind.element))
            case MapOf():
                made = self._call("rt_map", self.reference(top, kind.value))
            case Union():
                made = self._call("rt_union", *(self.reference(top, member) for member in kind.members))
            case Record():
                made = self._call("rt_record", *map(self._field, kind.fields))
            case _:
                assert_never(kind)
        return made

    def _field(self, field: Field) -> ast.expr:
        make, top = self._make, self._top
        parts = [make.constant(top, field.name), self.reference(top, field.type)]
        return make.tupled(top, [*parts, make.constant(top, field.optional)])

    def _call(self, name: str, *arguments: ast.expr) -> ast.expr:
        return self._make.call(self._top, self._make.name(self._top, name), arguments)
