"""The demo of a team: ordinary runs of the pipeline, whose processes are all killed while it works, and the proof.

The terminal belongs to ``bartack run`` and ``bartack resume`` while they work, so their live view is on it when they are killed.
``_project.py`` has the project and the agents. The proof reads the journal and the repository, not the memory of this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from bartack.agents import AgentEvent
from bartack.agents.contract import CallStarted
from bartack.cli.demo._project import PRICE_USD, TESTS, git
from bartack.cli.demo._proof import Check, Event
from bartack.cli.demo._story import HeldSignals
from bartack.core import typed
from bartack.core.watch import open_watch
from bartack.pipeline.report.read import read_report
from bartack.pipeline.report.report import RunReport
from bartack.pipeline.report.wording import number_of
from bartack.runtime import Run
from bartack.runtime.rundir.find import find_run
from bartack.runtime.rundir.receipts import Receipt
from bartack.runtime.state.timeline import StepRecord
from bartack.supervision.process.tree import find_by_environment

KILLED_AFTER: Final = (1, 4)
"""After how many recorded answers everything is killed, as soon as the next agent is at work."""
KILLED_AFTER_CONFIGURED: Final = (1,)
ANSWERS: Final = 6
"""How many answers the scripted agents give."""
_LOOK_S: Final = 0.2
"""How often the demo looks at a run that changes nothing."""


class Stage(NamedTuple):
    """Where and how the demo is performed.

    Attributes:
        project: The repository.
        environment: The variables of ``bartack run``.
        plan: After how many answers everything is killed.
        seen_s: How long an agent is at work before the kill.
        quiet: Whether the run writes nothing.
        scripted: Whether the agents are those of ``_project.py``.
    """

    project: Path
    environment: dict[str, str]
    plan: Sequence[int]
    seen_s: float
    quiet: bool
    scripted: bool


class Facts(NamedTuple):
    """The facts from the journal and the repository at the end.

    Attributes:
        report: What ``bartack report`` reports.
        calls: Every call of an agent.
        receipts: The receipts in the journal.
        verified: What became of the files that the last builder step left, on the branch of the team.
        tests: The last line of the tests on that branch.
        tests_passed: Whether they passed.
        killed: How many processes each kill has killed.
        asked: How often an agent was asked, by its own transcript.
        left: How many processes of the run are alive.
    """

    report: RunReport
    calls: list[StepRecord]
    receipts: list[Receipt]
    verified: dict[str, str]
    tests: str
    tests_passed: bool
    killed: list[int]
    asked: int
    left: int


class NoRunError(Exception):
    """``bartack run`` has ended without a run, and has reported why. ``code`` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


def perform(stage: Stage, show: Callable[[Event], None]) -> tuple[Run, list[int]]:
    """Run the pipeline, kill all processes as planned, and resume after each kill.

    Returns:
        The run, and how many processes each kill has killed.

    Raises:
        NoRunError: The run was not created.
    """
    began = time.monotonic()

    def report(what: str, *, killed: bool = False) -> None:
        show(Event(time.monotonic() - began, what, killed))

    run: Run | None = None
    killed: list[int] = []
    try:
        for answers in (*stage.plan, None):
            report("bartack run" if run is None else "bartack resume")
            with _bartack(stage, ["run"] if run is None else ["resume", run.id]) as child:
                run = run or _wait_for_run(stage, child)
                is_time = answers is not None and _wait_for_call(run, answers, child)
                if is_time:
                    _let_watch(child, stage.seen_s)
                    killed.append(_kill_all(run, child.pid))
                    report(f"kill -9 of all {killed[-1]} processes{_describe(run)}", killed=True)
                child.wait()  # bartack: allow[wait_without_deadline] a run has limits of its own
            if not is_time:
                break
    except BaseException:
        # Also after Ctrl-C: nothing of the run may write to its directory while that is removed.
        if run is not None:
            _kill_all(run)
            _count_left(run)
        raise
    assert run is not None
    return run, killed


@contextmanager
def _bartack(stage: Stage, words: list[str]) -> Generator[subprocess.Popen[bytes]]:
    """A Bartack with the terminal of this process. If this block is left early, its processes are killed."""
    command = [sys.executable, "-P", "-m", "bartack", *words, "-C", str(stage.project)]
    held = HeldSignals()
    try:
        with subprocess.Popen(  # bartack: allow[unsupervised_process] the block terminates it  # noqa: S603 - Bartack itself
            command,
            env=stage.environment,
            stdin=subprocess.DEVNULL if stage.scripted else None,
            stdout=subprocess.DEVNULL,  # the result of the run, as JSON
            stderr=subprocess.DEVNULL if stage.quiet else None,
        ) as child:
            try:
                held.release()
                yield child
            except BaseException:
                child.kill()
                raise
    finally:
        held.release()


def _wait_for_run(stage: Stage, child: subprocess.Popen[bytes]) -> Run:
    with open_watch(str(stage.project)) as watch:
        while not (runs := Run.list(stage.project)):
            if child.poll() is not None:
                raise NoRunError(child.returncode)
            watch.wait(_LOOK_S)
    return runs[0]


def _wait_for_call(run: Run, answers: int, child: subprocess.Popen[bytes]) -> bool:
    """Wait until that many answers are recorded and the next agent is at work; return whether the run came to that.

    It is at work when it has noted the call itself: the step is open a little earlier, and a kill before that would be one
    that no agent sees.
    """
    with open_watch(str(run.dir)) as watch:
        while child.poll() is None:
            calls = _calls(run)
            paid = sum(call.status == "finished" for call in calls)
            if paid >= answers and calls[-1].status == "open" and len({*_keys_asked(run)}) == len(calls):
                return True
            watch.wait(_LOOK_S)
    return False


