"""The frames between the hub and a worker or a foreign process.

A frame is four bytes of length, big-endian, and that many bytes of a JSON object, at most 1 MiB. A value that takes more than
64 KiB is not sent in a frame: its sender keeps it as a blob of the run and sends the reference.

A worker's life on its socket::

    worker → hub    hello
    hub → worker    welcome, then history … history, then live
    worker → hub    step | note | begin | done | out | cancel …     (in any number, without waiting)
    hub → worker    answer …                                        (in journal order)
    worker → hub    result | failed                                 (the worker's end; it then waits for leave)
    hub → worker    leave

- ``step`` asks the hub to do something; its ``answer`` comes when the outcome is durable.
- ``note`` reports the outcome of something harmless that the worker did itself (time, randomness, a file read). Nothing answers
  it: no effect leaves the hub before the note is durable.
- ``call`` asks the worker that waits in a prompt to run a tool of it; ``returned`` is its outcome.
- ``begin`` and ``done`` frame the body of a step that runs in the worker. ``begin`` is answered only if it asks for it.
- ``history`` carries outcomes that are in the journal, in journal order; after ``live`` the worker is on its own.

Answers reach a worker in the order of the journal, and so does its history: replay takes the same turns as the first run.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from bartack.core import typed
from bartack.errors import FrameError
from bartack.journal import BlobRef

PROTOCOL: Final = 1
BRIDGE: Final = "bridge"
"""The role of a process that copies bytes between an agent and the tools of its step; its token says which."""
MAX_FRAME: Final = 4 * 1024 * 1024
TOGETHER: Final = "+"
"""Between the names of workers that a Patchwork program starts together."""
_LENGTH: Final = struct.Struct(">I")

Raw = msgspec.Raw
if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    # msgspec decodes a union with Raw as if Raw were not there; absent, the field keeps its default.
    MaybeRaw = Raw


class Frame(msgspec.Struct, tag_field="k", omit_defaults=True, gc=False):
    """A frame of any kind; ``k`` is its kind."""


class ErrorData(msgspec.Struct, omit_defaults=True):
    """An exception on its way through a socket or the journal."""

    type: str
    """``module:QualifiedName``."""
    message: str
    code: str = ""
    args: list[object] | None = None
    """What the constructor was given, if all of it is JSON."""
    facts: dict[str, object] = {}
    """The attributes that are JSON."""
    worker: str = ""
    """Path of the worker it was first raised in."""
    stack: list[StackLine] = []
    cause: ErrorData | None = None
    state: ErrorState | None = None
    """What else an exception that is not of Bartack is made of; earlier versions did not keep it."""


class ErrorState(msgspec.Struct, omit_defaults=True):
    """What an exception of a program's own class is made of, beside its facts."""

    args: list[object] = []
    """Its ``args``, as JSON or as text."""
    hidden: dict[str, object] = {}
    """Attributes that are not for people: their names begin with ``_``."""
    kinds: dict[str, str] = {}
    """``module:QualifiedName`` of values that were not plain JSON, by the name of the attribute or the number of the argument."""
    errors: list[ErrorData] = []
    """The exceptions of a group."""
    lost: list[str] = []
    """Used while it is made: the values that are there as text only."""


class StackLine(msgspec.Struct, omit_defaults=True):
    """One line of a traceback, innermost last."""

    file: str
    line: int
    function: str
    text: str = ""
    column: int = 0
    """Where in the line it is, from 1; 0 if that is not known."""
    width: int = 0
    """How many characters of the line it is about."""
    repeated: int = 0
    """How many more times it follows, as in a function that calls itself."""


class Site(msgspec.Struct, frozen=True, gc=False):
    """A place in the program: the line that calls for a step."""

    file: str
    """Relative to the root of the program, if it is a file of it."""
    line: int


class Order(msgspec.Struct, omit_defaults=True):
    """What a new worker process gets before it connects to the hub: its identity, and where its program is."""

    path: str
    incarnation: int
    blobs: str
    """The port to the large values of the run; see ``bartack.depot.port.open_blob_port``."""
    workspace: str
    program: str
    """The directory that stands in for the project: modules are imported from here."""
    root: str
    """The project's own directory: modules must not be imported from there."""
    folder: str = ""
    """Where the program's file is, relative to the root."""
    paths: list[str] = []
    """Where its modules are imported from, relative to the root; older runs have none, and use the root and the folder."""


# Worker or foreign process → hub.


