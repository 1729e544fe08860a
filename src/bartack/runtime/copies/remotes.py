"""Repositories elsewhere, by URL: which ones may be used, and pushing to one.

A URL comes from the settings of a repository, and travels with a run to machines that have credentials of their own. So it must
not have a password, and nothing in it may become an option or a command of git: only three ways to reach a repository are left
(``core/git.py`` has them), and programs of the other side of a path on this machine are started without its hooks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from bartack.core.git import PROTOCOLS, git_service
from bartack.errors import WorkspaceKeepError, WorkspaceRemoteError
from bartack.runtime.copies._git import PlainGit
from bartack.runtime.copies._repository import find_repository

PUSH_S: Final = 300.0
_HELPER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
_SHORT: Final = re.compile(
    r"(?:(?P<user>\w[\w.+-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*):(?P<path>[^-@:][^@:]*)"
)
"""``git@host:path``."""
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:]+")
_USER: Final = re.compile(r"\w[\w.+-]*")


class Pushed(NamedTuple):
    """What became of branches that were pushed.

    Attributes:
        branches: Those that are there now.
        refused: What the other side has refused, with the reason.
    """

    branches: tuple[str, ...]
    refused: tuple[str, ...]


def find_url(top: Path, remote: str, *, pushes: bool = False) -> str:
    """The URL of a remote of the repository in a workspace, as another machine may use it.

    Args:
        top: The top of the workspace.
        remote: The name of the remote.
        pushes: Whether it is for pushing.

    Raises:
        WorkspaceRemoteError: There is none, or it cannot travel.
        WorkspaceKeepError: Git cannot be run.
    """
    found = find_repository(top)
    if found is None:
        raise WorkspaceRemoteError(str(top), remote, "the workspace is not in a git repository")
    git = PlainGit(found.own, {"GIT_WORK_TREE": str(top)}, top)
    keys = ["pushurl", "url"] if pushes else ["url"]
    for key in keys:
        lines = git.run(("config", "--get-all", f"remote.{remote}.{key}"), fine=(0, 1)).line.splitlines()
        if lines:
            return check_url(lines[0], top, remote)
    raise WorkspaceRemoteError(str(top), remote, "the repository has no such remote")


def check_url(url: str, top: Path, remote: str) -> str:
    """The form of a URL that other machines get.

    The user of an HTTPS URL is left out: credentials are those of the other machine.

    Raises:
        WorkspaceRemoteError: It has a password, or cannot be used.
    """
    problem = ""
    if not url or url.startswith("-") or not url.isprintable():
        problem = "what it has is not a URL"
    elif _HELPER.match(url):
        problem = "its URL names a program that git would start"
    elif "://" in url:
        parts = _split(url)
        problem = "its URL cannot be read" if parts is None else _problem_of(parts)
        if parts is not None and not problem:
            return _plain(parts)
    elif ":" in url.partition("/")[0]:
        if _SHORT.fullmatch(url):
            return url
        problem = "its URL cannot be read; write it as ssh://HOST/PATH"
    else:
        return f"file://{quote(os.path.normpath(top / url))}"
    raise WorkspaceRemoteError(str(top), remote, problem)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _problem_of(parts: SplitResult) -> str:
    """Why a URL is refused; empty if it is not."""
    is_path = parts.scheme == "file"
    names = ", ".join(f"{name}://" for name in PROTOCOLS)
    checks = (
        (parts.scheme not in PROTOCOLS, f"its URL begins with {parts.scheme}://; use one of {names}"),
        (parts.password is not None, "its URL has a password; nodes use credentials of their own"),
        (bool(parts.query or parts.fragment), "its URL has more than a path"),
        (is_path and bool(parts.netloc), "its URL is not a path of this machine"),
        (not is_path and _HOST.fullmatch(parts.hostname or "") is None, "its URL has no host"),
        (_USER.fullmatch(parts.username or "_") is None, "the user in its URL cannot be used"),
    )
    return next((problem for is_wrong, problem in checks if is_wrong), "")


def _plain(parts: SplitResult) -> str:
    netloc = parts.netloc.rpartition("@")[2] if parts.scheme == "https" else parts.netloc
    return f"{parts.scheme}://{netloc}{parts.path}"


def push_commits(git: PlainGit, url: str, branches: Mapping[str, str]) -> Pushed:
    """Push commits of a repository of our own to branches elsewhere; those that are there already stay.

    Args:
        git: The repository.
        url: Where to, from ``find_url``.
        branches: The commits, by the names of the branches.

    Raises:
        WorkspaceKeepError: The other side cannot be reached, or did not answer in time.
        WorkspaceRemoteError: It is not a URL that can be used.
    """
    url = check_url(url, git.directory, url)
    online = git.online()
    words = [
        "push",
        "--porcelain",
        "--no-verify",
        "--no-signed",
        "--no-follow-tags",
        "--recurse-submodules=no",
    ]
    if url.startswith("file:"):
        words.append(f"--receive-pack={git_service('receive-pack')}")
    specs = [f"{commit}:refs/heads/{name}" for name, commit in branches.items()]
    ended = online.run((*words, "--", url, *specs), fine=(0, 1), timeout_s=PUSH_S)
    lines = [line.split("\t") for line in ended.out.decode("utf-8", "replace").splitlines()]
    found = {words[1].partition(":")[2]: words for words in lines if len(words) == 3}
    if not found:
        raise WorkspaceKeepError(url, f"git push: {ended.problem}")
    refused = tuple(f"{name}: {found[name][2]}" for name in found if found[name][0] == "!")
    there = tuple(name for name in branches if found.get(f"refs/heads/{name}", ["!"])[0] != "!")
    return Pushed(there, refused)
