"""Patchwork programs on the runtime: what their compiled functions call, and how their workers are found and run.

``_runtime.py`` is the place to start reading.
"""

from bartack.runtime.patchwork._emit import compile_file
from bartack.runtime.patchwork._load import LoadedProgram, load_program, load_text
from bartack.runtime.patchwork._probe import inspect_patchwork
from bartack.runtime.patchwork._survey import Survey, survey

__all__ = [
    "LoadedProgram",
    "Survey",
    "compile_file",
    "inspect_patchwork",
    "load_program",
    "load_text",
    "survey",
]
