"""Repositories elsewhere, kept on this machine: commits that no copy has, because all machines can fetch them (``carry``).

There is one mirror for each URL below a directory, and a lock for each, since several runs may need the same one at a time. What
was fetched for a run has a reference of its own, so that it stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from bartack.core.flock import hold_lock
from bartack.core.git import git_service
from bartack.core.trust import make_private
from bartack.errors import WorkspaceKeepError, WorkspaceRemoteError
from bartack.runtime.copies._git import PlainGit
from bartack.runtime.copies._home import make_home
from bartack.runtime.copies._packs import check_object
from bartack.runtime.copies._repository import find_repository, is_large, list_missing
from bartack.runtime.copies.remotes import check_url, find_url

LIST_S: Final = 60.0
FETCH_S: Final = 3600.0
MOST_REFS: Final = 1000
"""How many references of a remote are looked at, branches first."""
_ID: Final = re.compile(r"[0-9a-f]{40}")
_REF: Final = re.compile(r"refs/(heads|tags)/[^\x00-\x20\x7f~^:?*\[\\]+")


class Base(NamedTuple):
    """A commit that a remote has.

    Attributes:
        url: Where.
        ref: A reference whose history it is in.
        commit: The commit.
    """

    url: str
    ref: str
    commit: str


def has_large_history(top: Path) -> bool:
    """Whether the workspace is in a repository whose history is carried only if that is asked for.

    Raises:
        WorkspaceKeepError: It cannot be read.
    """
    found = find_repository(top)
    return found is not None and is_large(PlainGit(found.own, place=top))


def find_base(top: Path, remote: str, own: Path) -> Base:
    """The latest commit of the history that is checked out which a remote has, too. The remote is asked.

    Args:
        top: The top of the workspace.
        remote: The name of the remote.
        own: A repository of our own, which git works in when it asks.

    Raises:
        WorkspaceRemoteError: There is none, or the remote does not answer.
        WorkspaceKeepError: Git cannot be run.
    """
    url = find_url(top, remote)
    found = find_repository(top)
    assert found is not None
    git = PlainGit(found.own, place=top)
    try:
        refs = _list(PlainGit(make_home(own)), url)
    except WorkspaceKeepError as error:
        raise WorkspaceRemoteError(str(top), remote, error.problem) from None
    missing = {*list_missing(git, {*refs.values()})}
    known = {ref: commit for ref, commit in refs.items() if commit not in missing}
    words = ("merge-base", "HEAD", *dict.fromkeys(known.values()))
    base = git.run(words, fine=(0, 1, 128)).line if known else ""
    ref = next((ref for ref, commit in known.items() if base and _is_in(git, base, commit)), "")
    if not ref:
        raise WorkspaceRemoteError(str(top), remote, "it has no commit of the history that is checked out")
    return Base(url, ref, base)


def objects_of(place: Path) -> Path | None:
    """The objects of the repository in a directory; ``None`` if there is none.

    Raises:
        WorkspaceKeepError: There is one, and git cannot use it.
    """
    found = find_repository(place)
    return None if found is None else found.objects


def fetch_base(mirrors: Path, base: Base) -> Path:
    """Have a commit on this machine, with all that it needs; returns the directory of the objects.

    Args:
        mirrors: Where the mirrors are.
        base: The commit.

    Raises:
        WorkspaceRemoteError: It cannot be fetched.
        WorkspaceKeepError: Git cannot be run.
    """
    url = check_url(base.url, Path("/"), base.url)
    if _ID.fullmatch(base.commit) is None or _REF.fullmatch(base.ref) is None or ".." in base.ref:
        raise WorkspaceRemoteError(str(mirrors), url, "the run names no commit of it")
    make_private(mirrors)
    name = hashlib.sha256(url.encode()).hexdigest()[:32]
    with hold_lock(mirrors / f"{name}.lock"):
        git = PlainGit(make_home(mirrors / f"{name}.git"))
        kept = f"refs/kept/{base.commit}"
        problem = "" if check_object(git, kept) else _fetch(git, url, base)
        if problem:
            raise WorkspaceRemoteError(str(mirrors), url, f"{base.commit} cannot be fetched: {problem}")
        git("update-ref", kept, base.commit)
    return git.directory / "objects"


def _fetch(git: PlainGit, url: str, base: Base) -> str:
    """Fetch a commit: the history of its reference, else the commit itself. Returns why that is not possible."""
    problem = ""
    branch = f"+{base.ref}:refs/fetched/{hashlib.sha256(base.ref.encode()).hexdigest()}"
    for wanted in (branch, base.commit):
        words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
        ended = git.online().run(
            (*words, *_program_at(url), "--", url, wanted), fine=range(256), timeout_s=FETCH_S
        )
        if check_object(git, f"{base.commit}^{{commit}}"):
            return ""
        problem = problem or (ended.problem if ended.status else f"{base.ref} does not have it any more")
    return problem


def _list(git: PlainGit, url: str) -> dict[str, str]:
    """The commits of the branches and tags of a remote."""
    words = ("ls-remote", "--quiet", "--heads", "--tags", "--refs", *_program_at(url), "--", url)
    lines = git.online().run(words, timeout_s=LIST_S).out.decode("utf-8", "replace").splitlines()
    pairs = [(ref, commit) for commit, _, ref in (line.partition("\t") for line in lines)]
    usable = [(ref, commit) for ref, commit in pairs if _REF.fullmatch(ref) and _ID.fullmatch(commit)]
    return dict(sorted(usable, key=_tags_last)[:MOST_REFS])


def _tags_last(pair: tuple[str, str]) -> bool:
    return pair[0].startswith("refs/tags/")


def _program_at(url: str) -> Iterable[str]:
    return (f"--upload-pack={git_service('upload-pack')}",) if url.startswith("file:") else ()


def _is_in(git: PlainGit, commit: str, history: str) -> bool:
    return not git.run(("merge-base", "--is-ancestor", commit, history), fine=(0, 1, 128)).status
