"""Looks at a program before it runs: in which language it is written decides how."""

from __future__ import annotations

from pathlib import Path

from bartack.core import Account
from bartack.runtime._frames import PATCHWORK
from bartack.runtime._program import Finding, Inquiry, probe_python


def probe(inquiry: Inquiry, workspace: Path, account: Account | None = None) -> Finding:
    """Look at a program: where it starts, whether the arguments fit, and which files belong to it.

    Args:
        inquiry: The program.
        workspace: Where it would run.
        account: The user that its code is executed as, if it is not this one.

    Raises:
        ProgramImportError: It cannot run.
        ProgramFaultError: It is Patchwork and has errors.
        UsageError: The arguments do not fit.
    """
    if not inquiry.file.endswith(PATCHWORK):
        return probe_python(inquiry, workspace, account)
    from bartack.runtime.patchwork import inspect_patchwork  # noqa: PLC0415 - only who runs Patchwork pays for it

    return inspect_patchwork(inquiry)
