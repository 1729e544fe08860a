"""Notices: a person learns that a run waits for an answer, ended, failed, is out of budget or is paused.

What the facts of a run are is decided above (``runtime/state/notable.py``). Here they become notices (``_notice.py``), rows of
the user's outbox (``_queue.py``), and are sent (``_delivery.py``, ``_send.py``). Start with ``_delivery.py``. If the hub is
killed before a notice is sent, its notifier sends it (``runtime/hub/notifier.py``), or else the daemon of the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bartack._lazy import lazy

if TYPE_CHECKING:
    from bartack.notices._delivery import Delivery, RunNow
    from bartack.notices._notice import Fact, Hide, Notice, Subject, make_notice, notice_id, quoted
    from bartack.notices._queue import NOTICE, WATCH, Delivered, list_notices, open_outbox, put_facts
    from bartack.notices._quiet import quiet_left_s
    from bartack.notices._send import Sent, send
    from bartack.notices._ways import Way, ways_of

__all__ = [
    "NOTICE",
    "WATCH",
    "Delivered",
    "Delivery",
    "Fact",
    "Hide",
    "Notice",
    "RunNow",
    "Sent",
    "Subject",
    "Way",
    "list_notices",
    "make_notice",
    "notice_id",
    "open_outbox",
    "put_facts",
    "quiet_left_s",
    "quoted",
    "send",
    "ways_of",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_delivery": "Delivery RunNow",
        "_notice": "Fact Hide Notice Subject make_notice notice_id quoted",
        "_queue": "NOTICE WATCH Delivered list_notices open_outbox put_facts",
        "_quiet": "quiet_left_s",
        "_send": "Sent send",
        "_ways": "Way ways_of",
    },
)
