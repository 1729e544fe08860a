"""What processes outside a run may ask of its hub: the arguments of requests, the facts in answers, and who may ask for what."""

from __future__ import annotations

import re
import secrets
from typing import Final, Literal

import msgspec

from bartack.messaging import LetterFilter
from bartack.messaging.options import Terms
from bartack.messaging.outcome import Copy

STEP_RIGHTS: Final = frozenset({"send", "receive", "ack", "renew", "forget", "state", "fail", "watch"})
"""What a command of the program may do that carries its step's token."""


MESSAGES: Final = frozenset(
    {
        "send",
        "call",
        "reply",
        "receive",
        "send_supervised",
        "broadcast",
        "publish",
        "subscribe",
        "withdraw",
        "close",
        "dead.retry",
    }
)


BY_ID: Final = frozenset(
    {
        "send",
        "call",
        "reply",
        "send_supervised",
        "broadcast",
        "publish",
        "subscribe",
        "withdraw",
        "close",
        "dead.add",
        "dead.retry",
        "dead.purge",
        "answer",
        "fail",
        "cancel",
        "interrupt",
    }
)
"""Requests that change the run. Each has an id, and is carried out once, however often it is sent (``kernel/requests.py``).

The others only look (``state``), or concern messages that a connection holds and that go back when it ends (``receive``, ``ack``,
``renew``, ``forget``).
"""


REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


LEASE_S: Final = 30.0
"""How long a process outside may hold a message without a sign of life."""


PARENT_OF_WORKERS: Final = "parent of workers"


PARENT_OF_COMMANDS: Final = "parent of commands"


_ROLE: Final = " (role "
"""Between a name and a role; no process gives itself a name with this in it."""


NO_RIGHTS: Final[frozenset[str]] = frozenset()


class Request(msgspec.Struct, omit_defaults=True):
    """Arguments of every request; each uses some of them."""

    mailbox: str = ""
    key: str = ""
    id: str = ""
    ok: bool = True
    timeout_s: float | None = None
    not_before: int = 0
    question: str = ""
    by: str = ""
    message: str = ""
    limit: int = 20
    metadata: dict[str, object] = {}
    terms: Terms = Terms()
    copies: list[Copy] = []
    strategy: str = ""
    topic: str = ""
    pattern: str = ""
    off: bool = False
    number: int = 0
    letters: LetterFilter = LetterFilter()


class RunFacts(msgspec.Struct):
    """The facts of a run."""

    run: str
    status: str
    workers: int
    alive: int
    questions: list[str]
    spent_usd: float
    hub: int
    deadlock: list[str] = []
    """What each worker waits for, if all wait for each other."""


class Process(msgspec.Struct, omit_defaults=True):
    """A process of the run, or a call of an agent, and what it is busy with."""

    kind: Literal["hub", "parent of workers", "parent of commands", "worker", "command", "agent"]
    pid: int = 0
    under: str = ""
    """What it belongs to: the kind of its parent, or the path of the worker that made it."""
    worker: str = ""
    incarnation: int = 0
    status: str = ""
    started: int = 0
    """When it was started: microseconds since 1970, UTC."""
    restarted: str = ""
    """Why the process before it ended, if it did."""
    step: str = ""
    about: str = ""
    since: int = 0
    """When the step began: microseconds since 1970, UTC."""
    left_s: float | None = None
    """Seconds until its deadline."""


def signed(by: str, role: str) -> str:
    """Who asks, as the journal has it: the name that a process gives itself, and the role that the database has checked.

    Args:
        by: The name.
        role: The role; empty if the request came through no database.
    """
    name = by.partition(_ROLE)[0].removeprefix("role ")
    if not role:
        return name
    return f"{name}{_ROLE}{role})" if name else f"role {role}"


def new_request_id() -> str:
    """The id of a request that was never sent before."""
    return secrets.token_hex(16)
