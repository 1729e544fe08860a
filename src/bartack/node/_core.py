"""What becomes of a run whose process has ended: the decisions of a node, without I/O.

The journal says how far the run is and whether its hub shut down cleanly. That is enough to distinguish these ends:

- the run is over: nothing is left to do, except that a failure may be tried again if the user has said so;
- a person stopped it: it rests until a person continues it;
- it has nothing to do before some time, or before an answer: it rests without a process, and the node wakes it;
- the system stopped it (SIGTERM at a shutdown, a full disk): it is resumed as soon as that makes sense;
- it could not begin, because another run works in its workspace: it stays queued, and each wait is longer;
- its process was killed: it is resumed, too. A run that kills its own process each time must not do so for ever, so a process that
  died without any progress is a *strike*; after the last one the run is held. A reboot is not the run's fault and no strike.

**Where a crash leads.** The node takes a run (``claim``), starts its hub, sees it end, judges, and writes the verdict
(``release``). It may be killed between any two of these; the next node takes over all runs that are owned, with a higher fence:

- *Before the claim is written*: the run is queued, and is claimed.
- *After the claim, before the start*: there is no hub, and the journal is as the last one left it. If that hub stopped cleanly, its
  reason is judged once more. Otherwise, and for a run that never began, it counts as a death: queued, a wait, one strike.
- *While the hub starts, or while it works*: a hub is a process of its own and continues. The next node finds it by the lock of
  its journal and watches it. One that does not have the lock yet is not found: the run is judged as after a death, and started
  again. The second hub is refused by the lock of the first, and the node watches the first (``_meet_owner`` in ``_hubs.py``).
- *After the hub has ended, before the verdict is written*: the standing is as it was at the claim, and the journal says how the hub
  ended. ``judge`` decides by these two alone, so the next node comes to the same verdict, at its own time.
- *After the verdict is written*: nothing is left to do. A verdict that comes twice has the old fence, and changes nothing.

If the hub is killed with its node, that is the death of the hub; after a reboot (another boot id than that of the claiming
node) it is not a strike. In every case the run is resumed from its journal or not at all, so a wrong judgement can delay a run or
hold it, but not repeat a finished step.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.config.sections import NodeConfig
from bartack.depot import Placement, Standing, Verdict
from bartack.runtime.rundir.find import TERMINAL

SECOND_US: Final = 1_000_000
REST_AFTER_S: Final = NodeConfig().rest_after_s
"""To stop a run and to start it again takes about a second of a processor; its processes use that in some minutes of waiting."""

STOPPED: Final[dict[str, tuple[Placement, str]]] = {
    "interrupted": ("resting", "a person has stopped it"),
    "waiting": ("resting", "it waits for an answer"),
    "resting": ("resting", "it waits for a time"),
    "terminated": ("queued", "it was terminated"),
}
"""What becomes of a run whose hub has shut down cleanly, by the reason in the journal."""
LACKS: Final = {
    "disk": "its disk is full or does not work",
    "copies": "its workspace cannot be copied",
}
"""What is missing on the machine when a hub has stopped for such a reason. It may be there later."""
WAKES: Final = frozenset({"waiting", "resting"})
"""Reasons after which the node continues a run by itself."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the process of a run has ended.

    Attributes:
        status: The status of the run.
        stop: How its hub has stopped, as the journal has it; empty if it was killed.
        progress: How many steps have finished in it.
        rebooted: The machine was started again meanwhile.
        problem: Why it could not be run at all.
        busy: Why it could not begin yet.
        elsewhere: Another process runs it.
        due_us: When it has something to do again by itself; 0: no time will continue it.
        about: What it waits for until then.
        last_us: When it recorded its last entry.
    """

    status: str = "interrupted"
    stop: str = ""
    progress: int = 0
    rebooted: bool = False
    problem: str = ""
    busy: str = ""
    elsewhere: bool = False
    due_us: int = 0
    about: str = ""
    last_us: int = 0


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a node is.

    Attributes:
        strikes: A run is held after at least this many deaths in a row without progress.
        first_s: How long to wait before the first resume.
        longest_s: The longest wait.
    """

    strikes: int = 5
    first_s: float = 1.0
    longest_s: float = 600.0

    def wait_us(self, times: int) -> int:
        """How long to wait before the next resume, if it has been needed so often: four times longer each time."""
        return int(min(self.first_s * 4 ** min(times, 20), self.longest_s) * SECOND_US)


