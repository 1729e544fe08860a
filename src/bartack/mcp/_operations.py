"""What each tool of ``bartack mcp`` does: it finds the run and calls the module that owns the subject."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import typed
from bartack.errors import RunNotFoundError
from bartack.mcp._answers import pass_answer
from bartack.mcp._entries import Entries, check_arguments, find_entry
from bartack.mcp._errors import ToolError
from bartack.mcp._follow import Cursor, Follow
from bartack.mcp._messages import Inbox, send_message
from bartack.mcp._report import LARGEST, describe, describe_more, describe_summary, fit
from bartack.mcp._reported import mark_reported
from bartack.mcp._start import Starts, session_name
from bartack.mcp._stdio import OpenCall
from bartack.mcp._tools import RECEIVE_S, WAIT_S
from bartack.runtime.client.manage import cancel_run
from bartack.runtime.rundir.find import find_run, list_runs, read_state, status_of, summarise
from bartack.runtime.rundir.layout import RunDir

_NAME: Final = re.compile(r"[A-Za-z0-9-]{8,64}")
CANDIDATES: Final = 5
LISTED: Final = 20

Result = dict[str, object]


class Arguments(msgspec.Struct, kw_only=True, frozen=True):
    """The arguments of all tools. They were checked against the schemas of ``_tools.py``."""

    run: str = ""
    entry: str = ""
    args: dict[str, object] = {}
    new: bool = False
    agent: str = ""
    budget_usd: float | None = None
    cursor: int | str = 0
    timeout_s: float | None = None
    limit: int = LISTED
    status: str = ""
    question: str = ""
    answer: object = None
    mailbox: str = ""
    message: object = None
    key: str = ""
    ack: str = ""
    reason: str = ""


class Operations:
    """The tools of one client.

    Args:
        project: Finds the directory of the project.
        entries: What can be started.
    """

    def __init__(self, project: Callable[[], str], entries: Entries) -> None:
        self._project = Path(project())
        self._entries = entries
        self._starts = Starts(os.environ)
        self._inboxes: dict[tuple[str, str], Inbox] = {}
        self._ends: dict[str, int] = {}
        """Where in the journal the end of a run is that is being reported."""
        self._lock = threading.Lock()
        self._tools: dict[str, Callable[[Arguments, OpenCall], Result]] = {
            "start_run": self._start,
            "wait_run": self._wait,
            "run_status": self._status,
            "list_runs": self._list,
            "answer_question": self._answer,
            "send_message": self._send,
            "receive_message": self._receive,
            "cancel_run": self._cancel,
        }

    def call(self, name: str, arguments: dict[str, object], call: OpenCall) -> Result:
        """Execute a tool.

        Raises:
            ToolError: It cannot be done.
            BartackError: Likewise.
        """
        return self._tools[name](typed.convert(arguments, Arguments), call)

    def answered(self, name: str, result: Result) -> None:
        """The client was sent a result."""
        if name == "wait_run" and result["done"]:
            run = str(result["run"])
            mark_reported(self._find(run), self._ends.get(run, 0))
        elif name == "receive_message" and "message_id" in result:
            for inbox in list(self._inboxes.values()):
                inbox.seen(result["message_id"])

    # The tools.

    def _start(self, given: Arguments, call: OpenCall) -> Result:
        entry, args = find_entry(self._entries, given.entry), given.args
        check_arguments(entry, args)
        result = self._starts.start(
            {
                "project": str(self._project),
                "program": entry.program,
                "member": entry.member,
                "args": args,
                "key": self._starts.key(entry, args),
                "new": given.new,
                "agent": given.agent,
                "budget_usd": given.budget_usd,
            }
        )
        return {**result, "cursor": Cursor().number}

    def _wait(self, given: Arguments, call: OpenCall) -> Result:
        with self._follow(given) as follow:
            follow.wait(
                WAIT_S if given.timeout_s is None else given.timeout_s, lambda: call.withdrawn, call.progress
            )
            if follow.result is not None:
                self._ends[follow.run.id] = follow.result.seq
            return describe(follow)

    def _status(self, given: Arguments, call: OpenCall) -> Result:
        with self._follow(given) as follow:
            follow.read()
            return describe_more(follow)

    def _list(self, given: Arguments, call: OpenCall) -> Result:
        wanted, cursor = given.status, given.cursor or ""
        rows: list[Result] = []
        size = 0
        for run in _after(list_runs(self._project), str(cursor)):
            row = describe_summary(summarise(run))
            if wanted not in ("", row["status"]):
                continue
            size += len(str(row)) + 50
            if size > LARGEST and rows:
                return {"runs": rows, "truncated": True, "cursor": rows[-1]["run"]}
            rows.append(row)
            if len(rows) >= given.limit:
                break
        return fit({"runs": rows})

    def _answer(self, given: Arguments, call: OpenCall) -> Result:
        return pass_answer(self._find(given.run), given.question, given.answer, session_name())

    def _send(self, given: Arguments, call: OpenCall) -> Result:
        return send_message(self._find(given.run), given.mailbox, given.message, given.key)

    def _receive(self, given: Arguments, call: OpenCall) -> Result:
        run, mailbox = self._find(given.run), given.mailbox
        with self._lock:
            inbox = self._inboxes.setdefault((run.id, mailbox), Inbox(run, mailbox))
        return inbox.receive(
            call.own_id,
            RECEIVE_S if given.timeout_s is None else given.timeout_s,
            given.ack,
            lambda: call.withdrawn,
        )

    def _cancel(self, given: Arguments, call: OpenCall) -> Result:
        run = self._find(given.run)
        cancel_run(run, given.reason)
        return {"run": run.id, "status": status_of(run, read_state(run))}

    # Inside.

    def _follow(self, given: Arguments) -> Follow:
        return Follow(self._find(given.run), Cursor.parse(int(given.cursor)))

    def _find(self, asked: str) -> RunDir:
        """A run by its id, or by the beginning of it.

        Raises:
            ToolError: The text is too short, or a path.
            RunNotFoundError: There is none, or more than one.
        """
        if not _NAME.fullmatch(asked):
            raise ToolError(f"{asked[:100]!r} is not a run: give its id, or at least 8 characters of it.")
        try:
            return find_run(asked, self._project)
        except RunNotFoundError as error:
            if error.near:
                raise
            newest = tuple(run.id for run in list_runs(self._project)[:CANDIDATES])
            raise RunNotFoundError(asked, newest) from None


def _after(runs: list[RunDir], cursor: str) -> list[RunDir]:
    """The runs that follow one in a list; all if that one is not in it."""
    place = next((place for place, run in enumerate(runs, 1) if run.id == cursor), 0)
    return runs[place:]
