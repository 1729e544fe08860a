"""Checks the Python files of a program before it runs, as the checker of Patchwork does with its own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bartack.errors import ProgramFaultError

if TYPE_CHECKING:
    from bartack.supervision.lint import Finding

_MOST_SHOWN: Final = 20
_MENTIONS: Final = b"bartack"
"""Files that have nothing to do with Bartack are not looked at: what they do is their own affair."""


def check_sources(sources: Mapping[str, bytes], root: Path) -> str:
    """Look through the files of a program, by their paths below ``root``; returns warnings, as people read them.

    Raises:
        ProgramFaultError: It has errors; the error has the whole report.
    """
    texts = {name: data for name, data in sources.items() if name.endswith(".py") and _MENTIONS in data}
    if not texts:
        return ""
    from bartack.supervision.lint import OF_PROGRAMS, check_text  # noqa: PLC0415 - only Python programs need it

    found = [
        finding
        for name, data in texts.items()
        for finding in check_text(data.decode("utf-8", "replace"), _shown(root / name))
        if finding.type in OF_PROGRAMS
    ]
    if any(finding.severity == "error" for finding in found):
        first = next(finding for finding in found if finding.severity == "error")
        raise ProgramFaultError(first.file, _report(found))
    return _report(found)


def _shown(file: Path) -> str:
    relative = os.path.relpath(file)
    return str(file) if relative.startswith(os.pardir) else relative


def _report(findings: Iterable[Finding]) -> str:
    every = sorted(findings)
    lines: list[str] = []
    for finding in every[:_MOST_SHOWN]:
        lines.append(f"{finding.severity}[{finding.type}]: {finding.message}")
        lines.append(f" --> {finding.file}:{finding.line}:{finding.column}")
        if finding.suggestion:
            lines.append(f"  = help: {finding.suggestion}")
    if len(every) > _MOST_SHOWN:
        lines.append(f"and {len(every) - _MOST_SHOWN} more: bartack check shows all")
    counted = Counter(finding.severity for finding in every)
    if counted["error"]:
        counts = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in sorted(counted.items())]
        lines.append(f"{', '.join(counts)}; nothing was run")
    return "\n".join(lines)
