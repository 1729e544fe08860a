"""Files that a group of this machine may read: that of a run whose processes have another user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

RUN_GROUPS: Final = range(1_879_048_192, 2_147_483_648)
"""Group numbers that no system gives to accounts, containers or services: those of runs with guests are among them."""

SHARED_DIR: Final = 0o750
SHARED_FILE: Final = 0o640


def share(path: str, group: int, mode: int) -> None:
    """Give a group access to a file or directory of this user, as ``mode`` says."""
    os.chown(path, -1, group, follow_symlinks=False)
    os.chmod(path, mode)


def share_tree(folder: Path, group: int) -> None:
    """Let a group read a directory of ours and everything in it."""
    for place, _, files in os.walk(folder):
        share(place, group, SHARED_DIR)
        for name in files:
            share(os.path.join(place, name), group, SHARED_FILE)
