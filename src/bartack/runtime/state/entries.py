"""What the hub writes into the journal: one type per kind of entry.

An entry says what happened, never what to do. The state of a run (``run_state.py``) is made of entries alone, by the same code when
they are written and when they are read again.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import msgspec

from bartack.core import typed
from bartack.journal import BlobRef, Draft
from bartack.messaging import SendOutcome
from bartack.messaging.options import Terms
from bartack.messaging.outcome import Copy
from bartack.messaging.post import Note
from bartack.runtime.protocol.frames import ErrorData, Site, StackLine
from bartack.runtime.state.units import Units
from bartack.supervision import Decision

SUPERVISOR: Final = "run"
"""What the supervisor of a run's workers is called in reports and events."""


class EntryData(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True, gc=False):
    """The small part of an entry."""

    kind: ClassVar[str]


class RunCreated(EntryData, frozen=True, gc=False):
    """First entry of a run. Its value: the arguments of the first worker."""

    kind = "run.created"

    run: str
    worker: str
    """``module:name`` of the first worker."""
    name: str
    program: str
    """The file that was given, as it was given."""
    workspace: str
    root: str
    """The directory whose modules are kept with the run."""
    seed: int
    no_input: bool = False
    environment: dict[str, str] = {}
    """Versions: Python, Bartack, the distributions that were imported."""
    environment_rule: Literal["same", "strict", "uv"] = "same"
    """What they are for where the run continues; see ``RunConfig.environment``."""
    forked_from: str = ""
    argv: list[str] = []
    """The arguments that were given on the command line."""
    place: str = ""
    """Where the run's directory is, seen from the workspace: it shows where both were moved to."""
    project: str = ""
    """What people call the project."""
    inside: str = ""
    """The run whose process created this one, if it was one."""
    from_runs: list[str] = []
    """The runs whose processes may act on this one: ids, patterns of ids, or ``creator``."""
    synced: bool = False
    """Whether its program and settings were durable when it was created."""
    origin: str = ""
    """The mark of the user who made the run, for just this directory (``rundir/origin.py``)."""
    run_as: str = ""
    """The user that its processes are executed as, where that is not the user of its hub."""
    run_uid: int = 0
    """The number of that user."""
    paths: list[str] = []
    """The directories below ``root`` that modules are imported from; none in runs of older versions."""
    start_key: str = ""
    """What the start is recognised by if a client repeats it, where a client made it; a digest."""
    needs: list[str] = []
    """The labels that a node must have for the agents that the run may ask."""


class ProgramPinned(EntryData, frozen=True, gc=False):
    """The run continues with another version of its program, which matches its history."""

    kind = "program.pinned"

    program: str
    root: str
    environment: dict[str, str] = {}
    waiting: str = ""
    """The directory in which it was written; from this entry on it takes the place of the one before."""
    paths: list[str] = []
    """See ``RunCreated.paths``."""


class RunMoved(EntryData, frozen=True, gc=False):
    """The run continues in another workspace: the old one was moved, or another one was given."""

    kind = "run.moved"

    workspace: str


class RemoteBase(msgspec.Struct, frozen=True):
    """A commit that another repository has, with all that it needs, so that no copy has that."""

    url: str
    ref: str
    """The reference whose history it is in."""
    commit: str


class WorkspacePart(EntryData, frozen=True, gc=False):
    """A part of a large pack. Its value: the bytes of it. The last part is the value of the entry that ends the line of parts."""

    kind = "workspace.part"


