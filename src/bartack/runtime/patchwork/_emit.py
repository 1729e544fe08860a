"""A program as text for people and tools: Python, or its syntax tree."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bartack.language import tree_json
from bartack.runtime._program import project_root
from bartack.runtime.patchwork._build import check_file, compile_checked


def compile_file(file: Path, emit: Literal["python", "ast"]) -> str:
    """What the program in a file becomes: Python, or its syntax tree as JSON.

    Raises:
        ProgramFaultError: It has errors.
    """
    file = file.resolve()
    root = project_root(file, file.parent)
    entry = file.relative_to(root).as_posix()
    checked = check_file(root, entry)
    compiled = compile_checked(checked, entry)
    if emit == "ast":
        return tree_json(checked.program)
    if len(compiled.modules) == 1:
        return compiled.modules[0].text
    return "\n".join(f"# module {module.id}\n\n{module.text}" for module in compiled.modules)
