"""Every event Bartack emits, one class each; the reference page of the docs is compared with this file.

An event's fields are either *measurements* (numbers to count, add up or draw) or *metadata* (what the numbers
are about). Durations are nanoseconds of a monotonic clock. Payloads never appear, only their sizes.

Who emits an event is not decided here, and who listens is decided in ``_bus.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, NamedTuple, TypeVar, get_type_hints

import msgspec

T = TypeVar("T")

_MEASUREMENT: Final = "measurement"
_METADATA: Final = "metadata"

Measurement = Annotated[T, _MEASUREMENT]
"""Marks a field as a number to count, add up or draw."""

Metadata = Annotated[T, _METADATA]
"""Marks a field as something the measurements are about."""


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that happened. Each child is one entry of the catalogue and has a ``name`` of its own."""

    name: ClassVar[str]


class JournalOpened(Event, frozen=True, kw_only=True, gc=False):
    """A journal was opened and belongs to this process now."""

    name = "journal.opened"

    entries: Measurement[int]
    size_bytes: Measurement[int]
    duration_ns: Measurement[int]
    path: Metadata[str]
    fence: Metadata[int]


class JournalCommitted(Event, frozen=True, kw_only=True, gc=False):
    """Entries became durable together, with one write and one sync."""

    name = "journal.committed"

    entries: Measurement[int]
    size_bytes: Measurement[int]
    duration_ns: Measurement[int]


class JournalRecovered(Event, frozen=True, kw_only=True, gc=False):
    """Opening a journal cut off what its last owner had not finished writing."""

    name = "journal.recovered"

    size_bytes: Measurement[int]
    seq: Metadata[int]
    kept_as: Metadata[str]


class JournalPoisoned(Event, frozen=True, kw_only=True, gc=False):
    """A journal stopped taking entries, because it cannot promise to keep them."""

    name = "journal.poisoned"

    reason: Metadata[str]


class JournalBlobWritten(Event, frozen=True, kw_only=True, gc=False):
    """A large value was handed to the blob store; ``deduplicated`` if it was there already."""

    name = "journal.blob_written"

    size_bytes: Measurement[int]
    deduplicated: Metadata[bool]


class DepotRewound(Event, frozen=True, kw_only=True, gc=False):
    """A database had lost acknowledged entries of a run, and its owner has sent them again."""

    name = "depot.rewound"

    entries: Measurement[int]
    run: Metadata[str]


class OutboxAdded(Event, frozen=True, kw_only=True, gc=False):
    """Events were put into an outbox."""

    name = "outbox.added"

    events: Measurement[int]
    size_bytes: Measurement[int]
    path: Metadata[str]


class OutboxDelivered(Event, frozen=True, kw_only=True, gc=False):
    """An event was delivered to the service that it was for."""

    name = "outbox.delivered"

    attempts: Measurement[int]
    path: Metadata[str]
    kind: Metadata[str]
    recipient: Metadata[str]


class OutboxRetried(Event, frozen=True, kw_only=True, gc=False):
    """An attempt to deliver an event failed; it is tried again."""

    name = "outbox.retried"

    attempts: Measurement[int]
    path: Metadata[str]
    kind: Metadata[str]
    recipient: Metadata[str]
    reason: Metadata[str]


class OutboxDead(Event, frozen=True, kw_only=True, gc=False):
    """An event is given up and kept for inspection."""

    name = "outbox.dead"

    attempts: Measurement[int]
    path: Metadata[str]
    kind: Metadata[str]
    recipient: Metadata[str]
    reason: Metadata[str]


class OutboxQuarantined(Event, frozen=True, kw_only=True, gc=False):
    """A damaged state database was moved aside and replaced; ``events`` could still be read and were copied."""

    name = "outbox.quarantined"

    events: Measurement[int]
    path: Metadata[str]
    kept_as: Metadata[str]


class OutboxDropped(Event, frozen=True, kw_only=True, gc=False):
    """Events were dropped from an outbox, because it was full."""

    name = "outbox.dropped"

    events: Measurement[int]
    path: Metadata[str]


class BreakerOpened(Event, frozen=True, kw_only=True, gc=False):
    """A circuit breaker opened: it rejects calls for ``open_for_ns``."""

    name = "breaker.opened"

    failures: Measurement[int]
    open_for_ns: Measurement[int]
    breaker: Metadata[str]
    before: Metadata[str]
    reason: Metadata[str]