class WorkspaceKept(EntryData, frozen=True, gc=False):
    """The files of the run as they were at a moment: a copy. Its value: a pack of what the copy before it does not have.

    The value is the last part of the pack if there are ``WorkspacePart`` entries right before it.

    What finished in the same line had finished at that moment. Whichever machine continues the run begins with the latest copy.
    """

    kind = "workspace.kept"

    copy: str
    """The id of the commit that is the copy."""
    parent: str = ""
    """The copy before it; empty for the first one, whose pack needs nothing else."""
    head: str = ""
    """The commit that is checked out in the workspace; empty if there is none."""
    refs: dict[str, str] = {}
    """The references of the repository in the workspace, with their commits; empty if they are those of the copy before."""
    below: str = ""
    """Where the workspace is in the directory that is copied, which is the top of a repository; empty: it is that directory."""
    during: bool = False
    """A step that may change files was under way."""
    left_out: list[str] = []
    """What could not be kept, and why."""
    base: RemoteBase | None = None
    """What packs that need no copy before them need besides; only of the first copy."""
    took_us: int = 0
    """How long it took to make it, beside what the run did meanwhile."""
    push: str = ""
    """The URL that gets the branches of the run when it is completed; only of the first copy."""


class WorkspacePacked(EntryData, frozen=True, gc=False):
    """A copy in one piece, instead of the packs up to it. Its value: the pack, which needs nothing else, or its last part."""

    kind = "workspace.packed"

    copy: str
    """The id of the commit that is the copy."""


class WorkspacePrepared(EntryData, frozen=True, gc=False):
    """The command ``workspace.setup`` has prepared the workspace on a machine. Its value: the end of what it has written."""

    kind = "workspace.prepared"

    words: list[str]
    """The command."""
    took_us: int = 0


class RunDecided(EntryData, frozen=True, gc=False):
    """A person has decided about steps with an unknown outcome while no hub ran the run. Its value, with ``done``: the outcome.

    The next hub acts on the last one of these. Each can be replaced by another one until then.
    """

    kind = "run.decided"

    choice: str
    """``retry``, ``done`` or ``fail``."""


class HubStarted(EntryData, frozen=True, gc=False):
    """A hub runs the run from here on: the first one, or one that resumes it."""

    kind = "hub.started"

    hub: int
    dead_us: int = 0
    """How long no hub was alive, by the clock on the wall: negative if that was set back meanwhile."""
    adopted: int = 0
    """How many outcomes it keeps that an earlier version marked as clean-up, though their steps began before the failure."""
    orphans: list[str] = []
    """The command lines of processes that an earlier hub had left, and that were killed: without secrets, and cut."""

    @property
    def about_orphans(self) -> str:
        """The same for people."""
        count = len(self.orphans)
        what = "1 process" if count == 1 else f"{count} processes"
        return f"terminated {what} that an earlier hub had left running: {'; '.join(self.orphans)}"


class ClockSet(EntryData, frozen=True, gc=False):
    """The clock on the wall was set while a hub ran the run, or the machine was asleep. Waits do not count that as time."""

    kind = "clock.set"

    by_us: int
    """By how much it was set forward; less than nothing if it was set back."""


class RunEnded(EntryData, frozen=True, gc=False):
    """The run is over: completed, failed, cancelled or aborted. Its value: the result."""

    kind = "run.ended"

    status: str
    reason: str = ""
    by: str = ""
    """The role of the database that has cancelled it, if one has."""


class HubStopped(EntryData, frozen=True, gc=False):
    """The hub shut down cleanly and left the run resumable."""

    kind = "hub.stopped"

    reason: str
    until: int = 0
    """When the run has something to do again by itself; 0: no time will continue it."""
    about: str = ""
    """What it waits for until then."""


class WorkerSpawned(EntryData, frozen=True, gc=False):
    """A worker belongs to the run from here on. Its value: its arguments."""

    kind = "worker.spawned"

    path: str
    worker: str
    p: str = ""
    n: int = 0
    """The step of its parent that made it."""
    spawned: bool = False
    collect: bool = False
    site: Site | None = None
    """With ``spawned``: where in the program it is asked for. That of a delegated worker is in the ``step.started`` before it."""


class WorkerEnded(EntryData, frozen=True, gc=False):
    """A worker came to its end. Its value: the result."""

    kind = "worker.ended"

    path: str
    error: ErrorData | None = None
    origin: tuple[str, int] | None = None
    """The step whose outcome the uncaught error was."""
    final: bool = False
    """The failure is history: it was collected, or is not one of the session."""
    cut: bool = False
    """It did not end by itself: the step that waited for it was given up."""


