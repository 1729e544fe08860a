"""The faults that a scripted agent shows on purpose: bad lines, lines twice or late, silence, death.

Which faults a script has, and when, is in ``_script.py``; ``_side.py`` calls at each of those moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from bartack.agents.protocol.ids import new_message_id
from bartack.agents.protocol.lines import MAX_LINE, write_line
from bartack.agents.protocol.messages import Event, Sender, Source, Version
from bartack.agents.scripted._script import At, Inject
from bartack.agents.scripted._writer import HANG, Ignored, MessageWriter, Outside

_EXTRA: Final = frozenset(
    {"oversize", "malformed", "null", "not_utf8", "blank", "torn", "unknown_kind", "unknown_event"}
    | {"wrong_key", "wrong_correlation", "wrong_sender", "wrong_task", "wrong_version"}
)
"""Faults that are a line beside the answer, or instead of it."""
_WRONG_MEMBER: Final[dict[str, dict[str, object]]] = {
    "wrong_key": {"idempotency_key": "ik:" + "0" * 64},
    "wrong_correlation": {"correlation_id": "corr-unknown-0"},
    "wrong_task": {"task_id": "another-task"},
    "wrong_version": {"observed_version": Version("snap-000000000000")},
    "unknown_event": {"event": "agent.pondered"},
}
_IGNORED: Final[dict[str, Ignored]] = {"stop_reading": "stdin", "ignore_eof": "eof", "ignore_term": "term"}


class FaultInjector:
    """Shows the faults of a script. After ``is_dead`` is set nothing more is written."""

    def __init__(self, outside: Outside, writer: MessageWriter) -> None:
        self.is_dead = False
        self.hangs = False
        """The agent does nothing until its command is over."""
        self._outside = outside
        self._writer = writer
        self._held: list[tuple[float, bytes]] = []
        """Lines to send again when the next command has come, each after a while."""
        self._late: list[tuple[float, bytes]] = []

    def inject(self, injects: list[Inject], at: At) -> Iterator[float]:
        """Show the faults of one moment; yields how long to wait."""
        for inject in injects:
            if inject.at == at and inject.do not in _EXTRA and not self.is_dead:
                yield from self._show(inject)

    def hang(self) -> Iterator[float]:
        """Do nothing until the command is over."""
        self.hangs = True
        yield HANG

    def replaces(self, injects: list[Inject], event: Event) -> bool:
        """Write the bad lines that go with an answer; returns whether one of them takes its place."""
        extras = [inject for inject in injects if inject.do in _EXTRA]
        for inject in extras:
            self._write_extra(inject, event)
        return self.is_dead or any(_is_instead(inject) for inject in extras)

    def repeat(self, injects: list[Inject], event: Event) -> None:
        """Write an answer again, or keep it to write it again late."""
        line = write_line(event)
        for inject in injects:
            if inject.do == "duplicate":
                for _ in range(inject.count):
                    self._outside.write(line)
            elif inject.do == "late":
                self._held.append((inject.s, line))

    # Late lines.

    def next_due(self) -> float:
        """When the next late line is due, in seconds of the monotonic clock."""
        return min((at for at, _ in self._late), default=HANG)

    def command_came(self) -> None:
        """The next command has come: lines that were kept are due after their while."""
        self._late += [(self._writer.now() + wait, line) for wait, line in self._held]
        self._held = []

    def write_late(self, now: float) -> None:
        """Write the late lines that are due."""
        due = [line for at, line in self._late if at <= now]
        self._late = [(at, line) for at, line in self._late if at > now]
        for line in due:
            self._outside.write(line)

    # Each fault.

    def _show(self, inject: Inject) -> Iterator[float]:
        if inject.do in {"hang", "slow_heartbeats", "frozen_activity"}:
            self._disturb_heartbeats(inject)
            yield from self.hang()
            return
        match inject.do:
            case "exit":
                self._die(inject.code)
            case "crash":
                self._die(1, inject.signal)
            case "no_heartbeats":
                self._writer.beat_at = HANG
            case "log_flood":
                self._writer.flood(inject.count, "info", inject.bytes)
            case "stderr_flood":
                self._flood_stderr(inject.bytes)
            case "spawn":
                self._outside.spawn(inject.seconds, inject.writes)
            case "stop_reading" | "ignore_eof" | "ignore_term":
                self._outside.ignore(_IGNORED[inject.do])
            case _:
                return

    def _disturb_heartbeats(self, inject: Inject) -> None:
        writer = self._writer
        if inject.do == "slow_heartbeats":
            writer.heartbeat_s = inject.every_s
            writer.beat_at = writer.now() + inject.every_s
        elif inject.do == "frozen_activity":
            writer.frozen_us = writer.active_us
        elif not inject.heartbeats:
            writer.beat_at = HANG

    def _die(self, code: int, signal: str = "") -> None:
        self.is_dead = True
        self._outside.die(code, signal)

    def _flood_stderr(self, size: int) -> None:
        chunk = (b"x" * 127 + b"\n") * 512
        while size > 0:
            self._outside.write_stderr(chunk[:size])
            size -= len(chunk)

    def _write_extra(self, inject: Inject, event: Event) -> None:
        if inject.do == "torn":
            self._outside.write(write_line(event)[: inject.bytes or 40])
            if inject.then == "exit":
                self._die(0)
            else:
                self._outside.write(b"\n")
            return
        wrong = _wrong_event(inject, msgspec.structs.replace(event, message_id=new_message_id()))
        if wrong is not None:
            self._writer.send(wrong)
        else:
            self._outside.write(_bad_line(inject))


def _is_instead(inject: Inject) -> bool:
    return inject.do == "torn" if inject.instead is None else inject.instead


def _wrong_event(inject: Inject, event: Event) -> Event | None:
    """An event with one member that is wrong; ``None`` for a fault that is not an event."""
    if inject.do == "wrong_sender":
        role: Sender = "general" if event.sender.agent_type != "general" else "builder"
        return msgspec.structs.replace(event, sender=Source(role, "another"))
    wrong = _WRONG_MEMBER.get(inject.do)
    return None if wrong is None else msgspec.structs.replace(event, **wrong)


def _bad_line(inject: Inject) -> bytes:
    match inject.do:
        case "oversize":
            size = inject.bytes or MAX_LINE + 1
            head, tail = b'{"kind":"event","pad":"', b'"}\n'
            return head + b"x" * (size - len(head) - len(tail)) + tail
        case "null":
            return b"null\n"
        case "not_utf8":
            return b'{"kind":"\xff\xfe"}\n'
        case "blank":
            return b"   \n"
        case "unknown_kind":
            return b'{"kind":"thought","text":"hm"}\n'
        case _:
            return inject.text.encode() + b"\n"
