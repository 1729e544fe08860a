"""Which attempts a command took: from the copies of the lines that went to the agent and came back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from bartack.agents.protocol.ids import conversation_id
from bartack.core import typed
from bartack.runtime.rundir.receipts import Attempt, Receipt


class _Retry(msgspec.Struct):
    attempt: int
    cause: str
    code: str = ""


class _Line(msgspec.Struct):
    kind: str = ""
    message_id: str = ""
    idempotency_key: str = ""
    retry: _Retry | None = None


class _Copied(msgspec.Struct):
    at: str
    dir: Literal["in", "out"]
    line: _Line | None = None


_decode: Final = typed.decoder(_Copied).decode


def find_attempts(run_dir: Path, draft: Receipt) -> list[Attempt]:
    """The attempts at a command, the last of them the one that was answered; one without times if nothing is known."""
    conversation = conversation_id(draft.run_id, draft.idempotency_key)
    path = run_dir / "agents" / draft.agent.agent_id / conversation / "stream.ndjson"
    attempts: list[Attempt] = []
    for copied in _lines(path):
        line = copied.line
        if line is None:
            continue
        if copied.dir == "out" and line.kind == "command" and line.retry is not None:
            _end_last(attempts, copied.at, line.retry.code)
            attempts.append(Attempt(attempt=line.retry.attempt, cause=line.retry.cause, started_at=copied.at))
        elif line.message_id == draft.event_message_id:
            _end_last(attempts, copied.at, "")
    return attempts or [Attempt(attempt=1, cause="first", started_at="")]


def _end_last(attempts: list[Attempt], at: str, code: str) -> None:
    if attempts and not attempts[-1].ended_at:
        attempts[-1] = msgspec.structs.replace(attempts[-1], ended_at=at, code=code)


def _lines(path: Path) -> Iterator[_Copied]:
    try:
        content = path.read_bytes()
    except OSError:
        return
    for raw in content.splitlines():
        try:
            yield _decode(raw)
        except msgspec.MsgspecError:
            continue
