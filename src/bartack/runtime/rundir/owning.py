"""Owns the journal of a run for a moment, without running it. ``client/manage.py`` and ``client/dead_letters.py`` use it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from bartack.journal import FileJournal, open_journal
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import known_seq
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.rundir.presence import naming_stopped_owner


@contextmanager
def own_journal(run: RunDir) -> Generator[FileJournal]:
    """Own the journal of a run that no process runs. The heartbeat of its last hub is kept.

    Raises:
        JournalLockedError: A process runs it, or is about to.
        HubStoppedError: A process runs it and is stopped.
        JournalLostError: It has lost acknowledged entries; nothing was changed.
        ForeignRunError: It came from elsewhere, and is not trusted.
        UntrustedError: Another user can change it.
    """
    check_own(run)
    last_life = run.last_sign_of_life_us()
    with naming_stopped_owner(run):
        journal = open_journal(run.path, at_least=known_seq(run))
    with journal:
        try:
            yield journal
        finally:
            run.keep_sign_of_life(last_life)