class BreakerHalfOpen(Event, frozen=True, kw_only=True, gc=False):
    """A circuit breaker lets some calls pass as probes."""

    name = "breaker.half_open"

    failures: Measurement[int]
    breaker: Metadata[str]
    before: Metadata[str]
    reason: Metadata[str]


class BreakerClosed(Event, frozen=True, kw_only=True, gc=False):
    """A circuit breaker closed: it lets all calls pass again."""

    name = "breaker.closed"

    failures: Measurement[int]
    breaker: Metadata[str]
    before: Metadata[str]
    reason: Metadata[str]


class BreakerRejected(Event, frozen=True, kw_only=True, gc=False):
    """A circuit breaker rejected a call."""

    name = "breaker.rejected"

    retry_after_ns: Measurement[int]
    breaker: Metadata[str]
    reason: Metadata[str]


class HealthChanged(Event, frozen=True, kw_only=True, gc=False):
    """The known health of a service changed."""

    name = "health.changed"

    failures: Measurement[int]
    origin: Metadata[str]
    before: Metadata[str]
    after: Metadata[str]


class DaemonStarted(Event, frozen=True, kw_only=True, gc=False):
    """The tracking daemon has started."""

    name = "daemon.started"

    home: Metadata[str]
    pid: Metadata[int]


class DaemonStopped(Event, frozen=True, kw_only=True, gc=False):
    """The tracking daemon ends."""

    name = "daemon.stopped"

    uptime_ns: Measurement[int]
    home: Metadata[str]
    reason: Metadata[str]


class SupervisorChildStarted(Event, frozen=True, kw_only=True, gc=False):
    """A child is ready; it took ``duration_ns`` from its start on."""

    name = "supervisor.child_started"

    duration_ns: Measurement[int]
    supervisor: Metadata[str]
    child: Metadata[str]
    incarnation: Metadata[int]
    run: Metadata[str] = ""


class SupervisorChildEnded(Event, frozen=True, kw_only=True, gc=False):
    """A child ended after ``duration_ns``, and nothing of it is left; ``normal`` if that was asked for or expected."""

    name = "supervisor.child_ended"

    duration_ns: Measurement[int]
    supervisor: Metadata[str]
    child: Metadata[str]
    incarnation: Metadata[int]
    reason: Metadata[str]
    normal: Metadata[bool]
    run: Metadata[str] = ""


class SupervisorChildRestarted(Event, frozen=True, kw_only=True, gc=False):
    """A child that ended is started again after ``delay_ns``; ``restarts`` are in the window of its supervisor now."""

    name = "supervisor.child_restarted"

    restarts: Measurement[int]
    delay_ns: Measurement[int]
    supervisor: Metadata[str]
    child: Metadata[str]
    incarnation: Metadata[int]
    reason: Metadata[str]
    strategy: Metadata[str]
    run: Metadata[str] = ""


class SupervisorEscalated(Event, frozen=True, kw_only=True, gc=False):
    """A supervisor ends, because one more restart would exceed its limit."""

    name = "supervisor.escalated"

    restarts: Measurement[int]
    supervisor: Metadata[str]
    child: Metadata[str]
    reason: Metadata[str]
    strategy: Metadata[str]
    run: Metadata[str] = ""


class ProcessOrphanKilled(Event, frozen=True, kw_only=True, gc=False):
    """A process ended and left others of its tree running; they were killed. ``commands`` are their names."""

    name = "process.orphan_killed"

    count: Measurement[int]
    worker: Metadata[str]
    commands: Metadata[str]
    run: Metadata[str] = ""


class ProcessSurvivor(Event, frozen=True, kw_only=True, gc=False):
    """Processes could not be killed and are still running; ``commands`` are their names."""

    name = "process.survivor"

    count: Measurement[int]
    worker: Metadata[str]
    commands: Metadata[str]
    run: Metadata[str] = ""


class MonitorCreated(Event, frozen=True, kw_only=True, gc=False):
    """A monitor was made; ``active`` monitors are there now."""

    name = "monitor.created"

    active: Measurement[int]
    monitor: Metadata[str]
    tag: Metadata[str]
    target: Metadata[str]
    watcher: Metadata[str]
    run: Metadata[str] = ""


