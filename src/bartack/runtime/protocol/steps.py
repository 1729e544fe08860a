"""The kinds of steps: what is asked (``a`` of a step frame) and what is answered (``v`` of its outcome).

========== ======== =========================================== ==========================================
kind       done by  asked                                       outcome
========== ======== =========================================== ==========================================
shell      hub      ``ShellArgs``; ``v``: stdin, base64          ``ShellOutcome``
think      hub      ``ThinkArgs``                                ``ThinkOutcome``
ask        hub      ``AskArgs``                                  the answer
sleep      hub      ``SleepArgs``                                null
delegate   hub      ``DelegateArgs``; ``v``: list of ``CallArgs`` list of results, or of ``Collected``
spawn      hub      ``DelegateArgs`` of one call; ``v`` likewise  the child's path
join       hub      ``JoinArgs``                                 the child's result
stop       hub      ``StopArgs``                                 null
restart    hub      ``{}``; ``v``: ``CallArgs``                   never answered: the worker begins a new history
send       hub      ``SendArgs``; ``v``: the message             the message's id
receive    hub      ``ReceiveArgs``                              the message; with ``hold`` a ``Held``
ack        hub      ``AckArgs``                                  null
nack       hub      ``AckArgs``                                  null; the message goes back when the failure was caught
call       hub      ``CallMailboxArgs``; ``v``: the message      the reply
reply      hub      ``ReplyArgs``; ``v``: the reply              null
drain      hub      ``DrainArgs``                                list of messages
withdraw   hub      ``WithdrawArgs``                             bool
send_supervised hub ``SuperviseArgs``; ``v``: the message         ``SendOutcome``
broadcast  hub      ``CastArgs``; ``v``: the message             ``BroadcastResult``
publish    hub      ``PublishArgs``; ``v``: the message          ``BroadcastResult``
subscribe unsubscribe hub  ``TopicArgs``                        null
register   hub      ``MailboxArgs``                              the incarnation of the name
declare    hub      ``DeclareArgs``                              null
close      hub      ``MailboxArgs``                              null
monitor    hub      ``MonitorArgs``                              the name of the monitor
demonitor  hub      ``DemonitorArgs``                            bool; undone if its worker is set back past a failure
down       hub      ``DownArgs``                                 the DOWN message of a monitor
link unlink hub     ``LinkArgs``                                 null
trap       hub      ``TrapArgs``                                 null
stats      hub      ``MailboxArgs``                              ``MailboxStats``
fail       hub      ``FailArgs``                                 never answered: the session fails
left       hub      ``{}``                                       seconds left of the innermost deadline, or null
budget     hub      ``{}``                                       ``BudgetOutcome``
body       worker   begin, done                                  what the function returned
write      worker   done                                         null
append     worker   begin (answered; ``AppendIntent``), done      null
timeout    worker   begin; a note when the scope is left         (``fired`` when it runs out)
now random uuid read read_bytes exists list env                  worker, note
version    worker   ``VersionChosen``, if it is recorded         a number; it has no place in the history
print log  worker   out                                          null
========== ======== =========================================== ==========================================
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from bartack.messaging.options import Terms
from bartack.messaging.outcome import Copy
from bartack.runtime.protocol.frames import MaybeRaw
from bartack.supervision.forms import Form

HARMLESS: Final = frozenset(
    {"now", "random", "uuid", "read", "read_bytes", "exists", "list", "env", "timeout", "left", "budget"}
)
"""Steps without an effect outside: they can be executed again. Those that a worker does itself it has before they are durable."""

CLEANUP: Final = frozenset({"shell", "write", "append", "print", "log", *HARMLESS})
"""Steps that may follow a fatal failure without being a handling of it."""

BODIES: Final = frozenset({"body", "write", "append"})
"""Steps that are executed in the worker's own process."""

CHANGING: Final = BODIES | {"shell", "think"}
"""Steps that may change files of the workspace, unless the program says that one does not."""

Meaning = Literal["agent", "command", "message", "wait", "code", "question"]
"""What a step is to people, in colours and lists: an agent works, a command runs, and so on."""

