"""What was left for a run while nobody ran it: answers and messages, one file each, taken in when it goes on.

A file's name is the key of what it holds, so that one that was taken in just before a crash is not taken in twice.
"""

from __future__ import annotations

import contextlib
import os
import re

import msgspec

from bartack.core import replace_file
from bartack.errors import BartackError, MailboxNameError, QuestionAnsweredError, QuestionNotFoundError
from bartack.messaging import check_name
from bartack.runtime._core import Core
from bartack.runtime._layout import RunDir
from bartack.runtime._state import State, Value

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Left(msgspec.Struct, omit_defaults=True):
    """One thing that was left."""

    value: msgspec.Raw
    mailbox: str = ""
    question: str = ""


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


def take_in(run: RunDir, core: Core) -> list[str]:
    """Hand what was left to the core; returns the files, to be removed when that is durable."""
    taken: list[str] = []
    for name in sorted(os.listdir(run.inbox)) if run.inbox.is_dir() else []:
        path = os.path.join(run.inbox, name)
        if not name.endswith(".json") or name.startswith("."):
            continue
        with contextlib.suppress(BartackError, msgspec.DecodeError, OSError):
            # What cannot be taken in (a question answered meanwhile, a closed mailbox) is dropped with its file.
            _take(core, name.removesuffix(".json"), path)
        taken.append(path)
    return taken


def _take(core: Core, key: str, path: str) -> None:
    with open(path, "rb") as file:
        left = msgspec.json.decode(file.read(), type=Left)
    if left.question:
        core.questions.answer(left.question, left.value, "inbox")
    else:
        core.mail.put_foreign(left.mailbox, "inbox", key, Value(left.value))


def _leave(run: RunDir, name: str, left: Left) -> None:
    run.inbox.mkdir(mode=0o700, exist_ok=True)
    replace_file(str(run.inbox / f"{name}.json"), msgspec.json.encode(left))
