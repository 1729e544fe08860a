"""What a run is doing, in the few facts that a list of runs shows: how many workers, what is under way, the oldest question.

``mirror.py`` keeps them in run.json, so that a list does not have to read journals.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from bartack.core.text import cut
from bartack.runtime.protocol.asked import one_line, read_question
from bartack.runtime.rundir.moments import iso_time
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import AskedQuestion, OpenStep

ALIVE: Final = frozenset({"waiting", "running"})
"""The statuses of workers that have not ended."""
FIRST: Final = ("think", "shell", "body", "ask")
"""The kinds of steps that say most about a run, in this order; a worker that only waits for others says least."""
LAST: Final = ("delegate", "join")
MOST_KINDS: Final = 6
LONGEST_QUESTION: Final = 200
LONGEST_OPTIONS: Final = 200
"""Characters of all options together that are kept with a question."""


class OpenKind(msgspec.Struct, frozen=True, omit_defaults=True):
    """Steps of one kind that are under way.

    Attributes:
        kind: Their kind.
        count: How many there are.
        since: When the oldest of them began.
        step: The oldest of them.
    """

    kind: str
    count: int
    since: str
    step: str


class FirstQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """The oldest open question.

    Attributes:
        id: Its number.
        question: What it asks, in one line that may be cut.
        type: What is asked for; empty if it cannot be answered without seeing all of it.
        options: What can be chosen; empty: anything of the type.
    """

    id: str
    question: str = ""
    type: str = ""
    options: list[str] = []


class Doing(msgspec.Struct, frozen=True):
    """What a run is doing.

    Attributes:
        workers: How many of its workers have not ended.
        open: What is under way, the kind that says most first.
        asked: Its oldest open question.
    """

    workers: int = 0
    open: list[OpenKind] = []
    asked: FirstQuestion | None = None


def doing_of(state: State) -> Doing:
    """What a run is doing in a state. It reads no file."""
    alive = [worker for worker in state.workers.values() if worker.status in ALIVE]
    steps = (step for worker in alive for step in worker.open.values())
    first = next(iter(state.questions.values()), None)
    return Doing(len(alive), _kinds(steps), None if first is None else _asked(first))


def _kinds(steps: Iterable[OpenStep]) -> list[OpenKind]:
    found: dict[str, list[OpenStep]] = {}
    for step in steps:
        found.setdefault(step.step, []).append(step)
    kinds = [_kind(name, some) for name, some in found.items()]
    return sorted(kinds, key=_rank)[:MOST_KINDS]


def _kind(name: str, steps: list[OpenStep]) -> OpenKind:
    oldest = min(steps, key=lambda step: (step.at, step.seq))
    return OpenKind(name, len(steps), iso_time(oldest.at), f"{oldest.p}:{oldest.n}")


def _rank(kind: OpenKind) -> tuple[int, int, str]:
    place = FIRST.index(kind.kind) if kind.kind in FIRST else len(FIRST) + (kind.kind in LAST)
    return place, -kind.count, kind.kind


def _asked(question: AskedQuestion) -> FirstQuestion:
    raw = question.asked.raw
    if raw is None:  # it is long, and in a file of its own
        return FirstQuestion(question.id, cut(question.about, LONGEST_QUESTION))
    try:
        args = read_question(bytes(raw), by_agent=question.by_agent).args
    except msgspec.DecodeError:
        return FirstQuestion(question.id, cut(question.about, LONGEST_QUESTION))
    text = one_line(args.question, LONGEST_QUESTION)
    options = args.options or []
    is_whole = text == args.question.strip() and len("".join(options)) <= LONGEST_OPTIONS
    if question.kind == "permission" or not is_whole:
        return FirstQuestion(question.id, text)
    return FirstQuestion(question.id, text, args.type, options)
