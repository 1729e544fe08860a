"""``bartack watch`` and ``bartack attach``: the view of a run that another process runs, or that none runs.

The views are those of ``bartack run``. Here a follower of the journal (``runtime/rundir/follower.py``) feeds them, not a hub.
Leaving the view leaves the run alone.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import click
import msgspec

from bartack.cli.app._database import shows_database, wait_of
from bartack.cli.app._exit import Exit
from bartack.cli.app._lossy import lossy_stderr
from bartack.cli.app._options import json_option, with_on
from bartack.cli.app._runs import latest_argument, load_value, locate, open_questions, workspace_option
from bartack.cli.app._terminal import human_time, printable, write_note
from bartack.cli.live._answer import give_answer
from bartack.cli.live._choose import ViewName, choose_view, open_view, view_option
from bartack.cli.live._end import put_result, write_end
from bartack.cli.live._views import View
from bartack.config.load import Config, kept_sets, load_config
from bartack.core import typed
from bartack.core.closing import Closing
from bartack.depot import user_depot
from bartack.errors import BartackError, DepotUnavailableError, NoNodeError, RunHeldError, RunNotFoundError
from bartack.journal import Entry
from bartack.runtime.client.connection import HubClient
from bartack.runtime.hub.launch import EXIT_CODES
from bartack.runtime.protocol.asked import ReadQuestion
from bartack.runtime.rundir.asked import load_question
from bartack.runtime.rundir.find import status_of, summarise
from bartack.runtime.rundir.follower import RunFollower
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.entries import HubStarted, OutputWritten, RunEnded, decode_entry
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Recorded, Value

REDRAW_S: Final = 0.5
"""How often the view is drawn when nothing changes: it shows how long steps take."""
AWAY_S: Final = 0.5
"""How long to wait for a database that does not answer before the next attempt."""
WAIT_S: Final = 5.0
"""How often to look what keeps a run of a database waiting."""
PAUSE_S: Final = 0.1
"""After something was read, the journal is left alone for this long: a busy run would wake this process all the time."""
LOOK_S: Final = 1.0
"""How often run.json is read, which has what the journal does not have."""


@click.command(short_help="Show a run live, from any terminal.")
@latest_argument
@shows_database
@view_option
@workspace_option
@json_option
def watch(run: str, view: str | None, workspace: str, *, as_json: bool) -> Exit:
    """Show RUN live in this terminal, whichever process runs it, and answer its questions here.

    Without RUN the command shows the latest run. Ctrl-C, or d and Enter, leaves the view; the run continues. While a question is
    open, that is :detach and Enter. What was printed before is shown by 'bartack log RUN'. When the run ends, the command reports
    how, and ends with its exit code.

    The questions of a run that no process runs can be answered, too: the answers are stored, and used when it is resumed.
    """
    return _watch(run, view, workspace, "watch", as_json=as_json)


@click.command(short_help="Show a run of the node live; like watch.")
@latest_argument
@shows_database
@view_option
@workspace_option
@json_option
def attach(run: str, view: str | None, workspace: str, *, as_json: bool) -> Exit:
    """Show RUN live in this terminal, whichever process runs it, and answer its questions here: the same as 'bartack watch'.

    Ctrl-C, or d and Enter, leaves the view; the run continues. While a question is open, that is :detach and Enter.
    """
    return _watch(run, view, workspace, "attach", as_json=as_json)


def _watch(name: str, view: str | None, workspace: str, command: str, *, as_json: bool) -> Exit:
    return watch_run(
        locate(name, workspace), choose_view(view, f"bartack {command}", as_json=as_json), command
    )


def watch_run(run: RunDir, chosen: ViewName, command: str) -> Exit:
    """Show a run that another process runs, until it has ended or a person leaves the view."""
    with ExitStack() as stack:
        followed = stack.enter_context(FollowedRun(run))
        with suppress(BartackError):  # the view needs no hub; a hub that has a visitor does not stop to rest
            stack.enter_context(HubClient(run))
        followed.read_history()
        began = {"watch": "watched", "attach": "attached"}[command]
        config = _settings(run, followed.state)
        shown = open_view(chosen, run, config, began, patient=True, leaves="leave the view")
        with lossy_stderr():
            try:
                shown.opened(followed)
                followed.show(shown)
            except KeyboardInterrupt:
                shown.detached = True
            finally:
                shown.close()
            if shown.detached:
                write_note(f"{run.id} continues; '{with_on(f'bartack {command} {run.id}')}' returns to it")
                return Exit.OK
        is_answered = bool(followed.state.questions) and shown.has_answered
        if is_answered:
            _note_stored(run)
            return Exit.WAITING
        _raise_if_held(run, followed.state)
        return _finish(run, followed.state, config, as_json=chosen == "json")


def _raise_if_held(run: RunDir, state: State) -> None:
    """Raise if the nodes of a database do not continue a run that has not ended.

    Raises:
        RunHeldError: They do not.
    """
    wait = None if state.ended is not None else wait_of(run)
    if wait is not None and isinstance(wait.problem, RunHeldError):
        raise wait.problem


def _note_stored(run: RunDir) -> None:
    """Report that an answer is stored and what continues the run."""
    write_note(f"{run.id} is not active; its answer is stored")
    standing = user_depot().find(run.id)
    if standing is not None and standing.state == "held":
        write_note(f"  the node does not resume it: {printable(standing.reason)}")
        write_note(f"  try again with: bartack queue add {run.id}")
    else:
        write_note(f"  resume it with: {with_on(f'bartack resume {run.id}')}")


def _settings(run: RunDir, state: State) -> Config:
    """The settings of a run's workspace, as far as they can be read: a run can be watched whatever is wrong with them."""
    try:
        return load_config(Path(run.workspace(state, None)), kept_sets(run.path))
    except BartackError:
        return Config()