def judge(standing: Standing, ending: Ending, now_us: int, policy: Policy) -> Verdict:
    """Decide what becomes of a run; see the module."""
    state: Placement
    if ending.elsewhere or ending.problem:
        state, reason = (
            ("resting", "another process runs it") if ending.elsewhere else ("held", ending.problem)
        )
        return Verdict(state=state, progress=standing.progress, reason=reason)
    if ending.busy:
        return _while_busy(standing, ending, now_us, policy)
    if ending.status == "failed":
        return _after_failure(standing, ending, now_us, policy)
    if ending.status in TERMINAL:
        return Verdict(state="over", outcome=ending.status, progress=ending.progress)
    if ending.stop in STOPPED:
        state, reason = STOPPED[ending.stop]
        wakes = ending.stop in WAKES
        return Verdict(
            state=state,
            due_us=ending.due_us if wakes else now_us,
            progress=ending.progress,
            reason=ending.about if wakes and ending.due_us else reason,
            wakes=wakes,
        )
    decide = _after_disk if ending.stop in LACKS else _after_death
    return decide(standing, ending, now_us, policy)


def _while_busy(standing: Standing, ending: Ending, now_us: int, policy: Policy) -> Verdict:
    """What it needs is in use: that is not the run's fault, and ends at some time."""
    return Verdict(
        state="queued",
        due_us=now_us + policy.wait_us(standing.waits),
        strikes=standing.strikes,
        failures=standing.failures,
        waits=standing.waits + 1,
        progress=standing.progress,
        reason=ending.busy,
    )


def _after_failure(standing: Standing, ending: Ending, now_us: int, policy: Policy) -> Verdict:
    job = standing.job
    if job.on_failure != "retry" or standing.failures >= job.retries:
        return Verdict(state="over", outcome="failed", failures=standing.failures, progress=ending.progress)
    return Verdict(
        state="queued",
        due_us=now_us + policy.wait_us(standing.failures),
        failures=standing.failures + 1,
        progress=ending.progress,
        reason=f"it failed; retry {standing.failures + 1} of {job.retries}",
    )


def _after_disk(standing: Standing, ending: Ending, now_us: int, policy: Policy) -> Verdict:
    """What the machine lacks, like room on a disk, may be there later; the waits grow, and the run gets no strike."""
    progressed = ending.progress > standing.progress
    waits = 0 if progressed else standing.waits
    return Verdict(
        state="queued",
        due_us=now_us + policy.wait_us(waits + 2),
        strikes=0 if progressed else standing.strikes,
        waits=waits + 1,
        progress=ending.progress,
        reason=LACKS[ending.stop],
    )


def _after_death(standing: Standing, ending: Ending, now_us: int, policy: Policy) -> Verdict:
    progressed = ending.progress > standing.progress
    if ending.rebooted:
        return Verdict(
            state="queued",
            due_us=now_us,
            strikes=standing.strikes,
            progress=ending.progress,
            reason="the machine was restarted",
        )
    strikes = 1 if progressed else standing.strikes + 1
    if strikes >= policy.strikes:
        reason = f"its process died {strikes} times in a row without progress; see hub.log in its directory"
        return Verdict(state="held", strikes=strikes, progress=ending.progress, reason=reason)
    return Verdict(
        state="queued",
        due_us=now_us + policy.wait_us(strikes - 1),
        strikes=strikes,
        progress=ending.progress,
        reason="its process died",
    )
