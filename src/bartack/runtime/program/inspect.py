"""Looks at a program before it runs: in which language it is written decides how."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bartack.config.project import PATCHWORK, project_root
from bartack.core.accounts import Account
from bartack.runtime.program.source import find_program, probe_python
from bartack.runtime.protocol.probing import ProbeRequest, ProbeResult
from bartack.runtime.protocol.steps import CallArgs


class Examined(NamedTuple):
    """A program, the root of its project, and what a run of it would keep."""

    file: Path
    root: Path
    result: ProbeResult


def examine_program(program: str, workspace: Path) -> Examined:
    """Look at a program as ``run`` would, whatever its arguments are; no run is made.

    Args:
        program: ``FILE`` or ``FILE:worker``.
        workspace: Where it would run.

    Raises:
        ProgramImportError: It cannot run.
        ProgramFaultError: It is Patchwork and has errors.
    """
    file, worker = find_program(program, workspace)
    root = project_root(file, workspace)
    return Examined(file, root, probe(ProbeRequest(str(file), str(root), worker, call=CallArgs()), workspace))


def probe(request: ProbeRequest, workspace: Path, account: Account | None = None) -> ProbeResult:
    """Look at a program: where it starts, whether the arguments fit, and which files belong to it.

    Args:
        request: The program.
        workspace: Where it would run.
        account: The user that its code is executed as, if it is not this one.

    Raises:
        ProgramImportError: It cannot run.
        ProgramFaultError: It is Patchwork and has errors.
        UsageError: The arguments do not fit.
    """
    if not request.file.endswith(PATCHWORK):
        return probe_python(request, workspace, account)
    from bartack.runtime.patchwork import inspect_patchwork  # noqa: PLC0415 - only who runs Patchwork pays for it

    return inspect_patchwork(request)
