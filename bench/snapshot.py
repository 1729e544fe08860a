"""What a snapshot of a large workspace costs, against git: everything read, and nothing changed since.

Run with ``python -m bench.snapshot [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Final

from bartack.pipeline.snapshot.snapshot import capture
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

FILES: Final = 50_000
IN_A_FOLDER: Final = 100
GRAIN_S: Final = 2.5
CACHE: Final = ".bartack/cache/stat-1"


def make_tree(directory: str, size: int) -> None:
    """A repository with ``size`` small files, all tracked and known to git and to the snapshot cache."""
    root = Path(directory)
    _git(directory, "init", "--quiet")
    for number in range(size):
        folder = root / f"package{number // IN_A_FOLDER}"
        if number % IN_A_FOLDER == 0:
            folder.mkdir()
        (folder / f"module{number % IN_A_FOLDER}.py").write_bytes(b"VALUE = %d\n" % number * 20)
    (root / ".gitignore").write_text(".bartack/\n")
    (root / CACHE).parent.mkdir(parents=True)
    _git(directory, "add", "-A")
    # Neither git nor the cache trusts a file that was written just now; real snapshots are not taken that fast.
    Event().wait(GRAIN_S)
    _git(directory, "status", "--porcelain")
    capture(directory, cache=root / CACHE)


def cold(directory: str, size: int) -> Sample:
    """Milliseconds to capture everything, knowing nothing."""
    began = perf_counter()
    found = capture(directory)
    took = perf_counter() - began
    return Sample(value=took * 1000, facts={"files": str(found.count)})


def warm(directory: str, size: int) -> Sample:
    """Milliseconds to find that nothing has changed."""
    began = perf_counter()
    found = capture(directory, cache=Path(directory, CACHE))
    took = perf_counter() - began
    return Sample(value=took * 1000, facts={"id": found.id})


def git_add(directory: str, size: int) -> Sample:
    """Milliseconds of ``git add -A`` into an empty index, its objects being there already."""
    index = os.path.join(directory, ".bartack", "index")
    if os.path.exists(index):
        os.unlink(index)
    return _timed(directory, "add", "-A", index=index)


def git_status(directory: str, size: int) -> Sample:
    """Milliseconds of ``git status``."""
    return _timed(directory, "status", "--porcelain")


def _timed(directory: str, *words: str, index: str | None = None) -> Sample:
    began = perf_counter()
    _git(directory, *words, index=index)
    took = perf_counter() - began
    return Sample(value=took * 1000, facts={"git": _git(directory, "version").split()[-1]})


def _git(directory: str, *words: str, index: str | None = None) -> str:
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "1"}
    if index is not None:
        env["GIT_INDEX_FILE"] = index
    command = ["git", *words]
    done = subprocess.run(
        command, cwd=directory, env=env, check=True, capture_output=True, timeout=600, text=True
    )
    return done.stdout


def _race(key: str, title: str, ours: Contestant, theirs: Contestant) -> Race:
    return Race(key=key, title=title, unit="ms", better="lower", contestants=(theirs, ours))


BENCH: Final = Bench(
    name="snapshot",
    title="Snapshots of a workspace",
    races=(
        _race(
            "cold",
            f"{FILES} files, nothing known",
            Contestant(
                key=OURS, label="bartack", measure=cold, size=FILES, prepare=make_tree, quick_size=5000
            ),
            Contestant(
                key="git", label="git add -A", measure=git_add, size=FILES, prepare=make_tree, quick_size=5000
            ),
        ),
        _race(
            "warm",
            f"{FILES} files, nothing changed",
            Contestant(
                key=OURS, label="bartack", measure=warm, size=FILES, prepare=make_tree, quick_size=5000
            ),
            Contestant(
                key="git",
                label="git status",
                measure=git_status,
                size=FILES,
                prepare=make_tree,
                quick_size=5000,
            ),
        ),
    ),
    goals=(
        Goal(race="cold", title="cold to git add", bound="at most", target=2.0, stretch=1.0, against="git"),
        Goal(
            race="warm", title="warm to git status", bound="at most", target=2.0, stretch=1.0, against="git"
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