class WorkerCrashed(EntryData, frozen=True, gc=False):
    """The process of a worker died without having ended."""

    kind = "worker.crashed"

    path: str
    incarnation: int
    reason: str
    p: str = ""
    n: int = 0
    """The body it died in, if any."""
    arrived: bool = False
    """It had replayed its history and asked for something after it."""
    pid: int = 0
    last_step: str = ""
    """The step it was in, or the last one that has an outcome: path, number and kind."""
    last_message: str = ""
    """The last message that it received."""
    stderr_tail: str = ""
    """The end of what it wrote as errors, without secrets of its environment."""
    uptime_s: float = 0.0
    peak_memory_bytes: int = 0
    restarts: int = 0
    """How often in a row it has crashed, this time included."""
    decision: Decision = "restart"
    next_start: int = 0
    """When it is started again: microseconds since 1970, UTC."""


class WorkersDropped(EntryData, frozen=True, gc=False):
    """A step that makes workers is done anew with others: those that it made before, and all below, are removed from the run."""

    kind = "workers.dropped"

    p: str
    n: int


class WorkerRewound(EntryData, frozen=True, gc=False):
    """A failed worker continues at its failing step: what it did from entry ``to`` on is no longer its history."""

    kind = "worker.rewound"

    path: str
    to: int


class StepSetAside(EntryData, frozen=True, gc=False):
    """A person has set the outcome of a step aside, with all that followed from it: the step is executed again.

    Of the history of its worker from entry ``to`` on, only the entries ``kept`` stand. The workers that were started by what does
    not stand are removed from the run.
    """

    kind = "step.set_aside"

    path: str
    p: str
    n: int
    to: int
    kept: list[int] = []
    workers: list[str] = []


class WorkerRestarted(EntryData, frozen=True, gc=False):
    """A worker ended its history and begins a new one, at the step after ``n``. Its value: its arguments from here on.

    Numbers of steps continue, so that no step, child or key of the new history has the name of an earlier one.
    """

    kind = "worker.restarted"

    path: str
    n: int
    fp: str = ""


class WorkerCancelled(EntryData, frozen=True, gc=False):
    """A worker is cancelled: its open steps are, or else its next one."""

    kind = "worker.cancelled"

    path: str
    reason: str


class StepStarted(EntryData, frozen=True, gc=False):
    """A step is under way. Its value: what it was asked, where that is needed to show or continue it."""

    kind = "step.started"

    p: str
    n: int
    step: str
    fp: str
    about: str = ""
    attempt: int = 1
    once: bool = False
    timeout_s: float | None = None
    due: int = 0
    """When a timer fires: microseconds since 1970, UTC."""
    question: str = ""
    reserved_usd: float = 0.0
    reserved: Units | None = None
    """What is reserved for a prompt beside money."""
    max_crashes: int = 0
    limit: int = 0
    """How many workers of a delegate run at a time; 0: all."""
    cleanup: bool = False
    since: int = 0
    """When a body really began, if that was before this entry: microseconds since 1970, UTC."""
    site: Site | None = None
    """Where in the program it is asked for, with ``delegate``, ``think`` and ``ask``; earlier versions did not keep it."""
    changes: bool = True
    """Whether it may change files, if it is of a kind that may."""


class StepRetried(EntryData, frozen=True, gc=False):
    """An attempt at a step failed; the next one is due."""

    kind = "step.retried"

    p: str
    n: int
    attempt: int
    due: int
    error: ErrorData


class AttemptFailed(EntryData, frozen=True, gc=False):
    """An attempt of an agent at a step came to nothing, and the agent is asked again. Kept for people."""

    kind = "attempt.failed"

    p: str
    n: int
    agent: str
    attempt: int
    code: str
    text: str