class MonitorCleaned(Event, frozen=True, kw_only=True, gc=False):
    """A monitor was removed after ``age_ns``; ``automatic`` if not by its watcher."""

    name = "monitor.cleaned"

    age_ns: Measurement[int]
    monitor: Metadata[str]
    tag: Metadata[str]
    target: Metadata[str]
    watcher: Metadata[str]
    automatic: Metadata[bool]
    run: Metadata[str] = ""


class MonitorDown(Event, frozen=True, kw_only=True, gc=False):
    """The target of a monitor ended, and its watcher was notified."""

    name = "monitor.down"

    age_ns: Measurement[int]
    monitor: Metadata[str]
    tag: Metadata[str]
    target: Metadata[str]
    watcher: Metadata[str]
    reason: Metadata[str]
    run: Metadata[str] = ""


class MonitorLeaked(Event, frozen=True, kw_only=True, gc=False):
    """A leaked monitor was removed; ``stack`` says where it was made, innermost line last."""

    name = "monitor.leaked"

    age_ns: Measurement[int]
    monitor: Metadata[str]
    tag: Metadata[str]
    target: Metadata[str]
    watcher: Metadata[str]
    reason: Metadata[str]
    stack: Metadata[str]
    run: Metadata[str] = ""


class LinkExit(Event, frozen=True, kw_only=True, gc=False):
    """A worker ended abnormally, and one that is linked with it was aborted; or was sent a message, if it had ``trapped``."""

    name = "link.exit"

    count: Measurement[int]
    ended: Metadata[str]
    worker: Metadata[str]
    trapped: Metadata[bool]
    reason: Metadata[str]
    run: Metadata[str] = ""


class RunStart(Event, frozen=True, kw_only=True, gc=False):
    """A hub runs a run from here on: the first one, or one that resumes it."""

    name = "run.start"

    run: Metadata[str]
    hub: Metadata[int]


class RunStop(Event, frozen=True, kw_only=True, gc=False):
    """A hub has nothing left to do: the run is completed, or stays to be resumed."""

    name = "run.stop"

    duration_ns: Measurement[int]
    run: Metadata[str]
    status: Metadata[str]


class RunException(Event, frozen=True, kw_only=True, gc=False):
    """A run failed, or was cancelled or aborted."""

    name = "run.exception"

    duration_ns: Measurement[int]
    run: Metadata[str]
    status: Metadata[str]


class WorkerStart(Event, frozen=True, kw_only=True, gc=False):
    """A worker has begun, or continues in a resumed run. ``parent`` is the step that made it."""

    name = "worker.start"

    run: Metadata[str]
    worker: Metadata[str]
    parent: Metadata[str]


class WorkerStop(Event, frozen=True, kw_only=True, gc=False):
    """A worker came to its end."""

    name = "worker.stop"

    duration_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]


class WorkerException(Event, frozen=True, kw_only=True, gc=False):
    """A worker failed."""

    name = "worker.exception"

    duration_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    error: Metadata[str]


class StepStart(Event, frozen=True, kw_only=True, gc=False):
    """A step has begun; steps that are finished at once have no start event."""

    name = "step.start"

    attempt: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    step: Metadata[str]
    kind: Metadata[str]


class StepStop(Event, frozen=True, kw_only=True, gc=False):
    """A step has its outcome."""

    name = "step.stop"

    duration_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    step: Metadata[str]
    kind: Metadata[str]


class StepException(Event, frozen=True, kw_only=True, gc=False):
    """A step failed."""

    name = "step.exception"

    duration_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    step: Metadata[str]
    kind: Metadata[str]
    error: Metadata[str]


class QuestionAsked(Event, frozen=True, kw_only=True, gc=False):
    """The agent of a prompt asked a person: a question, or with ``permission`` whether it may use a tool."""

    name = "question.asked"

    open: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    step: Metadata[str]
    question: Metadata[str]
    kind: Metadata[str]
    agent: Metadata[str]
    tool: Metadata[str]


class QuestionSettled(Event, frozen=True, kw_only=True, gc=False):
    """A question of an agent is not open any longer. ``how`` is ``answered``, ``timeout`` or ``superseded``."""

    name = "question.settled"

    duration_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    step: Metadata[str]
    question: Metadata[str]
    kind: Metadata[str]
    how: Metadata[str]