MEANINGS: Final[dict[str, Meaning]] = {
    **dict.fromkeys(("think", "tool"), "agent"),
    "shell": "command",
    "ask": "question",
    **dict.fromkeys(("delegate", "join", "sleep", "timeout", "down", "receive", "drain"), "wait"),
    **dict.fromkeys(
        ("send", "call", "send_supervised", "broadcast", "publish", "ack", "nack", "reply"), "message"
    ),
    **dict.fromkeys(
        ("withdraw", "subscribe", "unsubscribe", "register", "declare", "close", "stats"), "message"
    ),
    **dict.fromkeys(
        ("spawn", "stop", "restart", "monitor", "demonitor", "link", "unlink", "trap", "fail"), "code"
    ),
    **dict.fromkeys(("body", "write", "append", "version", "print", "log", "left", "budget"), "code"),
    **dict.fromkeys(("now", "random", "uuid", "read", "read_bytes", "exists", "list", "env"), "code"),
}
"""What every kind means to people; ``tool`` is the call of a tool by an agent, which is shown like a step."""

WAITS: Final = frozenset(
    {
        "receive",
        "drain",
        "sleep",
        "ask",
        "join",
        "down",
        "call",
        "send",
        "send_supervised",
        "broadcast",
        "publish",
    }
)
"""Kinds in which a worker that has one open waits for something else and does nothing itself."""

_WORDS: Final = {
    "append": "an append to the file",
    "ask": "the question",
    "body": "the step",
    "delegate": "a delegate to",
    "down": "a wait for the end of",
    "end": "the end of the worker",
    "env": "the variable",
    "exists": "a look for the file",
    "join": "a wait for the worker",
    "list": "a list of the files",
    "log": "the log line",
    "now": "the time",
    "print": "the output",
    "random": "a random number",
    "read": "a read of the file",
    "read_bytes": "a read of the file",
    "receive": "a receive from the mailbox",
    "returned": "the end of a tool",
    "send": "a send to the mailbox",
    "shell": "the command",
    "sleep": "a sleep of",
    "spawn": "a start of the worker",
    "think": "the prompt",
    "timeout": "a deadline of",
    "tool": "a call of the tool",
    "uuid": "a UUID",
    "version": "the version of",
    "write": "a write of the file",
}
_NAMED: Final = frozenset({"body", "delegate", "join", "sleep", "spawn", "timeout"})
"""What these are about needs no quotes."""


def in_words(step: str, about: str) -> str:
    """A step as people call it."""
    words = _WORDS.get(step, step)
    if not about:
        return words
    return f"{words} {about}" if step in _NAMED else f"{words} {about!r}"


OnFailure = Literal["fail", "collect"]


