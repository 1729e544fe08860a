"""Programs that root starts as another user, who may not enter the directories of root in which the interpreter is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

import bartack

NOBODY: Final = 65534
AS_NOBODY: Final = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


def as_nobody(program: Sequence[str]) -> list[str]:
    """The words before a command that start it as another user, for whom a program, the interpreter and Bartack are there.

    ``BARTACK_REQUIRE_REALCLI=1`` makes it a failure if they are not.
    """
    needed = [sys.base_prefix, sys.prefix, bartack.__file__, *(word for word in program if "/" in word)]
    words = [*_opened([Path(place).resolve() for place in needed]), *AS_NOBODY]
    check = " && ".join(f"test -r {shlex.quote(word)}" for word in [sys.executable, *needed])
    tried = subprocess.run([*words, "sh", "-c", check], capture_output=True, text=True, check=False)
    if tried.returncode:
        reason = f"NO OTHER USER WAS TRIED: the programs cannot be read: {tried.stderr}"
        if os.environ.get("BARTACK_REQUIRE_REALCLI") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return words


def give_away(place: Path) -> None:
    """Make that user the owner of a directory with all that is in it."""
    for folder, _, files in os.walk(place):
        for name in (".", *files):
            os.chown(os.path.join(folder, name), NOBODY, NOBODY, follow_symlinks=False)


def _opened(needed: Sequence[Path]) -> list[str]:
    """The words that show a command what it needs of a closed directory, in mounts of its own."""
    closed = {folder for place in needed for folder in place.parents if not folder.stat().st_mode & 0o001}
    if not closed:
        return []
    folder = min(closed, key=lambda one: len(one.parts))
    names = {place.relative_to(folder).parts[0] for place in needed if place.is_relative_to(folder)}
    kept = [(shlex.quote(f"/mnt/{name}"), shlex.quote(f"{folder}/{name}")) for name in sorted(names)]
    lines = [
        "set -e",
        "mount -t tmpfs tmpfs /mnt",
        *(f"mkdir {aside}; mount --rbind {place} {aside}" for aside, place in kept),
        f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(folder))}",
        *(f"mkdir {place}; mount --rbind {aside} {place}" for aside, place in kept),
        'exec "$@"',
    ]
    return ["unshare", "--mount", "sh", "-c", "\n".join(lines), "sh"]
