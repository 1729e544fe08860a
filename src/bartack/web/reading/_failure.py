"""Why a run failed: from the failing step outwards through every worker that waited for it, each with its source lines."""

from __future__ import annotations

import re
from typing import Final

from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.remedies import known_error, needs_update, spent_setting
from bartack.runtime.state import entries as e
from bartack.runtime.state.timeline import crash_report
from bartack.web.models._failure import Crash, Failure, FailureLink, Raised
from bartack.web.models._steps import SourcePlace
from bartack.web.reading._sources import Sources
from bartack.web.reading._view import RunView

MOST_FRAMES: Final = 40
"""Places of a traceback that are shown; of a longer one the middle is left out."""
MOST_CAUSES: Final = 12
MOST_SUPPRESSED: Final = 20
MOST_CRASHES: Final = 20


def read_failure(view: RunView) -> Failure:
    """Why the run had failed, and the crashes of its workers; without an error if it had not."""
    spans, seq = view.spans, view.seq
    failure = spans.past.failure_at(seq)
    sources = Sources(view)
    crashes = _crashes(view)
    if failure is None:
        return view.hider.hide(Failure(crashes=crashes, commands=_commands(view, None)))
    suppressed = spans.past.suppressed_at(seq)
    marks = [mark for mark in spans.marks if mark.kind == "failure" and mark.seq <= seq]
    known = known_error(failure.error)
    return view.hider.hide(
        Failure(
            worker=failure.worker,
            p=failure.p,
            n=failure.n,
            at=marks[-1].us if marks else 0,
            seq=marks[-1].seq if marks else 0,
            error=failure.error,
            causes=_causes(sources, failure.error),
            suppressed=[_suppressed(view, sources, place) for place in suppressed[:MOST_SUPPRESSED]],
            suppressed_more=max(len(suppressed) - MOST_SUPPRESSED, 0),
            chain=_chain(view, sources, failure),
            crashes=crashes,
            help="" if known is None else re.sub(r"\bRUN\b", view.run.id, known.remedy),
            commands=_commands(view, failure.error),
        )
    )


def _causes(sources: Sources, error: ErrorData) -> list[Raised]:
    found: list[Raised] = []
    cause: ErrorData | None = error
    while cause is not None and len(found) < MOST_CAUSES:
        found.append(raised(sources, cause))
        cause = cause.cause
    return found


def raised(sources: Sources, error: ErrorData) -> Raised:
    """An error with its places in the program."""
    stack, half = error.stack, MOST_FRAMES // 2
    shown = stack if len(stack) <= MOST_FRAMES else [*stack[:half], *stack[-half:]]
    return Raised(
        type=error.type,
        message=error.message,
        code=error.code,
        worker=error.worker,
        stack=[sources.frame(frame) for frame in shown],
        left_out=len(stack) - len(shown),
    )


def _suppressed(view: RunView, sources: Sources, seq: int) -> Raised:
    data = view.entry(seq).decode(e.FailureRecorded)
    return raised(sources, data.error)


def _chain(view: RunView, sources: Sources, failure: e.FailureRecorded) -> list[FailureLink]:
    """The failing worker, then each worker that waited for the one before, from the inside out."""
    step = f"{failure.p}:{failure.n}" if failure.n else ""
    links = [
        FailureLink(worker=failure.worker, how="failed", step=step, site=_site_of(view, sources, failure))
    ]
    state = view.spans.state
    worker = state.workers.get(failure.worker)
    while worker is not None and worker.parent[0]:
        p, n = worker.parent
        above = state.worker_of(p)
        site = worker.site
        links.append(
            FailureLink(
                worker=p if above is None else above.path,
                how="spawned" if worker.spawned else "delegated",
                step=f"{p}:{n}",
                site=None if site is None else sources.at(site, as_recorded=worker.seq > state.pinned_seq),
            )
        )
        worker = above
    return links


def _site_of(view: RunView, sources: Sources, failure: e.FailureRecorded) -> SourcePlace | None:
    """Where the failing step was asked for: the innermost place of the traceback that is in the program."""
    frames = [sources.frame(frame) for frame in reversed(failure.error.stack[-MOST_FRAMES:])]
    return next((frame for frame in frames if len(frame.around) > 1), frames[0] if frames else None)


def _crashes(view: RunView) -> list[Crash]:
    marks = [mark for mark in view.spans.marks if mark.kind == "crash" and mark.seq <= view.seq]
    return [_crash(view, mark.seq, mark.us) for mark in marks[-MOST_CRASHES:]]


def _crash(view: RunView, seq: int, at: int) -> Crash:
    report = crash_report(view.entry(seq).decode(e.WorkerCrashed))
    return Crash(
        at=at,
        seq=seq,
        path=report.path,
        reason=report.reason,
        last_step=report.last_step,
        last_message=report.last_message,
        stderr_tail=report.stderr_tail,
        uptime_s=report.uptime_s,
        peak_memory_bytes=report.peak_memory_bytes,
        restarts=report.restarts_in_window,
        decision=report.decision,
    )


def _commands(view: RunView, error: ErrorData | None) -> list[str]:
    """What to type next."""
    run = view.run.id
    status = view.status
    commands: list[str] = []
    if error is not None:
        known = known_error(error)
        setting = spent_setting(error)
        if setting:
            commands.append(f"bartack resume {run} --set {setting}=MORE")
        elif needs_update(error):
            commands.append(f"bartack resume {run} --update")
        elif status in {"failed", "interrupted"}:
            commands.append(f"bartack resume {run}")
        commands += [] if known is None else [f"bartack explain {known.code}"]
    elif status == "interrupted":
        commands.append(f"bartack resume {run}")
    return commands
