"""Notices as the daemon delivers them: those whose receiver was away, and those that waited for the end of quiet hours.

A command of the person may take minutes, so this has a thread of its own, which nothing waits for. A notice that is cut off by the
end of the daemon is sent again by the next process that delivers.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from bartack.errors import ResilienceError
from bartack.notices import NOTICE, Delivery, open_outbox
from bartack.resilience import StateStore
from bartack.runtime.rundir.notices import look_after_lost, look_at

_log = logging.getLogger("bartack.tracking")
_LOOK_S: Final = 5.0


class NoticeWorker:
    """Delivers the notices of a user until it is stopped.

    Args:
        home: The state home of the user.
    """

    def __init__(self, home: Path) -> None:
        self.waiting = 0
        """How many notices are not sent yet."""
        self._home = home
        self._awake = threading.Event()
        self._stopping = False

    def start(self) -> None:
        """Begin to deliver."""
        threading.Thread(  # bartack: allow[unsupervised_thread] it ends when it is stopped, or with the daemon
            target=self._run, name="notices", daemon=True
        ).start()

    def wake(self) -> None:
        """Something is there to do."""
        self._awake.set()

    def stop(self) -> None:
        """End after the notice that is being sent."""
        self._stopping = True
        self.wake()

    def _run(self) -> None:
        with StateStore(self._home) as store:
            outbox = open_outbox(store)
            delivery = Delivery(outbox, look_at)
            while not self._stopping:
                self._awake.clear()
                try:
                    look_after_lost(outbox)
                    sent = delivery.deliver_due()
                    counts = outbox.count(NOTICE)
                    self.waiting = counts["pending"] + counts["leased"]
                    if sent:
                        _log.info("%d notices sent", sent)
                except ResilienceError as error:
                    _log.warning("notices: %s; tried again later", error)
                except Exception:  # noqa: BLE001 - the daemon continues with its other work
                    _log.exception("notices: unexpected")
                self._awake.wait(_LOOK_S)
