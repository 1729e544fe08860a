"""The contents of files in the last commit of a workspace. Nothing that the repository names is executed."""

from __future__ import annotations

from collections.abc import Sequence

from bartack.errors import GitError
from bartack.pipeline.report._reading_git import ReadingGit


def committed_contents(workspace: str, paths: Sequence[bytes]) -> dict[bytes, bytes]:
    """The contents of these files in the last commit; files that it does not have are left out, and all of them without git."""
    wanted = [path for path in paths if b"\n" not in path]
    given = b"".join(b"HEAD:./%b\n" % path for path in wanted)
    try:
        out = ReadingGit(workspace).plain.done("cat-file", "--batch", given=given).out
    except GitError:
        return {}
    found: dict[bytes, bytes] = {}
    for path in wanted:
        # One line, and for a file its content: the answers are in the order of the questions.
        head, _, rest = out.partition(b"\n")
        kind, _, size = head.rpartition(b" ")
        out = rest
        if kind.endswith(b" blob") and size.isdigit():
            found[path], out = rest[: int(size)], rest[int(size) + 1 :]
    return found
