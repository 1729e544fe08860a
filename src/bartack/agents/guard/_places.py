"""Paths as a command means them: home and working directory put in, ``..`` and links resolved, patterns compared with the disk.

And which places matter: the project, the directories above it, the home directory, ``.git``, the state directory, the roots in
which directories may be deleted, and protected files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import translate
from typing import Final, NamedTuple

from bartack.agents.guard._text import (
    ANY,
    BRACKET,
    GLOBS,
    HOME,
    STAR,
    TILDE,
    WORKDIR,
    is_unknown,
    show,
)

GIT: Final = ".git"
STATE: Final = ".bartack"
MOST_FILES: Final = 4096
"""Directories with more files are not compared with a pattern; then the pattern counts as all of it."""
LONGEST_PATH: Final = 1024
"""A longer path is not followed; it counts as unknown."""
_EVERYTHING: Final = re.compile(rf"[.{STAR}{ANY}]*[{STAR}][{STAR}{ANY}]*\Z")
_SETTINGS: Final = re.compile(r"settings[^/]*\.json\Z")


class Target(NamedTuple):
    """A place that a word names.

    Attributes:
        path: The real path.
        is_content: Whether only everything in it is meant, and not itself.
    """

    path: str
    is_content: bool = False


class Places:
    """The places of a project.

    Args:
        root: The project.
        home: The home directory of the user.
        state_dir: Where runs are kept, relative to the project.
        roots: Where directories may be deleted, relative to the project.
        protect: Patterns of protected files, relative to the project; one without ``/`` is about names.
        vital: Further directories that must not be deleted.
    """

    def __init__(
        self,
        root: str,
        home: str,
        *,
        state_dir: str = STATE,
        roots: tuple[str, ...] = (".",),
        protect: tuple[str, ...] = (),
        vital: tuple[str, ...] = (),
    ) -> None:
        self.folds = _ignores_case(root)
        self.root = self._real(root)
        self.home = self._real(home) if home else ""
        self.state_dir = self._real(os.path.join(self.root, state_dir))
        self._roots = tuple(self._real(os.path.join(self.root, os.path.expanduser(one))) for one in roots)
        self._vital = tuple(place for place in (self.root, self.home, *map(self._real, vital)) if place)
        self._protect = tuple(_Protected(pattern, folds=self.folds) for pattern in protect)

    def _real(self, path: str) -> str:
        real = os.path.realpath(path)
        return real.casefold() if self.folds else real

    def targets(self, word: str, cwd: str | None) -> list[Target] | None:
        """The places that a word names in a directory; ``None``: it is not known which."""
        if is_unknown(word) or "\0" in word:
            return None
        path = self._expanded(word, cwd)
        if path is None:
            return None
        if not path.startswith("/"):
            if cwd is None:
                return None
            path = f"{cwd}/{path}"
        if len(path) > LONGEST_PATH:
            return None
        if GLOBS.search(path):
            return list(self._matching(path))
        return [Target(self._real(path))]

    def _expanded(self, word: str, cwd: str | None) -> str | None:
        if word.startswith(TILDE):
            rest = word[1:]
            if not self.home or (rest and not rest.startswith("/")):
                return None
            word = self.home + rest
        for mark, value in ((HOME, self.home), (WORKDIR, cwd)):
            if mark in word:
                if not value:
                    return None
                word = word.replace(mark, value)
        return word.replace(TILDE, "~")

    def _matching(self, path: str) -> Iterator[Target]:
        """What a pattern stands for: the files that are there now, and all of a directory where it leaves nothing out."""
        found = [""]
        parts = path.split("/")[1:]
        for index, part in enumerate(parts):
            if not GLOBS.search(part):
                found = [f"{folder}/{part}" for folder in found]
                continue
            last = index == len(parts) - 1 or not any(parts[index + 1 :])
            if last and _EVERYTHING.match(part):
                yield from (Target(self._real(folder or "/"), is_content=True) for folder in found)
            matched: list[str] = []
            for folder in found:
                names, is_all = _matched(folder or "/", part)
                if is_all and last:
                    yield Target(self._real(folder or "/"), is_content=True)
                matched += [f"{folder}/{name}" for name in names]
            found = matched[:MOST_FILES]
        yield from (Target(self._real(one)) for one in found)
        if not found:
            yield Target(self._real(show(path)))

    def is_vital(self, path: str) -> bool:
        """Whether a directory is the file system, the home directory, the project, or above one of them."""
        return path == "/" or any(_is_below(place, path) for place in self._vital)

    def is_state(self, path: str) -> bool:
        """Whether a path is in, or holds, the history of the project or its runs."""
        return self._is_in_state(path) or _is_below(self.state_dir, path)

    def _is_in_state(self, path: str) -> bool:
        # The project itself can be in such a directory: the worktree of a task is.
        inside = path[len(self.root) :] if _is_below(path, self.root) else path
        parts = inside.split("/")
        return GIT in parts or STATE in parts or _is_below(path, self.state_dir)

    def is_in_roots(self, path: str, *, itself: bool = False) -> bool:
        """Whether a path is below one of the roots; ``itself``: or is one."""
        return any(_is_below(path, root) and (itself or path != root) for root in self._roots)

    def is_protected(self, path: str, *, tree: bool = False) -> bool:
        """Whether no tool may write there; ``tree``: or in something below it."""
        if self._is_in_state(path):
            return True
        parts = path.split("/")
        if len(parts) > 1 and parts[-2] == ".claude" and _SETTINGS.match(parts[-1]):
            return True
        return self.is_listed(path, tree=tree)

    def is_listed(self, path: str, *, tree: bool = False) -> bool:
        """Whether a pattern of the settings protects a path; ``tree``: or something below it."""
        if not self._protect or not _is_below(path, self.root):
            return False
        relative = path[len(self.root) :].lstrip("/")
        return any(one.covers(relative, tree=tree) for one in self._protect)

    def real(self, path: str, cwd: str) -> str:
        """The real path of a file that a tool names."""
        return self._real(os.path.join(cwd, os.path.expanduser(path)))


class _Protected:
    """One pattern of protected files."""

    def __init__(self, pattern: str, *, folds: bool) -> None:
        plain = os.path.normpath(pattern.casefold() if folds else pattern)
        self._is_name = "/" not in plain
        self._regex = re.compile(_translated(plain))
        self._base = re.split(r"[*?\[]", plain, maxsplit=1)[0]

    def covers(self, relative: str, *, tree: bool) -> bool:
        if self._is_name:
            if any(self._regex.match(part) for part in relative.split("/")):
                return True
        elif self._regex.match(relative):
            return True
        return tree and bool(self._base) and self._base.startswith(f"{relative}/")


def _translated(pattern: str) -> str:
    """A pattern in which ``**`` stands for any number of directories; the directory itself is covered, too."""
    head = pattern.removesuffix("/**")
    return translate(head) if head == pattern else f"(?:{translate(head)[:-2]}(?:/.*)?)\\Z"


def _matched(folder: str, part: str) -> tuple[list[str], bool]:
    """The names in a directory that a pattern fits, and whether it leaves out nothing that is visible."""
    pattern = re.compile(translate(part.replace(STAR, "*").replace(ANY, "?").replace(BRACKET, "[")))
    hidden = part.startswith(".")
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if hidden or not entry.name.startswith("."):
                    names.append(entry.name)
                if len(names) > MOST_FILES:
                    return [], True
    except (OSError, ValueError):
        return [], False
    fitting = [name for name in names if pattern.match(name)]
    return fitting, len(fitting) == len(names) > 2


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _ignores_case(root: str) -> bool:
    """Whether the file system of a directory has one name for ``a`` and ``A``."""
    other = root.swapcase()
    try:
        return other != root and os.path.samefile(root, other)
    except (OSError, ValueError):
        return False
