"""The syntax tree as JSON, for tools: every node with its kind, its span and its fields."""

from __future__ import annotations

import json
from typing import Final, cast

from bartack.language.checking.program import Program
from bartack.language.syntax import _tree as tree
from bartack.language.syntax._depth import make_room

VERSION: Final = 1
"""Of the shape of what is written; a higher one may have other kinds and fields."""


def tree_json(program: Program) -> str:
    """The trees of all modules of a program."""
    make_room()
    modules = [{"file": module.path, "tree": _plain(module.syntax)} for module in program.modules]
    return json.dumps({"version": VERSION, "modules": modules}, ensure_ascii=False, indent=1) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, tree.Node):
        fields = {name: _plain(getattr(value, name)) for name in value.__struct_fields__[2:]}
        return {"kind": type(value).__name__, "span": [value.start, value.end], **fields}
    if isinstance(value, tuple):
        return [_plain(part) for part in cast("tuple[object, ...]", value)]
    return value
