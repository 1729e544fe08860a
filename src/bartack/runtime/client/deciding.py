"""Records what a person decides about a run that another machine resumes: this process owns the run for a moment.

A decision is durable before the run is queued for the nodes of its database. If this process dies in between, the run is as it was
for everything that looks at it, with the decision in it: it is resumed by the next ``bartack resume``, with the same decision, or
with another one, which replaces it. No part of a decision needs another part to be meaningful, so each is recorded by itself: the
loss of entries is accepted, settings are kept with the program, and then the decision about a step is one entry of the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from bartack.config.load import check_resumed, keep_sets, kept_sets, load_kept_config
from bartack.errors import RunNotActiveError
from bartack.journal import Journal
from bartack.runtime.client.carrying_out import carry_out
from bartack.runtime.client.manage import veil_of
from bartack.runtime.hub.launch import check_resumable
from bartack.runtime.hub.reopened import Reopened
from bartack.runtime.rundir.find import load_state
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.rundir.presence import naming_stopped_owner
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import add_entry
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import UnknownDecision


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """What a person decides about a run.

    Attributes:
        unknown: What to do with a step whose outcome is not known.
        sets: Settings that hold for the run from now on.
        accept_loss: Its journal has lost acknowledged entries, and it is resumed with those that are left.
    """

    unknown: UnknownDecision | None = None
    sets: Sequence[str] = ()
    accept_loss: bool = False

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.unknown is not None or bool(self.sets) or self.accept_loss


def record_decisions(run: RunDir, decisions: Decisions) -> Reopened | None:
    """Record what a person has decided, for the process that resumes the run next. Nothing runs yet.

    Returns what was lost, if that was accepted.

    Args:
        run: The run; no process may be running it.
        decisions: What was decided.

    Raises:
        ConfigError: A setting cannot be used, or cannot change any more.
        ResumeRefusedError: It has ended for good, or needs another decision first.
        JournalLockedError: A process runs it.
        JournalLostError: Its journal has lost acknowledged entries, and that is not accepted.
        PeerRefusedError: This process belongs to a run.
        ForeignRunError: It came from elsewhere, and is not trusted.
    """
    check_outside(f"deciding about {run.id}", run)
    check_resumed(decisions.sets)

    def by_hub() -> None:
        raise RunNotActiveError(run.id, "no process is asked")

    lost: list[Reopened] = []

    def alone() -> None:
        if decisions.accept_loss:
            lost.extend(_accept_loss(run))
        _record(run, decisions)

    if decisions:
        carry_out(by_hub, alone)  # a hub that has just ended may have the run still
    return lost[0] if lost else None


def _accept_loss(run: RunDir) -> list[Reopened]:
    """Let the journal continue after the last entry that is left; returns what is missing."""
    check_own(run)
    state = State()
    with naming_stopped_owner(run):
        journal = run.open_journal(accept_loss=True, each=partial(add_entry, state))
    with journal:
        return [] if journal.loss is None else [Reopened(None, journal.loss, state)]


def _record(run: RunDir, decisions: Decisions) -> None:
    with own_journal(run) as journal:
        state = load_state(run, journal)
        check_resumable(run, state, decisions.unknown)
        if decisions.sets:
            _keep_sets(run, decisions.sets)
        if decisions.unknown is not None:
            _record_unknown(run, journal, state, decisions.unknown)


def _keep_sets(run: RunDir, sets: Sequence[str]) -> None:
    run.bring_here()  # another machine may have changed them since they came here
    load_kept_config(run.path, run.path, [*kept_sets(run.path), *sets])
    keep_sets(run.path, sets)
    run.keep_program()


def _record_unknown(run: RunDir, journal: Journal, state: State, unknown: UnknownDecision) -> None:
    """Record a decision about steps with an unknown outcome, if there are any."""
    if not any(worker.in_doubt for worker in state.workers.values()):
        return
    raw = unknown.value.raw
    value = None if raw is None else veil_of(run).hide(bytes(raw))
    journal.stage(e.draft(e.RunDecided(choice=unknown.choice), value))
    journal.commit()
