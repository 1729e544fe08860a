"""Which files the lint checks: those that are named, and the Python files below directories.

What is found in a file is decided in ``_check.py``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from pathlib import Path

from bartack.supervision.lint._check import check_text
from bartack.supervision.lint._finding import Finding, Report, make_report


def check_python(
    paths: Collection[Path],
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    exclude: Collection[str] = (),
) -> Report:
    """Look through Python files, and those below directories.

    Args:
        paths: Files and directories.
        select: Only these types of findings; none: all.
        ignore: Not these.
        exclude: Patterns of paths to leave out.
    """
    files = 0
    findings: list[Finding] = []
    for path in paths:
        for file in python_files(path, exclude):
            files += 1
            findings += check_file(file)
    wanted = [
        finding
        for finding in findings
        if finding.type not in ignore and (not select or finding.type in select)
    ]
    return make_report(files, wanted)


def check_file(path: Path) -> list[Finding]:
    """Everything that is to be found in a file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return [Finding(str(path), 1, 1, "file_error", f"this cannot be read: {problem}", "", "error")]
    return check_text(text, str(path))


def python_files(path: Path, exclude: Collection[str] = ()) -> Iterator[Path]:
    """A file, or the Python files below a directory; virtual environments and hidden directories are left out."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not _is_left_out(Path(folder, name), exclude))
        for name in sorted(names):
            file = Path(folder, name)
            if name.endswith(".py") and not _is_excluded(file, exclude):
                yield file


def _is_left_out(folder: Path, exclude: Collection[str]) -> bool:
    hidden = folder.name.startswith(".") or folder.name in {"__pycache__", "node_modules"}
    return hidden or (folder / "pyvenv.cfg").exists() or _is_excluded(folder, exclude)


def _is_excluded(path: Path, exclude: Collection[str]) -> bool:
    return any(fnmatch(str(path), pattern) or fnmatch(path.name, pattern) for pattern in exclude)
