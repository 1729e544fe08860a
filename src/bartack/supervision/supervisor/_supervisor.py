"""A supervisor at work: the decisions of ``_core.py`` carried out with tasks and processes, on the running asyncio loop.

``SupervisorRunner`` is one supervisor of a tree, ``Supervisor`` the root that a program enters and leaves. Everything happens in
the thread of the loop; nothing here waits but the methods of ``Supervisor``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple, Self

from bartack.core.clock import Clock, SystemClock
from bartack.errors import BartackError, SupervisorNotRunningError
from bartack.supervision.supervisor._child import (
    Answer,
    ChildDown,
    ChildInfo,
    Command,
    Crashed,
    KillChild,
    StartChild,
    StopChild,
    SupervisorEnded,
    SupervisorStarted,
)
from bartack.supervision.supervisor._core import SupervisorCore
from bartack.supervision.supervisor._process_host import ProcessHost
from bartack.supervision.supervisor._report import ChildEnd, CrashReport
from bartack.supervision.supervisor._runners import ProcessRunner, Runner, TaskRunner, log
from bartack.supervision.supervisor._watching import ChildTarget, MonitorManager
from bartack.supervision.supervisor.spec import ChildSpec, SupervisorSpec
from bartack.telemetry import NO_TELEMETRY, Telemetry

REPORTS_KEPT: Final = 100

OnCrash = Callable[[CrashReport], None]


class SharedServices(NamedTuple):
    """What all supervisors of a tree share."""

    clock: Clock
    telemetry: Telemetry
    host: ProcessHost
    monitors: MonitorManager
    crashed: OnCrash


class _ChildListener:
    """Takes the reports about one incarnation of a child to the core, under its name."""

    def __init__(self, runner: SupervisorRunner, name: str, incarnation: int) -> None:
        self._runner = runner
        self._name = name
        self._incarnation = incarnation

    def ready(self, pid: int | None) -> None:
        self._runner.core.ready(self._name, self._incarnation, pid)
        self._runner.pump()

    def ended(self, end: ChildEnd) -> None:
        self._runner.core.ended(self._name, self._incarnation, end)
        self._runner.pump()


class SupervisorRunner:
    """One supervisor with its children; to the supervisor above it, a child."""

    def __init__(
        self,
        spec: SupervisorSpec,
        path: str,
        shared: SharedServices,
        started: Callable[[], None],
        ended: Callable[[SupervisorEnded], None],
    ) -> None:
        self.core = SupervisorCore(spec, path, shared.clock, shared.telemetry)
        self.children: dict[str, Runner] = {}
        self._shared = shared
        self._started = started
        self._ended = ended
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pumping = False

    def start(self) -> None:
        """See ``Runner.start``."""
        self.core.start()
        self.pump()

    def stop(self, grace_s: float = 0.0) -> None:
        """See ``Runner.stop``; each child has its own time."""
        del grace_s
        self.core.stop()
        self.pump()

    def kill(self) -> None:
        """See ``Runner.kill``."""
        self.core.stop(kill=True)
        self.pump()

    def request(self, order: Callable[[int], None]) -> asyncio.Future[None]:
        """Hand an order to the core; its answer comes by the future."""
        self._requests += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers[self._requests] = future
        order(self._requests)
        self.pump()
        return future

    def pump(self) -> None:
        """Do what the core says, also what follows from that, and wake up when it has more to say."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while commands := self.core.take_commands():
                for command in commands:
                    self._do(command)
        finally:
            self._pumping = False
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.core.next_due_ns()
        if due is not None:
            delay_s = max(0.0, (due - self._shared.clock.monotonic_ns()) / 1e9)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.core.tick()
        self.pump()

    def _do(self, command: Command) -> None:
        match command:
            case StartChild(spec, incarnation):
                self.children[spec.name] = runner = self._runner(spec, incarnation)
                runner.start()
            case StopChild(name, _, grace_s):
                self.children[name].stop(grace_s)
            case KillChild(name, _):
                self.children[name].kill()
            case ChildDown(name, incarnation, reason):
                self._shared.monitors.target_down(f"{self.core.path}/{name}", incarnation, reason)
            case Crashed(report):
                self._shared.crashed(report)
            case Answer(request, error):
                self._settle(self._answers.pop(request), error)
            case SupervisorStarted():
                self._started()
            case SupervisorEnded():
                self._ended(command)

    def _settle(self, future: asyncio.Future[None], error: BartackError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def _runner(self, spec: ChildSpec, incarnation: int) -> Runner:
        shared, path = self._shared, f"{self.core.path}/{spec.name}"
        listener = _ChildListener(self, spec.name, incarnation)
        if isinstance(spec.start, SupervisorSpec):
            return SupervisorRunner(
                spec.start,
                path,
                shared,
                lambda: listener.ready(None),
                lambda end: listener.ended(_end_of(end)),
            )
        if spec.is_process:
            return ProcessRunner(spec, path, incarnation, listener, shared.host, shared.telemetry)
        return TaskRunner(spec, path, listener)


def _end_of(ended: SupervisorEnded) -> ChildEnd:
    """The end of a supervisor, as the one above sees it."""
    text = "" if ended.error is None else str(ended.error)
    return ChildEnd(reason=ended.reason, normal=ended.error is None, exception=text)


class ChildCounts(NamedTuple):
    """How many children there are, and of which kinds."""

    specs: int
    active: int
    tasks: int
    processes: int
    supervisors: int


class Supervisor:
    """Starts children in order, keeps them alive as their specifications say, and stops them in reverse.

    ::

        async with Supervisor(SupervisorSpec(children=(ChildSpec("web", serve), ChildSpec("db", ["postgres"])))) as top:
            await top.wait()

    The block begins when all children are ready. When it is left, whichever way, all are stopped, and nothing of them is left. A
    supervisor that has restarted too often stops all children, cancels the block, and leaves it with
    ``SupervisorExhaustedError``.

    Args:
        spec: What to supervise, and how.
        name: What reports and events call it.
        on_crash: Called with the report of each abnormal end. What it raises is logged.
        telemetry: Receives starts, ends, restarts, escalations and monitors.
    """

    def __init__(
        self,
        spec: SupervisorSpec,
        *,
        name: str = "supervisor",
        on_crash: OnCrash | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self.spec = spec
        self.name = name
        self.reports: deque[CrashReport] = deque(maxlen=REPORTS_KEPT)
        """The latest crash reports, oldest first."""
        self._on_crash = on_crash
        self._telemetry = telemetry
        self._clock = SystemClock()
        self.monitors = MonitorManager(name, self._clock, telemetry)
        """Who watches which child."""
        self._host: ProcessHost | None = None
        self._runner: SupervisorRunner | None = None
        self._body: asyncio.Task[object] | None = None
        self._cut_short = False
        self._starting: asyncio.Future[None] | None = None
        self._ending: asyncio.Future[SupervisorEnded] | None = None

    async def __aenter__(self) -> Self:
        """Start all children, and wait until they are ready.

        Raises:
            ChildStartError: One of them did not get ready; those before it were stopped again.
        """
        if self._runner is not None:
            raise SupervisorNotRunningError(f"{self.name} was used before and")
        loop = asyncio.get_running_loop()
        self._starting, self._ending = loop.create_future(), loop.create_future()
        self._host = ProcessHost(self._clock)
        shared = SharedServices(self._clock, self._telemetry, self._host, self.monitors, self._note_crash)
        self._runner = SupervisorRunner(self.spec, self.name, shared, self._note_started, self._note_ended)
        try:
            self._runner.start()
            await self._starting
        except BaseException:
            await self._shut(self._runner, self._host, self._ending)
            raise
        self._body = asyncio.current_task()
        if self._ending.done():
            self._cut()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all children in reverse.

        Raises:
            SupervisorExhaustedError: It had restarted its children too often.
        """
        body, self._body = self._body, None
        assert self._runner is not None
        assert self._host is not None
        assert self._ending is not None
        cancelled = await self._shut(self._runner, self._host, self._ending)
        if self._cut_short and body is not None:
            cancelled = body.uncancel() > 0
        failure = self._ending.result().error
        if cancelled:
            raise asyncio.CancelledError
        if failure is not None and error is not None and not isinstance(error, asyncio.CancelledError):
            error.add_note(str(failure))
        elif failure is not None:
            raise failure

    async def wait(self) -> None:
        """Wait until the supervisor has ended: by itself, which cancels this wait, or because it was stopped."""
        if self._ending is None:
            raise SupervisorNotRunningError(self.name)
        await asyncio.wait([self._ending])

    async def start_child(self, spec: ChildSpec) -> None:
        """Add a child after the others, and wait until it is ready.

        Raises:
            ChildStartError: It did not become ready, and was not added.
            ChildSpecError: There is a child of that name, or the child does not fit this supervisor.
        """
        await self._ask(lambda core, request: core.start_child(spec, request))

    async def terminate_child(self, name: str) -> None:
        """Stop a child and wait for its end. It is not started again by itself, only by ``restart_child`` or with its siblings."""
        await self._ask(lambda core, request: core.terminate_child(name, request))

    async def restart_child(self, name: str) -> None:
        """Start a child that does not run, and wait until it is ready.

        Raises:
            ChildStateError: It runs.
        """
        await self._ask(lambda core, request: core.restart_child(name, request))

    async def delete_child(self, name: str) -> None:
        """Forget a child that does not run.

        Raises:
            ChildStateError: It runs.
        """
        await self._ask(lambda core, request: core.delete_child(name, request))

    def which_children(self) -> list[ChildInfo]:
        """Every child as it is now, in the order of their start."""
        return self._need_runner().core.children()

    def count_children(self) -> ChildCounts:
        """How many children there are."""
        children = self.which_children()
        kinds = [child.kind for child in children]
        return ChildCounts(
            specs=len(children),
            active=sum(child.state in {"starting", "running", "stopping"} for child in children),
            tasks=kinds.count("task"),
            processes=kinds.count("process"),
            supervisors=kinds.count("supervisor"),
        )

    def child(self, *names: str) -> ChildTarget:
        """A child to be watched by ``monitor``; the names of supervisors between come first."""
        path = "/".join((self.name, *names))
        return ChildTarget(self.monitors, path, lambda: self._find(names))

    def _find(self, names: tuple[str, ...]) -> ChildInfo | None:
        runner: Runner | None = self._need_runner()
        found: ChildInfo | None = None
        for name in names:
            if not isinstance(runner, SupervisorRunner):
                return None
            found = next((info for info in runner.core.children() if info.name == name), None)
            runner = runner.children.get(name)
        return found

    def _need_runner(self) -> SupervisorRunner:
        if self._runner is None:
            raise SupervisorNotRunningError(self.name)
        return self._runner

    async def _ask(self, order: Callable[[SupervisorCore, int], None]) -> None:
        runner = self._need_runner()
        await runner.request(lambda request: order(runner.core, request))

    def _note_started(self) -> None:
        if self._starting is not None and not self._starting.done():
            self._starting.set_result(None)

    def _note_ended(self, ended: SupervisorEnded) -> None:
        if self._starting is not None and not self._starting.done() and ended.error is not None:
            self._starting.set_exception(ended.error)
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(ended)
        if ended.error is not None and self._body is not None:
            self._cut()

    def _cut(self) -> None:
        """There is nothing left to do for the block."""
        if self._body is not None and not self._cut_short:
            self._cut_short = True
            self._body.cancel()

    def _note_crash(self, report: CrashReport) -> None:
        self.reports.append(report)
        log.warning(
            "%s ended (%s%s), %s",
            report.path,
            report.reason,
            f": {report.exception}" if report.exception else "",
            {"restart": "it will be restarted", "escalate": "its supervisor fails", "none": "it stays so"}[
                report.decision
            ],
        )
        if self._on_crash is not None:
            try:
                self._on_crash(report)
            except Exception:  # noqa: BLE001 - an error in the listener of crashes must not end other children
                log.exception("%s: on_crash raised", self.name)

    async def _shut(
        self, runner: SupervisorRunner, host: ProcessHost, ending: asyncio.Future[SupervisorEnded]
    ) -> bool:
        """Stop everything; return whether that was cancelled. The canceller has to wait until all children are killed."""
        cancelled = False
        runner.stop()
        closing: asyncio.Future[None] | None = None
        while closing is None or not closing.done():
            if closing is None and ending.done():
                closing = asyncio.get_running_loop().create_task(host.close())
            try:
                await asyncio.wait([ending if closing is None else closing])
            except asyncio.CancelledError:  # bartack: allow[swallowed_cancel] raised again at the end
                cancelled = True
                runner.kill()
        closing.result()
        self.monitors.close()
        return cancelled
