"""The inbox of a run: answers and messages that were sent while no hub ran it, one file each, read when it is resumed.

Each file has the id of the request that it is, so that one that was read just before a crash, or that a hub took over its socket
before it died, does not count twice (``kernel/requests.py``).

Each file carries a seal: a keyed checksum over all of it, the run's id and, for an answer, the place in the journal where its
question was asked. The key is in the user's state home and not in the run's directory. A file that another program wrote, that was
meant for another run, or that was written before its question was asked has no valid seal. It never counts, and never replaces an
answer with a valid seal. The hub's side is ``hub/inbox.py``.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import re
import stat
from typing import Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.core.clock import SystemClock
from bartack.core.files import replace_file
from bartack.core.user_home import user_home
from bartack.errors import (
    MailboxNameError,
    QuestionAnsweredError,
    QuestionNotFoundError,
    TokenFileError,
)
from bartack.messaging.mailboxes import check_name
from bartack.resilience.tokens import load_token
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.state.run_state import State

KEY_FILE: Final = "inbox.key"
"""The file of the key, in the state home of the user."""

REFUSED: Final = ".refused"
"""Added to the name of a file that does not count."""

_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SUFFIX: Final = ".json"
_LARGEST_BYTES: Final = 64 * 1024 * 1024
_LONGEST: Final = 200
"""Characters of an answer that an error shows."""


class Left(msgspec.Struct, omit_defaults=True):
    """The content of a file: a message, or an answer."""

    value: msgspec.Raw
    mailbox: str = ""
    question: str = ""
    at: int = 0
    """When it was written: files are read in this order."""
    asked: int = 0
    """The place in the journal where the question was asked."""
    id: str = ""
    """The id of the request; earlier versions gave none."""
    key: str = ""
    """The key of the message, if its sender has given it one."""
    by: str = ""
    """Who answers, or the role of the database that has sent the message."""
    seal: str = ""
    """Shows that ``bartack`` wrote it for this run."""


class FoundFile(NamedTuple):
    """A file with a valid seal. They are sorted by when they were written."""

    at: int
    path: str
    name: str
    """Without the ending; with earlier versions, the key of the message."""
    left: Left


def leave_message(run: RunDir, mailbox: str, request: str, value: bytes, key: str = "", by: str = "") -> None:
    """Leave a message for the next process that runs the run.

    Args:
        run: The run.
        mailbox: The name of the mailbox.
        request: The id of the request.
        value: The message, as encoded JSON.
        key: The key of the message, if it has one: a later file with the same key replaces this one.
        by: The role of the database that has sent it, if one has.

    Raises:
        PeerRefusedError: This process belongs to a run.
        TokenFileError: The key of the seals cannot be read or made.
    """
    check_name(mailbox)
    if not _KEY.fullmatch(key or request):
        raise MailboxNameError(
            key, "the key of a message for later may only contain letters, digits, '_', '-' and '.'"
        )
    check_outside(f"a message to {run.id}", run)
    left = Left(value=msgspec.Raw(value), mailbox=mailbox, id=request, key=key, by=by)
    _leave(run, f"m-{key or request}", left)


def leave_answer(run: RunDir, state: State, question: str, value: bytes, request: str, by: str = "") -> None:
    """Leave an answer for the next process that runs the run; the first one left counts.

    Raises:
        QuestionNotFoundError: No question of this number is open.
        QuestionAnsweredError: An answer was left already.
        PeerRefusedError: This process belongs to a run.
        TokenFileError: The key of the seals cannot be read or made.
    """
    asked = place_of_question(state, question)
    if not asked:
        raise QuestionNotFoundError(question)
    check_outside(f"an answer to {question} of {run.id}", run)
    name = f"q-{question}"
    left = _read(str(run.inbox / f"{name}{_SUFFIX}"))
    if left is not None and left.asked == asked and _is_sealed(_key(), run, name, left):
        text = bytes(left.value).decode()
        raise QuestionAnsweredError(
            question, left.by, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        )
    _leave(run, name, Left(value=msgspec.Raw(value), question=question, asked=asked, id=request, by=by))


def answers_left(run: RunDir) -> set[tuple[str, int]]:
    """The questions that an answer in the inbox waits for, each with the place in the journal where it was asked."""
    try:
        found, _ = find_left(run)
    except OSError:
        return set()
    return {(one.left.question, one.left.asked) for one in found if one.left.question}


def place_of_question(state: State, question: str) -> int:
    """Where in the journal an open question of a program was asked; 0 if it is not open, or an agent asks.

    What an agent may do is never answered by a file: see ``client/answering.py``.
    """
    asked = state.questions.get(question)
    return 0 if asked is None or asked.by_agent else asked.seq


class LeftMessage(msgspec.Struct, frozen=True):
    """A message that waits for the next process that runs the run."""

    key: str
    mailbox: str
    at: int
    value: msgspec.Raw


def left_messages(run: RunDir) -> list[LeftMessage]:
    """The messages in the inbox, in the order in which they will be read."""
    found, _ = find_left(run)
    return [
        LeftMessage(name.removeprefix("m-"), left.mailbox, at, left.value)
        for at, _, name, left in sorted(found, key=lambda item: item[:2])
        if left.mailbox
    ]


def times_left(run: RunDir) -> list[int]:
    """When each file in the inbox was left, in microseconds since 1970. Whether it counts is found out by reading it."""
    with contextlib.suppress(OSError), os.scandir(run.inbox) as entries:
        return [
            entry.stat(follow_symlinks=False).st_mtime_ns // 1000
            for entry in entries
            if entry.name.endswith(_SUFFIX) and not entry.name.startswith(".")
        ]
    return []


def find_left(run: RunDir) -> tuple[list[FoundFile], list[str]]:
    """The files with a valid seal, and those that do not count. A file that cannot be read now stays where it is."""
    names = os.listdir(run.inbox) if run.inbox.is_dir() else []
    names = [name for name in names if name.endswith(_SUFFIX) and not name.startswith(".")]
    found: list[FoundFile] = []
    refused: list[str] = []
    secret = _existing_key() if names else b""
    for name in names:
        path, key = str(run.inbox / name), name.removesuffix(_SUFFIX)
        try:
            left = _read(path)
        except OSError:
            continue
        if left is not None and _is_sealed(secret, run, key, left):
            found.append(FoundFile(left.at, path, key, left))
        else:
            refused.append(path)
    return found, refused


def _read(path: str) -> Left | None:
    """The content of a file; ``None`` if it is missing, a link, a pipe, too large, or not valid JSON."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST_BYTES:
                return None
            return typed.decode(file.read(), type=Left)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            return None
        raise


def _leave(run: RunDir, name: str, left: Left) -> None:
    check_own(run)
    left.at = SystemClock().now_us()
    left.seal = _seal(_key(), run, name, left)
    run.inbox.mkdir(mode=0o700, exist_ok=True)
    replace_file(str(run.inbox / f"{name}{_SUFFIX}"), msgspec.json.encode(left))
    from bartack.depot import user_depot  # noqa: PLC0415 - only what is left for a run needs it

    user_depot().nudge()  # the run may rest, and a node wakes it


# Seals.


def _key() -> bytes:
    return load_token(user_home() / KEY_FILE).encode()


def _existing_key() -> bytes:
    """The key; empty if there is none that can be used. Then no file counts."""
    try:
        return _key()
    except TokenFileError:
        return b""


def _seal(secret: bytes, run: RunDir, name: str, left: Left) -> str:
    text = msgspec.json.encode([run.id, name, msgspec.structs.replace(left, seal="")])
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def _is_sealed(secret: bytes, run: RunDir, name: str, left: Left) -> bool:
    return bool(secret) and hmac.compare_digest(left.seal.encode(), _seal(secret, run, name, left).encode())