def _calls(run: Run) -> list[StepRecord]:
    return [step for step in run.steps() if step.kind == "think"]


def _describe(run: Run) -> str:
    """What the agents of a killed run were doing, and what is paid for."""
    calls = _calls(run)
    paid = number_of(sum(call.status == "finished" for call in calls), "answer")
    at_work = calls[-1].about.partition(" ")[0].replace("_", " ") if calls[-1].status == "open" else ""
    return f"{f' during {at_work!r}' if at_work else ''}; {paid} paid for"


def _let_watch(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Let a person see the live view for a moment."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


def _kill_all(run: Run, *hub: int) -> int:
    """Kill all processes of the run at once, with its hub; return how many there were."""
    pids = {process.pid for process in find_by_environment("BARTACK_RUN_DIR", str(run.dir))} | {*hub}
    # Guardians terminate what is left of a killed run, so that the others are stopped first: none may act before it is killed.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    return len(pids)


def read_facts(run: Run, stage: Stage, killed: list[int], proof: Path) -> Facts:
    """Read the facts for the proof from the journal and the repository; ``proof`` becomes a worktree of the team's branch."""
    report = read_report(find_run(run.id, stage.project))
    receipts = list(run.receipts())
    verified: dict[str, str] = {}
    tests, passed = "no branch", False
    if report.takeover is not None and report.takeover.commit:
        git(stage.project, "worktree", "add", "--quiet", "--detach", str(proof), report.takeover.commit)
        built = [receipt for receipt in receipts if receipt.agent.agent_type == "builder"]
        verified = dict(built[-1].verify(proof)) if built else {}
        tests, passed = _run_tests(proof, stage)
        git(stage.project, "worktree", "remove", "--force", str(proof))
    asked = len(_keys_asked(run))
    return Facts(report, _calls(run), receipts, verified, tests, passed, killed, asked, _count_left(run))


def _keys_asked(run: Run) -> list[str]:
    """The keys of the calls that the agents themselves have noted, one for each attempt; the journal is not asked."""
    transcripts = (run.dir / "agents").glob("*/transcript.ndjson")
    lines = [line for transcript in transcripts for line in transcript.read_bytes().splitlines(keepends=True)]
    events = [typed.decode(line, type=AgentEvent) for line in lines if line.endswith(b"\n")]
    return [event.key for event in events if isinstance(event, CallStarted)]


def _run_tests(place: Path, stage: Stage) -> tuple[str, bool]:
    done = subprocess.run(  # noqa: S603 - the tests of the project, without a shell
        TESTS, cwd=place, env=stage.environment, capture_output=True, text=True, timeout=120, check=False
    )
    ran = [line for line in done.stderr.splitlines() if line.startswith("Ran ")]
    return ran[0].partition(" in ")[0].lower() if ran else "no tests", done.returncode == 0


def _count_left(run: Run) -> int:
    """Count the processes of the run that are alive; processes that are just ending get a moment."""
    limit = time.monotonic() + 2.0
    with open_watch(str(run.dir)) as watch:
        while (left := find_by_environment("BARTACK_RUN_DIR", str(run.dir))) and time.monotonic() < limit:
            watch.wait(0.05)
    return len(left)


def prove(facts: Facts, stage: Stage) -> list[Check]:
    """Return the parts of the proof."""
    report = facts.report
    finished = [call for call in facts.calls if call.status == "finished"]
    again = sum(receipt.attempts[-1].attempt - 1 for receipt in facts.receipts)
    keys = {receipt.idempotency_key for receipt in facts.receipts}
    as_planned = len(finished) == ANSWERS and abs(report.total.usd - ANSWERS * PRICE_USD) < 1e-9
    as_planned = as_planned and facts.asked == len(finished) + again
    is_same = set(facts.verified.values()) == {"same"}
    if not stage.scripted:  # its number of answers and its files are its own choice
        as_planned = True
        is_same = is_same or not facts.verified
    return [
        Check(
            "killed",
            len(facts.killed) == len(stage.plan),
            f"{number_of(len(facts.killed), 'time')} kill -9 of all processes of the run ({', '.join(map(str, facts.killed))})",
        ),
        Check(
            "feature",
            report.status == "completed" and facts.tests_passed,
            f"{facts.tests} on the branch of the team: {'all pass' if facts.tests_passed else 'they fail'}",
        ),
        Check(
            "paid once",
            as_planned and len(keys) == len(facts.receipts),
            f"{len(finished)} answers for {report.total.usd:.2f} USD; "
            f"the agents count {number_of(facts.asked, 'call')}, {again} again under the same key",
        ),
        Check(
            "not paid again",
            report.resumed.times == len(stage.plan) and report.resumed.answers > 0,
            f"{number_of(report.resumed.answers, 'recorded answer')} ({report.resumed.usd:.2f} USD), "
            f"{number_of(report.resumed.times, 'resume')}",
        ),
        Check(
            "receipts",
            is_same,
            f"{number_of(len(facts.receipts), 'receipt')}; the checksums of the builder's files {'match' if is_same else 'differ'}",
        ),
        Check("nothing left", facts.left == 0, "no process of the run is alive"),
    ]
