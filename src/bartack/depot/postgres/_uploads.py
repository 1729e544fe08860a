"""Keeps the largest values of commits as objects before the commits are sent: each commit that has some, in a thread of its own.

So an object store that is slow or away holds up only the commits that need it. Such a commit is tried again until the store
answers, as the courier does with the database; only its run waits. After ``hold_s`` its outcome is that the store is away, and
its owner ends: nothing of the commit is written then, and the run is continued from the commit before.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bartack.depot.postgres._objects import check_size, has_objects, keep_objects
from bartack.depot.postgres._rewound import Kept
from bartack.errors import BartackError, DepotError, DepotUnavailableError, JournalPoisonedError

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Database, Session

FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 5.0

Say = Callable[[str], object]
Outcome = Callable[[BartackError | None], object]


class Uploads:
    """See the module.

    Args:
        database: Where the runs are.
        hold_s: How long a commit waits for the object store.
        say: Takes a line when a commit begins to wait for it, in any thread.
    """

    def __init__(self, database: Database, hold_s: float, say: Say) -> None:
        self._database = database
        self._hold_s = hold_s
        self._say = say
        self._ends = threading.Event()
        self._threads = set[threading.Thread]()
        self._mutex = threading.Lock()

    def is_needed(self, kept: Kept) -> bool:
        """Whether something of a commit has to be kept before it is sent.

        Raises:
            BlobTooLargeError: One of its values cannot be kept.
        """
        for ref in kept.commit.blobs:
            check_size(self._database, ref.size)
        return has_objects(self._database, kept.commit.blobs)

    def begin(self, kept: Kept, outcome: Outcome) -> None:
        """Keep the values of a commit, and call ``outcome`` in another thread, with the reason if that is not possible."""
        thread = threading.Thread(
            target=self._work, args=(kept, outcome), name=f"bartack-objects {kept.name}", daemon=True
        )
        with self._mutex:
            self._threads.add(thread)
        thread.start()

    def close(self, limit: float) -> bool:
        """Let what is under way end, but what waits for a store wait no longer; returns whether all has ended.

        Args:
            limit: Until when, by the monotonic clock.
        """
        self._ends.set()
        with self._mutex:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _work(self, kept: Kept, outcome: Outcome) -> None:
        try:
            with self._database.session() as session:
                found = self._keep(session, kept)
        except Exception as error:  # noqa: BLE001 - the boundary of the thread: without it the run would get no answer
            found = DepotError(self._database.name, f"{type(error).__name__}: {error}")
        outcome(found)
        with self._mutex:
            self._threads.discard(threading.current_thread())

    def _keep(self, session: Session, kept: Kept) -> BartackError | None:
        """Keep the values of a commit after as many attempts as it takes; returns what is final."""
        limit, tries = time.monotonic() + self._hold_s, 0
        while True:
            try:
                rows = session.rows("SELECT team FROM bartack.run WHERE no = %s", kept.run)
                if rows:  # otherwise its append finds that it is gone
                    keep_objects(session, rows[0][0], kept.commit.blobs, kept.read)
            except DepotUnavailableError as error:
                if self._ends.is_set():
                    return JournalPoisonedError(kept.name, f"it was not written: {error}")
                if time.monotonic() >= limit:
                    return error
                if tries == 0:
                    self._say(f"{kept.name} waits for its object store: {error}")
                longest = min(FIRST_WAIT_S * 2 ** min(tries, 10), LONGEST_WAIT_S)
                self._ends.wait(random.uniform(0, longest))
                tries += 1
            except BartackError as error:
                return error
            else:
                return None
