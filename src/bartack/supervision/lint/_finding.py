"""The types of findings of the lint, and the report of a check.

Which place is a finding is decided by the rules in ``_rules.py``, which ``_check.py`` applies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

REPORT_VERSION: Final = 1

TYPES: Final = {
    "unsupervised_task": "a task whose result is never checked",
    "unsupervised_process": "a process that is never stopped",
    "unsupervised_thread": "a thread that is never joined",
    "wait_without_deadline": "a wait that may last forever",
    "missing_cleanup": "a monitor that is never removed",
    "nondeterminism": "a call in a worker that is not repeatable on replay",
    "forgotten_await": "a call that is never awaited",
    "version_name": "a version without a fixed name",
    "caught_failure": "a failure of a worker that cannot be caught",
    "swallowed_cancel": "a cancellation that is not passed on",
    "file_error": "a file that cannot be read as Python",
    "allow_without_reason": "a finding that is silenced without a reason",
}
"""Everything that can be found."""

Severity = Literal["error", "warning"]

ERRORS: Final = frozenset({"forgotten_await", "file_error"})
"""Findings with which a program is not run; it runs with the others."""

OF_PROGRAMS: Final = frozenset(
    {*ERRORS, "nondeterminism", "version_name", "caught_failure", "swallowed_cancel"}
)
"""Findings about the program itself, which ``bartack run`` shows; the others are about the code around it."""


class Finding(msgspec.Struct, frozen=True, order=True):
    """One place in a file, and what to do about it. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    type: str
    message: str
    suggestion: str
    severity: Severity = "warning"


class Totals(msgspec.Struct):
    """How much was found."""

    files: int
    findings: int
    by_type: dict[str, int]


class Report(msgspec.Struct):
    """All findings, sorted by file and line."""

    version: int
    findings: list[Finding]
    totals: Totals
    per_file: dict[str, int]


def make_report(files: int, findings: Sequence[Finding]) -> Report:
    """The report of a look at some files."""
    by_type = Counter(finding.type for finding in findings)
    per_file = Counter(finding.file for finding in findings)
    return Report(
        REPORT_VERSION,
        sorted(findings),
        Totals(files, len(findings), {name: by_type[name] for name in TYPES if name in by_type}),
        dict(sorted(per_file.items())),
    )
