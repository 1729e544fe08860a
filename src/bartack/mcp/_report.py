"""The results of the tools that look at a run: what is in them, and that none is larger than a client takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, cast

import msgspec

from bartack.core.canonical_json import canonical
from bartack.mcp._follow import Follow
from bartack.runtime.rundir.asked import load_question
from bartack.runtime.rundir.find import ENDED, RunSummary
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import describe_failure
from bartack.runtime.rundir.pipeline_transcript import is_made_of_facts
from bartack.runtime.state.run_state import State
from bartack.runtime.state.status import worker_status
from bartack.runtime.state.worker_state import AskedQuestion

LARGEST: Final = 24 * 1024
"""Bytes of the largest result, as JSON."""
LONG_TEXT: Final = 4000
MOST_PARTS: Final = 50
"""Workers, mailboxes, artifacts and questions that one answer lists."""
RESUMABLE: Final = frozenset({"failed", "interrupted"})


def describe(follow: Follow) -> dict[str, object]:
    """What ``wait_run`` returns."""
    status, failure = follow.status, follow.state.failure
    error = "" if failure is None else describe_failure(failure)
    result: dict[str, object] = {
        "run": follow.run.id,
        "status": status,
        "done": status in ENDED,
        "lines": follow.lines,
        "cursor": follow.cursor,
        "questions": open_questions(follow.run, follow.state)[:MOST_PARTS] if status not in ENDED else [],
        "value": follow.value() if status == "completed" else None,
        "artifacts": _artifacts(follow)[:MOST_PARTS],
        "error": cut_text(error) or None,
        "usd": round(follow.state.spent_usd, 6),
        "usd_estimated": follow.state.usd_estimated,
    }
    if status in RESUMABLE:
        result["resume_hint"] = f"bartack resume {follow.run.id}"
    return fit(result)


def describe_more(follow: Follow) -> dict[str, object]:
    """What ``run_status`` returns."""
    state, active = follow.state, follow.run.is_active()
    workers = [
        {"path": worker.path, "status": worker_status(state, worker.status, active=active)}
        for worker in state.workers.values()
    ]
    more = {
        "workers": workers[:MOST_PARTS],
        "mailboxes": [{"name": box.name, "waiting": len(box)} for box in state.mailboxes.values()][
            :MOST_PARTS
        ],
        "dead_letters": len(state.deliveries.letters),
    }
    return fit({**describe(follow), **more})


def describe_summary(summary: RunSummary) -> dict[str, object]:
    """One run in the result of ``list_runs``."""
    return {
        "run": summary.run,
        "program": summary.program,
        "status": summary.status,
        "started": summary.created_at,
        "usd": summary.spent_usd,
        "questions": summary.questions[:MOST_PARTS],
    }


def open_questions(run: RunDir, state: State) -> list[dict[str, object]]:
    """The questions of a run that are not answered."""
    return [_question(run, asked) for asked in state.questions.values()]


def _question(run: RunDir, asked: AskedQuestion) -> dict[str, object]:
    args, tool_input = load_question(run, asked)
    about = {"agent": asked.agent} if asked.agent else {}
    use = {"tool": asked.tool, "input": tool_input} if asked.kind == "permission" else {}
    return {
        "id": asked.id,
        "text": cut_text(args.question),
        "options": args.options or [],
        "default": None if args.default is None else msgspec.json.decode(args.default),
        "kind": asked.kind,
        "asked_at": iso(asked.at),
        **about,
        **use,
    }


def iso(at_us: int) -> str:
    """Microseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cut_text(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= LONG_TEXT else f"{text[:LONG_TEXT]}…"


def fit(result: dict[str, object]) -> dict[str, object]:
    """A result that is not too large: its largest members are cut, and ``truncated`` says so.

    Lines are bounded where they are read, so that the cursor fits them.
    """
    size = len(canonical(result))
    while size > LARGEST:
        name = max((one for one in result if one not in _KEPT), key=lambda one: len(canonical(result[one])))
        result = {**result, name: _cut_member(result[name], size - LARGEST), "truncated": True}
        before, size = size, len(canonical(result))
        if size >= before:
            result = {**result, name: None}
            size = len(canonical(result))
    return result


_KEPT: Final = frozenset({"run", "status", "done", "lines", "cursor", "message_id", "truncated"})


def _cut_member(value: object, excess: int) -> object:
    """Shorten a list by its end, and anything else to the beginning of its JSON text."""
    if isinstance(value, list):
        kept: list[object] = []
        room = len(canonical(cast("list[object]", value))) - excess - 100
        for part in cast("list[object]", value):
            room -= len(canonical(part)) + 1
            if room < 0:
                break
            kept.append(part)
        return kept
    text = value if isinstance(value, str) else canonical(value).decode()
    # An escaped character takes up to six bytes.
    return text[: max((len(text.encode()) - excess - 200) // 6, 0)] + "…"


def _artifacts(follow: Follow) -> list[Mapping[str, object]]:
    """The files that agents of the pipeline left and that were verified."""
    if not is_made_of_facts(follow.state.run):
        return []
    return [
        {"path": artifact.path, "sha256": artifact.sha256, "size": artifact.size}
        for receipt in follow.receipts()
        for artifact in receipt.artifacts
    ]
