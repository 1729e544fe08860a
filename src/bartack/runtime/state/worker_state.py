"""Workers, their steps and their tools, as the journal has them: what the state of a run is made of."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from bartack.journal import BlobRef
from bartack.runtime.protocol.frames import ErrorData, Site
from bartack.runtime.protocol.steps import BODIES, CHANGING, CLEANUP
from bartack.runtime.state import entries as e
from bartack.runtime.state.blame import FailedSteps
from bartack.runtime.state.entries import EntryData
from bartack.runtime.state.links import ABORTS, Abort
from bartack.runtime.state.units import NONE, Units
from bartack.supervision import Monitor

WorkerStatus = Literal["waiting", "running", "completed", "failed", "cancelled"]


StepKey = tuple[str, int]
"""A step of a run: its path and number."""

FIRED: Final = b'"fired"'
"""The outcome of a deadline that ran out."""


class Value(msgspec.Struct, frozen=True):
    """A payload, in the entry or as a blob."""

    raw: msgspec.Raw | None = None
    ref: BlobRef | None = None


NO_VALUE: Final = Value()
NO_VERSIONS: Final[Mapping[str, int]] = {}


class OpenStep(msgspec.Struct, gc=False):
    """A step without an outcome."""

    p: str
    n: int
    step: str
    fp: str
    about: str
    at: int
    dead_us: int
    """Time in which no hub was alive, before this step began."""
    seq: int
    """Place of the entry that began it."""
    attempt: int = 1
    once: bool = False
    timeout_s: float | None = None
    due: int = 0
    question: str = ""
    reserved_usd: float = 0.0
    reserved: Units = NONE
    max_crashes: int = 0
    limit: int = 0
    asked: Value = NO_VALUE
    site: Site | None = None
    cleanup: bool = False
    changes: bool = True
    between: bool = False
    """An attempt failed and the next one has not begun: nothing of it is under way."""
    abort: Abort | None = None
    """Why it is being given up, if it is."""
    sent: tuple[str, str] | None = None
    """The mailbox that the message of a call was put into, and its id."""
    asked_us: int = 0
    """With a prompt: how long its agent had questions to people, those left out that are open."""
    asking: tuple[int, int] | None = None
    """Since when its agent has questions to people, and how long no hub had been alive then."""
    limited_us: int = 0
    """With a prompt: how long it waited for limits of a provider that are over."""
    limited: tuple[int, int] | None = None
    """Since when it waits for the present one, until ``due``, and how long no hub had been alive then."""

    def waits_for_people_us(self, now_us: int, dead_us: int) -> int:
        """How long a prompt has waited for people while a hub was alive. That is not time of its agent."""
        if self.asking is None:
            return self.asked_us
        since, dead_then = self.asking
        return self.asked_us + max(now_us - since - (dead_us - dead_then), 0)

    def waits_for_limits_us(self, now_us: int, dead_us: int) -> int:
        """How long a prompt has waited for limits of a provider while a hub was alive. That is not time of its agent."""
        if self.limited is None:
            return self.limited_us
        since, dead_then = self.limited
        return self.limited_us + max(min(now_us, self.due) - since - (dead_us - dead_then), 0)

    @property
    def key(self) -> StepKey:
        """Its path and number."""
        return (self.p, self.n)

    @property
    def is_delegate(self) -> bool:
        """Whether it waits for the workers that it has started."""
        return self.step == "delegate"

    @property
    def is_prompt(self) -> bool:
        """Whether an agent is called."""
        return self.step == "think"

    @property
    def is_append(self) -> bool:
        """Whether it appends to a file."""
        return self.step == "append"

    @property
    def may_change_files(self) -> bool:
        """Whether it may change files of the workspace."""
        return self.changes and self.step in CHANGING

    @property
    def in_worker(self) -> bool:
        """Whether its worker executes it itself."""
        return self.step in BODIES

    @property
    def is_body(self) -> bool:
        """Whether its worker is executing it: it does not wait for its next attempt."""
        return self.in_worker and not self.between


class ToolRun(msgspec.Struct):
    """A call of a tool that was run for a prompt."""

    call: int
    place: int
    tool: str
    id: str
    seq: int
    asked: Value
    ended_seq: int = 0
    """Place of the entry with its outcome; 0 while it runs."""
    value: Value = NO_VALUE
    error: ErrorData | None = None


class ToolRecord:
    """Every call of a tool that was ever run for one prompt, in order.

    Calls stay in it also when a later attempt of the agent went another way: the program has run them. The *line* is what the agent
    knows: the calls that it made, without those that another attempt superseded.
    """

    def __init__(self) -> None:
        self.runs: list[ToolRun] = []

    @property
    def line(self) -> list[ToolRun]:
        """The calls that the agent has made, as far as it knows."""
        line: list[ToolRun] = []
        for run in self.runs:
            del line[run.place - 1 :]
            line.append(run)
        return line

    @property
    def running(self) -> ToolRun | None:
        """The call without an outcome, if there is one; there is never more than one."""
        return next((run for run in self.runs if not run.ended_seq), None)

    def find(self, call: int) -> ToolRun | None:
        """A call by its number."""
        return next((run for run in self.runs if run.call == call), None)

    def rewind(self, stands: Callable[[int], bool]) -> None:
        """The worker was set back: what does not stand never happened."""
        self.runs = [run for run in self.runs if stands(run.seq)]
        for run in self.runs:
            if run.ended_seq and not stands(run.ended_seq):
                run.ended_seq, run.value, run.error = 0, NO_VALUE, None


class WorkerState:
    """One worker of the run, as far as the journal shows."""

    trapping = False
    """Whether ends of linked workers are messages to it."""
    crashes_in_a_row = 0
    first = 0
    """The last step before its history; its next one is the first of it."""
    restarts = 0
    """How many histories it has ended by ``ctx.restart``."""
    rewinds = 0
    last_message = ""
    """The last message that it received."""
    cancelled = False
    """Whether it was cancelled: if it ends with a cancellation, it has not failed."""
    last_crash = ""
    """Why its process died last."""
    versions: Mapping[str, int] = NO_VERSIONS
    """What its history has recorded, by name. It stays when the worker is set back: other branches may have used it."""
    site: Site | None = None
    """Where in the program its parent asked for it, if the journal has that."""
    set_aside: frozenset[tuple[str, int]] = frozenset()
    """Steps whose outcome a person has set aside, until they have another one."""
    spent_usd = 0.0
    """What its prompts have cost."""
    began_us = 0
    ended_us = 0
    """When it was made, and when it ended: microseconds since 1970, UTC."""

    def __init__(self, data: e.WorkerSpawned, seq: int, arguments: Value) -> None:
        self.path = data.path
        self.seq = seq
        """Place of the entry that made it."""
        self.worker = data.worker
        self.parent = (data.p, data.n)
        self.spawned = data.spawned
        self.made: list[str] = []
        """The workers that it has made, in order: their paths."""
        self.collect = data.collect
        self.given = arguments
        """What its parent called it with."""
        self.arguments = arguments
        """What its history begins with: what it was called with, or what it restarted itself with."""
        self.status: WorkerStatus = "waiting"
        self.history = array("Q")
        """Places of the entries that are outcomes of its steps, in order."""
        self.open: dict[tuple[str, int], OpenStep] = {}
        self.tools: dict[tuple[str, int], ToolRecord] = {}
        """What was run for the agents of prompts that have no outcome, or one that may be set back."""
        self.doubted: dict[tuple[str, int], str] = {}
        """Steps to be done once that may have happened and were set back with a failure before them: their fingerprints."""
        self.adopted: dict[tuple[str, int], int] = {}
        """Steps whose outcomes count though an earlier version marked them as clean-up: places of these outcomes."""
        self.crashes: dict[tuple[str, int], int] = {}
        self.last_step: tuple[str, int, str] = ("", 0, "")
        """The last of its steps that has an outcome: path, number and kind."""
        self.result = NO_VALUE
        self.error: ErrorData | None = None
        self.error_is_final = False
        self.origin: tuple[str, int] | None = None
        self.origin_seq = 0
        self.in_doubt = False
        """Whether it failed because it is unknown whether a step of it happened: a person has to decide."""
        self.origin_facts: tuple[str, str] = ("", "")
        """Kind and fingerprint of the step that an uncaught error came from."""
        self.exits: set[tuple[str, int]] = set()
        """Steps that a link has aborted."""
        self.blame = FailedSteps()
        """Steps that failed and may be what a failure of the worker goes back to."""
        self.suspended: dict[tuple[str, int], OpenStep] | None = None
        """What was open when it was cut off, if it was."""
        self.returning: dict[str, tuple[int, tuple[str, int]]] = {}
        """Messages that it gave back when a failure left their block: place of that outcome, and the step. They are its own
        until it is known that the failure was caught."""

        self.released: list[tuple[int, Callable[[], object]]] = []
        """What it released after a failure that it may be set back to: place of that outcome, and what undoes it."""
        self.watching: list[Monitor] = []
        """Its monitors when it was cut off, if it was."""
        self.aborts: list[Abort] = []
        """What its next steps are given up for, each for one."""

    def restart(self, n: int, arguments: Value) -> None:
        """It ended its history with step ``n`` and begins a new one. What it owns (mailboxes, names, links) stays."""
        self.arguments = arguments
        self.first = n
        self.restarts += 1
        self.history = array("Q")
        self.blame = FailedSteps()
        self.made = []
        self.versions = NO_VERSIONS
        for of_old_steps in (self.tools, self.doubted, self.adopted, self.crashes, self.exits, self.released):
            of_old_steps.clear()
        self.crashes_in_a_row = 0
        self.last_step = (self.path, n, "restart")
        self.status = "waiting"

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left to do."""
        return self.status in {"completed", "failed", "cancelled"}

    @property
    def abort_next(self) -> Abort | None:
        """Why its next step is given up, if it is."""
        return self.aborts[0] if self.aborts else None

    def put_off(self, abort: Abort, *, first: bool = False) -> None:
        """Something aborts the next step that it has no open one for; a cancellation is for certain, whatever links do."""
        if self.aborts and not self.aborts[0].by:
            return
        if not abort.by:
            self.aborts = [abort]
        elif abort not in self.aborts:
            self.aborts.insert(0 if first else len(self.aborts), abort)

    def supersede(self, step: tuple[str, int]) -> None:
        """A step whose outcome was adopted was executed again all the same, by the version that had marked it as clean-up."""
        place = self.adopted.pop(step, None)
        if place is not None and place in self.history:
            self.history.remove(place)

    @property
    def leaving(self) -> bool:
        """Whether a link has aborted it and it has done nothing since but tidy up."""
        return not self.exits.isdisjoint(self.blame.steps)

    def may_clean_up(self, kind: str) -> bool:
        """Whether it ends because of a link and may execute a step of this kind first, before another abort."""
        return self.leaving and kind in CLEANUP

    @property
    def end_reason(self) -> str:
        """How it ended, in a word."""
        if self.status == "completed":
            return "normal"
        return "aborted" if self.error is None or self.error.type.endswith(ABORTS) else "error"

    def waits(self) -> list[OpenStep]:
        """Its open steps, without the blocks that have a deadline."""
        return [step for step in self.open.values() if step.step != "timeout"]

    def scopes(self) -> list[OpenStep]:
        """The blocks with a deadline that it is in."""
        return [step for step in self.open.values() if step.step == "timeout"]

    def awaits_tool(self, step: OpenStep) -> bool:
        """Whether a prompt waits for a tool of this worker, and not for its agent."""
        record = self.tools.get((step.p, step.n))
        return record is not None and record.running is not None


class AskedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a program or of an agent that is open, or an answer that an agent may come back for.

    Attributes:
        id: Its number, such as ``q4``.
        worker: The path of the worker that asks, or whose prompt the agent is asked.
        p: The path of the step, and its number there: the question itself, or the prompt.
        n: See ``p``.
        seq: Place of the entry that asked it.
        at: When that was.
        dead_us: Time in which no hub was alive, before that.
        asked: The question: ``AskArgs``, or ``AgentAsk`` if an agent asks.
        by_agent: Whether an agent asks, and not a program.
        agent: The name of that agent.
        kind: Whether it is a question, or whether an agent may use a tool.
        tool: That tool.
        fp: By which the same question of an agent is recognised.
        about: What an agent asks, in one line.
        timeout_s: How long a question of an agent waits.
        settled: How a question of an agent was settled.
    """

    id: str
    worker: str
    p: str
    n: int
    seq: int
    at: int
    dead_us: int
    asked: Value
    by_agent: bool = False
    agent: str = ""
    kind: Literal["ask", "permission"] = "ask"
    tool: str = ""
    fp: str = ""
    about: str = ""
    timeout_s: float | None = None
    settled: e.QuestionSettled | None = None

    @property
    def key(self) -> StepKey:
        """The step that it belongs to."""
        return (self.p, self.n)

    @classmethod
    def of_step(cls, worker: WorkerState, step: OpenStep) -> AskedQuestion:
        """The question that an open step is."""
        return cls(
            id=step.question,
            worker=worker.path,
            p=step.p,
            n=step.n,
            seq=step.seq,
            at=step.at,
            dead_us=step.dead_us,
            asked=step.asked,
        )


def is_unknown(error: ErrorData) -> bool:
    """Whether an error means that it is unknown whether a step happened."""
    return error.type.endswith(":OutcomeUnknownError")


class UnknownDecision(NamedTuple):
    """What a person decided of a step whose outcome is not known: do it again, take it as done, or let it fail.

    Attributes:
        choice: ``retry``, ``done`` or ``fail``.
        value: With ``done``: its outcome.
    """

    choice: str
    value: Value = NO_VALUE


class Recorded(NamedTuple):
    """An entry in its place, as observers get it."""

    seq: int
    at: int
    data: EntryData
    value: Value