class StepFinished(EntryData, frozen=True, gc=False):
    """The outcome of a step. Its value: what the program sees."""

    kind = "step.finished"

    p: str
    n: int
    step: str
    fp: str
    about: str = ""
    by: str = ""
    """Who answered a question."""
    usd: float = 0.0
    usd_estimated: bool = False
    """The cost was computed from a table of prices, or in part."""
    used: Units | None = None
    """What a prompt used beside money."""
    cleanup: bool = False
    took_us: int = 0
    """How long a body ran, as its worker measured it: the execution that ended with this outcome."""


class StepFailed(EntryData, frozen=True, gc=False):
    """The outcome of a step is an error."""

    kind = "step.failed"

    p: str
    n: int
    step: str
    fp: str
    error: ErrorData
    about: str = ""
    usd: float = 0.0
    """What it cost all the same."""
    usd_estimated: bool = False
    used: Units | None = None
    cleanup: bool = False
    took_us: int = 0
    """How long a body ran, as its worker measured it: the execution that ended with this outcome."""
    late: bool = False
    """It arrived after its worker had learned that the session failed. The program has not seen it: the step is executed again
    if the run is resumed."""


class ToolCalled(EntryData, frozen=True, gc=False):
    """The agent of a prompt called a tool, which runs from here on. Its value: the arguments."""

    kind = "tool.called"

    p: str
    n: int
    """The step of the prompt."""
    call: int
    """Its number among all calls that were ever run for the prompt, from 1."""
    place: int
    """Its place among the calls that the agent made, from 1. Calls at this place or after it, made of an earlier attempt, are
    superseded: the agent did something else this time."""
    tool: str
    id: str = ""
    """What the agent itself calls it, if it does."""


class ToolFinished(EntryData, frozen=True, gc=False):
    """A tool returned. Its value: what the agent gets."""

    kind = "tool.finished"

    p: str
    n: int
    call: int


class ToolFailed(EntryData, frozen=True, gc=False):
    """A tool raised; the agent gets the error."""

    kind = "tool.failed"

    p: str
    n: int
    call: int
    error: ErrorData


class QuestionAsked(EntryData, frozen=True, gc=False):
    """The agent of a prompt asked a person. Its value: the question; the question of a program is a step instead."""

    kind = "question.asked"

    p: str
    n: int
    """The step of the prompt."""
    id: str
    """Its number, such as ``q4``: one numbering with the questions of programs."""
    ask: Literal["ask", "permission"] = "ask"
    """Whether it is a question, or whether the agent may use a tool."""
    agent: str = ""
    tool: str = ""
    fp: str = ""
    """By which the same question is recognised when the agent is called again."""
    about: str = ""
    """Its text in one line, cut."""
    timeout_s: float | None = None
    drops: list[str] = []
    """Answers that do not count any longer, because the agent asked this instead of coming back for them."""


class QuestionSettled(EntryData, frozen=True, gc=False):
    """A question of an agent is not open any longer."""

    kind = "question.settled"

    id: str
    answer: str = ""
    by: str = ""
    """Who answered."""
    how: Literal["answered", "timeout", "superseded"] = "answered"
    """``superseded``: its prompt has ended, or its agent withdrew it, or was called again and asked something else."""


class OutputWritten(EntryData, frozen=True, gc=False):
    """A worker printed or logged something. Its value: the text."""

    kind = "output"

    p: str
    n: int
    channel: str
    fp: str = ""
    cleanup: bool = False


class MessageSent(EntryData, frozen=True, gc=False):
    """A message is in a mailbox, or scheduled for it. Its value: the message. If a worker sent it, also the outcome of its step."""

    kind = "message.sent"

    mailbox: str
    id: str
    size: int
    sender: str = ""
    key: str = ""
    metadata: dict[str, object] = {}
    not_before: int = 0
    reply_to: str = ""
    p: str = ""
    n: int = 0
    fp: str = ""
    step: str = "send"
    topic: str = ""
    track: str = ""
    """The supervised send that it belongs to, if it does."""


class MessageTaken(EntryData, frozen=True, gc=False):
    """A message was received by a worker: this entry is the hand-over. Its value: the message, again."""

    kind = "message.taken"

    mailbox: str
    id: str
    p: str
    n: int
    fp: str
    step: str = "receive"
    attempt: int = 0
    """Set if it is held until it is acknowledged."""


