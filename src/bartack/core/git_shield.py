"""Keeping a directory of Bartack's own out of the repository that it is in: not shown by git, not added, not cleaned away.

``git clean -fdx`` deletes what is ignored and spares repositories inside the work tree. So the directory becomes a repository.
``git status`` shows such a repository, and ``git add`` refuses one without commits, unless it is ignored. So the repository
around it gets one line in its ``info/exclude``, a file that is not shared with other people. Where no repository is around, the
directory ignores its own content, which holds in any repository that is made later, until the next run.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final

from bartack.core.disk import FILE_MODE
from bartack.core.git import find_git, git_command, git_environment

GIT_TIMEOUT_S: Final = 30.0
_EXCLUDE_MODE: Final = 0o644
_SPECIAL: Final = re.compile(r"([\\*?\[\]!# ])")
"""Characters that mean something in a pattern of git; a backslash takes that from them."""


def is_shielded(folder: str) -> bool:
    """Whether nothing is left to do for a directory: it is a repository, or none is around it. Starts no process."""
    if os.path.lexists(os.path.join(folder, ".git")):
        return True
    return not _is_in_repository(folder) and os.path.lexists(os.path.join(folder, ".gitignore"))


def shield(folder: str) -> None:
    """Keep a directory that is there out of the repository around it, as far as that can be done; never fails."""
    if is_shielded(folder):
        return
    with suppress(OSError):
        if _is_in_repository(folder) and _exclude(folder) and make_repository(folder):
            return
    with suppress(OSError):
        _ignore_itself(folder)


def make_repository(folder: str) -> bool:
    """Make a directory a repository of its own, so that ``git clean`` around it spares it; return whether it is one."""
    if os.path.lexists(os.path.join(folder, ".git")):
        return True
    # Hooks and other files that the person has for new repositories have no use here.
    return _call(folder, "init", "--quiet", "--template=", ".") is not None


def _is_in_repository(folder: str) -> bool:
    place = os.path.dirname(os.path.abspath(folder))
    while not os.path.lexists(os.path.join(place, ".git")):
        above = os.path.dirname(place)
        if above == place:
            return False
        place = above
    return True


def _exclude(folder: str) -> bool:
    """Have the repository around a directory ignore it; return whether it does."""
    place, name = os.path.split(os.path.abspath(folder))
    if _is_ignored(place, name):
        return True
    found = _call(place, "rev-parse", "--show-prefix", "--git-path", "info/exclude")
    if found is None:
        return False
    prefix, file = found.split("\n")[:2]
    path = os.path.join(place, file)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    _append(path, "/" + _SPECIAL.sub(r"\\\1", prefix + name) + "/")
    return _is_ignored(place, name)


def _is_ignored(place: str, name: str) -> bool:
    # A slash at the end would ask about what is in it.
    return _call(place, "check-ignore", "--quiet", "--", f"./{name}") is not None


def _append(path: str, line: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, _EXCLUDE_MODE)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        os.write(fd, os.fsencode(("\n" if torn else "") + line + "\n"))
    finally:
        os.close(fd)


def _ignore_itself(folder: str) -> None:
    path = os.path.join(folder, ".gitignore")
    with suppress(FileExistsError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        os.write(fd, b"# Runs of Bartack. They are not for the repository around them.\n*\n")
        os.close(fd)


def _call(place: str, *words: str) -> str | None:
    """What git writes; ``None`` if there is no git here, or it refuses."""
    import subprocess  # noqa: PLC0415 - slow to load, and most runs find their directory as it should be

    git = find_git()
    if git is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, and the name of our own directory after the end of the options
            git_command(git, words),
            cwd=place,
            env=git_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            umask=0o077,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None
