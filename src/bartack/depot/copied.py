"""A run of a database that is read from its copy and from a list that was found before: reading it never waits for the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack.core.watch import open_watch
from bartack.depot.placed import PlacedRun
from bartack.errors import JournalNotFoundError
from bartack.journal.file import FileBlobs, FileReader
from bartack.journal.veil import Veil

if TYPE_CHECKING:
    from bartack.depot.postgres._run import PostgresRun
    from bartack.depot.showing import ShownDatabase, ShownFacts


class CopiedRun(PlacedRun):
    """See ``KeptRun``, and the module. It is not owned, and nothing is asked of it: ``PlacedRun`` is for that.

    Attributes:
        database: Where it is kept; set before it is read.
    """

    database: ShownDatabase

    @property
    def facts(self) -> ShownFacts | None:
        """What the list has of it; ``None`` if it is gone."""
        return self.database.find(self.id)

    def _found(self) -> ShownFacts:
        facts = self.facts
        if facts is None:
            raise JournalNotFoundError(str(self.path))
        return facts

    def _read_from(self) -> PostgresRun | None:
        return None  # the copy in its directory is read as it is

    def exists(self) -> bool:
        """See ``KeptRun.exists``."""
        return self.facts is not None

    def check_readable(self) -> None:
        """See ``KeptRun.check_readable``. The journal of a run that is only listed does not come here."""
        self._found()
        if super().exists():
            super().check_readable()

    def open_reader(self, *, veil: Veil | None = None) -> FileReader:
        """See ``KeptRun.open_reader``."""
        from bartack.journal.mirror import MirrorReader  # noqa: PLC0415 - only runs in a database need it

        path = str(self.path)
        source = self.database.source(self._found())
        return MirrorReader(path, source, lambda: None, lambda: open_watch(path), veil)

    def open_blobs(self, *, veil: Veil | None = None) -> FileBlobs:
        """See ``KeptRun.open_blobs``."""
        from bartack.journal.mirror import FetchedBlobs  # noqa: PLC0415 - only runs in a database need it

        return FetchedBlobs(str(self.path), self.database.source(self._found()), veil=veil)

    def summary(self) -> bytes | None:
        """See ``KeptRun.summary``."""
        facts = self.facts
        return None if facts is None else facts.summary

    def is_active(self) -> bool:
        """See ``KeptRun.is_active``."""
        facts = self.facts
        return facts is not None and facts.is_active

    def owner_pid(self) -> int:
        """See ``KeptRun.owner_pid``."""
        facts = self.facts
        return facts.pid if facts is not None and facts.is_active else 0

    def last_sign_of_life_us(self) -> int | None:
        """See ``KeptRun.last_sign_of_life_us``."""
        facts = self.facts
        return None if facts is None else facts.seen_us