def _finish(run: RunDir, state: State, config: Config, *, as_json: bool) -> Exit:
    """Report how the run has ended, and how long it was active."""
    status = status_of(run, state, active=False)
    if status == "interrupted" and state.stopped in EXIT_CODES:
        status = state.stopped  # type: ignore[assignment]  # - the reasons of a stop have exit codes of their own
    code = Exit(EXIT_CODES[status])
    if as_json:
        put_result(run, state, status, code)
    else:
        took_s = (state.last_at - state.created_at - state.dead_us) / 1e6
        write_end(run, state, took_s, status, config.transcript.color)
    return code


class FollowedRun(Closing):
    """A run whose journal is read as it grows; stands in for its hub, see ``Host``."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._follower = RunFollower(run, each=self._take, anew=self._begin)
        self._watched: dict[int, Callable[[], None]] = {}
        self._view: View | None = None
        self._recorded: list[Recorded] = []
        self._deadlock: tuple[float, Sequence[str]] = (0.0, ())
        self._looks_at, self._noted = 0.0, ""
        self._asked = set[str]()
        self._earlier_end: RunEnded | None = None
        """How a run that is resumed had failed before: that is not its end any more."""
        self._begin()

    def _begin(self) -> None:
        """The first entry is next. What is recorded so far is not news."""
        self._known = False
        self._recorded.clear()

    @property
    def state(self) -> State:
        """See ``Host.state``."""
        return self._follower.spans.state

    @property
    def deadlock(self) -> Sequence[str]:
        """See ``Host.deadlock``."""
        looked, found = self._deadlock
        now = time.monotonic()
        if now - looked >= LOOK_S:
            found = summarise(self._run, self.state).deadlock
            self._deadlock = now, found
        return found

    @property
    def needs_a_person(self) -> bool:
        """See ``Host.needs_a_person``: the process that runs it decides what follows from that."""
        return False

    def bodies(self, path: str) -> Sequence[str]:
        """See ``Host.bodies``: a body is known when the journal has it."""
        return ()

    def question(self, number: str) -> ReadQuestion:
        """See ``Host.question``."""
        return load_question(self._run, self.state.questions[number])

    def answer(self, number: str, value: object, by: str) -> None:
        """See ``Host.answer``."""
        _, queued = give_answer(self._run, number, msgspec.json.encode(value), by)
        if queued and self._view is not None:
            self._view.show("note", "", "the node resumes it")

    def watch(self, descriptor: int, ready: Callable[[], None]) -> None:
        """See ``Host.watch``."""
        self._watched[descriptor] = ready

    def unwatch(self, descriptor: int) -> None:
        """See ``Host.unwatch``."""
        self._watched.pop(descriptor, None)

    def interrupt(self, status: str = "interrupted") -> None:
        """See ``Host.interrupt``: a view of another process's run stops nothing."""

    def take_turn_after(self, seconds: float) -> None:
        """See ``Host.take_turn_after``: the view has its turn all the time."""

    def read_history(self) -> None:
        """Take what is recorded so far.

        Raises:
            RunNotFoundError: The journal does not contain a run.
            JournalError: The journal cannot be read.
        """
        self._read()
        if self.state.run is None:
            raise RunNotFoundError(self._run.id)
        if self.state.ended is not None and self._is_cared_for():
            self._earlier_end = self.state.ended

    def show(self, view: View) -> None:
        """Show what is recorded from now on, until the run has ended, nothing runs it, or a person leaves the view."""
        self._view = view
        noted = ""
        while True:
            try:
                self._show_all(view)
            except DepotUnavailableError as error:
                # The run stands still, or another node continues it: it is shown again when the database answers.
                if str(error) != noted:
                    noted = str(error)
                    write_note(printable(noted))
                select.select([], [], [], AWAY_S)
            else:
                return

    def _show_all(self, view: View) -> None:
        while True:
            # The order matters: what a process wrote before it ended is read after it is known to be gone.
            has_left = not self._is_cared_for()
            before = self._follower.spans.last_seq
            self._read()
            view.state = self.state
            view.entries(self._recorded)
            self._recorded.clear()
            self._note_questions(view)
            view.turn(self.state)
            if self._has_ended() or view.detached or (has_left and not self._is_answered_here(view)):
                return
            self._note_wait()
            self._wait(changed=self._follower.spans.last_seq != before)

    def _note_questions(self, view: View) -> None:
        """Show each open question once, as the hub of a run does, and how it is answered."""
        for number in [number for number in self.state.questions if number not in self._asked]:
            self._asked.add(number)
            (asked,) = (one for one in open_questions(self._run, self.state) if one.id == number)
            view.show("note", asked.asker, f"question {number}: {asked.question or asked.use}")
            answer = with_on(f"bartack answer {self._run.id} {number} {asked.hint}")
            view.show("note", "", f"question {number}: {answer}")

    def _note_wait(self) -> None:
        """Report once what keeps a run of a database waiting, if a person has to do something about it."""
        now = time.monotonic()
        if now < self._looks_at or self._run.is_active():
            return
        self._looks_at = now + WAIT_S
        wait = wait_of(self._run)
        problem = None if wait is None else wait.problem
        if isinstance(problem, NoNodeError) and str(problem) != self._noted:
            self._noted = str(problem)
            write_note(printable(f"{problem} [{problem.code}]"))
            write_note(f"  {printable(problem.remedy)}")

    def close(self) -> None:
        """Read no longer."""
        self._follower.close()

    def _read(self) -> None:
        self._follower.read_all()
        self._follower.check()
        self._known = True

    def _take(self, entry: Entry) -> None:
        if not self._known or self._view is None:
            return
        data = decode_entry(entry.kind, entry.raw)
        if data is None:
            return
        value = Value() if entry.value is None and entry.ref is None else Value(entry.value, entry.ref)
        if isinstance(data, OutputWritten) and not self._view.listens:
            text = typed.decode(load_value(self._run, value), type=str)
            self._view.show(data.channel, data.p, text)
        if isinstance(data, HubStarted) and data.hub > 1:
            self._view.show("note", "", self._continued(data))
        self._recorded.append(Recorded(entry.seq, entry.at, data, value))

    def _continued(self, started: HubStarted) -> str:
        """The line that reports that another process continues the run."""
        name = self._run.node_name()
        where = f" on node {printable(name)}" if name else ""
        return f"{self._run.id} continues{where} after {human_time(started.dead_us / 1e6)}"

    def _has_ended(self) -> bool:
        return self.state.ended is not None and self.state.ended is not self._earlier_end

    def _is_cared_for(self) -> bool:
        """Whether a process runs it, or the node is going to."""
        if self._run.is_active() or self._run.is_awaited():
            return True
        standing = user_depot().find(self._run.id)
        return standing is not None and standing.state in {"queued", "owned"}

    def _is_answered_here(self, view: View) -> bool:
        """Whether the run has questions that a person can still answer in this view."""
        return bool(self.state.questions) and view.asks and not view.has_answered

    def _wait(self, *, changed: bool) -> None:
        """Wait for news: of the journal, unless it was just read, and of the terminal."""
        fd = None if changed else self._follower.fileno()
        if fd is None and not changed:
            self._follower.wait(PAUSE_S)
            ready = select.select(list(self._watched), [], [], 0)[0]
        else:
            journal = [] if fd is None else [fd]
            timeout_s = PAUSE_S if changed else REDRAW_S
            ready = select.select([*journal, *self._watched], [], [], timeout_s)[0]
            self._follower.wait(0)
        for one in ready:
            if one in self._watched:
                self._watched[one]()
