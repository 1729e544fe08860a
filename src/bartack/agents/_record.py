"""What is remembered of one agent during a run, over all its processes and commands; and of one process, over its commands."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from bartack.agents.protocol.messages import Heartbeat, Hello

IDS_KEPT: Final = 65_536
"""At most this many ids of messages are remembered; older ones are forgotten first."""
LOGS_PER_MINUTE: Final = 20
QUIET_S: Final = 10.0


class AgentRecord:
    """One agent of a run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended: set[str] = set()
        """Correlation ids of commands that are over."""
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._restarts: deque[float] = deque()
        self._shown: dict[str, tuple[float, int]] = {}
        self._minute = (0.0, 0)

    def is_repeated(self, message_id: str) -> bool:
        """Whether a message with this id was taken before."""
        return message_id in self._seen

    def remember(self, message_id: str) -> None:
        """A message was taken."""
        self._seen[message_id] = None
        if len(self._seen) > IDS_KEPT:
            self._seen.popitem(last=False)

    def may_restart(self, now: float, most: int, window_s: float) -> bool:
        """Whether its process may be started again, which is counted; not if that happened too often lately."""
        while self._restarts and self._restarts[0] <= now - window_s:
            self._restarts.popleft()
        if len(self._restarts) >= most:
            return False
        self._restarts.append(now)
        return True

    def fault_for_console(self, case: str, now: float, text: str) -> str:
        """What to show of a bad line: one of each case in ten seconds, the next with how many were left out; else empty."""
        since, hidden = self._shown.get(case, (float("-inf"), 0))
        if now - since < QUIET_S:
            self._shown[case] = (since, hidden + 1)
            return ""
        self._shown[case] = (now, 0)
        return f"{text} (+{hidden} more)" if hidden else text

    def log_for_console(self, now: float, text: str) -> str:
        """What to show of a log line: twenty in a minute, then how many were left out; else empty."""
        since, count = self._minute
        if now - since >= 60.0:
            hidden = max(count - LOGS_PER_MINUTE, 0)
            self._minute = (now, 1)
            return f"{text} (+{hidden} more)" if hidden else text
        self._minute = (since, count + 1)
        return text if count < LOGS_PER_MINUTE else ""


class Link:
    """One process of an agent, as far as conversations know it."""

    def __init__(self, pid: int = 0) -> None:
        self.pid = pid
        self.has_written = False
        """It has written a message."""
        self.beats = False
        """It sends heartbeats, or has promised to."""
        self.model = ""
        """The model it uses, as far as it has said."""
        self.introduction = ""
        """Its name and version, if it has introduced itself in another way than with ``hello``."""
        self.hello: Hello | None = None
        self.heartbeat: Heartbeat | None = None

    @property
    def version(self) -> str:
        """The name and the version of the program, as far as it has introduced itself."""
        return f"{self.hello.name} {self.hello.version}" if self.hello is not None else self.introduction

    @property
    def can_call_tools(self) -> bool:
        """Whether it can call tools, as far as is known."""
        return self.hello is None or self.hello.capabilities is None or self.hello.capabilities.tools

    def take_hello(self, hello: Hello) -> None:
        """It introduced itself."""
        self.hello = hello
        self.beats = self.beats or bool(hello.capabilities and hello.capabilities.heartbeat)

    def take_heartbeat(self, beat: Heartbeat) -> bool:
        """It is alive; returns whether it also made progress."""
        before, self.heartbeat = self.heartbeat, beat
        self.beats = True
        return before is None or beat.last_activity_at > before.last_activity_at
