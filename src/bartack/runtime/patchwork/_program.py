"""A Patchwork program in memory: its modules compiled and executed, its declarations by name and by function.

Executing a module only defines functions and registers them here. What a declaration does when it runs is in ``_runtime.py``;
``_load.py`` finds the sources.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Final, NamedTuple, cast

import msgspec

from bartack.errors import TypeMismatchError
from bartack.language import types

SCRIPT: Final = "<script>"
"""The name of what runs when the statements of a module do."""
MAIN: Final = "main"
"""The path of a worker that is not declared as one: a script, a fun, a skill, a method, several workers together."""

Function = Callable[..., object]


class NotGiven:
    """Stands for an argument that was not given."""


MISSING: Final = NotGiven()


class Declaration(msgspec.Struct, frozen=True, eq=False):
    """A function of the program, with the types of its annotations."""

    module: str
    name: str
    word: str
    function: Function
    params: list[str]
    required: int
    agent: str = ""
    timeout_s: float | None = None
    once: bool = False

    @property
    def site(self) -> str:
        """Where its steps stand: lines may change, this does not."""
        return f"{self.module}:{self.name}"

    def check_count(self, count: int) -> None:
        """Raise unless the function takes this number of arguments."""
        if not self.required <= count <= len(self.params):
            raise TypeMismatchError(
                f"{self.name}()", f"{self.required} to {len(self.params)} arguments", str(count)
            )


class Unit(NamedTuple):
    """One module of a program, ready to be executed."""

    id: str
    path: str
    text: str
    code: CodeType


def renamed(code: CodeType, filename: str) -> CodeType:
    """Code, with all functions in it, that names another file as its source."""
    constants = tuple(
        renamed(constant, filename) if isinstance(constant, CodeType) else constant
        for constant in code.co_consts
    )
    return code.replace(co_filename=filename, co_consts=constants)


class PatchworkProgram:
    """The declarations of a program, in this process."""

    def __init__(self, units: Iterable[Unit], folder: str = "") -> None:
        self._spaces: dict[str, dict[str, object]] = {}
        self._declarations: dict[Function, Declaration] = {}
        self._named: dict[tuple[str, str], Declaration] = {}
        self._types: dict[str, types.Named] = {}
        self.files: dict[str, str] = {}
        """What people call a file of the program, by the name its code has."""
        for unit in units:
            filename = os.path.join(folder, unit.path)
            self.files[filename] = unit.path
            feed_linecache(filename, unit.text)
            space = self._spaces[unit.id] = self._space(unit.id)
            code = renamed(unit.code, filename)
            exec(code, space)  # noqa: S102 - the program itself: compiled by us, from its own source

    def find(self, module: str, function: str) -> Function:
        """A function of another module, by its Python name."""
        return cast("Function", self._spaces[module][function])

    def declaration(self, function: Function) -> Declaration:
        """What is known of a function."""
        return self._declarations[function]

    def named(self, module: str, name: str) -> Declaration | None:
        """The declaration of this name: a worker, skill or fun, ``Trait.method``, or the script."""
        return self._named.get((module, name))

    # What the code of a module calls while it is executed.

    def _space(self, module: str) -> dict[str, object]:
        def register(word: str) -> Callable[..., Declaration]:
            def declare(
                name: str, function: Function, *, params: list[str], **options: object
            ) -> Declaration:
                return self._add(module, word, name, function, params, options)

            return declare

        def script(function: Function) -> Declaration:
            return self._add(module, "script", SCRIPT, function, [], {})

        words = ("worker", "skill", "fun", "method")
        return {
            "__name__": module,
            "rt_missing": MISSING,
            **{f"rt_{word}": register(word) for word in words},
            "rt_script": script,
            "rt_named": self._named_type,
            "rt_define": self._define,
            "rt_literal": types.LiteralOf,
            "rt_array": _array,
            "rt_map": _map,
            "rt_union": _union,
            "rt_record": _record,
        }

    def _add(
        self,
        module: str,
        word: str,
        name: str,
        function: Function,
        params: list[str],
        options: dict[str, object],
    ) -> Declaration:
        timeout_ms = options.get("timeout_ms")
        declaration = Declaration(
            module,
            name,
            word,
            function,
            params,
            len(params) - len(getattr(function, "__defaults__", None) or ()),
            agent=str(options.get("agent", "")),
            timeout_s=timeout_ms / 1000 if isinstance(timeout_ms, int | float) else None,
            once=bool(options.get("once", False)),
        )
        self._declarations[function] = self._named[module, name] = declaration
        return declaration

    def _named_type(self, key: str) -> types.Named:
        named = self._types.get(key)
        if named is None:
            module, _, name = key.rpartition(":")
            named = self._types[key] = types.Named(name.partition("#")[0], module)
        return named

    def _define(self, key: str, definition: types.Type | str, *, description: str = "") -> None:
        named = self._named_type(key)
        named.definition = _written(definition)
        named.description = description


def _written(kind: types.Type | str) -> types.Type:
    """A type as the compiler writes it: simple ones by their names."""
    if isinstance(kind, str):
        return types.BUILT_IN[kind]
    return kind


def _array(element: types.Type | str) -> types.Type:
    return types.ArrayOf(_written(element))


def _map(value: types.Type | str) -> types.Type:
    return types.MapOf(_written(value))


def _union(*members: types.Type | str) -> types.Type:
    return types.Union(tuple(map(_written, members)))


def _record(*fields: tuple[str, types.Type | str, bool]) -> types.Type:
    return types.Record(tuple(types.Field(name, _written(kind), optional) for name, kind, optional in fields))


def feed_linecache(filename: str, text: str) -> None:
    """Let tracebacks show the lines of a source as its run has them."""
    lines = [f"{line}\n" for line in text.split("\n")]
    linecache.cache[filename] = (len(text), None, lines, filename)
