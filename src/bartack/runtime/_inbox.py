"""What was left for a run while nobody ran it: answers and messages, one file each, taken in when it goes on.

A file's name is the key of what it holds, so that one that was taken in just before a crash is not taken in twice.
"""

from __future__ import annotations

import os
import re

import msgspec

from bartack.core import SystemClock, replace_file
from bartack.errors import (
    BartackError,
    MailboxFullError,
    MailboxNameError,
    QuestionAnsweredError,
    QuestionNotFoundError,
)
from bartack.messaging import check_name
from bartack.runtime._core import Core
from bartack.runtime._layout import RunDir
from bartack.runtime._state import State
from bartack.runtime._worker_state import Value

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Left(msgspec.Struct, omit_defaults=True):
    """One thing that was left."""

    value: msgspec.Raw
    mailbox: str = ""
    question: str = ""
    at: int = 0
    """When it was left: messages are taken in in this order."""


def leave_message(run: RunDir, mailbox: str, key: str, value: bytes) -> None:
    """Leave a message for the next process that runs the run."""
    check_name(mailbox)
    if not _KEY.fullmatch(key):
        raise MailboxNameError(key, "a key left for later is made of letters, digits, '_', '-' and '.'")
    _leave(run, f"m-{key}", Left(value=msgspec.Raw(value), mailbox=mailbox))


def leave_answer(run: RunDir, state: State, question: str, value: bytes) -> None:
    """Leave an answer for the next process that runs the run; the first one left counts.

    Raises:
        QuestionNotFoundError: There is no such question open.
        QuestionAnsweredError: An answer was left already.
    """
    if question not in state.questions:
        raise QuestionNotFoundError(question)
    if (run.inbox / f"q-{question}.json").exists():
        raise QuestionAnsweredError(question)
    _leave(run, f"q-{question}", Left(value=msgspec.Raw(value), question=question))


class LeftMessage(msgspec.Struct, frozen=True):
    """A message that waits for the next process that runs the run."""

    key: str
    mailbox: str
    at: int
    value: msgspec.Raw


def left_messages(run: RunDir) -> list[LeftMessage]:
    """The messages that were left, in the order in which they will be taken in."""
    found, _ = _find(run)
    return [
        LeftMessage(key.removeprefix("m-"), left.mailbox, left.at, left.value)
        for _, _, key, left in sorted(found, key=lambda item: item[:2])
        if left.mailbox
    ]


def take_in(run: RunDir, core: Core) -> list[str]:
    """Hand what was left to the core, in the order in which it was left; returns the files, to be removed when that is durable."""
    found, taken = _find(run)
    full: set[str] = set()
    for _, path, key, left in sorted(found, key=lambda item: item[:2]):
        if left.mailbox in full:
            continue
        try:
            _take(core, key, left)
        except MailboxFullError:
            full.add(left.mailbox)  # it stays for the next time, and so does all that came after it
            continue
        except BartackError:
            pass  # what nobody can take (a question answered meanwhile, a closed mailbox) is dropped with its file
        taken.append(path)
    return taken


def _find(run: RunDir) -> tuple[list[tuple[int, str, str, Left]], list[str]]:
    """What was left, and the files that hold nothing. A file that cannot be read now stays where it is."""
    found: list[tuple[int, str, str, Left]] = []
    useless: list[str] = []
    for name in os.listdir(run.inbox) if run.inbox.is_dir() else []:
        if not name.endswith(".json") or name.startswith("."):
            continue
        path = os.path.join(run.inbox, name)
        try:
            with open(path, "rb") as file:
                left = msgspec.json.decode(file.read(), type=Left)
        except (msgspec.DecodeError, UnicodeDecodeError):
            useless.append(path)
        except OSError:
            continue
        else:
            found.append((left.at, path, name.removesuffix(".json"), left))
    return found, useless


def _take(core: Core, key: str, left: Left) -> None:
    if left.question:
        core.questions.answer(left.question, left.value, "inbox")
    else:
        core.foreign.mail.leave(left.mailbox, "inbox", Value(left.value), key)


def _leave(run: RunDir, name: str, left: Left) -> None:
    left.at = SystemClock().now_us()
    run.inbox.mkdir(mode=0o700, exist_ok=True)
    replace_file(str(run.inbox / f"{name}.json"), msgspec.json.encode(left))
