"""What is done with git for tasks side by side: a base, a worktree and a branch for each task, commits, merges, and the end of it.

Every function can be killed between any two commands and called again: it looks at what is there first, and finishes what is
missing. Branches are moved by naming the commit they are expected at. Nothing is overwritten and nothing is forced; the user's
index, branch and files are only touched by ``deliver``, and only where git does it without loss. Steps are made of this in
``_lanes.py``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from bartack.core.trust import make_private
from bartack.errors import GitError, WorktreeError
from bartack.pipeline.records.records import Base, Delivered, Merged
from bartack.pipeline.snapshot._paths import first_paths, path_text
from bartack.pipeline.worktree._git import Git, check_version
from bartack.pipeline.worktree._left_out import find_unborn, leaving_out
from bartack.pipeline.worktree._whose import find_caches, find_unwanted

RESULT: Final = "result"
"""The branch and the worktree in which the work of all tasks comes together."""
MARKED: Final = "+marked-"
"""Begins the names of references to merges with marked conflicts; no task can be called so."""
MARKS: Final = (b"<<<<<<< ", b">>>>>>> ")
MOST_NAMED: Final = 3
"""How many files are named that are in the way."""
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.-]")
_GITLINK: Final = b"160000 "


# Names.


def lane_name(task: str, attempt: int = 1) -> str:
    """What the worktree of a task is called: its id, as far as a branch may be called so.

    Args:
        task: The task.
        attempt: 1; more for each time that a conflict is worked on.
    """
    name = _PLAIN.sub(lambda found: _escape(found[0]), task)
    name = name.replace("..", ".%2E")
    if name.endswith((".", ".lock")) or name.startswith("."):
        head, _, tail = name.rpartition(".")
        name = f"{head}%2E{tail}"
    if name == RESULT:
        name = _escape(name[0]) + name[1:]
    return name if attempt == 1 else f"{name}@{attempt}"


def _escape(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def trees_of(run_dir: str) -> str:
    """Where the worktrees of a run are. Seen from the run's directory, so that both can be moved together."""
    runs, name = os.path.split(run_dir)
    return f"{run_dir}/../../worktrees/{name}" if os.path.basename(runs) == "runs" else f"{run_dir}/worktrees"


def tree_of(run_dir: str, name: str) -> str:
    """The worktree of this name."""
    return f"{trees_of(run_dir)}/{name}"


def branch_of(run_dir: str, name: str) -> str:
    """The branch of this name."""
    return f"bartack/{os.path.basename(run_dir)}/{name}"


