"""What a worker knows on replay: the outcomes that are ahead, and what the program did that they have not confirmed yet.

Pure bookkeeping; ``scheduler.py`` decides what to do with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import cast

import msgspec

from bartack.errors import DeadlineExceededError
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol.exceptions import mark_origin
from bartack.runtime.protocol.steps import in_words
from bartack.runtime.scheduler.operations import AnyBranch, Counted, Scope, place_of

Key = tuple[str, int]


class Deadline(Scope):
    """A block with a deadline. It has a number like a step."""

    def __init__(self, branch: AnyBranch, n: int, fp: str, seconds: float) -> None:
        super().__init__()
        self.branch = branch
        self.n = n
        self.fp = fp
        self.seconds = seconds
        self.left = False
        self.fired = False

    @property
    def step(self) -> Key:
        """Path and number."""
        return self.branch.path, self.n

    def error(self) -> DeadlineExceededError:
        """What leaves the block when its time is over."""
        return mark_origin(DeadlineExceededError("timeout", self.seconds, "ctx.timeout"), self.step)


Pending = Counted[object] | Deadline | f.Out | f.Note | f.Returned
"""Something the program did, which has its place in the history."""


class ReplayLog:
    """The history as far as it is known, and what waits to be confirmed by it."""

    def __init__(self) -> None:
        self.complete = False
        """Whether there is no more history than what is known."""
        self._ahead: deque[f.Past] = deque()
        self._deeds: dict[Key, Pending] = {}

    def learn(self, past: Iterable[f.Past]) -> None:
        """More of the history is known."""
        self._ahead.extend(past)

    def __bool__(self) -> bool:
        """Whether outcomes are ahead."""
        return bool(self._ahead)

    def next(self) -> f.Past:
        """The next outcome, in the order of the journal."""
        return self._ahead.popleft()

    def find(self, p: str, n: int) -> f.Past | None:
        """The outcome of one step, wherever it is ahead."""
        for place, past in enumerate(self._ahead):
            if past.n == n and past.p == p:
                del self._ahead[place]
                return past
        return None

    def add(self, step: Key, deed: Pending) -> None:
        """The program did something."""
        self._deeds[step] = deed

    def add_leaving(self, deadline: Deadline, note: f.Note) -> None:
        """The program left a block in time. It stands behind what was done inside."""
        self._deeds[deadline.branch.path, -deadline.n] = note

    def confirm(self, past: f.Past) -> Pending | None:
        """What the program did at the place of an outcome, if it did anything there."""
        return self._deeds.pop((past.p, past.n), None)

    def confirm_leaving(self, past: f.Past) -> bool:
        """Whether the program has left the block that an outcome belongs to."""
        return self._deeds.pop((past.p, -past.n), None) is not None

    def drain(self) -> list[Pending]:
        """What was not confirmed, in the order in which it was done."""
        deeds, self._deeds = list(self._deeds.values()), {}
        return deeds


def fits(deed: Pending, past: f.Past) -> bool:
    """Whether something the program did is the step that was recorded."""
    step, _ = _kind_and_subject(deed)
    return step == past.step and (not past.fp or past.fp == deed.fp)


def describe_deed(deed: Pending) -> str:
    """What the program did, in a few words."""
    return in_words(*_kind_and_subject(deed))


def describe_past(past: f.Past) -> str:
    """What was recorded, in a few words."""
    return in_words(past.step, past.about or _subject_of_outcome(past))


def _subject_of_outcome(past: f.Past) -> str:
    """What a step was about whose entry does not say it: its outcome may."""
    if past.step == "shell" and past.e is not None:
        return str(past.e.facts.get("command", ""))
    try:
        outcome = msgspec.json.decode(past.v, type=object) if past.v is not None else None
    except msgspec.DecodeError:
        return ""
    if past.step == "shell" and isinstance(outcome, dict):
        return " ".join(map(str, cast("dict[str, list[object]]", outcome).get("argv", ())))
    return outcome[:60] if past.step in {"print", "log"} and isinstance(outcome, str) else ""


def place_of_deed(deed: Pending) -> str:
    """File and line of the call in the program, if they are known."""
    made = deed.made if isinstance(deed, Counted) else None
    return "" if made is None else place_of(made)


def _kind_and_subject(deed: Pending) -> tuple[str, str]:
    if isinstance(deed, Deadline):
        return "timeout", f"{deed.seconds:g} s"
    if isinstance(deed, f.Returned):
        return "returned", ""
    if isinstance(deed, f.Out):
        return deed.channel, deed.text[:60]
    return deed.step, deed.about
