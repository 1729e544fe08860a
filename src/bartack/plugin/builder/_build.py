"""Builds a plugin from a program, in whichever language it is written."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bartack.config.project import PATCHWORK
from bartack.plugin.builder._output import find_differences, write_output
from bartack.plugin.builder._patchwork import read_patchwork
from bartack.plugin.builder._python import read_python
from bartack.plugin.builder._render import RenderedPlugin, render_plugin, wrap_in_marketplace


class BuiltPlugin(NamedTuple):
    """What a build has done: the name, the folder, its files, whether it changed, and warnings."""

    name: str
    folder: str
    files: tuple[str, ...]
    changed: bool
    warnings: tuple[str, ...]
    differences: tuple[str, ...] = ()


def render_program(file: Path, *, trait: str = "", allow_placeholder: bool = False) -> RenderedPlugin:
    """The files of the plugin that a program declares.

    Args:
        file: The program: Patchwork, or Python with a ``Plugin``.
        trait: Which trait of a Patchwork program is the plugin, if there are several.
        allow_placeholder: Use a fixed text where a description is missing, instead of an error.

    Raises:
        ProgramFaultError: The program has errors.
        ProgramImportError: The program cannot be imported.
        PluginError: The program declares no valid plugin.
    """
    source = read_patchwork(file, trait) if file.suffix == PATCHWORK else read_python(file, trait)
    return render_plugin(source, allow_placeholder=allow_placeholder)


def build_plugin(
    file: Path,
    folder: Path,
    *,
    trait: str = "",
    marketplace: bool = False,
    check: bool = False,
    force: bool = False,
    allow_placeholder: bool = False,
) -> BuiltPlugin:
    """Build the plugin that a program declares.

    Args:
        file: The program.
        folder: Where the plugin is put.
        trait: Which trait is the plugin, if there are several.
        marketplace: Write a marketplace with the plugin in it.
        check: Write nothing; report how the folder differs from a build.
        force: Replace files that were edited after the former build.
        allow_placeholder: Use a fixed text where a description is missing, instead of an error.

    Raises:
        PluginOutputError: The folder is not a former build, or was edited; nothing was changed.
        PluginError: The program declares no valid plugin.
    """
    rendered = render_program(file, trait=trait, allow_placeholder=allow_placeholder)
    files = wrap_in_marketplace(rendered) if marketplace else rendered.files
    names, shown = tuple(files), str(folder)
    if check:
        found = tuple(find_differences(folder, files))
        return BuiltPlugin(rendered.name, shown, names, bool(found), rendered.warnings, found)
    changed = write_output(folder, files, force=force)
    return BuiltPlugin(rendered.name, shown, names, changed, rendered.warnings)
