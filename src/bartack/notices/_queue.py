"""Notices in the outbox of the user: one row for each notice and way, durable before anything is sent.

The rows are in the state home of the user and never in that of a project: a row says which program is started and where data goes,
and a project may come from elsewhere. A row has the id of its notice and the name of its way, so a fact that is observed twice, by
two processes or after a crash, is kept once. Rows that were sent stay for a week with what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from bartack.config.notices import NoticesConfig
from bartack.core import typed
from bartack.core.user_home import user_home
from bartack.notices._notice import Fact, Hide, Notice, Subject, make_notice
from bartack.notices._ways import Way, ways_of
from bartack.resilience import NewEvent, Outbox, StateStore
from bartack.resilience.outbox.outbox import Limits

NOTICE: Final = "notice"
WATCH: Final = "notice-watch"
"""Rows that name a run whose facts some process looks after; see ``_delivery.py``."""
PATIENCE: Final = Limits(max_attempts=1_000_000)
"""A receiver may be away for days. A notice is given up when it is too old, not after a number of attempts."""
RESUME_S: Final = 45.0
"""How long a node may take to resume a run before a person learns that its hub is gone; less than a notifier stays."""
_STATES: Final = {"pending": "waiting", "leased": "sending", "delivered": "sent", "dead": "failed"}


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a row has.

    Attributes:
        notice: What is sent.
        way: How.
        run_dir: The directory of the run.
        not_before: When it may be sent, in seconds since 1970.
        until: When the pause ends that it is about, likewise.
        hub: The number of the hub that ran the run when it happened.
        is_of_node: See ``Fact``.
        is_held: It is about a run that the node holds.
        quiet: The quiet hours that hold for it, in minutes since midnight.
    """

    notice: Notice
    way: Way
    run_dir: str = ""
    not_before: float = 0.0
    until: float = 0.0
    hub: int = 0
    is_of_node: bool = False
    is_held: bool = False
    quiet: tuple[int, int] | None = None


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A notice and its delivery by one way, for people."""

    id: str
    kind: str
    run: str
    title: str
    text: str
    way: str
    state: str
    """``waiting``, ``sending``, ``sent`` or ``failed``."""
    attempts: int
    at: str
    problem: str = ""


def open_outbox(store: StateStore | None = None) -> Outbox:
    """The outbox that has the notices of this user."""
    return Outbox(store or StateStore(user_home()), PATIENCE)


def put_facts(
    outbox: Outbox, config: NoticesConfig, subject: Subject, facts: Sequence[tuple[Fact, int]], hide: Hide
) -> int:
    """Keep a notice of each fact, for each way, as far as the settings ask for it; how many rows were new.

    Args:
        outbox: Where.
        config: The settings.
        subject: The run.
        facts: Each with the number of the hub that ran the run then.
        hide: Takes secrets out of texts.

    Raises:
        StoreUnavailableError: The outbox cannot be written; nothing was kept.
    """
    events = [
        _event(config, subject, fact, hub, way, hide)
        for fact, hub in facts
        if fact.kind in config.on
        for way in ways_of(config)
    ]
    return sum(outbox.put(events)) if events else 0


def _event(config: NoticesConfig, subject: Subject, fact: Fact, hub: int, way: Way, hide: Hide) -> NewEvent:
    notice = make_notice(subject, fact, config.link, hide)
    wait_s = config.after_s if fact.kind in {"question", "paused"} else RESUME_S if fact.is_of_node else 0.0
    kept = Kept(
        notice=notice,
        way=way,
        run_dir=subject.run_dir,
        not_before=fact.at / 1e6 + wait_s if wait_s else 0.0,
        until=fact.until / 1e6,
        hub=hub,
        is_of_node=fact.is_of_node,
        is_held=fact.status == "held",
        quiet=None if fact.kind in config.urgent else config.quiet_minutes,
    )
    return NewEvent(f"{notice.id}#{way.name}", NOTICE, way.recipient, msgspec.json.encode(kept))


def list_notices(outbox: Outbox, limit: int) -> list[Delivered]:
    """The latest notices, newest last, one for each way."""
    found: list[Delivered] = []
    for row in outbox.rows(kind=NOTICE, limit=limit):
        try:
            notice = typed.decode(row.payload or b"", type=Kept).notice
        except msgspec.MsgspecError:
            continue
        found.append(
            Delivered(
                id=notice.id,
                kind=notice.kind,
                run=notice.run,
                title=notice.title,
                text=notice.text,
                way=row.recipient,
                state=_STATES[row.state],
                attempts=row.attempts,
                at=notice.at,
                problem="" if row.state == "delivered" else row.last_error or row.reason or "",
            )
        )
    return found