class AgentStarted(Event, frozen=True, kw_only=True, gc=False):
    """A process of an agent got a prompt; ``generation`` conversations were abandoned before this one."""

    name = "agent.started"

    attempt: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]
    pid: Metadata[int]
    conversation: Metadata[str]
    generation: Metadata[int]
    version: Metadata[str]
    model: Metadata[str]


class AgentText(Event, frozen=True, kw_only=True, gc=False):
    """An agent, or the subagent of the tool call ``parent``, said something of ``size_bytes``."""

    name = "agent.text"

    size_bytes: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]
    parent: Metadata[str]


class AgentTool(Event, frozen=True, kw_only=True, gc=False):
    """A tool was called by an agent, or a call of it ended after ``duration_ns``; ``phase`` says which."""

    name = "agent.tool"

    duration_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]
    id: Metadata[str]
    tool: Metadata[str]
    phase: Metadata[str]


class AgentPermission(Event, frozen=True, kw_only=True, gc=False):
    """It was decided whether an agent may use one of its own tools; ``by`` a rule, its mode, the guard or a question."""

    name = "agent.permission"

    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]
    id: Metadata[str]
    tool: Metadata[str]
    decision: Metadata[str]
    by: Metadata[str]


class AgentUsage(Event, frozen=True, kw_only=True, gc=False):
    """What a call of an agent has used so far."""

    name = "agent.usage"

    input_tokens: Measurement[int]
    output_tokens: Measurement[int]
    cache_read_tokens: Measurement[int]
    cache_write_tokens: Measurement[int]
    turns: Measurement[int]
    cost_usd: Measurement[float]
    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]


class AgentRetry(Event, frozen=True, kw_only=True, gc=False):
    """An attempt of an agent failed, and another one follows after ``delay_ns``."""

    name = "agent.retry"

    attempt: Measurement[int]
    delay_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]
    code: Metadata[str]


class AgentRateLimit(Event, frozen=True, kw_only=True, gc=False):
    """An agent cannot be asked again before ``resets_at``; the call waits for it."""

    name = "agent.rate_limit"

    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]
    status: Metadata[str]
    resets_at: Metadata[str]


class AgentNotice(Event, frozen=True, kw_only=True, gc=False):
    """An agent wrote something that a person may want to read, of ``size_bytes``."""

    name = "agent.notice"

    size_bytes: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]
    level: Metadata[str]
    case: Metadata[str]


class AgentFinished(Event, frozen=True, kw_only=True, gc=False):
    """A call of an agent is over."""

    name = "agent.finished"

    duration_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    key: Metadata[str]
    agent: Metadata[str]
    reason: Metadata[str]


class SessionFailed(Event, frozen=True, kw_only=True, gc=False):
    """The session failed; all workers were notified ``latency_ns`` after that was decided."""

    name = "session.failed"

    latency_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    error: Metadata[str]


class SessionFailureSeen(Event, frozen=True, kw_only=True, gc=False):
    """A worker has seen that the session failed, and is at its end."""

    name = "session.failure_seen"

    latency_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    error: Metadata[str]


class WaitSlow(Event, frozen=True, kw_only=True, gc=False):
    """Something is slow: a step, or the code of a worker between two steps. ``limit_ns`` is 0 if it has no limit."""

    name = "wait.slow"

    waited_ns: Measurement[int]
    limit_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    kind: Metadata[str]
    where: Metadata[str]
    source: Metadata[str]


class WaitTimeout(Event, frozen=True, kw_only=True, gc=False):
    """A wait took longer than it was allowed to. ``source`` says where the limit comes from."""

    name = "wait.timeout"

    waited_ns: Measurement[int]
    limit_ns: Measurement[int]
    run: Metadata[str]
    worker: Metadata[str]
    kind: Metadata[str]
    where: Metadata[str]
    source: Metadata[str]


class MailboxSent(Event, frozen=True, kw_only=True, gc=False):
    """A message was put into a mailbox, which holds ``queued`` now; ``send`` is the supervised send it belongs to."""

    name = "mailbox.sent"

    size_bytes: Measurement[int]
    queued: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    sender: Metadata[str]
    message: Metadata[str]
    send: Metadata[str]


