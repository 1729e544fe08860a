"""Taking in what was left for a run while no hub ran it: answers and messages, in the order in which they were left."""

from __future__ import annotations

import contextlib
import os

from bartack.errors import BartackError, MailboxFullError
from bartack.runtime.kernel.actions import RemoveFile, Show
from bartack.runtime.kernel.core import Core
from bartack.runtime.kernel.requests import Asked
from bartack.runtime.rundir.inbox import REFUSED, Left, find_left, place_of_question
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.worker_state import NO_VALUE, Value


def take_in(run: RunDir, core: Core) -> None:
    """Hand what was left to the core, in the order in which it was left. The files are removed when that is durable."""
    if core.state.ended is not None:
        return  # it was cancelled, and is not resumed
    found, refused = find_left(run)
    _set_aside(core, refused, "bartack did not write it for this run")
    full: set[str] = set()
    for _, path, name, left in sorted(found, key=lambda item: item[:2]):
        if core.state.requests.place_of(left.id):
            core.turn.after_commit(RemoveFile(path))
            continue
        if left.mailbox in full:
            continue
        asked = core.state.questions.get(left.question)
        if asked is not None and asked.by_agent:
            _set_aside(core, [path], "a question of an agent is not answered by a file")
            continue
        try:
            with core.turn.one_line():
                _take(core, name, left)
        except MailboxFullError:
            full.add(left.mailbox)  # it stays for the next time, and so does all that came after it
            continue
        except BartackError:
            pass  # the file is dropped: the question was answered meanwhile, or the mailbox is closed
        core.turn.after_commit(RemoveFile(path))


def _set_aside(core: Core, refused: list[str], reason: str) -> None:
    """Report refused files, and rename them so that they are not read again."""
    for path in refused:
        with contextlib.suppress(OSError):  # it stays where it is and is refused again
            os.replace(path, path + REFUSED)
        name = os.path.basename(path)
        core.turn.after_commit(
            Show(
                "note",
                "",
                f"ignored inbox/{name}: {reason}; it is kept as {name}{REFUSED}",
            )
        )


def _take(core: Core, name: str, left: Left) -> None:
    if not left.question:
        # Earlier versions gave no ids: the name of the file was the key of the message.
        was_read = core.state.mailbox(left.mailbox).id_for(name) is not None
        key = left.key if left.id and not was_read else name
        sent = core.mail.outside.leave(left.mailbox, "inbox", Value(left.value), key)
        _settle(core, left, "send", core.turn.pack(sent))
    elif left.asked and left.asked == place_of_question(core.state, left.question):
        core.questions.answer(left.question, left.value, left.by or "inbox")
        _settle(core, left, "answer", NO_VALUE)


def _settle(core: Core, left: Left, do: str, outcome: Value) -> None:
    if left.id:
        core.requests.settle(Asked(left.id, do, (not left.question and left.by) or "inbox"), outcome)
