"""Hubs without processes: a run is a number of steps, and a step is done when the test says so."""

from __future__ import annotations

import msgspec

from bartack.depot import Job
from bartack.node import Ending
from bartack.node._hubs import Hub


class FakeHub:
    """A hub that ends when the test, or the node, ends it."""

    fd: int | None = None

    def __init__(self, world: FakeHubs, run: str) -> None:
        self._world = world
        self._run = run
        self.is_dead = False

    def is_gone(self) -> bool:
        self._world.fail(self._run, "is_gone")
        return self.is_dead

    def terminate(self) -> None:
        self._world.fail(self._run, "terminate")
        self._world.end(self._run, stop="terminated")

    def close(self) -> None:
        """The node looks at it no longer."""


class FakeHubs:
    """See ``Hubs``.

    Attributes:
        steps: How many steps of each run are done.
        executed: Every step that was executed, in order.
        most_at_once: The largest number of hubs of one run at a time.
        outcomes: How runs have ended outside of the node.
        raising: The methods that raise what no one expects, by run.
    """

    def __init__(self) -> None:
        self.alive: dict[str, FakeHub] = {}
        self.steps: dict[str, int] = {}
        self.executed: list[tuple[str, int]] = []
        self.started: list[str] = []
        self.asking: set[str] = set()
        self.problems: dict[str, str] = {}
        self.most_at_once = 0
        self.mail: dict[str, int] = {}
        self.outcomes: dict[str, str] = {}
        self.raising: dict[str, set[str]] = {}
        self._endings: dict[str, Ending] = {}

    def start(self, job: Job) -> Hub | Ending:
        self.fail(job.run, "start")
        if job.run in self.problems:
            return Ending(problem=self.problems[job.run])
        if job.run in self.alive:
            return Ending(elsewhere=True)
        self.started.append(job.run)
        self.alive[job.run] = FakeHub(self, job.run)
        self.most_at_once = max(self.most_at_once, len(self.alive))
        self._endings.pop(job.run, None)
        return self.alive[job.run]

    def find(self, job: Job) -> Hub | None:
        self.fail(job.run, "find")
        return self.alive.get(job.run)

    def is_asking(self, job: Job) -> bool:
        self.fail(job.run, "is_asking")
        return job.run in self.asking

    def ending(self, job: Job, *, rebooted: bool = False) -> Ending:
        self.fail(job.run, "ending")
        found = self._endings.get(job.run, Ending())
        return msgspec.structs.replace(found, progress=self.steps.get(job.run, 0), rebooted=rebooted)

    def outcome(self, job: Job, since_us: int) -> str:
        self.fail(job.run, "outcome")
        return self.outcomes.get(job.run, "")

    def has_mail(self, job: Job, since_us: int) -> bool:
        self.fail(job.run, "has_mail")
        return self.mail.get(job.run, -1) >= since_us

    def fail(self, run: str, method: str) -> None:
        """Raise if this method of a run is to."""
        if method in self.raising.get(run, ()):
            raise ValueError(f"{method} of {run}")

    def do_step(self, run: str) -> None:
        """A hub that is alive executes its next step, and records it."""
        assert run in self.alive
        self.executed.append((run, self.steps.get(run, 0)))
        self.steps[run] = self.steps.get(run, 0) + 1

    def kill(self, run: str, *, in_step: bool) -> list[tuple[str, int]]:
        """Kill a hub, perhaps when it has executed a step and not recorded it; that step."""
        done = [(run, self.steps.get(run, 0))] if in_step else []
        self.executed += done
        self.end(run)
        return done

    def end(self, run: str, status: str = "interrupted", stop: str = "", due_us: int = 0) -> None:
        """A hub ends: in order, or killed."""
        about = "timer of main" if due_us else ""
        self._endings[run] = Ending(status=status, stop=stop, due_us=due_us, about=about)
        self.alive.pop(run).is_dead = True