class MessagesDrained(EntryData, frozen=True, gc=False):
    """A worker took everything that was in a mailbox. Its value: the list."""

    kind = "messages.drained"

    mailbox: str
    ids: list[str]
    p: str
    n: int
    fp: str


class MessageHeld(EntryData, frozen=True, gc=False):
    """A foreign process was handed a message and is to acknowledge it."""

    kind = "message.held"

    mailbox: str
    id: str
    by: str
    attempt: int


class MessageMoved(EntryData, frozen=True, gc=False):
    """A message changed its state: processed, returning, returned, due, dropped, dead, withdrawn."""

    kind = "message.moved"

    mailbox: str
    id: str
    to: str
    reason: str = ""
    p: str = ""
    n: int = 0
    """The step that gives it back, if it goes back only when a failure was caught."""
    retry_at: int = 0
    """When a dead letter is tried again: microseconds since 1970, UTC."""
    attempts: int = 0
    """How many attempts there were at a send that was given up."""
    error: str = ""
    """What made its receiver give it back."""


class SendOpened(EntryData, frozen=True, gc=False):
    """A supervised send is under way. Its value: the message."""

    kind = "send.opened"

    id: str
    mailbox: str
    size: int
    sender: str
    terms: Terms
    p: str = ""
    n: int = 0
    """The step that it is, if a worker waits for it alone."""
    cast: str = ""
    place: int = 0
    topic: str = ""
    request: str = ""
    """The request that it is, if a process outside made it for this alone."""


class SendTried(EntryData, frozen=True, gc=False):
    """An attempt at a supervised send, or at a whole broadcast, failed; the next one is due."""

    kind = "send.tried"

    id: str
    attempt: int
    due: int
    reason: str


class SendSettled(EntryData, frozen=True, gc=False):
    """What became of a supervised send."""

    kind = "send.settled"

    id: str
    outcome: SendOutcome


class CastOpened(EntryData, frozen=True, gc=False):
    """A broadcast is under way; its copies follow in the same line."""

    kind = "broadcast.opened"

    id: str
    strategy: str
    need: int
    sender: str
    terms: Terms
    copies: list[Copy]
    p: str = ""
    n: int = 0
    topic: str = ""
    request: str = ""
    """The request that it is, if a process outside made it."""


class CastSettled(EntryData, frozen=True, gc=False):
    """A broadcast has its result."""

    kind = "broadcast.settled"

    id: str
    ok: bool
    strategy: str = ""
    recipients: int = 0
    succeeded: int = 0
    failed: int = 0
    topic: str = ""


class LetterAdded(EntryData, frozen=True, gc=False):
    """A message that was in no mailbox became a dead letter. Its value: the message."""

    kind = "dead_letter.added"

    message: str
    mailbox: str
    reason: str
    size: int = 0
    sender: str = ""
    key: str = ""
    error: str = ""
    topic: str = ""
    metadata: dict[str, object] = {}
    attempts: int = 1
    retry_at: int = 0
    notes: list[Note] = []


class LetterMoved(EntryData, frozen=True, gc=False):
    """A dead letter changed its state: retrying (its message is queued again), waiting, expired, purged."""

    kind = "dead_letter.moved"

    message: str
    to: str
    reason: str = ""
    by: str = ""
    retry_at: int = 0


class MailboxChanged(EntryData, frozen=True, gc=False):
    """A mailbox was declared or closed, subscribed to topics, or registered as the name of a worker."""

    kind = "mailbox.changed"

    mailbox: str
    closed: bool = False
    capacity: int = 0
    max_bytes: int = 0
    overflow: str = ""
    subscribe: str = ""
    unsubscribe: str = ""
    owner: str = ""


class MonitorMade(EntryData, frozen=True, gc=False):
    """A worker watches another."""

    kind = "monitor.made"

    ref: str
    target: str
    watcher: str
    into: str
    tag: str = ""
    stack: tuple[str, ...] = ()


