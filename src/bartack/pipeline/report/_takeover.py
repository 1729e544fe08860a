"""Whether the work of a run can be taken over as it is now.

Nothing is changed: a merge is tried without a work tree, and what git writes for that goes to a directory that is removed.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from bartack.errors import GitError
from bartack.pipeline.records.records import Base
from bartack.pipeline.report._reading_git import ReadingGit
from bartack.pipeline.report._scratch import Changed, Contents, has_sum
from bartack.pipeline.report.report import Takeover
from bartack.pipeline.snapshot._paths import first_paths, path_text
from bartack.pipeline.worktree._git import check_version
from bartack.pipeline.worktree._left_out import find_ignored

MOST_NAMED: Final = 12
"""A command that would name more files than this names the directory."""
_PLAIN: Final = re.compile(r"[\w./@+-]+\Z")
"""Paths in which git looks for no pattern."""


# Work on a branch.


def check_merge(git: ReadingGit, branch: str, base: Base) -> Takeover:
    """Find out whether ``git merge BRANCH`` works now, and what is in its way otherwise.

    Args:
        git: Git in the user's workspace.
        branch: The branch that has the work.
        base: What the run began with.
    """
    try:
        commit = git.find_commit(f"refs/heads/{branch}")
        if not commit:
            return Takeover(
                state="unchecked",
                branch=branch,
                advice="The branch does not exist any more; 'git reflog' may have it.",
            )
        found = _try_merge(git, branch, commit)
        return found if found.state == "done" else _since_it_began(git, found, base)
    except GitError as error:
        remark = f"git reports: {error.problem.partition(chr(10))[0]}"
        return Takeover(
            state="unchecked",
            command=f"git merge {branch}",
            branch=branch,
            advice="The merge could not be tried.",
            remark=remark,
        )


def _try_merge(git: ReadingGit, branch: str, commit: str) -> Takeover:
    command = f"git merge {branch}"
    head = git.find_commit("HEAD")
    if not head:
        return Takeover(
            state="blocked",
            command=command,
            branch=branch,
            commit=commit,
            advice="There is no commit to merge into.",
        )
    if git.test("merge-base", "--is-ancestor", commit, head):
        return Takeover(state="done", branch=branch, commit=commit, advice="Your branch has the work.")
    if git.done("ls-files", "--unmerged", "-z").out:
        advice = "A merge is not finished in the workspace: finish it, or abort it with 'git merge --abort'."
        return Takeover(state="blocked", command=command, branch=branch, commit=commit, advice=advice)
    forward = git.test("merge-base", "--is-ancestor", head, commit)
    with tempfile.TemporaryDirectory(prefix="bartack-report-") as folder:
        env = _objects(git, folder)
        tree, conflicts = (commit, []) if forward else _merge_trees(git, head, commit, env)
        if conflicts:
            return Takeover(
                state="conflicts",
                command=command,
                branch=branch,
                commit=commit,
                files=conflicts,
                advice=_about_conflicts(git),
            )
        changed = git.paths("diff-tree", "-r", "-z", "--name-only", "--no-renames", head, tree, env=env)
    in_the_way = _in_the_way(git, set(changed), head, forward=forward)
    if in_the_way:
        advice = "You have uncommitted changes in files that the merge needs: commit or stash them first."
        return Takeover(
            state="blocked", command=command, branch=branch, commit=commit, files=in_the_way, advice=advice
        )
    return Takeover(state="applies", command=command, branch=branch, commit=commit)


def _objects(git: ReadingGit, folder: str) -> dict[str, str]:
    """Variables that have git write new objects into a directory, and not into the repository."""
    real = os.path.join(git.place, git.line("rev-parse", "--git-path", "objects"))
    # Git reads a list of directories here, in which quotes protect a colon.
    named = os.path.abspath(real).replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{named}"'}


def _merge_trees(git: ReadingGit, ours: str, theirs: str, env: Mapping[str, str]) -> tuple[str, list[str]]:
    """The tree of a merge, and the files that are in conflict."""
    check_version(git.line("--version"))
    words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    tried = git.done(*words, env=env, fine=(0, 1))
    tree, *paths = tried.out.split(b"\0")
    return tree.decode(), sorted({path_text(path) for path in paths if path}) if tried.status else []


def _about_conflicts(git: ReadingGit) -> str:
    advice = (
        "Your branch and the run have changed the same lines. Run the command, resolve the conflicts in these files, then "
        "'git add' them and 'git commit'; 'git merge --abort' takes it back."
    )
    if git.drivers:
        advice += " The repository has merge drivers, which this check does not execute: they may resolve some of it."
    return advice


def _in_the_way(git: ReadingGit, changed: set[str], head: str, *, forward: bool) -> list[str]:
    """The files because of which git would refuse the merge."""
    staged = git.paths("diff-index", "--cached", "-z", "--name-only", "--no-renames", head)
    plain = ("--no-ext-diff", "--no-textconv", "--no-relative", "--ignore-submodules=all")
    edited = git.paths("diff", "-z", "--name-only", "--no-renames", *plain)
    top = git.line("rev-parse", "--show-toplevel")
    tracked = set(git.paths("ls-tree", "-r", "-z", "--name-only", "--full-tree", head))
    untracked = [
        path for path in changed - tracked if path not in staged and os.path.lexists(os.path.join(top, path))
    ]
    found = {
        *(changed.intersection(staged) if forward else staged),
        *changed.intersection(edited),
        *untracked,
    }
    return sorted(path_text(os.fsencode(path)) for path in found)


def _since_it_began(git: ReadingGit, found: Takeover, base: Base) -> Takeover:
    """The same, with a word about changes that the user had not committed then, and about another branch."""
    if found.state == "blocked" and base.dirty:
        advice = "You had uncommitted changes when the run began, and they are part of the work: commit them first."
        found = msgspec.structs.replace(found, advice=advice)
    here = git.line("symbolic-ref", "--quiet", "HEAD")
    if not base.branch or here == base.branch:
        return found
    now = here.removeprefix("refs/heads/") or "no branch"
    remark = f"you are on {now}; the run began on {base.branch.removeprefix('refs/heads/')}"
    return msgspec.structs.replace(found, remark=remark)


# Work in the workspace.


def check_workspace(git: ReadingGit | None, contents: Contents, changed: Sequence[Changed]) -> Takeover:
    """Where work is that was done in the workspace itself, and what commits it.

    Args:
        git: Git there; ``None`` if it is not a repository.
        contents: The files as they are now.
        changed: What the work has changed.
    """
    if not changed:
        return Takeover(state="nothing", advice="No file was changed.")
    since = [one.path for one in changed if not _is_as_left(contents.now(one.path), one)]
    remark = f"changed since the run: {first_paths(since)}" if since else ""
    if git is None:
        return Takeover(state="done", advice="The work is in the workspace.", remark=remark)
    try:
        return _check_commit(git, contents, changed, remark)
    except GitError as error:
        remark = f"git reports: {error.problem.partition(chr(10))[0]}"
        return Takeover(state="unchecked", advice="The work is in the workspace.", remark=remark)


def _check_commit(git: ReadingGit, contents: Contents, changed: Sequence[Changed], remark: str) -> Takeover:
    head = git.find_commit("HEAD")
    if head and all(_is_as_left(contents.committed(one.path, head), one) for one in changed):
        return Takeover(state="done", commit=head, advice="Your last commit has the work.")
    there = {one.path for one in changed if os.path.lexists(os.path.join(git.place, one.path))}
    ignored = set(find_ignored(git.plain, sorted(there)))
    addable = (there | set(git.paths("ls-files", "-z"))) - ignored
    wanted = [one.path for one in changed if one.path in addable]
    staged = git.paths(
        "diff", "--cached", "-z", "--name-only", "--relative", "--no-ext-diff", "--no-textconv"
    )
    others = sorted(set(staged) - set(wanted))
    notes = [
        remark,
        f"git ignores {first_paths(sorted(ignored))}" if ignored else "",
        f"the commit would also have what you have staged: {first_paths(others)}" if others else "",
    ]
    remark = "; ".join(filter(None, notes))
    if not wanted:
        return Takeover(state="done", advice="The work is in the workspace.", remark=remark)
    command = _add_command(wanted)
    advice = "The work is in the workspace, uncommitted."
    if command.endswith(" ."):
        advice += " The command adds your other changes, too."
    return Takeover(state="applies", command=f"{command} && git commit", advice=advice, remark=remark)


def _add_command(paths: Sequence[str]) -> str:
    """The command that adds files; what agents have called them can be anything, and people paste this line into a shell."""
    if len(paths) > MOST_NAMED or not all(path.isprintable() for path in paths):
        return "git add -- ."
    literal = "" if all(map(_PLAIN.match, paths)) else "--literal-pathspecs "
    return f"git {literal}add -- {' '.join(map(shlex.quote, paths))}"


def _is_as_left(content: bytes | None, one: Changed) -> bool:
    return content is None if one.after is None else has_sum(content, one.after.sha256)
