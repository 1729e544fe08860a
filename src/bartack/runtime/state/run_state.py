"""The state of a run: what its entries add up to.

``apply.py`` is the only way it changes. It decides nothing; ``kernel/core.py`` and the desks decide, by writing entries.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Literal

from bartack.messaging import Mailbox
from bartack.runtime.protocol.paths import outer
from bartack.runtime.protocol.steps import BODIES, CLEANUP
from bartack.runtime.state import entries as e
from bartack.runtime.state.blame import FailedStep
from bartack.runtime.state.copies import KeptCopies
from bartack.runtime.state.deliveries import Deliveries
from bartack.runtime.state.links import ABORTS, DEADLINE, LINKED_EXIT, Abort, LinkRegistry
from bartack.runtime.state.requests import TakenRequests
from bartack.runtime.state.units import NONE
from bartack.runtime.state.worker_state import (
    NO_VALUE,
    AskedQuestion,
    OpenStep,
    StepKey,
    UnknownDecision,
    Value,
    WorkerState,
    is_unknown,
)
from bartack.supervision import Leak, Monitor, MonitorRegistry

RunStatus = Literal["running", "waiting", "failed", "completed", "cancelled", "aborted", "interrupted"]


_ENDS: Final[dict[str, RunStatus]] = {"completed": "completed", "failed": "failed", "aborted": "aborted"}
"""How a run has ended, by what its last entry says; else it is cancelled."""


LEAKS_KEPT: Final = 1000


_NUMBER: Final = re.compile(r"(?:do:)?([0-9]+)")
"""The number of the step in a path that extends that of a worker."""


_ENDED: Final = (*ABORTS, ":StepTimeoutError", ":ShellTimeoutError", ":MessageTooLargeError")


class State:
    """Everything the journal of a run says, added up."""

    usd_estimated = False
    """What was spent was computed from a table of prices, or in part."""
    answers_paid = 0
    """How many prompts have an answer."""
    kept_answers = 0
    kept_usd = 0.0
    """How many answers were paid before the last hub began, which did not pay them again, and what they cost."""
    decided: UnknownDecision | None = None
    """What the next hub does with steps whose outcome is not known."""

    def __init__(self) -> None:
        self.run: e.RunCreated | None = None
        self.next_program = ""
        """Where the last update has written its program; it is moved from there when that is durable."""
        self.created_at = self.last_at = 0
        self.arguments = NO_VALUE
        self.workers: dict[str, WorkerState] = {}
        self.children: dict[tuple[str, int], list[str]] = {}
        self.undone: dict[str, int] = {}
        """Workers whose making was set back, with the number of rewinds one of the same path begins with."""
        self.mailboxes: dict[str, Mailbox] = {}
        self.held: dict[str, tuple[str, str]] = {}
        """Messages that are to be acknowledged: mailbox and holder, a worker's path or a process outside."""
        self.deliveries = Deliveries()
        self.requests, self.copies = TakenRequests(), KeptCopies()
        self.monitors = MonitorRegistry()
        self.links = LinkRegistry()
        self.leaks: deque[Leak] = deque(maxlen=LEAKS_KEPT)
        """Monitors that workers have not released, the latest of them."""
        self.prompts_over: dict[str, str] = {}
        """How prompts ended whose watchers have not been notified, by step."""
        self.reported: dict[str, Monitor] = {}
        """Monitors that have reported and that their watchers have not released."""
        self.failure: e.FailureRecorded | None = None
        self.failed_at = self.suppressed = 0
        # Why it is about to end for good, if it is cancelled or aborted.
        self.ending: e.FailureRecorded | None = None
        self.ended: e.RunEnded | None = None
        self.stopped = ""
        self.rests_until = 0
        """When a run without a hub has something to do again by itself; 0: no time will continue it."""
        self.rests_for = ""
        """What it waits for until then."""
        self.result = NO_VALUE
        self.hub = self.dead_us = 0
        self.spent_usd = self.reserved_usd = 0.0
        self.spent = NONE
        """What calls of agents have used beside money."""
        self.reserved = NONE
        """What is reserved for those that are under way."""
        self.questions: dict[str, AskedQuestion] = {}
        """The open questions of programs and agents, by number."""
        self.answers: dict[str, AskedQuestion] = {}
        """Questions of agents that were answered and whose prompts are open: their agents may come back for the answers."""
        self.questions_asked = 0
        self.pinned_seq = 0
        """Place of the entry since which the run has the program that it has; 0: since its beginning."""
        self.outputs = 0
        """How many texts workers have printed and logged."""
        self._owners: dict[str, WorkerState] = {}
        self._restarted: dict[str, WorkerState] = {}
        """Workers that have begun a new history."""

    @property
    def status(self) -> RunStatus:
        """The status of the run, as far as the journal shows."""
        if self.ended is not None:
            return status_of_end(self.ended)
        if self.stopped:
            return "interrupted"
        return "waiting" if self.questions else "running"

    @property
    def undecided(self) -> str:
        """The first worker that failed by a step whose outcome is unknown, on which nothing was decided; empty if there is none."""
        in_doubt = (worker.path for worker in self.workers.values() if worker.in_doubt)
        return next(in_doubt, "") if self.decided is None else ""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.run if self.run is not None else ""

    def worker_of(self, p: str) -> WorkerState | None:
        """The worker that a path belongs to: its own, or that of one of its branches or of the tools it runs."""
        found = self._owners.get(p)
        if found is None:
            found = self.workers.get(p) or self._by_branch(p)
            if found is not None:
                self._owners[p] = found
        return found

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of this name; it exists from its first use on."""
        found = self.mailboxes.get(name)
        if found is None:
            found = self.mailboxes[name] = Mailbox(name)
        return found

    def is_closed(self, name: str) -> bool:
        """Whether a mailbox takes no more messages: it was closed, or is the inbox of a worker that has ended."""
        if name.startswith("@"):
            worker = self.workers.get(name[1:])
            if self._is_past(name[1:]) if worker is None else worker.ended:
                return True
        return self.mailbox(name).closed

    def owner_of(self, mailbox: Mailbox) -> str:
        """The worker whose name a mailbox is, as long as it lives."""
        owner = self.workers.get(mailbox.owner) if mailbox.owner else None
        return "" if owner is None or owner.ended else owner.path

    def path_of(self, name: str) -> str:
        """The path of the worker that is meant: by its path, its inbox, or the name that it has registered."""
        path = name.removeprefix("@")
        mailbox = self.mailboxes.get(name)
        if path in self.workers or mailbox is None:
            return path
        return self.owner_of(mailbox) or mailbox.owner or path

    def waits_for(self, step: OpenStep) -> str:
        """The open questions that a prompt waits for, in words; empty if there are none."""
        asked = [one.id for one in self.questions.values() if one.by_agent and one.key == step.key]
        return f"waits for an answer: {', '.join(asked)}" if asked else ""

    def prompt_at(self, place: str) -> OpenStep | None:
        """The open prompt of a step, given as ``PATH:NUMBER``."""
        p, _, n = place.rpartition(":")
        worker = self.worker_of(p) if is_step(place) else None
        found = worker.open.get((p, int(n))) if worker is not None else None
        return found if found is not None and found.step == "think" else None

    def has_no_receiver(self, name: str) -> bool:
        """Whether a mailbox belongs to one worker, which has ended or never was: its inbox, or a name that it had registered."""
        if name.startswith("@"):
            worker = self.workers.get(name[1:])
            return worker is None or worker.ended
        mailbox = self.mailboxes.get(name)
        return mailbox is not None and bool(mailbox.owner) and not self.owner_of(mailbox)

    def is_watching(self, watcher: str) -> bool:
        """Whether a worker is inside a block that watches another one, which may have ended by now."""
        reported = any(monitor.watcher == watcher and monitor.stack for monitor in self.reported.values())
        return reported or bool(self.monitors_left(watcher))

    def monitors_left(self, watcher: str) -> list[str]:
        """The monitors of blocks of a worker; those of Patchwork have none, and last as long as their worker."""
        return [monitor.ref for monitor in self.monitors.of_watcher(watcher) if monitor.stack]

    def children_of(self, step: StepKey) -> list[WorkerState]:
        """The workers that a step has made, in order."""
        return [self.workers[path] for path in self.children.get(step, ())]

    def made_by(self, worker: WorkerState) -> list[WorkerState]:
        """The workers that one has made and that have not ended, in order."""
        made = (self.workers[path] for path in worker.made)
        return [child for child in made if not child.ended]

    def ancestors(self, worker: WorkerState) -> list[tuple[WorkerState, StepKey]]:
        """The workers above one, each with the step that it made the next one with."""
        found: list[tuple[WorkerState, StepKey]] = []
        step = worker.parent
        while step[0]:
            above = self.worker_of(step[0])
            if above is None:
                break
            found.append((above, step))
            step = above.parent
        return found

    def _by_branch(self, p: str) -> WorkerState | None:
        head = outer(p)
        while head and head not in self.workers:
            head = outer(head)
        return self.workers.get(head)

    def open_step(self, data: e.StepStarted, seq: int, at: int, value: Value) -> None:
        """A step has begun."""
        worker = self.worker_of(data.p)
        if worker is None:
            return
        self.reserved_usd += data.reserved_usd
        if worker.adopted:
            worker.supersede((data.p, data.n))
        known = worker.open.get((data.p, data.n))
        if known is not None:
            self.reserved_usd -= known.reserved_usd
            self.reserved -= known.reserved
        if data.reserved is not None:
            self.reserved += data.reserved
        # Each attempt of a body has its own time; other steps are one wait, however often they are attempted.
        first = None if data.step in BODIES else known
        worker.open[data.p, data.n] = OpenStep(
            p=data.p,
            n=data.n,
            step=data.step,
            fp=data.fp,
            about=data.about,
            at=first.at if first else data.since or at,
            dead_us=first.dead_us if first else self.dead_us,
            seq=known.seq if known else seq,
            attempt=data.attempt,
            once=data.once,
            timeout_s=data.timeout_s,
            due=data.due,
            question=data.question,
            reserved_usd=data.reserved_usd,
            reserved=data.reserved or NONE,
            max_crashes=data.max_crashes,
            limit=data.limit,
            asked=value,
            site=data.site,
            cleanup=data.cleanup,
            changes=data.changes,
            asked_us=first.asked_us if first else 0,
            asking=first.asking if first else None,
            limited_us=first.limited_us if first else 0,
            limited=first.limited if first else None,
        )
        if data.question:
            self.questions[data.question] = AskedQuestion.of_step(worker, worker.open[data.p, data.n])
            self.questions_asked += 1

    def revive_children(self, steps: Iterable[tuple[str, int]]) -> None:
        """A worker was set back: the workers whose step it gave up because of its failure continue where they were."""
        for path in [path for step in steps for path in self.children.get(step, ())]:
            worker = self.workers[path]
            if worker.suspended is not None:
                self._revive(worker)

    def _revive(self, worker: WorkerState) -> None:
        worker.open, worker.suspended = worker.suspended or {}, None
        for monitor in worker.watching:
            self.monitors.add(monitor)
        worker.watching = []
        worker.status, worker.error, worker.error_is_final = "waiting", None, False
        for step in worker.open.values():
            self.reserved_usd += step.reserved_usd
            self.reserved += step.reserved
            if step.question:
                self.questions[step.question] = AskedQuestion.of_step(worker, step)
        made = [self.workers[path] for path in worker.made]
        spawned = [child.parent for child in made if child.spawned]
        self.revive_children([*worker.open, *spawned])

    def drop_children(self, made: list[str]) -> None:
        """Remove workers, and all below them, from the run."""
        marks = below(made)
        dropped = {path for path in self.workers if path in made or path.startswith(marks)}
        for path in [path for path in self.workers if path in dropped]:
            gone = self.workers.pop(path)
            self.stop_watching(path)
            self.links.forget(path)
            # Their keys must not come again.
            self.undone[path] = gone.rewinds + 1
            self.children.pop(gone.parent, None)
        self._owners = {p: owner for p, owner in self._owners.items() if owner.path not in dropped}
        self._forget_questions(lambda question: question.worker in dropped)
        for worker in self.workers.values():
            if not dropped.isdisjoint(worker.made):
                worker.made = [path for path in worker.made if path not in dropped]

    def forget_below(self, worker: WorkerState) -> None:
        """A worker restarted: the workers that it made have all ended, and no later step can refer to them."""
        marks = below([worker.path])
        gone = {path for path in self.workers if path.startswith(marks)}
        for path in gone:
            self.children.pop(self.workers.pop(path).parent, None)
            self.links.forget(path)
        self._owners = {
            p: owner for p, owner in self._owners.items() if owner is not worker and owner.path not in gone
        }
        self._restarted[worker.path] = worker

    def _is_past(self, path: str) -> bool:
        """Whether a path is that of a worker that was made in a history that is over."""
        for worker in self._restarted.values():
            if path.startswith(below([worker.path])):
                number = _NUMBER.match(path, len(worker.path) + 1)
                return number is not None and int(number[1]) <= worker.first
        return False

    def stop_watching(self, watcher: str, at: int = 0, *, leaving: bool = False) -> list[Monitor]:
        """A worker has ended: its monitors go with it. Those of blocks that it did not leave, if it should have, are leaks."""
        if leaving:
            left = [self.monitors.leaked(ref, "scope_left", at) for ref in self.monitors_left(watcher)]
            self.leaks += [leak for leak in left if leak is not None]
        self.reported = {ref: monitor for ref, monitor in self.reported.items() if monitor.watcher != watcher}
        return self.monitors.watcher_gone(watcher)

    def abort(self, worker: WorkerState, abort: Abort) -> None:
        """A worker is interrupted from outside: in its open steps, or else in its next one.

        One that a link has aborted already may clean up first, and is aborted by the end of another one after that.
        """
        tidies = bool(abort.by) and worker.leaving
        waiting = [step for step in worker.waits() if not (tidies and step.step in CLEANUP)]
        free = [step for step in waiting if step.abort is None or (step.abort.by and not abort.by)]
        for step in free:
            step.abort = abort
        cancelled = any(step.abort is not None and not step.abort.by for step in waiting)
        if not free and not cancelled:
            worker.put_off(abort)

    def unlink_ended(self, worker: WorkerState) -> None:
        """A worker ended abnormally: remove its links to workers that have ended, too, unless they may continue."""
        for other in self.links.of(worker.path):
            found = self.workers.get(other)
            if found is None or (found.ended and found.suspended is None):
                self.links.remove(worker.path, other)

    def forget_step(self, worker: WorkerState, step: tuple[str, int]) -> OpenStep | None:
        """A step is no longer open; returns what it was, if it was."""
        was = worker.open.pop(step, None)
        if was is not None:
            self.reserved_usd -= was.reserved_usd
            if was.reserved:
                self.reserved -= was.reserved
            self.questions.pop(was.question, None)
            if was.step == "think" and (self.questions or self.answers):
                self._forget_questions(lambda question: question.key == step)
        return was

    def _forget_questions(self, is_over: Callable[[AskedQuestion], bool]) -> None:
        """Questions that cannot be answered any longer, and answers that no agent comes back for."""
        for known in (self.questions, self.answers):
            for question in [question for question in known.values() if is_over(question)]:
                del known[question.id]

    def close_step(
        self, p: str, n: int, step: str, seq: int, *, cleanup: bool, failed: e.StepFailed | None = None
    ) -> None:
        """A step has its outcome."""
        worker = self.worker_of(p)
        if worker is None:
            return
        key = (p, n)
        # A body that was short has never been open.
        was = self.forget_step(worker, key) if key in worker.open else None
        if worker.suspended is not None:
            worker.suspended.pop(key, None)
        if step == "think" and self.monitors.is_target(f"{p}:{n}"):
            cut = failed is not None and _is_cancellation(failed)
            self.prompts_over[f"{p}:{n}"] = "aborted" if cut else "error" if failed else "normal"
        if was is not None or failed is not None:
            _settle_abort(worker, was, failed)
        worker.crashes_in_a_row = 0
        worker.last_step = (p, n, step)
        if worker.adopted:
            worker.supersede(key)
        if failed is not None and failed.late:
            if _is_unknown(was, failed):
                worker.doubted[key] = failed.fp
            return
        if cleanup and not _adopt(worker, was, key, step, seq, failed):
            return
        worker.doubted.pop(key, None)
        worker.history.append(seq)
        if failed is not None:
            _blame(worker, was, failed, seq)
            return
        worker.tools.pop(key, None)
        if worker.blame.steps:
            worker.blame.finish(p, n, step, seq)
        if worker.released and not worker.blame.steps:
            worker.released.clear()


def _blame(worker: WorkerState, was: OpenStep | None, failed: e.StepFailed, seq: int) -> None:
    """A step failed, which may be what the worker is set back to."""
    facts = FailedStep(seq, failed.step, failed.fp, _is_unknown(was, failed))
    # A deadline around it is a matter of its own branch: that the branch continues handles no failure beside it.
    own_deadline = str(failed.error.facts.get("reason", "")).startswith(DEADLINE)
    worker.blame.fail(failed.p, failed.n, facts, cancelled=_is_cancellation(failed) and not own_deadline)
    if failed.error.type.endswith(LINKED_EXIT):
        worker.exits.add((failed.p, failed.n))
    else:
        worker.exits.discard((failed.p, failed.n))


def _settle_abort(worker: WorkerState, was: OpenStep | None, failed: e.StepFailed | None) -> None:
    """A step has its outcome: was it the one that an abort waited for, or did one come too late for it?"""
    own = None if was is None else was.abort
    if failed is None or failed.late or not _is_cancellation(failed):
        if own is not None:
            worker.put_off(own, first=True)
    elif (
        own is None and worker.aborts and bool(worker.aborts[0].by) == failed.error.type.endswith(LINKED_EXIT)
    ):
        del worker.aborts[0]


def _is_cancellation(failed: e.StepFailed) -> bool:
    return failed.error.type.endswith(ABORTS)


def _is_unknown(was: OpenStep | None, failed: e.StepFailed) -> bool:
    """Whether it is unknown if a step happened: it is to be done once, and was stopped from outside while it was under way."""
    cut = was is not None and was.once and not was.between and failed.error.type.endswith(_ENDED)
    return cut or is_unknown(failed.error)


def _adopt(
    worker: WorkerState,
    was: OpenStep | None,
    key: tuple[str, int],
    step: str,
    seq: int,
    failed: e.StepFailed | None,
) -> bool:
    """Whether an outcome counts though it is marked as clean-up: its step finished well and began before the failure.

    Earlier versions marked the outcome of every step that ended in a worker after the failure. No clean-up has a body.
    """
    began_before = step == "body" or (step in BODIES and was is not None and not was.cleanup)
    if failed is not None or not began_before:
        return False
    worker.adopted[key] = seq
    return True


def status_of_end(ended: e.RunEnded) -> RunStatus:
    """The status of a run that has ended."""
    return _ENDS.get(ended.status, "cancelled")


def is_step(place: str) -> bool:
    """Whether a text looks like a step: a path and a number."""
    path, _, number = place.rpartition(":")
    return bool(path) and number.isascii() and number.isdigit()


def below(paths: Iterable[str]) -> tuple[str, ...]:
    """How the paths of workers begin that were made by these, in the worker itself or in one of its branches."""
    return tuple(f"{path}{mark}" for path in paths for mark in "/.")