class Args(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """What a step is asked to do."""


class ShellArgs(Args, frozen=True):
    """Commands, each a list of exact words, connected by pipes; or a form. No shell reads them.

    The status of a form is a value even if its program was not found. ``shown`` is a form as people may read it, without secrets;
    ``live``: its output is shown while it runs, and only the end of it is kept. With ``kept_bytes`` at most that many
    bytes of the end of each output are kept, and no secrets. ``changes``: they may change files of
    the workspace. It is not compared with a recorded step.
    """

    pipeline: list[list[str]] = []
    form: Form | None = None
    shown: str = ""
    live: bool = False
    cwd: str = ""
    env: dict[str, str] | None = None
    timeout_s: float | None = None
    check: bool = True
    once: bool = False
    kept_bytes: int = 0
    changes: bool = True

    def __post_init__(self) -> None:
        if self.kept_bytes < 0:
            raise ValueError("kept_bytes is negative")
        if self.form is None and not all([self.pipeline, *self.pipeline]):
            raise ValueError("the command is missing")

    @property
    def words(self) -> list[str]:
        """The command whose outcome counts, for messages: the last of a pipeline; a form as one word."""
        return self.pipeline[-1] if self.form is None else [self.shown]


class ShellOutcome(msgspec.Struct, omit_defaults=True):
    """How the last command ended. Output that is not UTF-8 is in the base64 fields."""

    argv: list[str]
    status: int
    stdout: str = ""
    stderr: str = ""
    stdout64: str = ""
    stderr64: str = ""


class ToolSpec(msgspec.Struct, omit_defaults=True, frozen=True):
    """A tool that an agent may call, as it is described to it."""

    name: str
    description: str = ""
    schema: dict[str, object] = {}
    """The JSON schema of its arguments, an object."""


class OutputArgs(Args, frozen=True):
    """A file that an agent is to leave."""

    path: str
    required: bool = True
    description: str = ""


class CommandArgs(Args, frozen=True):
    """What an agent is to do that takes more than a prompt. ``key`` is the caller's own, else it is that of the step."""

    action: str
    task_id: str
    inputs: dict[str, object]
    role: Literal["", "builder", "reviewer", "spec_maintainer", "orchestration", "general"] = ""
    expected_outputs: list[OutputArgs] = []
    snapshot_id: str = "none"
    specs_hash: str = ""
    pinning: Literal["strict", "require", "warn"] = "strict"
    key: str = ""
    cwd: str = ""
    refused_paths: list[str] = []
    rejected: str = ""
    rejected_because: str = ""
    """The same in words. Like the next two it is not compared with a recorded step: an earlier version did not have it."""
    attempts_before: int = 0
    share: int = 0
    """How many such commands are given at a time: what is left of a budget is for all of them. 0: not known."""
    max_tokens: int | None = None
    prompt: str = ""
    """The same in words, for an agent that knows prompts only."""


class ThinkArgs(Args, frozen=True):
    """A prompt to an agent, or a command."""

    prompt: str
    name: str
    schema: dict[str, object] | None = None
    tools: list[ToolSpec] = []
    agent: str = ""
    system: str = ""
    may_decline: bool = False
    continues: str = ""
    max_usd: float | None = None
    max_turns: int | None = None
    timeout_s: float | None = None
    once: bool = False
    command: CommandArgs | None = None
    max_tokens: int | None = None

    @property
    def has_own_deadline(self) -> bool:
        """Whether the program says how long it may take. The deadlines of commands are those of the settings."""
        return self.timeout_s is not None and self.command is None


SITED: Final = frozenset({"delegate", "spawn", "think", "ask"})
"""Kinds of steps of which the journal has where in the program they are asked for: people look for that when one of them fails."""


class UsageFacts(msgspec.Struct, omit_defaults=True, frozen=True):
    """What a call of an agent has used, all its attempts together; see ``bartack.agents.Usage``. Absent: the agent does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    turns: int | None = None
    cost_usd: float | None = None


class ThinkOutcome(msgspec.Struct, omit_defaults=True):
    """What the agent replied: a value if a schema was given, and the text. ``result``: the whole result of a command."""

    key: str
    agent: str
    text: str = ""
    value: MaybeRaw = None
    declined: bool = False
    conversation: str = ""
    usd: float = 0.0
    tokens: int = 0
    turns: int = 1
    result: MaybeRaw = None
    took_s: float = 0.0
    """How long a command took, as far as a hub was alive."""
    usage: UsageFacts | None = None
    """What the agent reports that it used; ``usd`` may be more, if the settings count what it does not report."""
    usd_estimated: bool = False
    """The cost was computed from a table of prices, or in part."""


class AskArgs(Args, frozen=True):
    """A question to a person. ``type`` is str, bool, int, float or json, which has to fit ``schema``."""

    question: str
    type: str = "str"
    options: list[str] | None = None
    """What to choose from; a person may give the number of one, from 1."""
    schema: dict[str, object] | None = None
    default: MaybeRaw = None
    timeout_s: float | None = None
    """How long it waits; 0: for ever; ``None``: as long as the settings allow."""


class SleepArgs(Args, frozen=True):
    """Wait for seconds, or until a moment: microseconds since 1970, UTC."""

    seconds: float | None = None
    until: int | None = None


class DelegateArgs(Args, frozen=True):
    """Workers to run side by side: ``module:name`` of each."""

    workers: list[str]
    on_failure: OnFailure = "fail"
    timeout_s: float | None = None
    limit: int | None = None
    single: bool = False
    """It is the plain call of one worker: the path of that has no position."""


class CallArgs(msgspec.Struct, omit_defaults=True):
    """Encoded arguments of one worker."""

    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


class JoinArgs(Args, frozen=True):
    """Wait for a spawned child."""

    path: str


class StopArgs(Args, frozen=True):
    """Cancel a spawned child: its open step, or its next one, has the outcome that it was cancelled."""

    path: str
    reason: str = ""


class MailboxArgs(Args, frozen=True):
    """A mailbox by its name."""

    mailbox: str


class SendArgs(MailboxArgs, frozen=True):
    """Put a message into a mailbox. ``not_before``: microseconds since 1970, UTC."""

    key: str = ""
    metadata: dict[str, object] = {}
    not_before: int | None = None


class SuperviseArgs(MailboxArgs, frozen=True):
    """Put a message into a mailbox and see to it that it arrives."""

    terms: Terms


class CastArgs(Args, frozen=True):
    """Send a message to many mailboxes: ``recipient`` of each copy."""

    copies: list[Copy]
    strategy: str
    terms: Terms


class PublishArgs(Args, frozen=True):
    """Send a message to every mailbox that is subscribed to a topic."""

    topic: str
    strategy: str
    terms: Terms


class TopicArgs(MailboxArgs, frozen=True):
    """Subscribe a mailbox to the topics of a pattern, or end that."""

    pattern: str


class ReceiveArgs(MailboxArgs, frozen=True):
    """Take the oldest message. ``timeout_s`` None: the default clock; 0: do not wait."""

    timeout_s: float | None = None
    hold: bool = False


class Held(msgspec.Struct, omit_defaults=True):
    """A message that is to be acknowledged."""

    id: str
    value: msgspec.Raw
    sender: str = ""
    attempt: int = 1
    topic: str = ""
    metadata: dict[str, object] = {}


class AckArgs(MailboxArgs, frozen=True):
    """Acknowledge a held message, or give it back."""

    id: str
    ok: bool = True
    requeue: bool = True
    reason: str = ""


class CallMailboxArgs(MailboxArgs, frozen=True):
    """Send and wait for the reply."""

    timeout_s: float | None = None


class ReplyArgs(MailboxArgs, frozen=True):
    """Answer a held message that was sent by ``call``."""

    id: str


class DrainArgs(MailboxArgs, frozen=True):
    """Take everything there now, or at most ``max`` messages."""

    max: int | None = None


class WithdrawArgs(MailboxArgs, frozen=True):
    """Take back a message of one's own."""

    id: str


class DeclareArgs(MailboxArgs, frozen=True):
    """Bounds of a mailbox; the first declaration stands."""

    capacity: int = 10_000
    max_bytes: int = 64 * 1024 * 1024
    overflow: Literal["block", "reject", "drop_oldest", "drop_newest"] = "block"


class MailboxStats(msgspec.Struct, omit_defaults=False):
    """Counts of one mailbox."""

    queued: int
    scheduled: int
    waiting: int
    sent: int
    delivered: int
    dropped: int
    size_bytes: int
    oldest_age_s: float | None = None


class MonitorArgs(Args, frozen=True):
    """Watch a worker: its path, or a name that one has registered. The message of its end goes ``into`` a mailbox."""

    target: str
    into: str
    tag: str = ""
    stack: tuple[str, ...] = ()


class DemonitorArgs(Args, frozen=True):
    """Remove a monitor; with ``flush``, take back a message of it that was not received yet."""

    ref: str
    into: str
    flush: bool = True


class DownArgs(Args, frozen=True):
    """Take the message of one monitor, or wait for it."""

    ref: str
    into: str
    timeout_s: float


class LinkArgs(Args, frozen=True):
    """Link with a worker, or undo that: its path, or a name that one has registered."""

    target: str


class TrapArgs(Args, frozen=True):
    """Whether ends of linked workers are messages."""

    on: bool


class FailArgs(Args, frozen=True):
    """Fail the session for all of its workers; ``final``: the run is over and cannot be resumed."""

    message: str
    final: bool = False
    data: dict[str, object] = {}


class BudgetOutcome(msgspec.Struct):
    """Money of the run."""

    limit_usd: float | None
    spent_usd: float
    reserved_usd: float


class AppendIntent(Args, frozen=True):
    """Where an append begins, so that it can be finished and not repeated."""

    path: str
    offset: int


class Collected(msgspec.Struct, omit_defaults=True):
    """How one worker of a collecting delegate ended."""

    ok: bool
    value: MaybeRaw = None
    error: MaybeRaw = None
