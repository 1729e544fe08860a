"""The end of a run whose branches are pushed (``workspace.push``): as often as it takes, but not for ever.

The owner of the run does that before it gives the run back as over. If it is killed meanwhile, the next owner does it again: the
same copy makes the same commits, and branches that are there already stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bartack.errors import BartackError, WorkspaceKeepError
from bartack.runtime.copies.copies import Copies
from bartack.runtime.copies.remotes import Pushed
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State

WAITS_S: Final = (1.0, 5.0, 20.0)
"""How long to wait before each further attempt."""
SHOWN: Final = 300


def publish(
    run: RunDir,
    state: State,
    fetch: Callable[[], Copies],
    wait: Callable[[float], bool],
    say: Callable[[str], object],
) -> str | None:
    """Push the branches of a run that is completed.

    Args:
        run: The run.
        state: What its journal adds up to.
        fetch: Returns its copies, the first and the latest one among them.
        wait: Waits for N seconds; returns whether this is to be given up.
        say: Takes a line about an attempt that failed.

    Returns:
        What became of them, in words; ``None``: it was given up.
    """
    first = state.copies.first
    assert first is not None
    problem = ""
    for wait_s in (0.0, *WAITS_S):
        if wait(wait_s):
            return None
        try:
            return _describe(_push(run, state, fetch()), first.push)
        except (BartackError, OSError) as error:
            text = error.problem if isinstance(error, WorkspaceKeepError) else str(error)
            problem = " ".join(text[-SHOWN:].split())
            say(f"{run.id}: its branches are not pushed yet: {problem}")
    return f"its branches are not pushed, bring them with 'bartack pull': {problem}"


def _push(run: RunDir, state: State, copies: Copies) -> Pushed:
    kept = state.copies
    assert kept.first is not None
    assert kept.latest is not None
    return copies.publish(
        kept.latest.copy, kept.first.push, run.id, kept.first.copy, state.last_at // 1_000_000
    )


def _describe(pushed: Pushed, url: str) -> str:
    there = f"pushed to {url}: {', '.join(pushed.branches)}" if pushed.branches else ""
    refused = (
        f"not pushed to {url}, which has refused it: {', '.join(pushed.refused)}" if pushed.refused else ""
    )
    return "; ".join(text for text in (there, refused) if text)
