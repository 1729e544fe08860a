"""The directory that holds the runs, as programs meet it: patterns leave it out, since it is not the program's own."""

from __future__ import annotations

import os
import re
from typing import Final

_MAGIC: Final = re.compile(r"[*?\[]")


class StateDir:
    """The state directory of a run, seen from a directory in which a program works."""

    def __init__(self, run_dir: str, workspace: str) -> None:
        """Find the state directory above a run; of a run that is in none, nothing is left out."""
        self._workspace = os.path.abspath(workspace)
        runs = os.path.dirname(os.path.abspath(run_dir)) if run_dir else ""
        kept = os.path.dirname(runs) if os.path.basename(runs) == "runs" else ""
        if kept and _holds(kept, self._workspace):
            # The workspace is inside of it, or is it: then only the runs themselves are not the program's.
            kept = runs
        self._places = {kept, os.path.realpath(kept)} if kept else set[str]()
        self._run_dir = os.path.abspath(run_dir) if run_dir else ""

    def holds(self, path: str) -> bool:
        """Whether a path, as it is or from the workspace, leads into the state directory."""
        whole = os.path.normpath(os.path.join(self._workspace, path))
        return any(_holds(place, whole) for place in self._places)

    def without(self, pattern: str, found: list[str]) -> list[str]:
        """The paths that a pattern stands for, without the state directory, unless the pattern names it."""
        if not self._places or self.holds(_fixed_part(pattern)):
            return found
        return [path for path in found if not self.holds(path)]

    def note(self, path: str) -> str:
        """What an error about a path in the state directory should add; nothing for the run's own scratch directory."""
        if not self.holds(path) or _holds(
            os.path.join(self._run_dir, "work"), os.path.normpath(os.path.join(self._workspace, path))
        ):
            return ""
        kept = os.path.relpath(min(self._places, key=len), self._workspace)
        shown = kept if not kept.startswith("..") else min(self._places, key=len)
        return f"; Bartack keeps its runs in {shown}, which state_dir in bartack.toml can move"


def _holds(place: str, path: str) -> bool:
    return path == place or path.startswith(place.rstrip(os.sep) + os.sep)


def _fixed_part(pattern: str) -> str:
    """The directory that a pattern names before its first star, question mark or bracket."""
    magic = _MAGIC.search(pattern)
    return pattern if magic is None else pattern[: pattern.rfind("/", 0, magic.start()) + 1]
