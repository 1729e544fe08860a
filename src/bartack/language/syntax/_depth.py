"""Room for recursion: programs may be nested `MAX_DEPTH` levels deep, and a level costs a pass several Python frames."""

from __future__ import annotations

import sys

FRAMES = 20_000
"""As many as a running program gets: a limit that is the same wherever it is set cannot depend on who was first."""


def make_room() -> None:
    """Let this interpreter call deep enough for the deepest program that is accepted.

    Python's own limit of 1,000 frames is less than 200 levels need. It is raised once and never lowered: it belongs to
    the whole process, and lowering it again could hit another thread in the middle of its work. Frames of Python code
    take no space on the machine's stack.
    """
    if sys.getrecursionlimit() < FRAMES:
        sys.setrecursionlimit(FRAMES)
