"""Whether an answer waits in the inbox of a run for the next process that runs it. The inbox is ``inbox.py``."""

from __future__ import annotations

from bartack.errors import BartackError
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.inbox import find_left, place_of_question
from bartack.runtime.rundir.layout import RunDir


def has_stored_answer(run: RunDir) -> bool:
    """Whether an open question of a run has an answer that counts when the run is resumed.

    An unreadable run has none.
    """
    try:
        found, _ = find_left(run)
        answers = {file.left.question: file.left.asked for file in found if file.left.question}
        if not answers:
            return False
        state = read_state(run)
        return any(asked == place_of_question(state, number) for number, asked in answers.items())
    except (BartackError, OSError):
        return False