class Hello(Frame, tag="hello"):
    """First frame of a connection. Workers name themselves; foreign processes have a role and perhaps a token."""

    proto: int = PROTOCOL
    role: str = "worker"
    path: str = ""
    incarnation: int = 0
    pid: int = 0
    token: str = ""
    by: str = ""
    """The role of the database whose requests come over this connection, if they come from there."""


class Step(Frame, tag="step"):
    """Do this and answer with its outcome. ``a`` depends on the kind of step."""

    i: int
    p: str
    n: int
    step: str
    fp: str
    about: str = ""
    a: Raw = Raw(b"{}")
    v: MaybeRaw = None
    ref: BlobRef | None = None
    cancelled: bool = False
    """The branch was cancelled before it came here: the outcome is that it was."""
    cleanup: bool = False
    """The worker has learned that the session failed, and tidies up."""
    site: Site | None = None
    """Where in the program the step is asked for, with the kinds of steps of ``steps.SITED``."""


class Note(Frame, tag="note"):
    """This harmless step was done here, with this outcome. Not answered."""

    p: str
    n: int
    step: str
    fp: str
    about: str = ""
    v: MaybeRaw = None
    ref: BlobRef | None = None
    e: ErrorData | None = None
    cleanup: bool = False
    """See ``Step.cleanup``."""


class VersionChosen(Frame, tag="version"):
    """This worker has chosen a version, for all of its history. Not answered."""

    p: str
    name: str
    number: int


class Begin(Frame, tag="begin"):
    """The body of this step begins here. Answered if ``i`` is set: the body waits until that is durable."""

    p: str
    n: int
    step: str
    fp: str
    about: str = ""
    i: int = 0
    once: bool = False
    attempt: int = 1
    timeout_s: float = 0.0
    grace_s: float = 0.0
    """How long after ``timeout_s`` the hub waits before it ends the process: the time a body has to stop by itself."""
    max_crashes: int = 3
    a: Raw = Raw(b"{}")
    cleanup: bool = False
    """See ``Step.cleanup``."""
    changes: bool = True
    """Whether it may change files of the workspace."""
    since: int = 0
    """When the body began, if the hub may read this frame much later: microseconds since 1970, UTC."""


class Done(Frame, tag="done"):
    """The body of this step ended with this outcome; answered when that is durable."""

    i: int
    p: str
    n: int
    step: str
    fp: str
    v: MaybeRaw = None
    ref: BlobRef | None = None
    e: ErrorData | None = None
    about: str = ""
    attempt: int = 1
    retry_in_s: float = -1.0
    """Not the outcome yet: this attempt failed and another follows after this many seconds."""
    cleanup: bool = False
    """See ``Step.cleanup``."""
    took_us: int = 0
    """How long the body ran, as its worker measured it; 0 if it was not executed."""


class Returned(Frame, tag="returned"):
    """A tool that an agent called ended with this outcome. Not answered. ``p`` is the path that the call ran under."""

    p: str
    n: int = 0
    fp: str = ""
    v: MaybeRaw = None
    ref: BlobRef | None = None
    e: ErrorData | None = None


class Out(Frame, tag="out"):
    """Something printed or logged. A step like others, not answered."""

    p: str
    n: int
    channel: str
    text: str
    fp: str = ""
    cleanup: bool = False
    """See ``Step.cleanup``."""


class Cancel(Frame, tag="cancel"):
    """Give this open step up. Its answer is that it was cancelled, or its outcome if that came first."""

    p: str
    n: int
    reason: str = ""
    deadline: bool = False
    unbegun: bool = False
    """The body of the step waited for its beginning to be durable, and will not be executed: the session failed."""


class Slow(Frame, tag="slow"):
    """The worker has run for ``seconds`` without reaching a step. Not answered."""

    seconds: float
    stack: list[StackLine] = []


class Result(Frame, tag="result"):
    """The worker came to its end."""

    v: MaybeRaw = None
    ref: BlobRef | None = None


class Failed(Frame, tag="failed"):
    """The worker ended with an exception. ``origin`` is the step whose outcome it was, if it was one."""

    e: ErrorData
    origin: tuple[str, int] | None = None
    fatal: bool = False
    """Nothing the program could have caught: a replay that differs, a foreign await."""


class Ask(Frame, tag="ask"):
    """A request of a foreign process: ``do`` names it, ``a`` depends on it."""

    i: int
    do: str
    a: Raw = Raw(b"{}")
    v: MaybeRaw = None
    ref: BlobRef | None = None
    id: str = ""
    """What it is recognised by if it is sent again, over this connection or another, if it changes the run."""


