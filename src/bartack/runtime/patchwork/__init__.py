"""Patchwork programs on the runtime: what their compiled functions call, and how their workers are found and run.

``_runtime.py`` is the place to start reading. Every name is loaded by its first use, so that a worker's process loads only what
executes a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.runtime.patchwork._emit import CheckedFile, check_program, compile_file
    from bartack.runtime.patchwork._load import LoadedProgram, load_program, load_text
    from bartack.runtime.patchwork._probe import inspect_patchwork
    from bartack.runtime.patchwork._survey import Survey, survey
    from bartack.runtime.patchwork._upgrade import upgrade_file

__all__ = [
    "CheckedFile",
    "LoadedProgram",
    "Survey",
    "check_program",
    "compile_file",
    "inspect_patchwork",
    "load_program",
    "load_text",
    "survey",
    "upgrade_file",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_emit": "CheckedFile check_program compile_file",
        "_load": "LoadedProgram load_program load_text",
        "_probe": "inspect_patchwork",
        "_survey": "Survey survey",
        "_upgrade": "upgrade_file",
    },
)