class MailboxDelivered(Event, frozen=True, kw_only=True, gc=False):
    """A message was handed to a receiver; it had waited for ``wait_ns``."""

    name = "mailbox.delivered"

    wait_ns: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    receiver: Metadata[str]
    message: Metadata[str]
    traceparent: Metadata[str]


class MailboxDropped(Event, frozen=True, kw_only=True, gc=False):
    """A message was dropped from a mailbox that was full, or was dropped at once."""

    name = "mailbox.dropped"

    count: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    policy: Metadata[str]


class MailboxLevel(Event, frozen=True, kw_only=True, gc=False):
    """A mailbox became half full, or nearly full: it crossed ``percent`` of its capacity."""

    name = "mailbox.level"

    queued: Measurement[int]
    capacity: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    percent: Metadata[int]


class SendStart(Event, frozen=True, kw_only=True, gc=False):
    """A supervised send began."""

    name = "send.start"

    size_bytes: Measurement[int]
    run: Metadata[str]
    send: Metadata[str]
    sender: Metadata[str]
    recipient: Metadata[str]
    message_type: Metadata[str]
    ack: Metadata[str]


class SendStop(Event, frozen=True, kw_only=True, gc=False):
    """A supervised send reached the stage that it was to reach."""

    name = "send.stop"

    duration_ns: Measurement[int]
    attempts: Measurement[int]
    run: Metadata[str]
    send: Metadata[str]
    recipient: Metadata[str]
    ack: Metadata[str]
    outcome: Metadata[str]


class SendException(Event, frozen=True, kw_only=True, gc=False):
    """A supervised send was given up."""

    name = "send.exception"

    duration_ns: Measurement[int]
    attempts: Measurement[int]
    run: Metadata[str]
    send: Metadata[str]
    recipient: Metadata[str]
    ack: Metadata[str]
    outcome: Metadata[str]


class SendRetry(Event, frozen=True, kw_only=True, gc=False):
    """An attempt at a supervised send, or at a whole broadcast, failed; the next one begins after ``delay_ns``."""

    name = "send.retry"

    attempt: Measurement[int]
    delay_ns: Measurement[int]
    run: Metadata[str]
    send: Metadata[str]
    recipient: Metadata[str]
    reason: Metadata[str]


class BroadcastStop(Event, frozen=True, kw_only=True, gc=False):
    """A broadcast has its result."""

    name = "broadcast.stop"

    duration_ns: Measurement[int]
    recipients: Measurement[int]
    succeeded: Measurement[int]
    failed: Measurement[int]
    run: Metadata[str]
    strategy: Metadata[str]
    ok: Metadata[bool]
    topic: Metadata[str]


class TopicUnrouted(Event, frozen=True, kw_only=True, gc=False):
    """Something was published to a topic without subscribers."""

    name = "topic.unrouted"

    count: Measurement[int]
    run: Metadata[str]
    topic: Metadata[str]


class DeadLetterAdded(Event, frozen=True, kw_only=True, gc=False):
    """A message became a dead letter, or did so again."""

    name = "dead_letter.added"

    attempts: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    reason: Metadata[str]


class DeadLetterRetried(Event, frozen=True, kw_only=True, gc=False):
    """A dead letter was put back into its mailbox; ``by`` says whether that was requested."""

    name = "dead_letter.retried"

    attempts: Measurement[int]
    age_ns: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    reason: Metadata[str]
    by: Metadata[str]


class DeadLetterRedelivered(Event, frozen=True, kw_only=True, gc=False):
    """A dead letter was received after all."""

    name = "dead_letter.redelivered"

    attempts: Measurement[int]
    age_ns: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    reason: Metadata[str]


class DeadLetterExpired(Event, frozen=True, kw_only=True, gc=False):
    """A dead letter became too old to be tried again."""

    name = "dead_letter.expired"

    attempts: Measurement[int]
    age_ns: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    reason: Metadata[str]


class DeadLetterPurged(Event, frozen=True, kw_only=True, gc=False):
    """A dead letter was removed."""

    name = "dead_letter.purged"

    attempts: Measurement[int]
    age_ns: Measurement[int]
    run: Metadata[str]
    mailbox: Metadata[str]
    reason: Metadata[str]