# Hub → worker or foreign process.


class Welcome(Frame, tag="welcome"):
    """Answer to hello: what the session is."""

    run: str
    dir: str
    workspace: str
    timestamp: int
    worker: str = ""
    """``module:name`` of the worker to run."""
    rewinds: int = 0
    first: int = 0
    """The last step before the history: the number of the first step in it is one more."""
    argv: list[str] = []
    """The arguments that the program was given on the command line."""
    versions: dict[str, int] = {}
    """The versions that the history has recorded, by name."""
    v: MaybeRaw = None
    """Its arguments: ``{"args": […], "kwargs": {…}}``."""
    ref: BlobRef | None = None
    config: Raw = Raw(b"{}")


class Past(msgspec.Struct, omit_defaults=True, gc=False):
    """A step that is in the journal, with its outcome."""

    p: str
    n: int
    step: str
    fp: str = ""
    v: MaybeRaw = None
    ref: BlobRef | None = None
    e: ErrorData | None = None
    about: str = ""


class History(Frame, tag="history"):
    """Outcomes of this worker's steps, in journal order."""

    past: list[Past]


class Live(Frame, tag="live"):
    """The history ends here. Steps that are open come with it, without an outcome: the program must still ask for the same."""

    open: list[Past] = []


class Answer(Frame, tag="ok"):
    """Outcome of a step or a request."""

    i: int
    v: MaybeRaw = None
    ref: BlobRef | None = None


class Refusal(Frame, tag="err"):
    """Outcome of a step or a request that failed."""

    i: int
    e: ErrorData


class Fired(Frame, tag="fired"):
    """A deadline scope of this worker ran out; in journal order like an answer."""

    p: str
    n: int


class SessionFailed(Frame, tag="session_failed"):
    """The session failed: every wait ends now, except for those requests that are answered next with an error of their own."""

    e: ErrorData
    but: list[int] = []


class Leave(Frame, tag="leave"):
    """Exit now. ``grace_s`` is the time for clean-up, if any is due."""

    grace_s: float = 0.0


class Called(Frame, tag="call"):
    """The agent of an open prompt calls a tool; in journal order like an answer. ``p`` is the path that the call runs under."""

    p: str
    tool: str
    v: MaybeRaw = None
    """The arguments, an object."""
    ref: BlobRef | None = None


ToHub = (
    Hello
    | Step
    | Note
    | VersionChosen
    | Begin
    | Done
    | Returned
    | Out
    | Cancel
    | Result
    | Failed
    | Ask
    | Slow
)
ToPeer = Welcome | History | Live | Answer | Refusal | Fired | Called | SessionFailed | Leave

_encode = msgspec.json.Encoder().encode
_to_hub: msgspec.json.Decoder[ToHub] = typed.decoder(ToHub)
_to_peer: msgspec.json.Decoder[ToPeer] = typed.decoder(ToPeer)


def encode(frame: Frame) -> bytes:
    """A frame as it goes over the socket."""
    body = _encode(frame)
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes is more than {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into frames. ``feed`` takes what arrived and returns the whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """The bodies of the frames that ``data`` completes.

        Raises:
            FrameError: A length that no frame has.
        """
        buffer = self._buffer
        size = len(data)
        if not buffer and size > 4 and size == 4 + _LENGTH.unpack_from(data)[0] <= MAX_FRAME:
            return [bytes(data[4:])]  # one whole frame, as nearly always
        buffer += data
        bodies: list[bytes] = []
        start, size = 0, len(buffer)
        while size - start >= 4:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if not 0 < length <= MAX_FRAME:
                raise FrameError(f"a frame of {length} bytes")
            end = start + 4 + length
            if end > size:
                break
            bodies.append(bytes(buffer[start + 4 : end]))
            start = end
        del buffer[:start]
        return bodies


def decode_to_hub(body: bytes) -> ToHub:
    """A frame that a worker or a foreign process sent.

    Raises:
        FrameError: It is not a frame, or its text cannot be kept: text that a frame only carries is checked here, too.
    """
    try:
        if not body.isascii():
            body.decode()
        return _to_hub.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(str(error)) from None


def decode_to_peer(body: bytes) -> ToPeer:
    """A frame that the hub sent."""
    try:
        return _to_peer.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(str(error)) from None
