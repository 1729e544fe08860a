"""Children that exist in a list only: drives a supervisor's core without any process, task or real time."""

from __future__ import annotations

from bartack.core.backoff import Backoff
from bartack.supervision.supervisor._child import (
    Answer,
    ChildDown,
    Crashed,
    KillChild,
    StartChild,
    StopChild,
    SupervisorEnded,
    SupervisorStarted,
)
from bartack.supervision.supervisor._core import SupervisorCore
from bartack.supervision.supervisor._report import ChildEnd, CrashReport
from bartack.supervision.supervisor.spec import ChildSpec, Restart, Strategy, SupervisorSpec
from bartack.telemetry import NO_TELEMETRY, Telemetry
from bartack.testing import VirtualClock

AT_ONCE = Backoff(base_s=0.0, cap_s=0.0)

NORMAL = ChildEnd(reason="normal", normal=True)
ERROR = ChildEnd(reason="error", exception="ValueError: on purpose")
KILLED = ChildEnd(reason="signal:SIGKILL")
ASKED = ChildEnd(reason="shutdown", normal=True)


async def nothing() -> None:
    """Never runs: the core only looks at the specification."""


def child(
    name: str, restart: Restart = "permanent", *, backoff: Backoff = AT_ONCE, **options: object
) -> ChildSpec:
    chosen = None if restart == "temporary" else backoff
    return ChildSpec(name, nothing, restart=restart, backoff=chosen, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - each test gives options that fit


class Playground:
    """Does what a core says, at once or on request.

    Args:
        children: What is supervised.
        slow: Those that get ready only by ``ready``.
        stubborn: Those that end only when killed.
        deaf: Those that end only by ``end``.
    """

    def __init__(
        self,
        *children: ChildSpec,
        strategy: Strategy = "one_for_one",
        max_restarts: int = 3,
        max_seconds: float = 5.0,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        spec = SupervisorSpec(
            children=children, strategy=strategy, max_restarts=max_restarts, max_seconds=max_seconds
        )
        self.clock = VirtualClock()
        self.core = SupervisorCore(spec, "top", self.clock, telemetry)
        self.slow: set[str] = set()
        self.stubborn: set[str] = set()
        self.deaf: set[str] = set()
        self.log: list[str] = []
        self.alive: dict[str, int] = {}
        self.reports: list[CrashReport] = []
        self.downs: list[tuple[str, str]] = []
        self.answers: list[Answer] = []
        self.started = False
        self.ended: SupervisorEnded | None = None

    def start(self) -> None:
        self.core.start()
        self.do()

    def stop(self, *, kill: bool = False) -> None:
        self.core.stop(kill=kill)
        self.do()

    def die(self, name: str, end: ChildEnd = ERROR) -> None:
        """A child ends by itself."""
        self.core.ended(name, self.alive.pop(name), end)
        self.do()

    def ready(self, name: str) -> None:
        self.core.ready(name, self.alive[name])
        self.do()

    def advance(self, seconds: float) -> None:
        """Time passes; the core is notified whenever it has something to do."""
        until = self.clock.monotonic_ns() + round(seconds * 1e9)
        while (due := self.core.next_due_ns()) is not None and due <= until:
            assert due > self.clock.monotonic_ns() or self.clock.monotonic_ns() == 0, "the core would spin"
            self.clock.advance((due - self.clock.monotonic_ns()) / 1e9)
            self.core.tick()
            self.do()
        self.clock.advance((until - self.clock.monotonic_ns()) / 1e9)

    def ask(self, order: str, what: str | ChildSpec) -> Answer | None:
        """Send a request; the answer if there was one at once."""
        before = len(self.answers)
        getattr(self.core, f"{order}_child")(what, before)
        self.do()
        return self.answers[-1] if len(self.answers) > before else None

    def states(self) -> dict[str, str]:
        return {info.name: info.state for info in self.core.children()}

    def take_log(self) -> list[str]:
        taken, self.log = self.log, []
        return taken

    def do(self) -> None:
        while commands := self.core.take_commands():
            for command in commands:
                self._do(command)

    def _do(self, command: object) -> None:
        match command:
            case StartChild(spec, incarnation):
                assert spec.name not in self.alive, "two incarnations at once"
                self.log.append(f"+{spec.name}")
                self.alive[spec.name] = incarnation
                if spec.name not in self.slow:
                    self.core.ready(spec.name, incarnation)
            case StopChild(name, incarnation, _):
                self.log.append(f"-{name}")
                if name not in self.stubborn | self.deaf:
                    self._end(name, incarnation)
            case KillChild(name, incarnation):
                self.log.append(f"!{name}")
                if name not in self.deaf:
                    self._end(name, incarnation)
            case Crashed(report):
                self.reports.append(report)
            case ChildDown(name, _, reason):
                self.downs.append((name, reason))
            case Answer():
                self.answers.append(command)
            case SupervisorStarted():
                self.started = True
            case SupervisorEnded():
                self.ended = command
            case _:
                raise AssertionError(command)

    def _end(self, name: str, incarnation: int) -> None:
        assert self.alive.pop(name) == incarnation
        self.core.ended(name, incarnation, ASKED)
