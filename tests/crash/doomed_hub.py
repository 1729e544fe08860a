"""A hub that kills itself at a named point: ``python doomed_hub.py POINT TIMES RUN_DIR WORKSPACE``.

A point is ``before`` or ``after`` a function of the hub; ``TIMES`` says at which of its calls. ``cut`` is in the middle: half of
what a commit writes is written. ``taken`` is when a request of a process outside is carried out: before, in the middle of or after
the commit of it, or when it is answered; ``TIMES`` says which of the requests. ``never`` is nowhere, ``impatient`` makes a hub that
loses its patience soon, ``unforgiving`` one that forgets no death of a parent program, and ``small`` one whose files have room for
``TIMES`` MiB each.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Final

from bartack.core.disk import RealDisk
from bartack.depot._socket import HubSocket
from bartack.errors import BartackError
from bartack.journal import FileJournal
from bartack.runtime.hub import commands as _commands
from bartack.runtime.hub import connections as _connections
from bartack.runtime.hub import hub as _hub
from bartack.runtime.hub import parents as _parents
from bartack.runtime.hub.serve import main
from bartack.runtime.kernel import actions as _actions
from bartack.runtime.kernel import core as _core
from bartack.runtime.kernel import requests as _requests
from bartack.runtime.rundir import mirror as _mirror
from bartack.runtime.state.worker_state import Value
from bartack.supervision.parent.client import ParentClient

ACTIONS: Final = {
    cls.__name__: cls
    for cls in (
        _actions.SendFrames,
        _actions.SendHistory,
        _actions.StartWorker,
        _actions.StartShell,
        _actions.Show,
        _actions.Transition,
        _actions.CloseConnection,
        _actions.EndHub,
    )
}
FUNCTIONS: Final[dict[str, tuple[type, str]]] = {
    "stage": (FileJournal, "stage"),
    "commit": (FileJournal, "commit"),
    "sync": (RealDisk, "sync"),
    "begin": (_core.Core, "start"),
    "frame": (_core.Core, "frame"),
    "hello": (_core.Core, "connect"),
    "lost": (_core.Core, "lost"),
    "process_gone": (_core.Core, "process_gone"),
    "shell_ended": (_core.Core, "shell_ended"),
    "mirror": (_mirror.Mirror, "write"),
    "parent": (ParentClient, "start"),
    "fork": (ParentClient, "fork"),
    "exec": (ParentClient, "exec"),
    "parent_close": (ParentClient, "close"),
    "listen": (HubSocket, "listen"),
    "command_files": (_commands.Commands, "start"),
    "close": (_hub.Hub, "_close"),
}
ASKING_ACTIONS: Final = {"AnswerQuestion": _actions.AnswerQuestion}
ASKING_FUNCTIONS: Final[dict[str, tuple[type, str]]] = {"person_asked": (_core.Core, "person_asked")}
"""What only happens in runs whose agents ask people; ``POINTS`` are those of every run."""
AT_THE_END: Final = {"Show", "EndHub", "close", "parent_close"}
LAST_POINTS: Final = [f"{when}:{name}" for name in sorted(AT_THE_END) for when in ("before", "after")]
POINTS: Final = [
    *(
        f"{when}:{name}"
        for name in (*FUNCTIONS, *ACTIONS)
        if name not in AT_THE_END
        for when in ("before", "after")
    ),
    "cut:write",
]


TAKEN_POINTS: Final = [f"taken:{name}" for name in ("staged", "cut", "committed", "answered")]


class Doom:
    """Counts calls, and kills this process at one of them."""

    def __init__(self, times: int) -> None:
        self._left = times

    def come(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def is_last(self) -> bool:
        """Whether this is the call that is meant, for what has to die a little later."""
        self._left -= 1
        return self._left == 0

    def wrap(self, function: Callable[..., object], *, after: bool) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            if not after:
                self.come()
            result = function(*args, **kwargs)
            if after:
                self.come()
            return result

        return wrapped


def arm(point: str, times: int) -> None:
    """Let the next hub of this process die at the point."""
    when, _, name = point.partition(":")
    doom = Doom(times)
    if when == "never":
        return
    if when == "impatient":
        _hub.SWEEP_S, _connections.STUCK_S = 0.1, 0.3  # type: ignore[misc]  # - half a minute is too long for a test
        return
    if when == "unforgiving":
        _parents.PARENT_RESTARTS = (_parents.PARENT_RESTARTS[0], 600.0)  # type: ignore[misc]  # - a busy machine is slow to start anything
        return
    if when == "small":
        resource.setrlimit(resource.RLIMIT_FSIZE, (times << 20, times << 20))
        return
    if when == "cut":
        _arm_cut(doom)
    elif when == "taken":
        _arm_taken(doom, name)
    elif name in ACTIONS or name in ASKING_ACTIONS:
        _arm_action(doom, {**ACTIONS, **ASKING_ACTIONS}[name], after=when == "after")
    else:
        owner, attribute = (FUNCTIONS | ASKING_FUNCTIONS)[name]
        setattr(owner, attribute, doom.wrap(getattr(owner, attribute), after=when == "after"))


def _arm_action(doom: Doom, action: type[_actions.Action], *, after: bool) -> None:
    original = _hub.Hub._do

    def do(self: _hub.Hub, actions: list[_actions.Action]) -> None:
        for one in actions:
            if isinstance(one, action) and not after:
                doom.come()
            original(self, [one])
            if isinstance(one, action) and after:
                doom.come()

    _hub.Hub._do = do  # type: ignore[method-assign]  # - the point is inside of it


def _arm_taken(doom: Doom, name: str) -> None:
    """Let the hub die at a point behind the settlement of a request."""
    settle = _requests.RequestDesk.settle

    def settle_armed(
        self: _requests.RequestDesk, asked: _requests.Asked, outcome: Value | BartackError
    ) -> None:
        settle(self, asked, outcome)
        if doom.is_last():
            points = {
                "staged": lambda: arm("before:commit", 1),
                "cut": lambda: arm("cut:write", 1),
                "committed": lambda: arm("after:commit", 1),
                "answered": lambda: arm("after:SendFrames", 1),
            }
            points[name]()

    _requests.RequestDesk.settle = settle_armed  # type: ignore[method-assign]  # - the point is inside of it


def _arm_cut(doom: Doom) -> None:
    original = RealDisk.write

    def write(self: RealDisk, fd: int, data: bytes, offset: int) -> int:
        if len(data) > 1:
            half = original(self, fd, data[: len(data) // 2], offset)
            doom.come()
            return half
        return original(self, fd, data, offset)

    RealDisk.write = write  # type: ignore[method-assign]  # - the point is inside of it


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
