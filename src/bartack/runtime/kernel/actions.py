"""What the hub performs for the kernel: most of it once the entries that decided it are durable (``turn.py``).

The desks hand actions to ``turn.py``, which decides when each of them is due. ``hub/hub.py`` performs them; ``memory/hub.py`` does
so in a test. An action is data: it holds no reference to a connection, a process or a file.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from bartack.agents import AgentAnswer
from bartack.runtime.protocol.steps import ShellArgs, ThinkArgs
from bartack.runtime.state.units import NONE, Units
from bartack.runtime.state.worker_state import Value


class Action(msgspec.Struct, frozen=True, gc=False):
    """Something to do when the turn is durable."""


class SendFrames(Action, frozen=True, gc=False):
    """Send frames to a peer; urgent ones overtake."""

    peer: int
    data: bytes
    urgent: bool = False


class SendHistory(Action, frozen=True, gc=False):
    """Send a worker its welcome and its history, as far as it went when the worker said hello."""

    peer: int
    path: str
    known: int
    """How many outcomes there were; later ones are sent one by one."""


class SendOutcome(Action, frozen=True, gc=False):
    """Send a peer the outcome of a request that was taken before, which is in the journal."""

    peer: int
    request: int
    """The number that the peer has given the request."""
    place: int


class CloseConnection(Action, frozen=True, gc=False):
    """Close the connection of a peer, after all frames for it are sent."""

    peer: int


class StartWorker(Action, frozen=True, gc=False):
    """Start a process for a worker."""

    path: str
    incarnation: int


class StopWorker(Action, frozen=True, gc=False):
    """Stop the process of a worker and its tree: at once, or after some seconds of grace."""

    path: str
    grace_s: float = 0.0


class ReadScoreboard(Action, frozen=True, gc=False):
    """Read which bodies a worker executes that it has not reported: ``Core.frame`` gets them."""

    path: str


class StartShell(Action, frozen=True, gc=False):
    """Run commands; ``Core.shell_ended`` gets their end."""

    token: int
    path: str
    key: str
    args: ShellArgs
    stdin: Value
    trace: str = ""
    """Where in its trace the step is, if the run is traced."""


class StopShell(Action, frozen=True, gc=False):
    """Stop commands with their process trees; ``Core.shell_ended`` is called when all of it is gone."""

    token: int


class StartPrompt(Action, frozen=True, gc=False):
    """Call an agent; ``Core.prompt_ended`` gets its reply."""

    token: int
    path: str
    key: str
    attempt: int
    args: ThinkArgs
    p: str = ""
    """The path of the step, and its number there."""
    n: int = 0
    timeout_s: float = 3600.0
    reserved_usd: float = 0.0
    trace: str = ""
    """Where in its trace the step is, if the run is traced."""
    epoch: int = 0
    """How many histories its worker has ended by ``ctx.restart`` before this one."""
    reserved: Units = NONE
    """What is reserved for it beside money."""
    rejected: tuple[str, str] = ("", "")
    """Why a person has refused the answer that the step had before: a code and a sentence."""


class StopPrompt(Action, frozen=True, gc=False):
    """Stop a call of an agent; ``Core.prompt_ended`` is called then."""

    token: int


class AnswerCall(Action, frozen=True, gc=False):
    """Answer an agent's call of a tool."""

    token: int
    request: int
    """The number that the call came with."""
    value: Value
    error: str = ""
    """Why it failed: the class and the message of the error."""


class AnswerQuestion(Action, frozen=True, gc=False):
    """Answer a question of the agent of a prompt."""

    token: int
    question: str
    """The agent's own id of it."""
    answer: AgentAnswer


class KeepCopy(Action, frozen=True, gc=False):
    """Copy the files of the run as they are now; ``Core.copy_made`` or ``Core.copy_failed`` is called then."""

    parent: str
    """The copy before it."""
    during: bool = False
    """Whether steps are under way that would be executed again: a file that they keep changing is copied as it is."""


class PackCopy(Action, frozen=True, gc=False):
    """Put a copy into one pack; ``Core.copy_packed`` or ``Core.copy_failed`` is called then."""

    copy: str


class Show(Action, frozen=True, gc=False):
    """Something was printed, logged or happened that people want to see; or it is the output of a command, or its errors.

    ``at`` is the time of its entry in the journal; 0 if it has none.
    """

    channel: Literal["print", "log", "note", "out", "err"]
    worker: str
    text: str
    at: int = 0


class Transition(Action, frozen=True, gc=False):
    """The run changed its status: write the files that mirror it."""


class RemoveFile(Action, frozen=True, gc=False):
    """Remove a file whose content the journal has."""

    path: str


class ListProcesses(Action, frozen=True, gc=False):
    """List the processes of the hub; ``Core.foreign.report_processes`` answers the request with them."""

    peer: int
    request: int


class InterruptHub(Action, frozen=True, gc=False):
    """Shut the hub down cleanly, as on Ctrl-C; the run stays resumable."""


class EndHub(Action, frozen=True, gc=False):
    """Nothing is left to do."""

    status: str