class NodeJoined(Event, frozen=True, kw_only=True, gc=False):
    """A process became a node of a database, under a number that is never used again."""

    name = "node.joined"

    slots: Measurement[int]
    node: Metadata[str]
    number: Metadata[int]


class NodeHeld(Event, frozen=True, kw_only=True, gc=False):
    """The runs of a node stand still, because its lease was not renewed in time."""

    name = "node.held"

    runs: Measurement[int]
    node: Metadata[str]


class NodeFreed(Event, frozen=True, kw_only=True, gc=False):
    """The runs of a node continue after they have stood still for ``duration_ns``."""

    name = "node.freed"

    runs: Measurement[int]
    duration_ns: Measurement[int]
    node: Metadata[str]


class NodeLeft(Event, frozen=True, kw_only=True, gc=False):
    """A node has ended in order."""

    name = "node.left"

    node: Metadata[str]


class NodeDead(Event, frozen=True, kw_only=True, gc=False):
    """A node has learned that it was declared dead; its runs belong to others."""

    name = "node.dead"

    runs: Measurement[int]
    node: Metadata[str]


class RunClaimed(Event, frozen=True, kw_only=True, gc=False):
    """A node has begun to own a run."""

    name = "run.claimed"

    node: Metadata[str]
    run: Metadata[str]
    fence: Metadata[int]


class RunTakenOver(Event, frozen=True, kw_only=True, gc=False):
    """A node has begun to own a run whose process has died before, alone or with its node, ``strikes`` times without progress."""

    name = "run.taken_over"

    strikes: Measurement[int]
    node: Metadata[str]
    run: Metadata[str]
    fence: Metadata[int]


class RunReleased(Event, frozen=True, kw_only=True, gc=False):
    """A node has given a run back, which is in ``state`` now."""

    name = "run.released"

    duration_ns: Measurement[int]
    node: Metadata[str]
    run: Metadata[str]
    state: Metadata[str]
    reason: Metadata[str]


class RunHeld(Event, frozen=True, kw_only=True, gc=False):
    """A node has given a run back, and no node continues it by itself."""

    name = "run.held"

    duration_ns: Measurement[int]
    node: Metadata[str]
    run: Metadata[str]
    reason: Metadata[str]


class CopyKept(Event, frozen=True, kw_only=True, gc=False):
    """A copy of the workspace of a run is durable, after it took ``duration_ns`` to make it; ``during``: a step was under way."""

    name = "copy.kept"

    duration_ns: Measurement[int]
    run: Metadata[str]
    during: Metadata[bool]


class CopyRestored(Event, frozen=True, kw_only=True, gc=False):
    """A node has the workspace of a run as its latest copy has it, after ``duration_ns``."""

    name = "copy.restored"

    duration_ns: Measurement[int]
    node: Metadata[str]
    run: Metadata[str]


class DepotAway(Event, frozen=True, kw_only=True, gc=False):
    """The database of a node does not answer."""

    name = "depot.away"

    node: Metadata[str]
    problem: Metadata[str]


class DepotBack(Event, frozen=True, kw_only=True, gc=False):
    """The database of a node answers again after ``duration_ns``."""

    name = "depot.back"

    duration_ns: Measurement[int]
    node: Metadata[str]


class TelemetryHandlerFailed(Event, frozen=True, kw_only=True, gc=False):
    """A handler raised and was detached. ``event`` names the event it was called with."""

    name = "telemetry.handler_failed"

    handler: Metadata[str]
    event: Metadata[str]
    error: Metadata[str]


CATALOGUE: Final[Mapping[str, type[Event]]] = MappingProxyType(
    {event.name: event for event in Event.__subclasses__()}
)
"""Every event by its name."""


class Shape(NamedTuple):
    """The names of an event's fields, by what they are."""

    measurements: tuple[str, ...]
    metadata: tuple[str, ...]


def shape_of(event_type: type[Event]) -> Shape:
    """Which fields of an event are measurements and which are metadata, in the order of their declaration."""
    hints = get_type_hints(event_type, include_extras=True)
    roles = {field: hints[field].__metadata__ for field in event_type.__struct_fields__}
    return Shape(
        measurements=tuple(field for field, role in roles.items() if _MEASUREMENT in role),
        metadata=tuple(field for field, role in roles.items() if _METADATA in role),
    )