class MonitorReported(EntryData, frozen=True, gc=False):
    """A monitor reported the end of its target, and is gone; its message is in the same line."""

    kind = "monitor.told"

    ref: str
    reason: str
    incarnation: int = 0


class MonitorGone(EntryData, frozen=True, gc=False):
    """A worker released a monitor, by the step that is in the same line."""

    kind = "monitor.gone"

    ref: str
    p: str
    n: int


class LinkMade(EntryData, frozen=True, gc=False):
    """Two workers are linked, by a step of the first that is in the same line."""

    kind = "link.made"

    path: str
    other: str


class LinkGone(EntryData, frozen=True, gc=False):
    """Two workers are no longer linked, by a step of the first that is in the same line."""

    kind = "link.gone"

    path: str
    other: str


class LinkReported(EntryData, frozen=True, gc=False):
    """A worker ended abnormally, and the link acts on the other: its open steps are aborted, or else its next one.

    If it traps, it gets a message instead, which is in the same line. The link is gone.
    """

    kind = "link.told"

    path: str
    """The worker that is notified or aborted."""
    by: str
    """The worker that has ended."""
    reason: str
    trapped: bool = False


class WorkerTraps(EntryData, frozen=True, gc=False):
    """Ends of linked workers are messages to this one from here on; or no longer."""

    kind = "worker.traps"

    path: str
    on: bool


class VersionRecorded(EntryData, frozen=True, gc=False):
    """A worker runs with this version of a part of its program, until the end of its present history."""

    kind = "version.chosen"

    p: str
    """The branch that asked for it first."""
    name: str
    number: int


class FailureRecorded(EntryData, frozen=True, gc=False):
    """The session failed; the first of these is its cause, later ones are suppressed."""

    kind = "session.failed"

    worker: str
    error: ErrorData
    p: str = ""
    n: int = 0
    suppressed: bool = False
    ends: Literal["", "cancelled", "aborted"] = ""
    """How the run ends because of it, if it was cancelled or its program ended it. It is not resumed, whatever dies meanwhile."""
    reason: str = ""
    """Why it ends."""
    by: str = ""
    """The role of the database that has cancelled or failed it, if one has."""


class WaitSlow(EntryData, frozen=True, gc=False):
    """A worker has run for long without reaching a step."""

    kind = "wait.slow"

    path: str
    seconds: float
    stack: list[StackLine] = []


class PeerJoined(EntryData, frozen=True, gc=False):
    """A process outside the run takes part in it."""

    kind = "peer.joined"

    peer: str


class RequestTaken(EntryData, frozen=True, gc=False):
    """A request of a process outside, and its outcome. Its value: the answer.

    What the request changed is in the same line, so a crash leaves both or neither. If the request is sent again, this is the
    answer, and nothing is changed a second time. A request that was refused and changed nothing is not recorded.
    """

    kind = "request.taken"

    id: str
    do: str
    """What was asked for, such as ``send`` or ``cancel``."""
    by: str = ""
    """The process that asked, or ``inbox``."""
    error: ErrorData | None = None


ENTRY_TYPES: Final[dict[str, type[EntryData]]] = {cls.kind: cls for cls in EntryData.__subclasses__()}
PACKS: Final = frozenset({WorkspacePart.kind, WorkspaceKept.kind, WorkspacePacked.kind})
"""Entries whose values are files of the workspace, and not JSON."""
_DECODERS: Final = {kind: typed.decoder(cls) for kind, cls in ENTRY_TYPES.items()}


def decode_entry(kind: str, raw: bytes | msgspec.Raw) -> EntryData | None:
    """The small part of an entry by its kind; ``None`` for kinds that are not the hub's."""
    decoder = _DECODERS.get(kind)
    return None if decoder is None else decoder.decode(raw)


def draft(data: EntryData, value: msgspec.Raw | bytes | None = None, ref: BlobRef | None = None) -> Draft:
    """The entry, ready for the journal."""
    encoded = bytes(value) if value is not None and ref is None else None
    return Draft(data.kind, data, encoded, ref)
