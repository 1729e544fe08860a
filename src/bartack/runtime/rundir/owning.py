"""Owns a run for a moment, without running it. ``client/manage.py`` and ``client/dead_letters.py`` use it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from bartack.journal import Journal
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.rundir.presence import naming_stopped_owner


@contextmanager
def own_journal(run: RunDir) -> Generator[Journal]:
    """Own the journal of a run that no process runs. The heartbeat of its last hub is kept.

    Raises:
        JournalLockedError: A process runs it, or is about to.
        HubStoppedError: A process runs it and is stopped.
        JournalLostError: It has lost acknowledged entries; nothing was changed.
        ForeignRunError: It came from elsewhere, and is not trusted.
        UntrustedError: Another user can change it.
    """
    check_own(run)
    with ExitStack() as stack:
        with naming_stopped_owner(run):
            journal = stack.enter_context(run.own())
        yield journal
