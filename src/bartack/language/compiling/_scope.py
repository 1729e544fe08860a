"""The Python functions that are being made, and the names in them.

A body of Patchwork becomes one Python function and the functions inside it: do-blocks, and loops that were moved out
because Python does not nest them as deep. A variable belongs to the function that declares it; the others say
`nonlocal`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Literal, TypeAlias

from bartack.language.checking.program import Local

Kind: TypeAlias = Literal["body", "do", "outlined"]

BREAK = 1
CONTINUE = 2


class Frame:
    """One Python function that is being made."""

    def __init__(self, kind: Kind, parent: Frame | None, declared: Collection[str]) -> None:
        self.kind = kind
        self.parent = parent
        self.depth = 0
        """How many of Python's blocks are open around the current statement."""
        self.loops = 0
        """How many loops of this function are open around the current statement."""
        self.hoisted: list[ast.stmt] = []
        """Functions that must be defined before the current statement."""
        self.nonlocals: set[str] = set()
        self.signals: set[Literal["return", "break", "continue"]] = set()
        """How the moved out code leaves what is around it."""
        self._declared = declared
        self._owned: set[str] = set()
        root = self if parent is None else parent.root
        self.root: Frame = root
        self._temporaries = 0
        self._functions = 0

    def python_name(self, local: Local) -> str:
        """The Python name of a variable.

        Names of functions of the module are never taken for variables: Python has one scope where Patchwork has many.
        """
        if local.number == 0 and local.name not in self._declared:
            return f"pw_{local.name}"
        return f"pw{local.number}_{local.name}"

    def declare(self, local: Local) -> str:
        """A variable is declared in this function."""
        name = self.python_name(local)
        self._owned.add(name)
        return name

    def assign(self, local: Local) -> str:
        """A variable is assigned in this function, wherever it is declared."""
        name = self.python_name(local)
        if name not in self._owned and self.parent is not None:
            self.nonlocals.add(name)
        return name

    def temporary(self) -> str:
        """A name that no program has."""
        self._temporaries += 1
        return f"rt_{self._temporaries}"

    def function_name(self, word: str) -> str:
        """A name for a function inside this one."""
        self.root._functions += 1  # noqa: SLF001 - the same class
        return f"{word}_{self.root._functions}"  # noqa: SLF001 - the same class
