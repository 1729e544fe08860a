"""Upgrades of files: only the modules that a file imports may show what is old in it."""

from __future__ import annotations

import os
from pathlib import Path

from bartack.config.project import project_root
from bartack.language.formatting.format import Upgraded, upgraded
from bartack.runtime.patchwork._build import DiskLoader


def upgrade_file(file: Path, text: str) -> Upgraded:
    """`text` in the modern spelling, as the text of `file` in its project, and what stays old."""
    file = Path(os.path.abspath(file))
    root = project_root(file, file.parent)
    return upgraded(text, file.relative_to(root).as_posix(), DiskLoader(root))
