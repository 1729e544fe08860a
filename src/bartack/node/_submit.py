"""Queueing a run from a terminal: which of its variables are kept with it, and what becomes of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bartack.core.clock import SystemClock
from bartack.core.redact import SecretRule
from bartack.depot import Depot, Job, OnFailure, Standing, WorkspaceUse
from bartack.errors import RunNotQueuedError
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir

OF_THE_TERMINAL: Final = frozenset(
    {
        "TERM",
        "COLORTERM",
        "COLUMNS",
        "LINES",
        "SHLVL",
        "_",
        "PWD",
        "OLDPWD",
        "WINDOWID",
        "TMUX",
        "TMUX_PANE",
        "STY",
        "SSH_TTY",
    }
)
"""Variables that say nothing any more when the terminal is gone."""
INSIDE: Final = frozenset(
    {
        "BARTACK_AGENT",
        "BARTACK_HEARTBEAT_S",
        "BARTACK_HUB",
        "BARTACK_MAX_LINE",
        "BARTACK_PROBE",
        "BARTACK_PROTOCOL",
        "BARTACK_ROLE",
        "BARTACK_RUN",
        "BARTACK_RUN_DIR",
        "BARTACK_STEP",
        "BARTACK_STEP_TOKEN",
        "BARTACK_WORKER",
        "BARTACK_WORKSPACE",
    }
)
"""What a process inside a run has; a run that it queues is not part of that run. Variables that are settings are kept."""


class Submission(NamedTuple):
    """A queued run.

    Attributes:
        standing: Its place in the queue.
        left_out: The names of variables that are not kept with it, because they are secret.
    """

    standing: Standing
    left_out: Sequence[str]


def enqueue(
    depot: Depot,
    run: RunDir,
    environ: Mapping[str, str],
    rule: SecretRule,
    *,
    priority: int = 0,
    after: Sequence[str] = (),
    on_failure: OnFailure = "stop",
    retries: int = 0,
    schedule: str = "",
    use: WorkspaceUse = "free",
) -> Submission:
    """Queue a run, with the variables of this terminal; see ``Job``.

    Raises:
        NodeError: The queue does not take it.
    """
    if run.is_for_nodes():
        error = RunNotQueuedError(
            run.id, "it is for the nodes of a database, and not for the one of this user"
        )
        error.remedy = f"Give it back to them, if none of them runs it: bartack resume {run.id}."
        raise error
    state = read_state(run)
    assert state.run is not None
    kept, left_out = kept_environment(environ, rule)
    job = Job(
        run=run.id,
        path=str(run.path.absolute()),
        workspace=run.workspace(state, None),
        title=os.path.basename(state.run.program),
        priority=priority,
        after=tuple(after),
        on_failure=on_failure,
        retries=retries,
        environ=kept,
        schedule=schedule,
        use=use,
    )
    return Submission(depot.submit(job, SystemClock().now_us()), left_out)


def kept_environment(environ: Mapping[str, str], rule: SecretRule) -> tuple[dict[str, str], list[str]]:
    """The variables that are kept with a run, and the names of those that are secret and are not.

    A secret is never written to the queue. The node has those of its own environment: of the terminal that started it, or of the
    service that it is.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name not in OF_THE_TERMINAL and name not in INSIDE and not rule.covers(name)
    }
    return kept, sorted(name for name in environ if rule.covers(name))
