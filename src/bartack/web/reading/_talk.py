"""Calls of agents: a list of them, and what was said in one, from the files of the agents in the directory of the run.

Lines of the transcript are without secrets already, as the hub knew them; what this process knows besides is taken out here. The
wire is what went over the pipes of a program, and is shown line by line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar, cast

import msgspec

from bartack.core import typed
from bartack.core.text import cut
from bartack.errors import NotShownError
from bartack.runtime.protocol.steps import ThinkArgs, ThinkOutcome
from bartack.runtime.state.spans.rows import CallFacts, StepSpan
from bartack.web._hide import Hider
from bartack.web.following._pauses import Pauses
from bartack.web.following._runs import moment_us
from bartack.web.models._model import Shown
from bartack.web.models._talk import Call, Calls, Reply, Talk
from bartack.web.reading._files import open_regular
from bartack.web.reading._steps import step_row
from bartack.web.reading._view import LOST, RunView

WINDOW: Final = 200
"""Calls in one answer."""
LONGEST_NAME: Final = 1000
"""Characters of the name of an agent, an action or a task in a list of calls."""
MOST_UNREAD: Final = 20
"""Calls whose outcomes are blobs that are read to find one by its key."""
MOST_LINES: Final = 500
"""Lines of a transcript in one answer."""
LONGEST_LINE: Final = 1024 * 1024
"""Longer lines, in bytes, are left out."""
LONGEST_TEXT: Final = 32 * 1024
"""Characters of one text of a line."""
MOST_BYTES: Final = 1024 * 1024
"""Bytes of lines in one answer."""
TRANSCRIPT: Final = "transcript.ndjson"
STREAM: Final = "stream.ndjson"

_NOTHING: Final[tuple[object, ...]] = (None, "", [], {})

T = TypeVar("T")
Line = dict[str, object]


async def read_calls(view: RunView, before: int = 0) -> Calls:
    """The newest calls, at most a window of them, in the order in which they began; ``before``: only those before this row."""
    spans = view.spans
    limit = min(before or spans.columns.rows.opened_by(view.seq), spans.columns.rows.opened_by(view.seq))
    rows = [row for row in spans.columns.calls.rows() if row < limit]
    shown = rows[-WINDOW:]
    pauses = Pauses()
    calls: list[Call] = []
    for row in shown:
        calls.append(read_call(view, row))
        await pauses.take(8)
    found = view.hider.hide(Calls(calls=calls, next=shown[0] if len(rows) > len(shown) else 0, seq=view.seq))
    return msgspec.structs.replace(found, calls=[_bounded(one) for one in found.calls])


def _bounded(call: Call) -> Call:
    """A call without secrets whose names are short enough for a list."""
    names = {name: cut(getattr(call, name), LONGEST_NAME) for name in ("agent", "action", "task")}
    return msgspec.structs.replace(call, **names)


def read_call(view: RunView, row: int) -> Call:
    """One call, with secrets."""
    step = view.spans.step(row, view.seq)
    facts = view.spans.columns.calls.call(row, (step.p, step.n))
    assert facts is not None, "the row is that of a call"
    facts = _completed(view, step, facts)
    line = step_row(step, view.seq)
    is_over = bool(line.seq_to)
    return Call(
        row=row,
        key=facts.key,
        agent=facts.agent,
        conversation=facts.conversation if is_over else "",
        p=step.p,
        n=step.n,
        worker=step.worker,
        action=facts.action,
        task=facts.task or view.task_of(step.p),
        about=step.about,
        attempt=step.attempt,
        status=step.status,
        began_at=step.began_us,
        ended_at=line.ended_at,
        took_s=line.took_s,
        usd=step.usd,
        tokens=step.tokens,
        usage=facts.usage if is_over else None,
        prompt_chars=facts.prompt_chars,
        seq_from=step.from_seq,
        seq_to=line.seq_to,
        error=line.error,
    )


def _completed(view: RunView, step: StepSpan, facts: CallFacts) -> CallFacts:
    """What a call says whose prompt or outcome is a blob."""
    if facts.asked_unread:
        asked = _load(view, step.from_seq, ThinkArgs)
        if asked is not None:
            command = asked.command
            facts = facts._replace(
                agent=facts.agent or asked.agent,
                action="" if command is None else command.action,
                task="" if command is None else command.task_id,
                prompt_chars=len(asked.prompt),
            )
    if facts.outcome_unread and 0 < step.to_seq <= view.seq:
        outcome = _load(view, step.to_seq, ThinkOutcome)
        if outcome is not None:
            facts = facts._replace(
                key=outcome.key or facts.key,
                agent=outcome.agent or facts.agent,
                conversation=outcome.conversation,
                usage=outcome.usage,
            )
    return facts


def _load(view: RunView, seq: int, type_: type[T]) -> T | None:
    try:
        value = view.value(seq)
        return None if value is None else typed.decode(value, type=type_)
    except (msgspec.DecodeError, RecursionError, *LOST):
        return None


def find_call(view: RunView, key: str) -> int:
    """The row of the last call with a key.

    Raises:
        NotShownError: There is none.
    """
    columns = view.spans.columns
    limit = columns.rows.opened_by(view.seq)
    unread: list[int] = []
    for row in reversed(columns.calls.rows()):
        facts = columns.calls.call(row, columns.key(row)) if row < limit else None
        if facts is not None and facts.key == key:
            return row
        if facts is not None and facts.outcome_unread and len(unread) < MOST_UNREAD:
            unread.append(row)
    found = next((row for row in unread if read_call(view, row).key == key), None)
    if found is None:
        raise NotShownError(f"{view.run.id} has no call {key!r} here")
    return found


async def read_talk(view: RunView, key: str, after: int = 0, *, raw: bool = False) -> Talk:
    """One call: what it was asked, what it replied, and the lines of its transcript or of its wire.

    Args:
        view: The run.
        key: The key of the call.
        after: Only lines with a higher number.
        raw: The lines that went over the pipes of the agent's program.

    Raises:
        NotShownError: There is no such call.
    """
    call = read_call(view, find_call(view, key))
    prompt, reply = (None, None) if after else _said(view, call)
    until = 0 if view.is_live else view.now_us
    lines = await (_wire(view, call, after) if raw else _transcript(view, call, after, until))
    shown = (
        fitting(lines[:MOST_LINES], MOST_BYTES)
        if after
        else fitting(lines[:-MOST_LINES:-1], MOST_BYTES)[::-1]
    )
    numbers = [number for line in shown if isinstance(number := line.get("n"), int)]
    talk = Talk(
        call=call,
        lines=shown,
        next=max(numbers, default=after),
        more=bool(after) and len(lines) > len(shown),
        left_out=0 if after else len(lines) - len(shown),
    )
    return msgspec.structs.replace(view.hider.hide(talk), prompt=prompt, reply=reply)


def _said(view: RunView, call: Call) -> tuple[Shown | None, Shown | None]:
    asked = view.show(call.seq_from)
    reply = view.show(call.seq_to) if call.seq_to and call.status in {"finished", "undone"} else None
    return asked, reply


def read_reply(view: RunView, call: Call) -> Reply:
    """What a call came to, without secrets; empty while it is open."""
    shown = _said(view, call)[1]
    found = Reply(run=view.run.id, seq=call.seq_to, shown=shown)
    if shown is None or not isinstance(shown.value, dict):
        return found
    members = cast("dict[str, object]", shown.value)
    value = next((members[name] for name in ("value", "result") if members.get(name) not in _NOTHING), None)
    text = members.get("text")
    if value is None and isinstance(text, str):
        return msgspec.structs.replace(found, text=text)
    return msgspec.structs.replace(found, value=value)


# Files of agents.


async def _transcript(view: RunView, call: Call, after: int, until_us: int) -> list[Line]:
    found: list[Line] = []
    pauses = Pauses()
    wanted = call.key.encode()
    for agent in agent_folders(view, call.agent):
        for line in iter_lines(view, f"agents/{agent}/{TRANSCRIPT}"):
            await pauses.take()
            if wanted not in line:
                continue
            read = read_transcript_line(view.hider, line, call.key)
            if read is not None and _number(read) > after and not _is_later(read, until_us):
                found.append(read)
        if found:
            break
    return found


def read_transcript_line(hider: Hider, line: bytes, key: str) -> Line | None:
    """A line of a transcript, if it belongs to a call; without secrets."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        read = typed.decode(hider.line(line), type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if read.pop("key", "") != key:
        return None
    return {name: cut(one, LONGEST_TEXT) if isinstance(one, str) else one for name, one in read.items()}


