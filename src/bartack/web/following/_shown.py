"""A run of a database, as pages read it: without waiting for the database, which a thread of its own looks at."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from bartack.depot.copied import CopiedRun
from bartack.errors import BartackError, WorkspaceError
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State
from bartack.web.models._run import QueueRow

if TYPE_CHECKING:
    from bartack.depot.showing import ShownDatabase


class ShownRun(CopiedRun, RunDir):
    """A run that is read as ``CopiedRun`` says. ``to_act_on`` is for the rest.

    Args:
        run_id: Its id.
        database: Where it is kept.
    """

    def __init__(self, run_id: str, database: ShownDatabase) -> None:
        super().__init__(database.path_of(run_id))
        self.database = database

    def to_act_on(self) -> RunDir:
        """The same run, for what may wait for the database."""
        return RunDir(self.path)

    @property
    def queue(self) -> QueueRow | None:
        """Where it is in the queue of the nodes; ``None`` if it is gone."""
        facts = self.facts
        if facts is None:
            return None
        return QueueRow(
            state=facts.state, node=facts.node, pool=facts.pool, reason=facts.reason, stuck=facts.is_stuck
        )

    @property
    def problem(self) -> BartackError | None:
        """Why its database could not be looked at, if it could not."""
        return self.database.problem

    def workspace(self, state: State, given: str | None = None) -> str:
        """It is on the machine of a node: nothing here is compared with its files."""
        raise WorkspaceError(given or (state.run.workspace if state.run is not None else ""))

    # Following.

    def begin(self) -> None:
        """Bring the copy up to date, and keep it so until ``end``. It waits for the database.

        Raises:
            JournalNotFoundError: It is gone.
            DepotError: There is no copy, and the database cannot be read.
        """
        self.database.copy(self.id)
        self.database.watch(self.id)

    def end(self) -> None:
        """See ``begin``."""
        self.database.leave(self.id)

    def refresh(self) -> None:
        """Bring its copy and the list up to date after it was acted on: pages show what that did."""
        with suppress(BartackError):
            self.database.copy(self.id)
        self.database.look()
