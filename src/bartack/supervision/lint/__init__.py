"""Finds in Python files what supervision cannot see: tasks never awaited, processes never stopped, waits without a limit."""

from bartack.supervision.lint._check import check_text
from bartack.supervision.lint._finding import OF_PROGRAMS, TYPES, Finding, Report, Totals
from bartack.supervision.lint._paths import check_file, check_python, python_files

__all__ = [
    "OF_PROGRAMS",
    "TYPES",
    "Finding",
    "Report",
    "Totals",
    "check_file",
    "check_python",
    "check_text",
    "python_files",
]
