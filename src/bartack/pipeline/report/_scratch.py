"""The work of a run in the workspace, as commits of a scratch repository: so it can be compared by git like any other work.

The run has kept checksums of files, not their content. Content is looked for where it can be: in the workspace, in the last commit,
in the commit that was the last one when the run began. It counts only if its checksum is the recorded one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from bartack.agents.artifacts import open_artifact
from bartack.errors import BartackError, GitError
from bartack.pipeline.report._reading_git import ReadingGit
from bartack.pipeline.report.report import FileLines, FileState

MOST_BYTES: Final = 8 * 1024 * 1024
"""The content of a larger file is not compared."""
_COMMITTER: Final = b"committer Bartack <bartack@localhost> 0 +0000\n"
_SUM: Final = re.compile(r"[0-9a-f]{64}\Z")
_FILE: Final = "100644"


class Version(NamedTuple):
    """A file at one time: the SHA-256 of its content, and its mode as git writes it."""

    sha256: str
    mode: str = _FILE


class Changed(NamedTuple):
    """A file that work has changed: what it was, and what it is then; ``None``: not there."""

    path: str
    before: Version | None
    after: Version | None
    known: bool = True
    """Whether it is known what was there before."""

    @property
    def state(self) -> FileState:
        """What became of it."""
        if self.after is None:
            return "deleted"
        return "modified" if self.before is not None or not self.known else "added"


class Compared(NamedTuple):
    """Work as two commits, and the files that are in neither, because their content is not there any more."""

    start: str
    end: str
    unknown: list[FileLines]


class Contents:
    """Finds the content of files by their checksums.

    Args:
        workspace: Where the run worked.
        git: Git there; ``None`` if it is not a repository.
        commits: The commits to look in.
        paths: The files that will be looked for.
        kept: A directory in which the run has kept files by their checksums: versions of the spec file.
    """

    def __init__(
        self,
        workspace: str,
        git: ReadingGit | None,
        commits: Iterable[str],
        paths: Iterable[str],
        kept: Path,
    ) -> None:
        self._workspace = workspace
        self._git = git
        self._kept = kept
        self._commits = list(dict.fromkeys(filter(None, commits)))
        self._paths = sorted(set(paths))
        self._of_commits: dict[str, dict[str, bytes]] = {}
        self._found: dict[tuple[str, str], bytes] = {}

    def find(self, path: str, sum_: str) -> bytes | None:
        """The content of a file with this checksum; ``None`` if it is nowhere."""
        known = self._found.get((path, sum_))
        if known is not None:
            return known
        for content in self._candidates(path, sum_):
            if content is not None and has_sum(content, sum_):
                self._found[path, sum_] = content
                return content
        return None

    def _candidates(self, path: str, sum_: str) -> Iterable[bytes | None]:
        yield self.now(path)
        yield self._read_kept(sum_)
        for commit in self._commits:
            yield self.committed(path, commit)

    def _read_kept(self, sum_: str) -> bytes | None:
        if not _SUM.match(sum_):
            return None
        try:
            return (self._kept / sum_).read_bytes()
        except OSError:
            return None

    def now(self, path: str) -> bytes | None:
        """What is in the workspace; ``None`` if it is not there, too large, or not a file in it."""
        try:
            if os.path.islink(os.path.join(self._workspace, path)):
                return None
            with open(open_artifact(self._workspace, path), "rb") as file:
                content = file.read(MOST_BYTES + 1)
        except (BartackError, OSError, ValueError):
            return None
        return content if len(content) <= MOST_BYTES else None

    def committed(self, path: str, commit: str) -> bytes | None:
        """What a commit has; ``None`` if it has nothing there, or something too large."""
        if commit not in self._of_commits:
            self._of_commits[commit] = self._load(commit)
        return self._of_commits[commit].get(path)

    def _load(self, commit: str) -> dict[str, bytes]:
        """Everything that a commit has of the files, read by one process."""
        if self._git is None:
            return {}
        asked = [path for path in self._paths if "\n" not in path]
        given = b"".join(os.fsencode(f"{commit}:./{path}\n") for path in asked)
        try:
            out = self._git.done("cat-file", "--batch", given=given).out
        except GitError:
            return {}
        found: dict[str, bytes] = {}
        place = 0
        for path in asked:
            end = out.index(b"\n", place)
            words = out[place:end].rsplit(b" ", 2)
            place = end + 1
            if words[-1] == b"missing" or len(words) != 3 or not words[-1].isdigit():
                continue
            size = int(words[-1])
            if words[1] == b"blob" and size <= MOST_BYTES:
                found[path] = out[place : place + size]
            place += size + 1
        return found


class Scratch:
    """A repository in an empty directory, which only this process uses.

    Args:
        folder: The directory.
        contents: Where content is found.
    """

    def __init__(self, folder: Path, contents: Contents) -> None:
        self.git = ReadingGit(str(folder))
        self._contents = contents
        self._made = 0
        self.git.done("init", "--quiet", "--bare", "--template=", ".")

    def compare(self, changed: Iterable[Changed]) -> Compared:
        """Make two commits of work.

        Raises:
            GitError: Git cannot be used.
        """
        sides: tuple[dict[str, tuple[str, bytes]], ...] = {}, {}
        unknown: list[FileLines] = []
        for one in changed:
            found = [self._content(one.path, version) for version in (one.before, one.after)]
            if not one.known or None in found:
                unknown.append(FileLines(path=one.path, change=one.state))
                continue
            for side, version, content in zip(sides, (one.before, one.after), found, strict=True):
                if version is not None and content is not None:
                    side[one.path] = version.mode, content
        start, end = (self._commit(side) for side in sides)
        return Compared(start, end, unknown)

    def _content(self, path: str, version: Version | None) -> bytes | None:
        """Nothing, for a file that is not there; ``None`` if the content is nowhere."""
        return b"" if version is None else self._contents.find(path, version.sha256)

    def _commit(self, files: Mapping[str, tuple[str, bytes]]) -> str:
        self._made += 1
        ref = f"refs/heads/side-{self._made}"
        parts = [f"commit {ref}\n".encode(), _COMMITTER, b"data 0\n", b"deleteall\n"]
        for path, (mode, content) in files.items():
            parts += [
                f"M {mode} inline ".encode(),
                _quoted(path),
                b"\ndata %d\n" % len(content),
                content,
                b"\n",
            ]
        self.git.done("fast-import", "--quiet", given=b"".join(parts))
        return self.git.find_commit(ref)


def has_sum(content: bytes | None, sum_: str) -> bool:
    """Whether a content is there and has this SHA-256."""
    return content is not None and sha256(content).hexdigest() == sum_


def _quoted(path: str) -> bytes:
    """A path as ``fast-import`` reads it, whatever is in it."""
    plain = os.fsencode(path)
    escaped = b"".join(b"\\%03o" % byte if byte < 32 or byte in b'"\\' else bytes([byte]) for byte in plain)
    return b'"' + escaped + b'"'
