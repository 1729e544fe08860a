"""A program as text for people and tools: Python, or its syntax tree."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple

from bartack.config.project import project_root
from bartack.language import Checked, Compiled
from bartack.language.compiling.tree import tree_json
from bartack.runtime.patchwork._build import check_file, compile_checked

_HEAD: Final = """\
# {}, as Bartack runs it. `rt` is the runtime of the worker that calls a function; what begins with `rt_` is there when
# the module is executed: it registers functions and makes types. Comments and `at` are places in the source.
"""


class CheckedFile(NamedTuple):
    """A program without errors: the root of its project, its path below the root, and its meaning."""

    root: Path
    entry: str
    checked: Checked
    compiled: Compiled


def check_program(file: Path, root: Path | None = None) -> CheckedFile:
    """Check and compile the program in a file; nothing of it is executed.

    Args:
        file: The entry module.
        root: The root of its project; else that of the nearest settings above the file.

    Raises:
        ProgramFaultError: It has errors.
    """
    file = file.resolve()
    root = root.resolve() if root is not None else project_root(file, file.parent)
    entry = file.relative_to(root).as_posix()
    checked = check_file(root, entry)
    return CheckedFile(root, entry, checked, compile_checked(checked, entry))


def compile_file(file: Path, emit: Literal["python", "ast"]) -> str:
    """What the program in a file becomes: Python, or its syntax tree as JSON.

    Raises:
        ProgramFaultError: It has errors.
    """
    _, entry, checked, compiled = check_program(file)
    if emit == "ast":
        return tree_json(checked.program)
    head = _HEAD.format(entry)
    if len(compiled.modules) == 1:
        return f"{head}\n{compiled.modules[0].text}"
    return "\n".join((head, *(f"# module {module.id}\n\n{module.text}" for module in compiled.modules)))
