"""Calls of agents: what their prompts and outcomes say in short, in columns. A part of ``spans.py``.

A call is the step ``think`` with the same row. Its costs and times are those of the step (``steps.py``). Values that are kept as
blobs are not read here: ``asked_unread`` and ``outcome_unread`` say that there is more to know.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final, TypeVar

import msgspec

from bartack.core import typed
from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.protocol.steps import UsageFacts
from bartack.runtime.state import entries as e
from bartack.runtime.state.spans.columns import Texts
from bartack.runtime.state.spans.observed import Current
from bartack.runtime.state.spans.rows import CallFacts
from bartack.runtime.state.worker_state import OpenStep, StepKey, Value, WorkerState

T = TypeVar("T")

_MOST: Final = 0xFFFF_FFFF


class _Command(msgspec.Struct):
    action: str = ""
    task_id: str = ""
    key: str = ""


class _Asked(msgspec.Struct):
    """What is kept of ``ThinkArgs``."""

    prompt: str = ""
    agent: str = ""
    command: _Command | None = None


class _Outcome(msgspec.Struct):
    """What is kept of ``ThinkOutcome``."""

    key: str = ""
    agent: str = ""
    conversation: str = ""
    usage: UsageFacts | None = None


_asked: Final = typed.decoder(_Asked)
_outcome: Final = typed.decoder(_Outcome)


class CallColumns:
    """All calls of agents of a run, in the order in which they began."""

    def __init__(self, current: Current, texts: Texts) -> None:
        self._current = current
        self._texts = texts
        self._row = array("I")
        self._rewinds = array("I")
        self._agent = array("I")
        self._action = array("I")
        self._task = array("I")
        self._conversation = array("I")
        self._key = array("I")
        """The text of a key that is not that of its step; else 0."""
        self._prompt = array("I")
        self._open: dict[StepKey, int] = {}
        """The calls that are open: their places in the columns."""
        self._usage: dict[int, UsageFacts] = {}
        self._asked_unread: set[int] = set()
        self._outcome_unread: set[int] = set()

    # What is observed.

    def opened(self, row: int, worker: WorkerState, step: OpenStep) -> None:
        """A prompt is open, or another attempt at it begins."""
        place = self._open.get(step.key)
        if place is None or self._row[place] != row:
            place = self._open[step.key] = self._add(row, worker.rewinds)
        if step.asked.ref is not None:
            self._asked_unread.add(row)
        asked = _decode(_asked, step.asked)
        if asked is not None:
            texts, command = self._texts, asked.command or _Command()
            self._agent[place] = texts.add(asked.agent)
            self._action[place] = texts.add(command.action)
            self._task[place] = texts.add(command.task_id)
            self._key[place] = texts.add(command.key)
            self._prompt[place] = min(len(asked.prompt), _MOST)

    def asked_again(self, data: e.AttemptFailed) -> None:
        """An attempt of an agent came to nothing, and an agent is asked again."""
        place = self._open.get((data.p, data.n))
        if place is not None:
            self._agent[place] = self._texts.add(data.agent)

    def finished(self, row: int, step: StepKey, value: Value) -> None:
        """The step of a call has an outcome that is not an error."""
        place = self._open.pop(step, None)
        if place is None:
            return
        if value.ref is not None:
            self._outcome_unread.add(row)
        outcome = _decode(_outcome, value)
        if outcome is not None:
            self._agent[place] = self._texts.add(outcome.agent) or self._agent[place]
            self._conversation[place] = self._texts.add(outcome.conversation)
            own = step_key(self._current.run, *step, self._rewinds[place])
            self._key[place] = self._texts.add(outcome.key if outcome.key != own else "")
            if outcome.usage is not None:
                self._usage[row] = outcome.usage

    # What is asked.

    def rows(self) -> array[int]:
        """The rows of all calls; they rise."""
        return self._row

    def call(self, row: int, step: StepKey) -> CallFacts | None:
        """The call that a step is, if it is one."""
        place = bisect_right(self._row, row) - 1
        if place < 0 or self._row[place] != row:
            return None
        texts = self._texts
        return CallFacts(
            key=texts[self._key[place]] or step_key(self._current.run, *step, self._rewinds[place]),
            agent=texts[self._agent[place]],
            action=texts[self._action[place]],
            task=texts[self._task[place]],
            conversation=texts[self._conversation[place]],
            prompt_chars=self._prompt[place],
            usage=self._usage.get(row),
            asked_unread=row in self._asked_unread,
            outcome_unread=row in self._outcome_unread,
        )

    def _add(self, row: int, rewinds: int) -> int:
        place = len(self._row)
        self._row.append(row)
        self._rewinds.append(rewinds)
        for column in (
            self._agent,
            self._action,
            self._task,
            self._conversation,
            self._key,
            self._prompt,
        ):
            column.append(0)
        return place


def _decode(decoder: msgspec.json.Decoder[T], value: Value) -> T | None:
    """What a value says, if it is in its entry; ``None`` if it is a blob, or not what it should be."""
    if value.raw is None:
        return None
    try:
        return decoder.decode(value.raw)
    except (msgspec.DecodeError, RecursionError):
        return None
