"""Reads a plugin out of a Python program: its ``Plugin``, in a process of its own, because importing a program executes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.load import find_workspace, load_config
from bartack.config.problem import CONFIG_FILE
from bartack.config.project import project_root, with_absolute_path
from bartack.core import typed
from bartack.errors import PluginTraitError, ProgramImportError
from bartack.plugin.builder._python_probe import DeclaredPlugin, PluginRequest
from bartack.plugin.builder._source import PluginSource, make_source, read_program
from bartack.runtime.program.inspect import examine_program
from bartack.runtime.program.stderr import errors_passed_on
from bartack.runtime.protocol.exceptions import revive_error
from bartack.supervision.parent.guarded import run_guarded

_PROBE: Final = "bartack.plugin.builder._python_probe"
_TIMEOUT_S: Final = 60.0


def read_python(file: Path, trait: str = "") -> PluginSource:
    """The plugin that a Python program declares.

    Raises:
        ProgramImportError: The program cannot be imported.
        PluginTraitError: It declares no plugin, or several.
        PluginInvalidError: A name is not allowed.
    """
    if trait:
        raise PluginTraitError(str(file), "only Patchwork programs have traits", "Leave --trait out.")
    file = file.resolve()
    project = next((folder for folder in file.parents if (folder / CONFIG_FILE).is_file()), file.parent)
    workspace = find_workspace(project)
    root = project_root(file, workspace)
    declared = _read(file, root, workspace)
    entry = file.relative_to(root).as_posix()
    members = [one.member for one in declared.entries]
    kept = examine_program(f"{file}:{members[0]}", workspace).result.files if members else []
    return make_source(
        declared.name,
        declared.description,
        entry,
        entry,
        declared.entries,
        read_program(root, kept),
        load_config(project),
    )


def _read(file: Path, root: Path, workspace: Path) -> DeclaredPlugin:
    request = PluginRequest(str(file), str(root))
    env = {**with_absolute_path(os.environ), "BARTACK_PROBE": "1"}
    with errors_passed_on() as errors:
        ran = run_guarded(
            _PROBE,
            msgspec.json.encode(request),
            cwd=workspace,
            env=env,
            errors=errors,
            timeout_s=_TIMEOUT_S,
        )
    if ran is None or ran.code != 0 or not ran.output:
        status = "took longer than 60 s" if ran is None else f"ended the process (status {ran.code})"
        raise ProgramImportError(str(file), f"importing it {status}")
    found = typed.decode(ran.output, type=DeclaredPlugin)
    if found.error is not None:
        raise revive_error(found.error)
    return found
