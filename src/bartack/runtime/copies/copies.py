"""Copies of one run: made, packed, added, restored and delivered.

A copy is a commit in a repository of Bartack's own (``copies.git``), with the trees ``workspace/``, ``run/`` and ``lanes/NAME/``
and ``meta.json``, which names what is checked out. It has no parents and no time: the same files are the same commit. Which copy
came before which is for the journal to know.

What is not in a copy: ignored files, owners, times and attributes of files, hooks, settings and reflogs of the repository, files
of repositories inside of the workspace, operations that are half done. ``Copy.left_out`` names what a person might miss.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from bartack.core.files import replace_file
from bartack.core.flock import hold_lock
from bartack.errors import UnsafePathError, WorkspaceKeepError
from bartack.runtime.copies._checkout import check_folders, check_tree, restore_tree, write_tree
from bartack.runtime.copies._delivery import RepositoryDelivery, open_repository
from bartack.runtime.copies._facts import UnchangedFolders
from bartack.runtime.copies._git import TIMEOUT_S, UNSYNCED, PlainGit, alternates
from bartack.runtime.copies._home import discard, make_home, was_made_since_boot
from bartack.runtime.copies._meta import (
    FORMAT,
    META,
    Checkout,
    Meta,
    TreeMeta,
    decode_meta,
    encode_meta,
    quote_path,
)
from bartack.runtime.copies._objects import FILE, TREE, Item, ObjectWriter
from bartack.runtime.copies._packs import (
    PART_BYTES,
    WHOLE,
    check_object,
    make_pack,
    require,
    revisions,
    take_pack,
)
from bartack.runtime.copies._rebuild import (
    check_names,
    forget_worktrees,
    rebuild_repository,
    rebuild_worktree,
)
from bartack.runtime.copies._repository import References, SourceRepository, Worktree, find_repository
from bartack.runtime.copies._watched import Rules, Scanned, WatchedTree
from bartack.runtime.copies.remotes import Pushed, push_commits
from bartack.runtime.copies.values import RUN_FOLDERS, Carry, Copy, Delivered, Limits, Sources

__all__ = ["PART_BYTES", "WHOLE", "Copies", "drop_copies", "find_top", "open_copies"]

WORKSPACE: Final = "workspace"
RUN: Final = "run"
LANES: Final = "lanes"
_THREADS: Final = 4
"""They wait for git."""
_WAIT_S: Final = 100 * TIMEOUT_S
"""Longer than all commands of a tree can take, each of which has a limit."""


class _Part(NamedTuple):
    """One tree as it was found."""

    scanned: Scanned
    worktree: Worktree | None
    repository: SourceRepository | None
    problem: str = ""


class Copies:
    """The copies of one run on this machine.

    Args:
        git: Their repository.
        limits: How large files and trees can be.
        include: Patterns of ignored files that are copied all the same: a name at any depth (``.env``), or a path seen from the
            workspace (``build/out``); ``*`` and ``**`` mean what they mean to git.
        base: A commit that no pack has, because all machines have it from elsewhere; empty: there is none.
    """

    def __init__(self, git: PlainGit, limits: Limits, include: Sequence[str], base: str = "") -> None:
        self._git = git
        self._base = base
        self._limits = limits
        self._include = tuple(include)
        self._objects = ObjectWriter(git.directory)
        self._repositories: dict[Path, SourceRepository] = {}
        self._runs: dict[Path, UnchangedFolders] = {}
        self._metas: dict[str, Meta] = {}

    @property
    def directory(self) -> Path:
        """Where they are kept."""
        return self._git.directory

    # Taking.

    def take(self, sources: Sources, parent: str, carry: Carry = "auto", *, during: bool = False) -> Copy:
        """Copy the files of a run as they are now.

        Args:
            sources: Where they are.
            parent: The copy before this one; empty for the first one, which is refused if it exceeds the limits. Later ones leave
                out what does.
            carry: How much of the workspace the first copy has.
            during: Whether steps are in flight, which would be executed again: a file that keeps changing is copied as it was
                read last.

        Raises:
            WorkspaceCarryError: The first copy exceeds the limits.
            WorkspaceKeepError: Files kept changing, or git failed.
            UnsafePathError: The name of a lane is not one component of a path.
        """
        with self._locked():
            places = _places(sources)
            if not parent and carry == "none":
                del places[WORKSPACE]
            with ThreadPoolExecutor(_THREADS) as threads:
                futures = {
                    name: threads.submit(
                        self._take_part, name, place, self._rules(name, place, sources, parent, during=during)
                    )
                    for name, place in places.items()
                }
                parts = {name: future.result(_WAIT_S) for name, future in futures.items()}
            return self._finish(sources, parts, parent, carry)

    def _take_part(self, name: str, place: Path, rules: Rules) -> _Part:
        if name == RUN:
            return _Part(self._scan_run(place, rules), None, None)
        repository, problem = self._repository(name, place)
        worktree = None if repository is None else repository.worktree()
        if repository is not None and worktree is not None:
            rules = rules._replace(excludes=repository.excludes, forced=worktree.forced, links=worktree.links)
        return _Part(self._watched(name, place, rules).scan(), worktree, repository, problem)

    def _scan_run(self, place: Path, rules: Rules) -> Scanned:
        known = self._runs.setdefault(place, UnchangedFolders(place, rules.below))
        scanned = known.recall()
        if scanned is None:
            scanned = self._watched(RUN, place, rules).scan()
            known.remember(scanned)
        return scanned

    def _watched(self, name: str, place: Path, rules: Rules) -> WatchedTree:
        return WatchedTree(self._git, place, self._folder(name), rules)

    def _folder(self, name: str) -> Path:
        return self.directory / "watched" / quote(name, safe="")

    def _repository(self, name: str, place: Path) -> tuple[SourceRepository | None, str]:
        """The repository of a work tree, and why it is not copied if it cannot be."""
        known = self._repositories.get(place)
        if known is not None and known.is_there():
            return known, ""
        try:
            found = find_repository(place)
        except WorkspaceKeepError as error:
            return None, error.problem
        if found is None:
            return None, ""
        folder = self._folder(name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = self._repositories[place] = SourceRepository(self._git, place, found, folder)
        return known, ""

    def _rules(self, name: str, place: Path, sources: Sources, parent: str, *, during: bool = False) -> Rules:
        rules = Rules(limits=self._limits, refusing=not parent, strict=not during)
        if name == RUN:
            return rules._replace(below=RUN_FOLDERS, ignoring=False)
        ours = [sources.run, self.directory, *sources.lanes.values()]
        outside = tuple(below for path in ours if (below := _seen_from(place, path)))
        return rules._replace(include=self._include, outside=outside)

    # Finishing.

    def _finish(self, sources: Sources, parts: Mapping[str, _Part], parent: str, carry: Carry) -> Copy:
        before = self._find_meta(parent)
        left_out = [sentence for name in parts for sentence in _explain(name, parts[name])]
        references = self._references(sources, parts.get(WORKSPACE), parent, carry, left_out)
        trees = {name: _tree_meta(part) for name, part in parts.items()}
        if WORKSPACE not in trees:
            trees = {WORKSPACE: TreeMeta(self._objects.tree(())), **trees}
        meta = Meta(FORMAT, trees, references.refs, references.shallow)
        meta = self._fetch(parts, meta, before, left_out)
        checkout = meta.trees[WORKSPACE].checkout or Checkout()
        is_same = before is not None and meta == before
        refs = {} if before is not None and before.refs == meta.refs else meta.refs
        commit = parent if is_same else self._write(meta)
        return Copy(commit, parent, checkout.commit, refs, tuple(left_out), is_same)

    def _references(
        self, sources: Sources, part: _Part | None, parent: str, carry: Carry, left_out: list[str]
    ) -> References:
        if part is None or part.repository is None or part.worktree is None:
            return References({}, ())
        checkout = part.worktree.checkout
        if not parent and self._base:
            return part.repository.references_beside(self._base, left_out)
        if not parent and not part.repository.check_carry(carry):
            left_out.append(
                'the history is not copied, only the commit that is checked out: carry = "full" copies it'
            )
            refs = {checkout.head: checkout.commit} if checkout.head and checkout.commit else {}
            return References(refs, (checkout.commit,) if checkout.commit else ())
        folders = ("refs/heads", "refs/tags", "refs/remotes", f"refs/bartack/{sources.run.name}")
        references = part.repository.references(folders)
        left_out += references.left_out
        return references

    def _fetch(
        self, parts: Mapping[str, _Part], meta: Meta, before: Meta | None, left_out: list[str]
    ) -> Meta:
        """Bring the commits that a copy names; one that names commits which the repository does not have names none."""
        wanted = meta.named()
        if before is not None and wanted <= before.named():
            return meta
        self._note_shallow(meta.shallow)
        try:
            for name, part in parts.items():
                if part.repository is not None:
                    checkout = meta.trees[name].checkout or Checkout()
                    refs = {*meta.refs.values()} if name == WORKSPACE else set[str]()
                    part.repository.fetch({checkout.commit, *refs} - {""}, checkout.index)
        except WorkspaceKeepError as error:
            left_out.append(f"the repository is not copied, only the files: {error.problem}")
            return Meta(FORMAT, {name: TreeMeta(tree.tree, tree.empty) for name, tree in meta.trees.items()})
        return meta

    def _note_shallow(self, commits: Sequence[str]) -> None:
        """Have git not look for the parents of commits that came without them."""
        file = self.directory / "shallow"
        known: set[str] = set()
        with suppress(FileNotFoundError):
            known = {*file.read_text().split()}
        if not known.issuperset(commits):
            replace_file(
                file, "".join(f"{name}\n" for name in sorted(known.union(commits))).encode(), synced=False
            )

    def _write(self, meta: Meta) -> str:
        """Write the commit of a copy."""
        write = self._objects
        lanes = [Item(_lane(name), TREE, tree.tree) for name, tree in meta.trees.items() if _lane(name)]
        items = [
            Item(META, FILE, write.blob(encode_meta(meta))),
            Item(WORKSPACE, TREE, meta.trees[WORKSPACE].tree),
            Item(RUN, TREE, meta.trees[RUN].tree),
        ]
        if lanes:
            items.append(Item(LANES, TREE, write.tree(lanes)))
        commit = write.commit(write.tree(items), "Copy")
        self._metas[commit] = meta
        return commit

    # Packs.

    def has(self, commit: str) -> bool:
        """Whether a copy is here."""
        return self._find_meta(commit) is not None

    def pack(self, commit: str, have: str = "", part_bytes: int = PART_BYTES) -> Iterator[bytes]:
        """The objects of a copy that another one does not have; all but those of the base if no other one is given.

        They come in parts, each of which a database can keep as a value.

        Raises:
            WorkspaceKeepError: One of the copies is not here.
        """
        meta = self._meta(commit)
        before = self._meta(have) if have else None
        given = revisions(commit, meta, have, before, self._base)
        return make_pack(self._git, given, is_thin=bool(have or self._base), part_bytes=part_bytes)

    def add_pack(self, parts: Iterable[bytes]) -> None:
        """Add what ``pack`` made, here or elsewhere. The copy that it builds on has to be here.

        Raises:
            WorkspaceKeepError: It cannot be read, or what it builds on is not here.
        """
        take_pack(self._git, parts)

    def borrow(self, objects: Path) -> None:
        """Use the objects of another repository of this machine from now on."""
        file = self.directory / "objects/info/alternates"
        file.parent.mkdir(exist_ok=True)
        replace_file(file, os.fsencode(objects) + b"\n", synced=False)

    def has_base(self) -> bool:
        """Whether what no pack has is here."""
        return not self._base or check_object(self._git, f"{self._base}^{{commit}}")

    def lanes(self, commit: str) -> tuple[str, ...]:
        """The names of the lanes that a copy has.

        Raises:
            WorkspaceKeepError: It is not here.
        """
        return tuple(lane for name in self._meta(commit).trees if (lane := _lane(name)))

    # Restoring.

    def restore(self, commit: str, sources: Sources) -> None:
        """Make the workspace, the lanes and the files of the run what they were. It can be repeated after any interruption.

        Files of the workspace that are not in the copy are removed, unless they are ignored. Lanes that the sources do not
        name are left out.

        Raises:
            UnsafePathError: The copy has a name that leads elsewhere. Nothing was written.
            WorkspaceKeepError: The copy is not here, git failed, or the files are not what the copy has.
        """
        with self._locked():
            meta = self._meta(commit)
            trees = self._checked(meta)
            self._note_shallow(meta.shallow)
            places = _places(sources, is_target=True)
            for name in [name for name in places if name in trees]:
                self._restore_part(
                    name, places[name], trees[name], self._rules(name, places[name], sources, commit)
                )
            checkout = meta.trees[WORKSPACE].checkout
            if checkout is not None:
                rebuild_repository(self._git, places[WORKSPACE], meta, checkout)
                forget_worktrees(places[WORKSPACE], [place for name, place in places.items() if _lane(name)])
            for name in [name for name in places if _lane(name) and name in trees]:
                own = trees[name].checkout
                if checkout is not None and own is not None:
                    rebuild_worktree(places[WORKSPACE], _lane(name), places[name], own)

    def _restore_part(self, name: str, place: Path, meta: TreeMeta, rules: Rules) -> None:
        place.mkdir(mode=0o700 if name == RUN else 0o777, parents=True, exist_ok=True)
        restore_tree(self._git, place, meta, self._watched(name, place, rules), is_private=name == RUN)

    def _checked(self, meta: Meta) -> dict[str, TreeMeta]:
        """The trees of a copy, none of which has a name that leads elsewhere."""
        check_names(meta)
        if not {WORKSPACE, RUN} <= meta.trees.keys():
            raise WorkspaceKeepError(str(self.directory), "the copy has no workspace, or no files of the run")
        for name, tree in meta.trees.items():
            if name not in {WORKSPACE, RUN} and (not _lane(name) or _is_unsafe(_lane(name))):
                raise UnsafePathError(name, "a copy has no such tree")
            check_tree(self._git, tree.tree, is_run=name == RUN)
            check_folders(tree)
        return meta.trees

    def deliver(self, commit: str, repository: Path, run_id: str, base: str = "") -> Delivered:
        """Bring what the run has made into a repository, as references and branches. Nothing that is checked out changes.

        Args:
            commit: The copy.
            repository: A directory in the repository.
            run_id: The run, which the names of the branches begin with.
            base: The first copy of the run: branches that are as they were in it are not delivered.

        Raises:
            UnsafePathError: The copy has a name that leads elsewhere.
            WorkspaceKeepError: The directory is not in a repository, or git failed.
        """
        with self._locked():
            meta = self._meta(commit)
            self._checked(meta)
            self._note_shallow(meta.shallow)
            git = open_repository(find_top(repository))
            return RepositoryDelivery(self._git, git, run_id).deliver(meta, self._find_meta(base))

    def publish(self, commit: str, url: str, run_id: str, base: str, at_s: int) -> Pushed:
        """Push what ``deliver`` brings into a repository. It can be repeated: the same copy makes the same commits.

        Args:
            commit: The copy.
            url: Where to (``remotes.find_url``).
            run_id: See ``deliver``.
            base: See ``deliver``.
            at_s: The time of the commits.

        Raises:
            UnsafePathError: The copy has a name that leads elsewhere.
            WorkspaceKeepError: The other side cannot be reached, or git failed.
        """
        with self._locked():
            meta = self._meta(commit)
            self._checked(meta)
            home = self.directory.with_name("push.git")
            shutil.rmtree(home, ignore_errors=True)
            try:
                # A new repository has no settings and no hooks.
                objects = alternates(self.directory / "objects")
                git = PlainGit(make_home(home), {"GIT_ALTERNATE_OBJECT_DIRECTORIES": objects})
                if meta.shallow:
                    replace_file(home / "shallow", "".join(f"{name}\n" for name in meta.shallow).encode())
                delivery = RepositoryDelivery(self._git, git, run_id, at_s)
                return push_commits(git, url, delivery.deliver(meta, self._find_meta(base)).branches)
            finally:
                shutil.rmtree(home, ignore_errors=True)

    def write_files(self, commit: str, directory: Path) -> None:
        """Write the files of the workspace into a directory that is empty, or not there yet.

        Raises:
            UnsafePathError: The copy has a name that leads elsewhere. Nothing was written.
            WorkspaceKeepError: The directory is not empty, or the copy is not here.
        """
        with self._locked():
            meta = self._checked(self._meta(commit))[WORKSPACE]
            if os.path.lexists(directory) and (not directory.is_dir() or any(directory.iterdir())):
                raise WorkspaceKeepError(str(directory), "it is not an empty directory")
            write_tree(self._git, directory, meta)

    # Reading.

    def _meta(self, commit: str) -> Meta:
        return require(self._find_meta(commit), commit)

    def _find_meta(self, commit: str) -> Meta | None:
        if commit in self._metas:
            return self._metas[commit]
        if not check_object(self._git, f"{commit}^{{commit}}" if commit else ""):
            return None
        meta = self._metas[commit] = decode_meta(self._git("cat-file", "blob", f"{commit}:{META}"), commit)
        return meta

    @contextmanager
    def _locked(self) -> Generator[None]:
        with hold_lock(self.directory / "copies.lock"):
            yield


def open_copies(
    directory: Path, limits: Limits | None = None, include: Sequence[str] = (), base: str = ""
) -> Copies:
    """The copies that are kept in a directory, which is made if it is missing.

    Args:
        directory: A bare repository that nothing else uses, as ``copies.git`` beside the run.
        limits: How large files and trees can be.
        include: Patterns of ignored files that are copied all the same.
        base: A commit that no pack has.

    Raises:
        WorkspaceKeepError: It cannot be made.
    """
    git = PlainGit(make_home(Path(directory)), settings=UNSYNCED)
    return Copies(git, limits or Limits(), include, base)


def drop_copies(directory: Path, top: Path | None = None, *, always: bool = False) -> None:
    """Remove the copies that are kept in a directory if the machine has started since they were written: they may be damaged.

    Args:
        directory: See ``open_copies``.
        top: A workspace that was made of them: so may be the repository in it.
        always: Whether they are removed in any case.
    """
    if always or not was_made_since_boot(directory):
        discard(directory)
        if top is not None:
            discard(top / ".git")


def find_top(directory: Path) -> Path:
    """The directory to copy for a workspace: the top of the repository around it, or the directory itself."""
    directory = Path(os.path.realpath(directory))
    return next(
        (place for place in (directory, *directory.parents) if os.path.lexists(place / ".git")), directory
    )


def _places(sources: Sources, *, is_target: bool = False) -> dict[str, Path]:
    """Where each tree is, by its name in the copy. A lane whose worktree is gone has no files to copy."""
    places = {WORKSPACE: sources.workspace, RUN: sources.run}
    for name, place in sorted(sources.lanes.items()):
        if _is_unsafe(name):
            raise UnsafePathError(name, "the name of a lane is one component of a path")
        if is_target or place.is_dir():
            places[f"{LANES}/{name}"] = place
    return {name: Path(os.path.realpath(place)) for name, place in places.items()}


def _is_unsafe(lane: str) -> bool:
    return not lane or "/" in lane or "\0" in lane or lane.casefold() in {".", "..", ".git"}


def _lane(name: str) -> str:
    folder, _, lane = name.partition("/")
    return lane if folder == LANES else ""


def _seen_from(place: Path, path: Path) -> bytes:
    """A path as seen from a directory that it is in; empty if it is elsewhere."""
    real = Path(os.path.realpath(path))
    return os.fsencode(real.relative_to(place)) if place in real.parents else b""


def _tree_meta(part: _Part) -> TreeMeta:
    checkout = None if part.worktree is None else part.worktree.checkout
    return TreeMeta(part.scanned.tree, tuple(map(quote_path, part.scanned.empty)), checkout)


def _explain(name: str, part: _Part) -> list[str]:
    """What a tree leaves out, with the name of the tree unless it is the workspace."""
    own = [*part.scanned.left_out, *(part.worktree.left_out if part.worktree is not None else ())]
    if part.problem:
        own.append(f"the repository is not copied, only the files: {part.problem}")
    return own if name == WORKSPACE else [f"{name}: {sentence}" for sentence in own]