class Trees:
    """The worktrees of one run.

    Args:
        root: The user's workspace.
        run_dir: The run.
    """

    def __init__(self, root: str, run_dir: str) -> None:
        self.root = root
        self.run_dir = run_dir
        self.run = os.path.basename(run_dir)
        self.own = (f"/bartack/{self.run}/",)
        self.git = Git(root, self.own)

    @property
    def state_dir(self) -> str:
        """Where all runs are kept."""
        return os.path.dirname(os.path.dirname(os.path.realpath(self.run_dir)))

    def path(self, name: str) -> str:
        """Where a worktree is."""
        return os.path.abspath(tree_of(self.run_dir, name))

    def branch(self, name: str) -> str:
        """The branch of a worktree."""
        return branch_of(self.run_dir, name)

    def kept(self, name: str) -> str:
        """The reference that keeps what a worktree began with, where that is a commit of our own."""
        return f"refs/bartack/{self.run}/{name}"

    def inside(self, name: str) -> Git:
        """Git in a worktree.

        Raises:
            WorktreeError: The worktree is gone.
        """
        path = self.path(name)
        if not os.path.isfile(os.path.join(path, ".git")):
            branch = self.branch(name)
            problem = (
                f"the worktree is gone; the branch {branch} has its last commit "
                f"(git worktree add -f {path!r} {branch} brings it back)"
            )
            raise WorktreeError(path, problem)
        return Git(path, (*self.own, f"/worktrees/{os.path.basename(self._admin(path))}/"))

    # The base.

    def make_base(self, *, setup: bool) -> Base:
        """The commit that all tasks begin with: HEAD, or one of everything that is not committed yet.

        Args:
            setup: Whether a command prepares each worktree: only it can bring what is in submodules.

        Raises:
            WorktreeError: The repository is not in a state to begin with.
            GitError: Git cannot be used.
        """
        head, branch, prefix = look_at(self.git)
        check_names(self.git)
        kept = self.kept("base")
        make_private(Path(self.path(RESULT)).parent)
        known = self.git.find("rev-parse", "--verify", "--quiet", f"{kept}^{{commit}}")
        if known:
            return Base(commit=known, head=head, branch=branch, prefix=prefix, dirty=True)
        tree = self._tree_of_workspace(setup=setup)
        if tree == self.git("rev-parse", f"{head}^{{tree}}"):
            return Base(commit=head, head=head, branch=branch, prefix=prefix)
        message = f"What was not committed when {self.run} began\n"
        made = self.git.done("commit-tree", tree, "-p", head, given=message.encode(), author=True).line
        self.git("update-ref", kept, made, "")
        return Base(commit=made, head=head, branch=branch, prefix=prefix, dirty=True)

    def _tree_of_workspace(self, *, setup: bool) -> str:
        """Everything that git would commit."""
        check_nested(self.git, self.state_dir)
        tree, links = self.write_tree(self.git, "base")
        if links:
            self._check_links(links, setup=setup)
        return tree

    def write_tree(self, git: Git, name: str) -> tuple[str, list[bytes]]:
        """Everything that git would commit in a work tree, and the repositories in it of which it would only commit a name.

        Without what the terminal is writing, and what editors and caches leave: see ``find_unwanted``. An index of our own is
        used for it; the user's is copied, not touched.

        Args:
            git: Git in that work tree.
            name: What the index is called.
        """
        index = os.path.abspath(os.path.join(self.run_dir, "work", f"{name}.index"))
        for left in (index, f"{index}.lock"):
            with suppress(FileNotFoundError):
                os.unlink(left)
        with suppress(FileNotFoundError):
            shutil.copyfile(os.path.join(git.place, git("rev-parse", "--git-path", "index")), index)
        env = {"GIT_INDEX_FILE": index}
        try:
            unwanted = [*find_unborn(git, self.state_dir), *find_unwanted(git, self.run_dir)]
            paths = [*_everything(), *self._state_dir(), *leaving_out(unwanted)]
            _add(git, paths, env)
            staged = git.done("ls-files", "-z", "--stage", env=env).out.split(b"\0")
            links = [item.partition(b"\t")[2] for item in staged if item.startswith(_GITLINK)]
            return git("write-tree", **env), links
        finally:
            with suppress(FileNotFoundError):
                os.unlink(index)

    def _state_dir(self) -> tuple[str, ...]:
        """The directory of all runs, where it is inside of the repository and not called as usual: left out."""
        runs = os.path.dirname(os.path.realpath(self.run_dir))
        top = self.git("rev-parse", "--show-toplevel")
        inside = os.path.relpath(os.path.dirname(runs), top)
        if inside.startswith("..") or inside == ".bartack":
            return ()
        # A plain path that is ignored would be an error; with a pattern it is not.
        pattern = f"[{inside[0]}]" + re.sub(r"([*?\[\]\\])", r"\\\1", inside[1:])
        return f":(top,exclude,glob){pattern}", f":(top,exclude,glob){pattern}/**"

    def _check_links(self, links: list[bytes], *, setup: bool) -> None:
        name = os.fsdecode(links[0])
        if not setup:
            problem = (
                f"a worktree would have nothing in {name!r}, which is a repository of its own; set parallel.setup "
                'to a command that brings it, like ["git", "submodule", "update", "--init"], or parallel.tasks = 1'
            )
            raise WorktreeError(self.root, problem)
        status = self.git.done("status", "--porcelain=v2", "-z", "--ignore-submodules=none").out
        for item in status.split(b"\0"):
            words = item.split(b" ", 8)
            if len(words) == 9 and words[2].startswith(b"S") and words[2][2:] != b"..":
                problem = f"{os.fsdecode(words[8])!r} has changes that are not committed there, and no worktree would have them"
                raise WorktreeError(self.root, problem)

    # Worktrees.

    def open(self, name: str, start: str) -> None:
        """Make a worktree on its branch, unless it is there already.

        Args:
            name: Its name.
            start: The commit that its branch begins at.

        Raises:
            GitError: Git refused, for one because the branch is checked out elsewhere.
        """
        path, branch = self.path(name), self.branch(name)
        if self._is_open(path, f"refs/heads/{branch}"):
            return
        self._put_aside(path)
        self._start_branch(branch, start)
        make_private(Path(path).parent)
        try:
            self.git("worktree", "add", "--quiet", path, branch)
        except GitError as error:
            raise WorktreeError(path, error.problem) from None

    def _is_open(self, path: str, ref: str) -> bool:
        """Whether git has made this worktree, whole, and it is on its branch."""
        admin = self._admin(path)
        if not admin or not os.path.isdir(admin) or _is_unfinished(admin):
            return False
        return Git(path, self.own).find("symbolic-ref", "--quiet", "HEAD") == ref

    def _admin(self, path: str) -> str:
        """Where git keeps what it knows of a worktree; empty if there is no worktree."""
        try:
            content = Path(path, ".git").read_bytes()
        except OSError:
            return ""
        return os.fsdecode(content.removeprefix(b"gitdir: ").removesuffix(b"\n"))

    def _put_aside(self, path: str) -> None:
        """Make room for a worktree: what a killed command has left there is kept, under another name."""
        if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
            number = 1
            while os.path.lexists(f"{path}.left-{number}"):
                number += 1
            os.rename(path, f"{path}.left-{number}")
        if os.path.isdir(path):
            os.rmdir(path)
        noted = self._note_of(path)
        if noted and _is_unfinished(noted):
            self.git("worktree", "unlock", path)
        if noted:
            # Without its directory a worktree is only a note of git's.
            self.git("worktree", "remove", path)

    def _note_of(self, path: str) -> str:
        """Where git keeps what it knows of a worktree whose directory is gone; empty if it knows nothing."""
        common = os.path.join(self.root, self.git("rev-parse", "--git-common-dir"))
        own = os.path.realpath(path)
        for noted in Path(common, "worktrees").glob("*/gitdir"):
            file = os.fsdecode(noted.read_bytes().removesuffix(b"\n"))
            if os.path.realpath(os.path.dirname(file)) == own:
                return str(noted.parent)
        return ""

    def _start_branch(self, branch: str, start: str) -> None:
        ref = f"refs/heads/{branch}"
        tip = self.git.find("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        if not tip:
            self.git("update-ref", ref, start, "")
        elif not self.git.test("merge-base", "--is-ancestor", start, tip):
            raise WorktreeError(branch, f"this branch is there already, and does not come from {start[:12]}")

    def repair(self, name: str) -> None:
        """Make a worktree that was moved known to git at its new place.

        Raises:
            GitError: Git cannot find out whose it is.
        """
        git = Git(self.path(name), self.own)
        if git.done("rev-parse", "--git-dir", fine=range(256)).status or not self._is_known(name):
            self.git("worktree", "repair", self.path(name))

    def _is_known(self, name: str) -> bool:
        """Whether what git has noted of a worktree leads back to it."""
        try:
            noted = Path(self._admin(self.path(name)), "gitdir").read_bytes().removesuffix(b"\n")
        except OSError:
            return False
        return os.path.realpath(os.path.dirname(os.fsdecode(noted))) == os.path.realpath(self.path(name))

    # Commits.

    def commit(self, name: str, message: str, *, amends: str = "", reported: Collection[str] = ()) -> str:
        """Commit everything that is in a worktree, if anything is; returns the commit that it is at then.

        Caches that git does not track are left out, and stay where they are: see ``find_caches``.

        Args:
            name: The worktree.
            message: What is committed.
            amends: A commit that is replaced if the worktree is at it: a merge whose conflicts were settled.
            reported: Files that agents report, seen from the top: they are committed in any case.

        Raises:
            WorktreeError: The worktree is gone, or not on its branch.
        """
        git = self.inside(name)
        ref = f"refs/heads/{self.branch(name)}"
        found = git.find("symbolic-ref", "--quiet", "HEAD")
        if found != ref:
            at = found.removeprefix("refs/heads/") or "no branch"
            problem = f"it is on {at}, not on {self.branch(name)}: nothing was committed (git switch {self.branch(name)})"
            raise WorktreeError(git.place, problem)
        _add(git, [*_everything(), *leaving_out([*find_unborn(git), *find_caches(git, reported)])])
        if git.test("diff", "--cached", "--quiet", "--no-ext-diff", "--no-textconv"):
            return git("rev-parse", "HEAD")
        again = ("--amend",) if amends and git("rev-parse", "HEAD") == amends else ()
        words = ("commit", "--quiet", "--no-verify", "--allow-empty", *again, "--file=-")
        git.done(*words, given=message.encode(), author=True)
        return git("rev-parse", "HEAD")

    # Merges.

    def merge(self, name: str, base: str, message: str) -> Merged:
        """Merge a branch into the result, without a work tree: the result is moved in one go, or not at all.

        Args:
            name: The worktree whose branch is merged.
            base: Where the result begins.
            message: Of the merge.

        Raises:
            GitError: A branch is gone, or the result is checked out somewhere.
        """
        ref = f"refs/heads/{self.branch(RESULT)}"
        now = self.git.find("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        ours = now or base
        theirs = self._tip(name)
        if self.git.test("merge-base", "--is-ancestor", theirs, ours) and now:
            return Merged(commit=ours)
        self._check_free(ref)
        if self.git.test("merge-base", "--is-ancestor", ours, theirs):
            merged = theirs
        else:
            tried = self.git.done(
                "merge-tree", "--write-tree", "-z", "--name-only", ours, theirs, fine=(0, 1)
            )
            tree, *paths = tried.out.partition(b"\0\0")[0].split(b"\0")
            if tried.status:
                conflicts = sorted({path_text(path) for path in paths if path})
                return Merged(conflicts=conflicts, tree=tree.decode(), ours=ours, theirs=theirs)
            words = ("commit-tree", tree.decode(), "-p", ours, "-p", theirs)
            merged = self.git.done(*words, given=message.encode(), author=True).line
        self.git("update-ref", ref, merged, now)
        return Merged(commit=merged)

    def mark(self, merged: Merged, message: str) -> str:
        """A merge with its conflicts marked in the files, to be resolved by hand or by an agent; no branch is moved.

        Another machine that continues the run has only what references name: the tree is made again, and the commit gets one.
        """
        tried = self.git.done("merge-tree", "--write-tree", merged.ours, merged.theirs, fine=(0, 1))
        tree = tried.line.partition("\n")[0]
        words = ("commit-tree", tree, "-p", merged.theirs, "-p", merged.ours)
        made = self.git.done(*words, given=message.encode(), author=True).line
        self.git("update-ref", self.kept(f"{MARKED}{made}"), made, "")
        return made

    def _tip(self, name: str) -> str:
        branch = self.branch(name)
        tip = self.git.find("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
        if not tip:
            raise WorktreeError(branch, "this branch is gone")
        return tip

    def _check_free(self, ref: str) -> None:
        """Refuse to move a branch that is checked out."""
        listed = self.git("worktree", "list", "--porcelain").split("\n\n")
        for tree in listed:
            if tree.endswith(f"\nbranch {ref}") or f"\nbranch {ref}\n" in tree:
                at = tree.partition("\n")[0].removeprefix("worktree ")
                raise WorktreeError(ref.removeprefix("refs/heads/"), f"it is checked out at {at!r}")

    # The end.

    def deliver(self, base: Base, *, move: bool) -> Delivered:
        """Say where the result is; with ``move`` the user's branch is moved to it, if it still is where it was.

        Raises:
            GitError: The result is gone.
        """
        commit = self._tip(RESULT)
        branch = self.branch(RESULT)
        why = self._why_not(base, commit) if move else ""
        if move and not why:
            done = self.git.done("merge", "--ff-only", "--quiet", commit, fine=range(256))
            why = _refusal(done.err) if done.status else ""
        return Delivered(branch=branch, commit=commit, moved=move and not why, problem=why, dirty=base.dirty)

    def bring(self, base: Base) -> Delivered:
        """Bring the result into a workspace that belongs to the run alone: it and its branch are at the work of all tasks then.

        What was not committed when the run began is in the commit that all tasks began with, so nothing is lost.

        Raises:
            GitError: The result is gone.
        """
        commit = self._tip(RESULT)
        git = Git(self.root, (*self.own, "/.git/"))
        if base.dirty and git("rev-parse", "HEAD") == base.head:
            git("reset", "--quiet", base.commit)
        branch, why = self.branch(RESULT), ""
        try:
            git("merge", "--ff-only", "--quiet", commit)
        except GitError as error:
            why = _refusal(error.problem.encode())
        return Delivered(branch=branch, commit=commit, moved=not why, problem=why, carried=True)

    def _why_not(self, base: Base, commit: str) -> str:
        try:
            head, branch, _ = look_at(self.git)
        except WorktreeError as error:
            return error.problem
        if not base.branch or branch != base.branch:
            return "the workspace is not on a branch that the run began with"
        if head == commit:
            return ""
        if base.dirty:
            return "the workspace had changes that were not committed"
        return "" if head == base.commit else f"{branch.removeprefix('refs/heads/')} has moved on"


def look_at(git: Git, needed_by: str = "parallel.tasks") -> tuple[str, str, str]:
    """The commit of HEAD, its branch, and where the workspace is in its repository; empty if it is on no branch, or at the top.

    Raises:
        WorktreeError: It is not a repository, has no commit yet, or is in the middle of a merge.
        GitError: Git is missing or too old.
    """
    check_version(git("--version"))
    try:
        inside, _, prefix = git("rev-parse", "--is-inside-work-tree", "--show-prefix").partition("\n")
    except GitError as error:
        problem = f"{error.problem}; {needed_by} needs a repository"
        raise WorktreeError(git.place, problem) from None
    if inside != "true":
        raise WorktreeError(git.place, "it has no work tree")
    if git("ls-files", "--unmerged", "-z"):
        raise WorktreeError(git.place, "a merge is not finished there; finish or abort it first")
    head = git.find("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not head:
        raise WorktreeError(git.place, "there is no commit yet to begin with; make one first")
    return head, git.find("symbolic-ref", "--quiet", "HEAD"), prefix.rstrip("/")


def check_names(git: Git) -> None:
    """Raise unless branches can be called ``bartack/…``.

    Raises:
        WorktreeError: A branch is called ``bartack``.
    """
    if git.find("rev-parse", "--verify", "--quiet", "refs/heads/bartack"):
        problem = (
            "a branch is called 'bartack', so git can make no branch 'bartack/RUN/TASK' beside it; rename it "
            "(git branch -m bartack NAME)"
        )
        raise WorktreeError(git.place, problem)


def check_nested(git: Git, state_dir: str) -> None:
    """Raise if a repository inside of the work tree has no commit: no worktree could have its files.

    Raises:
        WorktreeError: One has none.
    """
    unborn = find_unborn(git, state_dir)
    if unborn:
        problem = (
            f"{unborn[0]!r} is a repository without a commit, and no worktree would have its files; make a commit there, "
            "name it in .gitignore, or set parallel.tasks = 1"
        )
        raise WorktreeError(git.place, problem)


def find_marks(folder: str, paths: list[str]) -> list[str]:
    """The files in which conflicts are still marked."""
    left: list[str] = []
    for path in paths:
        try:
            content = Path(folder, path).read_bytes()
        except OSError:
            continue  # the conflict was resolved by deleting the file
        if all(any(line.startswith(mark) for line in content.splitlines()) for mark in MARKS):
            left.append(path)
    return left


def _refusal(output: bytes) -> str:
    """Why git did not merge: its first line, and the first of the files that it names below."""
    lines = output.decode("utf-8", "replace").strip("\n").splitlines()
    names = [line.strip() for line in lines if line.startswith("\t")]
    first = lines[0] if lines else "git gave no reason"
    if not names:
        return first
    return f"{first.rstrip(':')}: {first_paths(names, MOST_NAMED)}"


def _is_unfinished(admin: str) -> bool:
    """Whether git was killed while it made a worktree: it locks one until it is whole."""
    try:
        return Path(admin, "locked").read_text("utf-8", "replace").strip() == "initializing"
    except OSError:
        return False


def _add(git: Git, paths: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    """Stage everything that these paths name; they may be too many for a command line where caches are not ignored."""
    given = b"".join(os.fsencode(path) + b"\0" for path in paths)
    git.done("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul", given=given, env=env)


def _everything() -> tuple[str, ...]:
    """All files but those of Bartack."""
    return ":/", ":(top,exclude,glob)**/.bartack", ":(top,exclude,glob)**/.bartack/**"
