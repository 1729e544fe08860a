"""Whose change it is: which files of a workspace count as the work of an agent, and which ones others write meanwhile.

No system records which process wrote a file. Certain is what an agent reports, and what a process of its tree still has open for
writing. Certain is as well what is not its work: files that the terminal or a process outside the run has open for writing, files
that were last changed before the agent was asked or after it had answered, files that the user's git configuration ignores, and
what editors and caches leave. Everything else is unclear; ``_steps.py`` decides what is done about that.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.errors import GitError
from bartack.pipeline.records.records import Place
from bartack.pipeline.snapshot._paths import path_text
from bartack.pipeline.snapshot._patterns import Patterns
from bartack.pipeline.worktree._git import Git
from bartack.runtime.rundir.layout import kept_run
from bartack.runtime.rundir.receipts import Attempt
from bartack.runtime.rundir.snapshots import Change
from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.line import read_line
from bartack.supervision.process.system import iter_outputs, iter_processes
from bartack.supervision.process.tree import descendants

_CACHES: Final = (
    "__pycache__/", "*.pyc", "*.pyo", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/", ".tox/", ".nox/",
    ".cache/", ".coverage", ".coverage.*", ".eslintcache", "*.tsbuildinfo", ".parcel-cache/", ".turbo/", ".gradle/",
    ".ipynb_checkpoints/", ".DS_Store", "Thumbs.db",
)  # fmt: skip
_EDITORS: Final = (
    # Swap files, backups, locks, and files that exist for the moment of saving.
    ".*.sw[a-p]", "*~", ".#*", "#*#", "4913", "*.kate-swp", ".~lock.*#", "~$*", ".goutputstream-*",
    "*___jb_tmp___", "*___jb_old___", ".idea/workspace.xml", ".nfs*", ".fuse_hidden*",
)  # fmt: skip
CACHES: Final = Patterns(_CACHES)
"""What tools write and can write again."""
NOISE: Final = Patterns((*_CACHES, *_EDITORS))
"""What editors and caches leave."""
GRAIN_S: Final = 0.1
"""How far the clock of a file system may differ from ours."""


class _RunFile(msgspec.Struct):
    pid: int = 0


class Blame(NamedTuple):
    """Changes that an agent is known to have made, and those that it may have made."""

    certain: list[Change]
    unclear: list[Change]


def leave_out_others(
    place: Place, changes: list[Change], source: str, own: Collection[str] = ()
) -> list[Change]:
    """The changes that count as work: without what the terminal writes, editors and caches leave, and the user's git ignores.

    Args:
        place: Where.
        changes: What differs.
        source: Who listed the files of the workspace: ``git`` or ``roots``.
        own: Paths that an agent reports as its own; they count in any case.
    """
    left = [change for change in changes if path_text(change.path) in own or not NOISE.match(change.path)]
    if not left:
        return left
    others = _opened(place, left, _callers(place))
    if source == "git":
        others |= _ignored(place, left)
    return [change for change in left if path_text(change.path) in own or change.path not in others]


def find_unwanted(git: Git, run_dir: str) -> list[str]:
    """Uncommitted files that are not the user's work, seen from the top: what the terminal writes, and editors and caches leave.

    Args:
        git: Git in a work tree.
        run_dir: The run: its hub, the processes above it and those of its terminal count as the terminal.
    """
    listed = git.done("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames").out
    items = [(item[:2], item[3:]) for item in listed.split(b"\0") if item and not item.endswith(b"/")]
    if not items:
        return []
    noise = {path for state, path in items if state == b"??" and NOISE.match(path)}
    place = Place(run_dir=run_dir, workspace=git("rev-parse", "--show-toplevel"))
    changes = [Change(path, "modified", None) for _, path in items if path not in noise]
    return [os.fsdecode(path) for path in sorted(noise | _opened(place, changes, _callers(place)))]


def find_caches(git: Git, own: Collection[str] = ()) -> list[str]:
    """Files of caches that git does not track or ignore, seen from the top of a work tree.

    Args:
        git: Git at that top.
        own: Paths that an agent reports as its own: they are work, whatever they are called.
    """
    listed = git.done("ls-files", "-z", "--others", "--exclude-standard").out.split(b"\0")
    found = [os.fsdecode(path) for path in listed if not path.endswith(b"/") and CACHES.match(path)]
    return [path for path in found if path not in own]


def blame(place: Place, changes: list[Change], own: Collection[str], attempts: Iterable[Attempt]) -> Blame:
    """Which of the changes that count an agent has made for certain, and which ones it may have made.

    Args:
        place: Where.
        changes: What counts; see ``leave_out_others``.
        own: The paths that the agent reports.
        attempts: When it was at work.
    """
    certain = {change.path for change in changes if path_text(change.path) in own}
    rest = [change for change in changes if change.path not in certain]
    if rest:
        inside = descendants(_hub(place))
        pids = {facts.pid for facts in inside}
        outside = [facts for facts in iter_processes() if facts.pid not in pids]
        others = _opened(place, rest, outside) | _at_other_times(place, rest, list(attempts))
        rest = [change for change in rest if change.path not in others]
        certain |= _opened(place, rest, [facts for facts in inside if facts.pid != os.getpid()])
    unclear = [change for change in rest if change.path not in certain]
    return Blame([change for change in changes if change.path in certain], unclear)


# Processes.


def _hub(place: Place) -> int:
    """The process that runs the run; this one, if no other does."""
    with suppress(msgspec.MsgspecError):
        found = typed.decode(kept_run(place.run_dir).summary() or b"", type=_RunFile)
        return found.pid or os.getpid()
    return os.getpid()


def _callers(place: Place) -> list[ProcessFacts]:
    """The hub, the processes above it, and those that its terminal runs together with it, like the ``tee`` of a pipe."""
    hub = _hub(place)
    line = read_line(hub) or []
    if not line:
        return []
    inside = {facts.pid for facts in descendants(hub)}
    above = {facts.pid for facts in line}
    session = line[0].session
    return [
        facts
        for facts in iter_processes()
        if facts.pid in above or (facts.session == session and facts.pid not in inside)
    ]


def _opened(place: Place, changes: list[Change], processes: Iterable[ProcessFacts]) -> set[bytes]:
    """The paths that one of these processes has open for writing."""
    files = dict(_identities(place, changes))
    if not files:
        return set()
    return {files[found] for facts in processes for found in iter_outputs(facts.pid) if found in files}


def _identities(place: Place, changes: list[Change]) -> Iterator[tuple[tuple[int, int], bytes]]:
    root = os.fsencode(place.workspace)
    for change in changes:
        with suppress(OSError):  # it is deleted
            found = os.lstat(os.path.join(root, change.path))
            yield (found.st_dev, found.st_ino), change.path


# Times.


def _at_other_times(place: Place, changes: list[Change], attempts: list[Attempt]) -> set[bytes]:
    """The paths that were last changed before the first attempt began, or after the last one had ended."""
    began = _seconds(attempts[0].started_at) if attempts else None
    ended = _seconds(attempts[-1].ended_at) if attempts else None
    found: set[bytes] = set()
    root = os.fsencode(place.workspace)
    for change in changes:
        with suppress(OSError):  # it is deleted, at an unknown time
            at = os.lstat(os.path.join(root, change.path)).st_ctime
            if (began is not None and at < began - GRAIN_S) or (ended is not None and at > ended + GRAIN_S):
                found.add(change.path)
    return found


def _seconds(moment: str) -> float | None:
    try:
        when = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


# Git.


def _ignored(place: Place, changes: list[Change]) -> set[bytes]:
    """The paths that git does not track and ignores, by the user's own configuration as well; none where git fails."""
    given = b"".join(b"%b\0" % change.path for change in changes)
    try:
        done = Git(place.workspace).done("check-ignore", "-z", "--stdin", given=given, fine=(0, 1))
    except GitError:
        return set()
    return set(done.out.split(b"\0")) - {b""}
