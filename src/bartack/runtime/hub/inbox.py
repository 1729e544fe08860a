"""Taking in what was left for a run while no hub ran it: answers and messages, in the order in which they were left."""

from __future__ import annotations

import contextlib
import os

from bartack.errors import BartackError, MailboxFullError
from bartack.runtime.kernel.actions import Show
from bartack.runtime.kernel.core import Core
from bartack.runtime.rundir.inbox import REFUSED, Left, find_left, place_of_question
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.worker_state import Value


def take_in(run: RunDir, core: Core) -> list[str]:
    """Hand what was left to the core, in the order in which it was left; returns the files, to be removed when that is durable."""
    found, refused = find_left(run)
    _set_aside(core, refused)
    taken: list[str] = []
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
            pass  # the file is dropped: the question was answered meanwhile, or the mailbox is closed
        taken.append(path)
    return taken


def _set_aside(core: Core, refused: list[str]) -> None:
    """Report refused files, and rename them so that they are not read again."""
    for path in refused:
        with contextlib.suppress(OSError):  # it stays where it is and is refused again
            os.replace(path, path + REFUSED)
        name = os.path.basename(path)
        core.turn.after_commit(
            Show(
                "note",
                "",
                f"ignored inbox/{name}: bartack did not write it for this run; it is kept as {name}{REFUSED}",
            )
        )


def _take(core: Core, key: str, left: Left) -> None:
    if not left.question:
        core.mail.outside.leave(left.mailbox, "inbox", Value(left.value), key)
    elif left.asked == place_of_question(core.state, left.question):
        core.questions.answer(left.question, left.value, "inbox")
