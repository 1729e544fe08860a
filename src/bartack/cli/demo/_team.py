"""The demo of a team: real processes that are killed while they work, and the proof that nothing was lost or paid for twice.

The program is ``_review.py``. Its agent is scripted and needs no model; everything else is an ordinary run.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from bartack.cli.demo._story import Check
from bartack.core import open_watch
from bartack.journal import open_reader
from bartack.runtime import Run
from bartack.supervision import ProcessFacts, find_by_environment, read_environment

SOURCE: Final = Path(__file__).with_name("_review.py")
PROGRAM: Final = "review.py"
PRICE_USD: Final = 0.01
RISKS: Final = (7, 2, 9, 4, 5, 1, 8, 3)

Victim = Literal["worker", "hub", "everything"]

PLAN: Final[tuple[tuple[int, Victim], ...]] = ((2, "worker"), (4, "hub"), (6, "everything"))
"""After how many replies of the agent which process is killed."""


class Event(NamedTuple):
    """An event of the demo, with its time in seconds after the start."""

    after_s: float
    what: str
    killed: bool = False


class Facts(NamedTuple):
    """The facts from the journal and the files at the end."""

    result: object
    replies: int
    asked: int
    spent_usd: float
    tickets: list[str]
    left: int


def prepare(workspace: Path) -> None:
    """Create a project with files to review, a scripted agent and its settings."""
    shutil.copyfile(SOURCE, workspace / PROGRAM)
    rules: list[str] = []
    for number, risk in enumerate(RISKS, 1):
        (workspace / f"{number}.diff").write_text(f"change {number}\n")
        rule = f'pattern = "risk of {number}.diff"\nvalue = {risk}\nusd = {PRICE_USD}\ndelay_s = 0.05\n'
        rules.append(f"[[prompts]]\n{rule}")
    (workspace / "replies.toml").write_text("\n".join(rules))
    (workspace / "bartack.toml").write_text('[agents.reviewer]\nkind = "scripted"\nscript = "replies.toml"\n')


def perform(workspace: Path, show: Callable[[Event], None]) -> Run:
    """Start the team, kill processes as planned, resume after each kill of the hub, and wait for the end."""
    began = time.monotonic()

    def report(what: str, *, killed: bool = False) -> None:
        show(Event(time.monotonic() - began, what, killed))

    run = Run.start(PROGRAM, workspace=workspace)
    report(f"{run.id} started: 2 reviewers, 1 clerk, {len(RISKS)} files, a prompt for each")
    for replies, victim in PLAN:
        _wait_for_replies(run, replies)
        report(f"kill -9 {_kill(run, victim)}, {_count_replies(run)} replies paid for", killed=True)
        if victim != "worker":
            run.wait(30)
            run.resume()
            report("bartack resume")
    ended = run.wait(60)
    report(f"{ended.status}")
    return run


def _kill(run: Run, victim: Victim) -> str:
    processes = find_by_environment("BARTACK_RUN_DIR", str(run.dir))
    if victim == "worker":
        workers = [process for process in processes if _is_worker(process)]
        os.kill(workers[-1].pid, signal.SIGKILL)
        return f"of a worker ({workers[-1].pid})"
    hub = _hub_pid(run)
    os.kill(hub, signal.SIGKILL)
    if victim == "hub":
        return f"of the hub ({hub})"
    for process in processes:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return f"of the hub and all {len(processes)} processes below it"


def _is_worker(process: ProcessFacts) -> bool:
    name = (read_environment(process.pid) or {}).get("BARTACK_WORKER", "")
    return name.startswith("main/")


def _hub_pid(run: Run) -> int:
    return int((run.dir / "lock").read_text().split(maxsplit=1)[0])


def _wait_for_replies(run: Run, count: int) -> None:
    with open_reader(run.dir) as reader:
        seen = 0
        for entry in reader.follow(timeout_s=30.0):
            seen += entry.kind == "step.finished" and entry.data["step"] == "think"
            if seen >= count or entry.kind == "run.ended":
                return


def _iter_prompts(run: Run, kind: str) -> Iterator[tuple[str, int]]:
    for event in run.events():
        if event["kind"] == kind and event.get("step") == "think":
            yield str(event["p"]), int(str(event["n"]))


def _count_replies(run: Run) -> int:
    return sum(1 for _ in _iter_prompts(run, "step.finished"))


def read_facts(run: Run, workspace: Path) -> Facts:
    """Read the facts for the proof from the journal and the files, not from the memory of the demo."""
    tickets = workspace / "tickets.txt"
    return Facts(
        result=run.result(),  # bartack: allow[wait_without_deadline] it reads the journal
        replies=_count_replies(run),
        asked=sum(1 for _ in _iter_prompts(run, "step.started")),
        spent_usd=run.state().spent_usd,
        tickets=tickets.read_text().splitlines() if tickets.exists() else [],
        left=_count_left(run),
    )


def _count_left(run: Run) -> int:
    """Count the processes of the run that are alive; processes that are just ending get a moment."""
    limit = time.monotonic() + 2.0
    with open_watch(str(run.dir)) as watch:
        while (left := find_by_environment("BARTACK_RUN_DIR", str(run.dir))) and time.monotonic() < limit:
            watch.wait(0.05)
    return len(left)


def prove(facts: Facts) -> list[Check]:
    """Return the parts of the proof."""
    risky = sorted(f"T-{number}.diff" for number, risk in enumerate(RISKS, 1) if risk >= 5)
    again = facts.asked - facts.replies
    tickets = Counter(facts.tickets)
    doubled = sum(count - 1 for count in tickets.values())
    return [
        Check("result", facts.result == risky, f"{len(risky)} tickets for the risky files, as without kills"),
        Check(
            "paid once",
            facts.replies == len(RISKS) and abs(facts.spent_usd - len(RISKS) * PRICE_USD) < 1e-9,
            f"{facts.replies} replies for {len(RISKS)} prompts, {facts.spent_usd:.2f} USD; "
            f"{again} sent again under the same key because no reply had arrived",
        ),
        Check(
            "done once",
            len(tickets) == len(risky) and doubled <= len(PLAN),
            f"{len(tickets)} tickets filed; {doubled} filed again because its process was killed in the middle of it",
        ),
        Check("nothing left", facts.left == 0, "no process of the run is alive"),
    ]
