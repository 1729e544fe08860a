"""The list of runs: one row for each run of all workspaces and databases, kept up to date while a page shows it.

Rows come from the summaries of runs (run.json); of a run whose hub was killed also the end of its journal is read. A summary that
has not changed is not decoded again; whether a hub runs a run is checked each time. All of it is done on the loop, with pauses:
while a journal is being read, a thread that makes many small calls waits for the loop after each of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast, get_args

import msgspec

from bartack.core import typed
from bartack.core.watch import Watch, open_watch
from bartack.errors import BartackError
from bartack.runtime.rundir.find import (
    ENDED,
    UNREADABLE,
    current_file,
    goal_of,
    list_runs,
    runs_dir,
)
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import RunFile
from bartack.web._threads import in_thread
from bartack.web.following._pauses import LOOKED, Pauses
from bartack.web.following._shown import ShownRun
from bartack.web.models._model import Problem
from bartack.web.models._run import ListedQuestion, OpenCount, QuestionType, RunRow, RunStatus, TaskCount

if TYPE_CHECKING:
    from bartack.depot.showing import ShownDatabase

LOOK_S: Final = 2.0
"""How often runs are looked at that are not watched."""
FRAME_S: Final = 0.1
"""Pages are notified at most this often."""
FRESH_S: Final = 0.1
"""A list that is not older than this is shown as it is."""
MANY: Final = 2000
"""More runs than this are listed in a thread."""
MOST_WATCHES: Final = 48
"""Watches of active runs; the system has few for all programs of a user."""

OVER: Final = ENDED - {"interrupted"}
"""Statuses of runs that do not wait for answers."""
_STAYS: Final = ENDED - {"interrupted"} | {UNREADABLE}
_STATUSES: Final = frozenset({*ENDED, "running", "waiting", UNREADABLE})


class ListedRun(NamedTuple):
    """A run in the list."""

    run: RunDir
    row: RunRow
    words: str
    """What it is found by: program, project, error, tasks, id; in lower case."""


class _Known(NamedTuple):
    signature: object
    listed: ListedRun


class RunList:
    """The runs of the workspaces of a site; open while the server runs.

    Args:
        workspaces: The workspaces; more may be added to it.
        databases: The databases, likewise.

    Attributes:
        problems: Workspaces and databases whose runs cannot be listed.
        version: A number that changes with the list.
    """

    def __init__(self, workspaces: list[Path], databases: list[ShownDatabase] | None = None) -> None:
        self._workspaces = workspaces
        self._databases: list[ShownDatabase] = [] if databases is None else databases
        self._runs: dict[Path, _Known] = {}
        self._numbers: dict[Path, int] = {}
        self.problems: tuple[Problem, ...] = ()
        self.version = 0
        self._scanned = float("-inf")
        self._scanning = asyncio.Lock()
        self._listeners: set[asyncio.Event] = set()
        self._woken = asyncio.Event()
        self._watching = _Watches(self._woken)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        task = tasks.create_task(self._follow())
        self._stack.callback(task.cancel)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    # Readers.

    async def rows(self) -> list[ListedRun]:
        """All runs, the newest first."""
        await self._refresh()
        return [known.listed for known in self._runs.values()]

    def now(self) -> list[ListedRun]:
        """All runs, as they were found last."""
        return [known.listed for known in self._runs.values()]

    @contextmanager
    def listen(self) -> Generator[asyncio.Event]:
        """An event that is set whenever the list changed, while a stream shows it."""
        event = asyncio.Event()
        self._listeners.add(event)
        self._woken.set()
        try:
            yield event
        finally:
            self._listeners.discard(event)

    def wake(self) -> None:
        """Look now, if a stream shows the list."""
        self._scanned = float("-inf")
        self._woken.set()

    # Inside.

    async def _follow(self) -> None:
        """Keep the list up to date as long as a stream shows it."""
        while True:
            if not self._listeners:
                self._watching.close()
                await self._woken.wait()  # bartack: allow[wait_without_deadline] until a page shows the list
            self._woken.clear()
            before = self.version
            await self._refresh()
            if self.version != before:
                for event in self._listeners:
                    event.set()
            self._watching.watch(self._places())
            await asyncio.sleep(FRAME_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S - FRAME_S):
                    await self._woken.wait()

    def _places(self) -> dict[Path, Callable[[], Watch]]:
        """How to watch what matters: where runs are kept, and the active runs."""
        places: dict[Path, Callable[[], Watch]] = {}
        for workspace in self._workspaces:
            with suppress(BartackError):
                place = runs_dir(workspace)
                places[place] = partial(open_watch, str(place))
        active = [
            known.listed.run
            for known in self._runs.values()
            if known.listed.row.pid and not isinstance(known.listed.run, ShownRun)
        ]
        places.update((run.path, run.watch) for run in active[:MOST_WATCHES])
        return places

    async def _refresh(self) -> None:
        async with self._scanning:
            loop = asyncio.get_running_loop()
            if loop.time() - self._scanned < FRESH_S:
                return
            runs, problems = await self._look()
            self._scanned = loop.time()
            if runs != self._runs or problems != self.problems:
                self._runs, self.problems = runs, problems
                self.version += 1

    async def _look(self) -> tuple[dict[Path, _Known], tuple[Problem, ...]]:
        """Look at all runs."""
        found: dict[Path, _Known] = {}
        problems: list[Problem] = []
        pauses = Pauses()
        for workspace in list(self._workspaces):
            try:
                runs = await self._list(workspace)
            except BartackError as error:
                problems.append(_problem_of(error))
                continue
            await self._add(found, runs, str(workspace), pauses)
        for database in list(self._databases):
            listed = await in_thread(database.runs)
            if database.problem is not None:
                problems.append(_problem_of(database.problem))
            shown = [ShownRun(facts.id, database) for facts in listed]
            await self._add(found, shown, database.name, pauses)
        if len(self._workspaces) + len(self._databases) > 1:
            # Each workspace knows the order of its own runs; between them only their ids can be compared.
            found = dict(sorted(found.items(), key=lambda item: item[0].name, reverse=True))
        return found, tuple(problems)

    async def _add(
        self, found: dict[Path, _Known], runs: Iterable[RunDir], place: str, pauses: Pauses
    ) -> None:
        for run in runs:
            number = self._numbers.setdefault(run.path, len(self._numbers) + 1)
            found[run.path] = _look_at(run, place, number, self._runs.get(run.path))
            await pauses.take(LOOKED)

    async def _list(self, workspace: Path) -> list[RunDir]:
        """The runs of a workspace; a thread lists very many."""
        if len(self._runs) < MANY:
            return list_runs(workspace)
        return await in_thread(lambda: list_runs(workspace))


class _Watches:
    """Watches. Each wakes once, and then not before it was looked at."""

    def __init__(self, woken: asyncio.Event) -> None:
        self._woken = woken
        self._open: dict[Path, Watch] = {}

    def watch(self, wanted: Mapping[Path, Callable[[], Watch]]) -> None:
        """Watch these places from now on, and no others."""
        for place in [place for place in self._open if place not in wanted]:
            self._close(place)
        for place, open_one in wanted.items():
            if place not in self._open:
                with suppress(OSError):
                    self._open[place] = open_one()
            self._arm(place)

    def close(self) -> None:
        """Watch nothing."""
        for place in list(self._open):
            self._close(place)

    def _arm(self, place: Path) -> None:
        watch = self._open.get(place)
        if watch is None:
            return
        try:
            if watch.wait(0):
                self._woken.set()
        except FileNotFoundError:
            self._close(place)
            return
        descriptor = watch.fileno()
        if descriptor is not None:
            asyncio.get_running_loop().add_reader(descriptor, self._readable, descriptor)

    def _readable(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        self._woken.set()

    def _close(self, place: Path) -> None:
        watch = self._open.pop(place)
        descriptor = watch.fileno()
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
        watch.close()


# Rows.


def _problem_of(error: BartackError) -> Problem:
    return Problem(code=error.code, message=error.message, help=error.remedy)


def _look_at(run: RunDir, workspace: str, number: int, before: _Known | None) -> _Known:
    queue = run.queue if isinstance(run, ShownRun) else None
    signature = (run.summary(), run.exists(), queue)
    if before is not None and before.signature == signature and _is_same(run, before.listed.row):
        return before
    file = _read(run)
    row = row_of(file, workspace, number, is_unreadable=file.status == UNREADABLE)
    if queue is not None:
        row = msgspec.structs.replace(row, queue=queue)
    if before is not None and before.listed.row == row:
        return before if before.signature == signature else before._replace(signature=signature)
    return _Known(signature, ListedRun(run, row, _words(row, file)))


def _is_same(run: RunDir, row: RunRow) -> bool:
    """Whether a row is right as long as the files of its run do not change: a hub starts and dies without changing them."""
    return row.status in _STAYS or run.is_active() == bool(row.pid)


def _read(run: RunDir) -> RunFile:
    try:
        run.check_readable()
        return current_file(run, quickly=True)
    except BartackError as problem:
        reason = problem.message
    except OSError as error:
        reason = f"{error.filename or run.path}: {error.strerror or error}"
    return RunFile(run.id, UNREADABLE, "", "", "", "", "", seq=0, hub=0, error=reason)


class _Task(msgspec.Struct):
    id: str = ""
    title: str = ""
    status: str = ""


class _Pipeline(msgspec.Struct):
    """The part of the pipeline's facts in run.json that is used here."""

    stage: str = ""
    tasks: list[_Task] = []


