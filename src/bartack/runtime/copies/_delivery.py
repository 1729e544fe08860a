"""What a run has made, brought into a repository of the user: branches that can be merged, and nothing that is checked out.

Delivering again moves the branches that the last delivery made and that were left alone since; one that has a person's own commits,
or is checked out, stays where it is, and the new one gets a longer name.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bartack.errors import WorkspaceKeepError
from bartack.runtime.copies._git import PlainGit
from bartack.runtime.copies._meta import Checkout, Meta
from bartack.runtime.copies._packs import check_object
from bartack.runtime.copies._rebuild import add_objects
from bartack.runtime.copies._repository import find_repository
from bartack.runtime.copies.values import Delivered

_HEADS: Final = "refs/heads/"
_FORMAT: Final = "%(refname)%00%(objectname)%00%(worktreepath)"
_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Bartack"), ("EMAIL", "bartack@localhost"))
}


class _There(NamedTuple):
    """A reference that is there: its commit, and whether it is checked out."""

    commit: str
    is_in_use: bool


class RepositoryDelivery:
    """One delivery.

    Args:
        copies: The repository with the copies.
        git: The repository that gets the branches.
        run_id: The run.
        at_s: The time of the commits, so that they have the same names whenever they are made; ``None``: now.
    """

    def __init__(self, copies: PlainGit, git: PlainGit, run_id: str, at_s: int | None = None) -> None:
        self._copies = copies
        self._git = git
        times = ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE")
        self._times = {} if at_s is None else dict.fromkeys(times, f"@{at_s} +0000")
        self._run = run_id
        self._kept = f"refs/bartack/{run_id}/copy/"
        self._branches = f"bartack/{run_id}/"

    def deliver(self, meta: Meta, base: Meta | None) -> Delivered:
        """Make the branches.

        Args:
            meta: The copy.
            base: The first copy of the run, if it is here.

        Raises:
            WorkspaceKeepError: Git failed.
        """
        before = _checkout(base) if base is not None else Checkout()
        trees = {tree.tree for name, tree in meta.trees.items() if name != "run"}
        add_objects(self._copies, self._git, meta.named() | trees, also={before.commit} - {""})
        there = self._look()
        result, has_parent = self._commit_of("workspace", meta, before.commit, there)
        made = {"workspace": result}
        made |= self._changed_branches(meta, base)
        for name, tree in meta.trees.items():
            if name.startswith("lanes/") and tree.checkout is not None:
                made[name] = self._commit_of(name, meta, "", there)[0]
        branches = self._move(made, there)
        merge = "git merge" if has_parent else "git merge --allow-unrelated-histories"
        command = f"{merge} {shlex.quote(next(iter(branches)))}"
        return Delivered({self._kept + name: made[name] for name in made}, branches, command)

    def _changed_branches(self, meta: Meta, base: Meta | None) -> dict[str, str]:
        known = base.refs if base is not None else {}
        own = self._branches.removesuffix("/") + "/"
        return {
            f"heads/{name.removeprefix(_HEADS).removeprefix(own)}": commit
            for name, commit in meta.refs.items()
            if name.startswith(_HEADS) and known.get(name) != commit
        }

    def _commit_of(
        self, name: str, meta: Meta, otherwise: str, there: Mapping[str, _There]
    ) -> tuple[str, bool]:
        """The commit with the files of a tree, and whether it has a parent.

        It is the one that is checked out, if that has the same files; else a commit on top of it.
        """
        tree = meta.trees[name]
        checked_out = tree.checkout.commit if tree.checkout is not None else ""
        parent = next((commit for commit in (checked_out, otherwise) if check_object(self._git, commit)), "")
        if parent and self._git.line("rev-parse", f"{parent}^{{tree}}") == tree.tree:
            return parent, True
        known = there.get(self._kept + name)
        if (
            known is not None
            and self._git.line("show", "-s", "--format=%T %P", known.commit) == f"{tree.tree} {parent}"
        ):
            return known.commit, bool(parent)
        words = ("-p", parent) if parent else ()
        message = f"What {self._run} left in its {'workspace' if name == 'workspace' else name}\n"
        git = self._git.using(None, **_AUTHOR, **self._times)
        return git.line("commit-tree", tree.tree, *words, given=message.encode()), bool(parent)

    def _look(self) -> dict[str, _There]:
        out = self._git("for-each-ref", f"--format={_FORMAT}", self._kept, _HEADS + self._branches)
        lines = [line.split(b"\0") for line in out.splitlines()]
        return {os.fsdecode(name): _There(commit.decode(), bool(place)) for name, commit, place in lines}

    def _move(self, made: Mapping[str, str], there: Mapping[str, _There]) -> dict[str, str]:
        branches = {self._branch(name, commit, there): commit for name, commit in made.items()}
        updates = {self._kept + name: commit for name, commit in made.items()}
        updates |= {_HEADS + name: commit for name, commit in branches.items()}
        given = b""
        for name, commit in updates.items():
            old = there[name].commit if name in there else "0" * 40
            given += b"update %b\0%b\0%b\0" % (os.fsencode(name), commit.encode(), old.encode())
        self._git("update-ref", "-z", "--stdin", given=given)
        return branches

    def _branch(self, name: str, commit: str, there: Mapping[str, _There]) -> str:
        """The branch that gets a commit: the usual one, unless a person uses it."""
        usual = self._branches + name
        known = there.get(_HEADS + usual)
        last = there.get(self._kept + name)
        if known is None or known.commit == commit:
            return usual
        if last is not None and known.commit == last.commit and not known.is_in_use:
            return usual
        return f"{usual}-{commit[:12]}"


def open_repository(repository: Path) -> PlainGit:
    """The repository of the user whose work tree has its top here.

    Raises:
        WorkspaceKeepError: There is none.
    """
    found = find_repository(repository)
    if found is None:
        raise WorkspaceKeepError(
            str(repository), "it is not a git repository; --dir writes the files instead"
        )
    return PlainGit(found.own, place=repository)


def _checkout(meta: Meta) -> Checkout:
    return meta.trees["workspace"].checkout or Checkout()
