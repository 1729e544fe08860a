"""The messages of a scripted agent: events, log lines and heartbeats, signed and written as lines.

What is written is decided in ``_side.py``; what is written wrongly on purpose, in ``_faults.py``. ``Outside`` is the world.
"""

from __future__ import annotations

import math
import os
from typing import Final, Literal, Protocol

import msgspec

from bartack.agents.protocol.ids import moment, new_message_id
from bartack.agents.protocol.lines import write_line
from bartack.agents.protocol.messages import (
    ENDING,
    Abilities,
    Artifact,
    Command,
    Event,
    FromAgent,
    Heartbeat,
    Hello,
    Log,
    Role,
    Source,
)
from bartack.agents.scripted._script import ArtifactSpec, EventSpec
from bartack.core.checksum import checksum_file
from bartack.core.clock import Clock
from bartack.core.paths import safe_join

Ignored = Literal["stdin", "eof", "term"]
Level = Literal["debug", "info", "warn", "error"]

HANG: Final = math.inf


class Outside(Protocol):
    """What the agent can do to the world."""

    def write(self, data: bytes) -> None:
        """Write to stdout."""
        ...

    def write_stderr(self, data: bytes) -> None:
        """Write to stderr."""
        ...

    def die(self, code: int, by: str = "") -> None:
        """End, or die by a signal; nothing is done afterwards."""
        ...

    def spawn(self, seconds: float, writes: str) -> None:
        """Start a process that outlives the agent and writes a file later."""
        ...

    def ignore(self, what: Ignored) -> None:
        """Stop reading, or do not end when asked to."""
        ...


class MessageWriter:
    """Writes what the agent has to say about the command that it works on.

    Args:
        outside: The world.
        clock: What time it is.
        name: The agent's name; without one it takes the name it is called by.
        role: The agent's role; without one it takes the role it is called in.
        root: The directory it works in.
        materialize: Make files that an event names and that are missing.
        heartbeat_s: How often a heartbeat is due; 0: never.
    """

    def __init__(
        self,
        outside: Outside,
        clock: Clock,
        *,
        name: str,
        role: Role | None,
        root: str,
        materialize: bool,
        heartbeat_s: float,
    ) -> None:
        self.command: Command | None = None
        """What events answer, and whom."""
        self.is_busy = False
        """Work is under way, as far as heartbeats say."""
        self.heartbeat_s = heartbeat_s
        self.beat_at = HANG
        self.frozen_us: int | None = None
        """What heartbeats give as the last activity, whatever it was."""
        self.active_us = clock.now_us()
        self._outside = outside
        self._clock = clock
        self._name = name
        self._role: Role | None = role
        self._root = root
        self._materialize = materialize
        self._beats = 0
        self._began_us = clock.now_us()

    @property
    def source(self) -> Source:
        """How it signs."""
        to = self.command.to if self.command is not None else None
        called: Role = to.agent_type if to is not None else "general"
        return Source(
            self._role if self._role is not None else called, self._name or (to.agent_id if to else None)
        )

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return self._clock.monotonic_ns() / 1e9

    def timestamp(self) -> str:
        """Now, as messages have it."""
        return moment(self._clock.now_us())

    def touch(self) -> None:
        """The agent is active."""
        self.active_us = self._clock.now_us()

    def send(self, message: FromAgent) -> None:
        """Write a message."""
        self._outside.write(write_line(message))
        if not isinstance(message, Heartbeat):
            self.touch()

    def introduce(self, abilities: Abilities) -> None:
        """Write the first message, and the first heartbeat."""
        self.send(
            Hello(protocol=[1], agent=self.source, name="scripted", version="1", capabilities=abilities)
        )
        if self.heartbeat_s:
            self.beat()

    def beat(self) -> None:
        """Write a heartbeat."""
        self.beat_at = self.now() + self.heartbeat_s
        self._beats += 1
        now = self._clock.now_us()
        active = now if self.is_busy else self.active_us
        beat = Heartbeat(
            agent=self.source,
            seq=self._beats,
            status="busy" if self.is_busy else "ready",
            pid=os.getpid(),
            uptime_s=max((now - self._began_us) / 1e6, 0.0),
            last_activity_at=moment(active if self.frozen_us is None else self.frozen_us),
        )
        self.send(beat)

    def log(self, level: Level, text: str) -> None:
        """Write a log line."""
        self.send(Log(level=level, message=text, timestamp=self.timestamp()))

    def flood(self, count: int, level: Level, size: int) -> None:
        """Write many log lines of some size."""
        for number in range(count):
            self.log(level, f"line {number + 1} of {count}".ljust(size, "."))

    def event(self, name: str, payload: dict[str, object] | None) -> Event:
        """An event about the command."""
        command = self.command
        assert command is not None
        return Event(
            message_id=new_message_id(),
            correlation_id=command.correlation_id,
            in_reply_to=command.message_id,
            idempotency_key=command.idempotency_key,
            task_id=command.task_id,
            sender=self.source,
            event=name,
            payload=payload,
            occurred_at=self.timestamp(),
        )

    def make(self, spec: EventSpec) -> Event:
        """An event as a script has it."""
        version = spec.observed_version
        if version == "echo":
            seen = None if self.command is None or spec.name not in ENDING else self.command.version
        else:
            seen = None if isinstance(version, str) else version
        return msgspec.structs.replace(
            self.event(spec.name, spec.said),
            status=spec.status,
            artifacts=None if spec.artifacts is None else [self._artifact(one) for one in spec.artifacts],
            usage=spec.usage,
            observed_version=seen,
        )

    def replay(self, known: Event) -> Event:
        """An answer of an earlier attempt, once more."""
        command = self.command
        assert command is not None
        return msgspec.structs.replace(
            known, message_id=new_message_id(), in_reply_to=command.message_id, replayed=True
        )

    def _artifact(self, wanted: ArtifactSpec) -> Artifact:
        sha256, size = wanted.sha256, wanted.size
        path = os.path.join(self._root, wanted.path)
        if self._materialize:
            path = str(safe_join(self._root, wanted.path))
            if not os.path.exists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"{wanted.path}\n")
            sha256 = size = None
        if os.path.isfile(path):
            sha256 = sha256 or checksum_file(path)
            size = os.path.getsize(path) if size is None else size
        return Artifact(wanted.path, sha256 or "sha256:" + "0" * 64, size or 0)