def row_of(file: RunFile, workspace: str, number: int = 0, *, is_unreadable: bool = False) -> RunRow:
    """A run in a list, from its run.json."""
    pipeline = _pipeline_of(file)
    budget = file.budget
    status = file.status if file.status in _STATUSES else "interrupted"
    tasks = None
    if pipeline is not None and pipeline.tasks:
        done = sum(task.status == "done" for task in pipeline.tasks)
        tasks = TaskCount(done=done, all=len(pipeline.tasks))
    return RunRow(
        row=number,
        run=file.run,
        ws=workspace,
        project=file.project,
        status=UNREADABLE if is_unreadable else cast("RunStatus", status),
        program=file.program,
        worker=file.worker,
        goal=goal_of(file.pipeline),
        created_at=moment_us(file.created_at),
        changed_at=moment_us(file.updated_at),
        ended_at=moment_us(file.ended_at),
        pid=file.pid,
        resumes=file.resumes,
        seq=file.seq,
        questions=[] if status in OVER else file.questions,
        asked=_asked_of(file),
        workers=file.workers,
        open=[
            OpenCount(kind=one.kind, count=one.count, since_at=moment_us(one.since), step=one.step)
            for one in file.open
        ],
        error=file.error,
        deadlock=bool(file.deadlock),
        rests_until_at=moment_us(file.rests_until),
        rests_for=file.rests_for,
        spent_usd=0.0 if budget is None else budget.spent_usd,
        reserved_usd=0.0 if budget is None else budget.reserved_usd,
        stage="" if pipeline is None else pipeline.stage,
        tasks=tasks,
    )


def _asked_of(file: RunFile) -> ListedQuestion | None:
    asked = file.asked
    if asked is None or not file.questions or file.status in OVER:
        return None
    kind = cast("QuestionType", asked.type) if asked.type in get_args(QuestionType) else None
    return ListedQuestion(id=asked.id, question=asked.question, type=kind, options=asked.options)


def _pipeline_of(file: RunFile) -> _Pipeline | None:
    if file.pipeline is None:
        return None
    try:
        return typed.convert(file.pipeline, type=_Pipeline)
    except msgspec.ValidationError:
        return None


def _words(row: RunRow, file: RunFile) -> str:
    pipeline = _pipeline_of(file) or _Pipeline()
    tasks = [word for task in pipeline.tasks for word in (task.id, task.title)]
    return "\n".join([row.run, row.program, row.worker, row.project, row.error, row.goal, *tasks]).casefold()


def moment_us(text: str) -> int:
    """A time of run.json in microseconds since 1970; 0 if there is none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e6) if text else 0
    except (ValueError, OverflowError):
        return 0


def count_statuses(runs: Iterable[ListedRun]) -> dict[str, int]:
    """How many runs there are, by status."""
    return dict(Counter(listed.row.status for listed in runs))