def fitting(lines: Sequence[Line], most: int) -> list[Line]:
    """The first lines that have at most this many bytes together; one in any case."""
    found: list[Line] = []
    size = 0
    for line in lines:
        size += len(msgspec.json.encode(line))
        if found and size > most:
            break
        found.append(line)
    return found


def _number(line: Line) -> int:
    number = line.get("n")
    return number if isinstance(number, int) else 0


def _is_later(line: Line, until_us: int) -> bool:
    return bool(until_us) and moment_us(str(line.get("at", ""))) > until_us


def agent_folders(view: RunView, agent: str) -> list[str]:
    """The directories of the agents of a run that a call may have been made to: that of its agent, or all."""
    try:
        names = sorted(os.listdir(view.run.agents))
    except OSError:
        return []
    return [agent] if agent in names else names


async def _wire(view: RunView, call: Call, after: int) -> list[Line]:
    conversations = [call.conversation] if call.conversation else _conversations(view, call)
    found: list[Line] = []
    pauses = Pauses()
    for agent in agent_folders(view, call.agent):
        for conversation in conversations:
            lines = iter_lines(view, f"agents/{agent}/{conversation}/{STREAM}")
            for number, line in enumerate(lines, 1):
                await pauses.take()
                if number > after:
                    found.append(_wire_line(view.hider, number, line))
    return found


