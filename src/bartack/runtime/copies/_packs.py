"""Packs: the objects of one copy that another one does not have, as bytes, and bytes as objects."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Final

from bartack.errors import WorkspaceKeepError
from bartack.runtime.copies._git import PlainGit, spool
from bartack.runtime.copies._meta import Meta

PART_BYTES: Final = 128 << 20
"""How long a part of a pack is at most: a database without an object store keeps no value of more than twice this."""
WHOLE: Final = -1
"""As the length of a part: all of the pack is one part."""


def words_of_pack(*, is_thin: bool) -> tuple[str, ...]:
    """The command that makes a pack of what it reads.

    A thin pack has differences to objects that the other side has. Copies are not each other's parents, so git takes the other
    copy for their source only if it is asked to look at all (``--shallow``).
    """
    thin = ("--thin", "--shallow") if is_thin else ()
    return ("pack-objects", "--revs", *thin, "--stdout", "--delta-base-offset", "-q")


def revisions(commit: str, meta: Meta, have: str, before: Meta | None, base: str = "") -> bytes:
    """What git reads to find the objects of a pack: names that are wanted, and names that are there, with a caret.

    The history is walked only if the copy has something that the other one does not name.
    """
    known = before.named() if before is not None else set[str]()
    wanted = sorted(meta.named() - known)
    lines = [commit, *wanted]
    if base and not have:
        lines.append(f"^{base}")
    if have:
        lines.append(f"^{have}")
    if wanted:
        lines += [f"^{name}" for name in sorted(known)]
    return "".join(f"{line}\n" for line in lines).encode()


def make_pack(git: PlainGit, given: bytes, *, is_thin: bool, part_bytes: int = PART_BYTES) -> Iterator[bytes]:
    """The bytes of a pack, in parts: it may be larger than the memory.

    Raises:
        WorkspaceKeepError: Objects are missing.
    """
    with spool(git, words_of_pack(is_thin=is_thin), given) as file:
        while part := file.read(part_bytes):
            yield part


def take_pack(git: PlainGit, parts: Iterable[bytes]) -> None:
    """Make the parts of a pack objects; those that a thin pack builds on have to be there.

    Raises:
        WorkspaceKeepError: It is not a pack, or what it builds on is missing.
    """
    with tempfile.TemporaryFile(dir=git.directory) as file:
        for part in parts:
            file.write(part)
        file.seek(0)
        git.run(("index-pack", "--stdin", "--fix-thin"), given=file)


def move_objects(source: PlainGit, target: PlainGit, given: bytes) -> None:
    """Copy objects from one repository to another one on this machine, by the names that git reads.

    Raises:
        WorkspaceKeepError: Objects are missing.
    """
    with spool(source, words_of_pack(is_thin=False), given) as pack:
        target.run(("index-pack", "--stdin"), given=pack)


def check_object(git: PlainGit, name: str) -> bool:
    """Whether a repository has an object.

    Raises:
        WorkspaceKeepError: Git cannot be run.
    """
    return bool(name) and git.run(("cat-file", "-e", name), fine=range(256)).status == 0


def require(meta: Meta | None, commit: str) -> Meta:
    """The description of a copy that has to be there.

    Raises:
        WorkspaceKeepError: It is not there.
    """
    if meta is None:
        raise WorkspaceKeepError(commit, "there is no such copy")
    return meta
