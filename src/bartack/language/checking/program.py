"""A checked program: its modules, and what every name, call, type and prompt in them means.

Owns the shape of what the checker hands to the compiler; `_check.py` fills it in. All tables are keyed by node, and
nodes compare by identity. A node that is missing from a table has no such meaning: it is wrong and has been reported.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from bartack.language.checking._types import Type
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._diagnostics import Diagnostic
from bartack.language.syntax._source import Source


class Local(msgspec.Struct, eq=False, gc=False):
    """A variable of a body: a parameter, or bound by `var`, `for` or `catch`.

    `number` distinguishes variables of the same name in one body: 0 for the first, then 1, 2, ... `type` is the
    written type, if there is one. `shared` when a do-block uses it from outside of itself. `node` is the identifier
    or key that declares it.
    """

    name: str
    role: Literal["parameter", "variable", "loop", "error"]
    node: tree.Identifier | tree.Key
    number: int = 0
    type: Type | None = None
    shared: bool = False


class Declared(msgspec.Struct, frozen=True, eq=False):
    """A worker, skill or fun of a module, or a method of a trait; `trait` is None but for methods."""

    module: str
    node: tree.Declaration
    trait: tree.Trait | None = None

    @property
    def name(self) -> str:
        """The name as it is declared."""
        return self.node.name.name


class DeclaredTrait(msgspec.Struct, frozen=True, eq=False):
    """A trait of a module."""

    module: str
    node: tree.Trait

    @property
    def name(self) -> str:
        """The name as it is declared."""
        return self.node.name.name


class DeclaredType(msgspec.Struct, frozen=True, eq=False):
    """A declared type, of a module or of a body."""

    module: str
    node: tree.TypeDeclaration
    type: Type

    @property
    def name(self) -> str:
        """The name as it is declared."""
        return self.node.name.name


class Namespace(msgspec.Struct, frozen=True, eq=False):
    """An imported module under its last word; the library itself when `module` is `std`."""

    module: str
    name: str


class Builtin(msgspec.Struct, frozen=True, eq=False):
    """A function of the library, or its value `args`."""

    name: str


Symbol: TypeAlias = Local | Declared | DeclaredTrait | DeclaredType | Namespace | Builtin
Callee: TypeAlias = Declared | Builtin

How: TypeAlias = Literal["call", "start", "spec"]
"""`call` runs in the caller's worker, `start` starts one child and waits for it, `spec` only says what to start."""


class Called(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What is called, and how."""

    callee: Callee
    how: How


class CheckedModule(msgspec.Struct, eq=False):
    """One file of a program.

    Attributes:
        id: The path from the project root without suffix, `lib/a`.
        path: The same with suffix, as messages show it.
        source: The text.
        syntax: What it was parsed into.
        names: What a name refers to: of `Name`, `Variable`, and every `Identifier` or `Key` that declares a local.
        members: What `ns.x` and `ns.default` refer to, and `self.m` in a trait, by the `Member`.
        calls: What a `Call` calls, where that is a declaration or a function of the library: also for `ns(…)`, `ns.x(…)`,
            `self.m(…)` and `std.log(…)`. Calls of members of values and of `self.delegate` are not in it.
        functions: The same for functions that are passed by name, by the expression: the `f` of `xs.map(f)` and
            of `xs | f`.
        types: Every written type.
        prompts: What each prompt is expected to answer; `string` unless something else is known.
        may_decline: Prompts that fall through to the next operand of `||` when they are unanswered.
        may_fail: Shell statements and captures whose failure does not throw: a statement whose status is read by
            the next one; a capture as a condition, under `!`, or left of `||` or `&&`, which is null then.
        comparisons: `ReadFile`s that compare, because their reader is declared by the program.
        restarts: Calls of `restart`, with the worker that each restarts.
    """

    id: str
    path: str
    source: Source
    syntax: tree.Module
    names: dict[tree.Node, Symbol] = {}
    members: dict[tree.Member, Symbol] = {}
    calls: dict[tree.Call, Called] = {}
    functions: dict[tree.Node, Called] = {}
    types: dict[tree.Node, Type] = {}
    prompts: dict[tree.Prompt, Type] = {}
    may_decline: set[tree.Prompt] = set()
    may_fail: set[tree.Node] = set()
    comparisons: set[tree.ReadFile] = set()
    restarts: dict[tree.Call, tree.Declaration] = {}


class Program(msgspec.Struct, eq=False):
    """All modules that can be reached from the entry, which is the first, in the order of their imports."""

    modules: tuple[CheckedModule, ...]

    @property
    def entry(self) -> CheckedModule:
        """The module the program starts with."""
        return self.modules[0]

    def module(self, name: str) -> CheckedModule:
        """The module with this id."""
        return next(module for module in self.modules if module.id == name)


class Checked(msgspec.Struct, frozen=True, eq=False):
    """A program and everything that is to be said about it, in the order of its modules and of their text."""

    program: Program
    diagnostics: tuple[Diagnostic, ...]


class EntryPoint(msgspec.Struct, frozen=True, eq=False):
    """Where a run starts.

    `script` when the statements of the entry module are what runs; else the declaration in `declared`, or several of
    them, which are delegated together.
    """

    script: bool
    declared: tuple[Declared, ...] = ()