def _conversations(view: RunView, call: Call) -> list[str]:
    """The conversations that the transcript of an open call names."""
    found: dict[str, None] = {}
    for agent in agent_folders(view, call.agent):
        for line in iter_lines(view, f"agents/{agent}/{TRANSCRIPT}"):
            if call.key.encode() in line and b'"agent.started"' in line:
                read = read_transcript_line(view.hider, line, call.key) or {}
                name = read.get("conversation")
                if isinstance(name, str) and name:
                    found[name] = None
    return list(found)


class _Copied(msgspec.Struct):
    """A line of ``stream.ndjson``, of either form that it has."""

    at: str = ""
    dir: str = ""
    bytes: int = 0
    line: msgspec.Raw = msgspec.Raw()
    text: str = ""


def _wire_line(hider: Hider, number: int, raw: bytes) -> Line:
    """A line that went over a pipe, as text: it is not ours, and may be anything."""
    try:
        copied = typed.decode(raw, type=_Copied)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        copied = _Copied()
    inner = bytes(copied.line) or copied.text.encode("utf-8", "replace") or raw
    return {
        "n": number,
        "at": copied.at,
        "dir": copied.dir if copied.dir in {"in", "out"} else "",
        "bytes": copied.bytes or len(inner),
        "line": cut(hider.line(inner[:LONGEST_LINE]).decode("utf-8", "replace"), LONGEST_TEXT),
    }


def iter_lines(view: RunView, relative: str) -> Iterator[bytes]:
    """The whole lines of a file below the directory of the run, never through a link; none if it is not there."""
    descriptor = open_regular(str(view.run.path), relative)
    if descriptor is None:
        return
    with open(descriptor, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line.rstrip(b"\n")
