"""Git for commands that only look: it executes nothing that the repository names, and writes nothing into it.

``core/git.py`` switches off what has a fixed name. Merge drivers and content filters have names that only the repository knows, so
they are looked up first, and replaced by programs that do nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from bartack.errors import GitError
from bartack.pipeline.report.report import FileLines, FileState, WorkCommit
from bartack.pipeline.snapshot._paths import path_text
from bartack.pipeline.worktree._git import Done, Git

_NAMES: Final = (
    r"^(merge\..*\.driver|filter\..*\.(clean|smudge|process|required)|diff\..*\.(command|textconv))$"
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_PLAIN_DIFF: Final = ("--no-ext-diff", "--no-textconv", "--no-color")
_STATES: Final[dict[bytes, FileState]] = {b"A": "added", b"D": "deleted"}


class ReadingGit:
    """Git in one directory, for reading.

    Attributes:
        plain: The same without these precautions, for commands that use neither drivers nor filters.
        drivers: The merge drivers of the repository, which are not executed.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self.plain = self._git = Git(place)
        self._settings: dict[str, str] | None = None
        self.drivers: list[str] = []

    def done(
        self,
        *words: str,
        given: bytes = b"",
        env: Mapping[str, str] | None = None,
        fine: Sequence[int] = (0,),
    ) -> Done:
        """Run a command to its end.

        Raises:
            GitError: It failed, or cannot be run.
        """
        if self._settings is None:
            self._settings = self._harmless()
        return self._git.done(*words, given=given, env={**self._settings, **(env or {})}, fine=fine)

    def line(self, *words: str) -> str:
        """What a command writes; nothing if there is nothing to be found.

        Raises:
            GitError: It failed for another reason.
        """
        found = self.done(*words, fine=(0, 1))
        return "" if found.status else found.line

    def test(self, *words: str) -> bool:
        """Whether a command that answers yes or no answers yes.

        Raises:
            GitError: It answers neither.
        """
        return self.done(*words, fine=(0, 1)).status == 0

    def paths(self, *words: str, env: Mapping[str, str] | None = None) -> list[str]:
        """The paths that a command lists with ``-z``.

        Raises:
            GitError: It failed.
        """
        return [os.fsdecode(path) for path in self.done(*words, env=env).out.split(b"\0") if path]

    def _harmless(self) -> dict[str, str]:
        """Variables that replace every driver and filter that the settings of the repository name."""
        names = self._git.done("config", "-z", "--name-only", "--get-regexp", _NAMES, fine=(0, 1)).out
        found = sorted({os.fsdecode(name) for name in names.split(b"\0") if name})
        self.drivers = [name for name in found if name.endswith(".driver")]
        made = {"GIT_CONFIG_COUNT": str(len(found))}
        for number, name in enumerate(found):
            made[f"GIT_CONFIG_KEY_{number}"] = name
            made[f"GIT_CONFIG_VALUE_{number}"] = _harmless_value(name)
        return made

    # What there is.

    def find_commit(self, name: str) -> str:
        """The commit that a name stands for; empty if there is none."""
        return self.line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")

    def list_files(self, start: str, end: str) -> list[FileLines]:
        """The files that differ between two commits, with the numbers of their lines.

        Raises:
            GitError: A commit is missing.
        """
        words = ("diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", *_PLAIN_DIFF)
        return read_listing(self.done(*words, check_commit(start), check_commit(end)).out)

    def list_commits(self, start: str, end: str) -> list[WorkCommit]:
        """The commits from one to another, merges left out, the oldest first.

        Raises:
            GitError: A commit is missing.
        """
        wanted = f"{check_commit(start)}..{check_commit(end)}"
        words = ("log", "-z", "--reverse", "--no-merges", "--no-show-signature", "--format=%H %s", wanted)
        lines = [line.partition(b" ") for line in self.done(*words).out.split(b"\0") if line]
        return [WorkCommit(id=id_.decode(), subject=path_text(subject)) for id_, _, subject in lines]

    def colours(self) -> str:
        """Whether the user wants colour in differences, in the words of git; empty if there is no such setting."""
        return self.line("config", "--get", "color.diff") or self.line(
            "config", "--global", "--get", "color.ui"
        )

    def diff(self, start: str, end: str, *options: str) -> bytes:
        """The differences between two commits, as git writes them.

        Raises:
            GitError: A commit is missing.
        """
        return self.done(
            "diff", "--no-relative", *_PLAIN_DIFF, *options, check_commit(start), check_commit(end), "--"
        ).out


def check_commit(text: str) -> str:
    """A commit from a journal, if it can be nothing else: it becomes a word of a command line.

    Raises:
        GitError: It is something else.
    """
    if not _COMMIT.match(text):
        raise GitError("git", f"{text[:60]!r} is not the id of a commit")
    return text


def read_listing(out: bytes) -> list[FileLines]:
    """Read what ``diff-tree -z --raw --numstat`` writes."""
    parts = out.split(b"\0")
    states: dict[bytes, FileState] = {}
    lines: dict[bytes, tuple[int | None, int | None]] = {}
    place = 0
    while place < len(parts) - 1:
        part = parts[place]
        if part.startswith(b":"):
            states[parts[place + 1]] = _STATES.get(part[-1:], "modified")
            place += 2
            continue
        added, removed, path = part.split(b"\t", 2)
        lines[path] = _number(added), _number(removed)
        place += 1
    none = (None, None)
    return [
        FileLines(
            path=path_text(path),
            change=state,
            added=lines.get(path, none)[0],
            removed=lines.get(path, none)[1],
        )
        for path, state in sorted(states.items())
    ]


def _number(text: bytes) -> int | None:
    return None if text == b"-" else int(text)


def _harmless_value(name: str) -> str:
    if name.endswith(".driver"):
        return "false"  # ends with 1: the file counts as a conflict
    return "false" if name.endswith(".required") else ""
