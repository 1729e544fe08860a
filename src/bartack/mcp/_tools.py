"""The tools of ``bartack mcp``: names, descriptions and the schemas of their arguments. What they do is in ``_operations.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

WAIT_S: Final = 45
LONGEST_WAIT_S: Final = 50
"""No call waits longer, so that no time limit of a client can break it."""
RECEIVE_S: Final = 30

WRITING: Final = frozenset({"start_run", "answer_question", "send_message", "receive_message", "cancel_run"})
"""What ``--read-only`` leaves out."""

INSTRUCTIONS: Final = (
    "Runs of Bartack are durable: they continue when this conversation ends or is killed. Start one with start_run, then call "
    "wait_run with the run and the cursor of the last answer until done is true. Put the questions of a run to the user word for "
    "word; never answer on the user's behalf. After a crash call start_run again with the same arguments: the same run is returned."
)


class RunTool(NamedTuple):
    """A tool; see ``ServedTool``."""

    name: str
    description: str
    input_schema: dict[str, object]


class ListedEntry(NamedTuple):
    """An entry, as the description of ``start_run`` shows it."""

    name: str
    signature: str = ""
    doc: str = ""


def run_tools(entries: Sequence[ListedEntry], *, read_only: bool) -> list[RunTool]:
    """The tools, in the order in which a client lists them."""
    tools = [_start(entries), *_OTHERS]
    return [tool for tool in tools if not (read_only and tool.name in WRITING)]


def _start(entries: Sequence[ListedEntry]) -> RunTool:
    listed = "\n".join(f"- {_line(entry)}" for entry in entries)
    which = f"Entries:\n{listed}" if entries else "No entry is configured: see [mcp.entries] of bartack.toml."
    return RunTool(
        "start_run",
        "Start a durable run of an entry, which continues if this conversation ends. Returns at once. Repeated with the same "
        f"arguments in the same conversation, it returns the run that exists (existing: true). {which}",
        _schema(
            {
                "entry": _enum([entry.name for entry in entries]),
                "args": {
                    "type": "object",
                    "description": "The arguments of the entry by name. If they do not match, its parameters are returned, and "
                    "nothing is started.",
                },
                "new": {"type": "boolean", "description": "Start another run on purpose."},
                "agent": {"type": "string", "description": "The agent of bartack.toml that prompts go to."},
                "budget_usd": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "description": "What the agents of the run may cost.",
                },
            },
            "entry",
        ),
    )


def _line(entry: ListedEntry) -> str:
    signature = f"({entry.signature})" if entry.signature else ""
    return f"{entry.name}{signature}{': ' if entry.doc else ''}{entry.doc}"


def _enum(names: list[str]) -> dict[str, object]:
    return {"type": "string", "enum": names} if names else {"type": "string"}


def _schema(properties: dict[str, object], *required: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_RUN: Final[dict[str, object]] = {
    "type": "string",
    "description": "The id of a run, or at least 8 characters that only its id begins with.",
}
_CURSOR: Final[dict[str, object]] = {
    "type": "integer",
    "minimum": 0,
    "description": "The cursor of the last answer; 0 for everything from the beginning.",
}
_MAILBOX: Final[dict[str, object]] = {
    "type": "string",
    "minLength": 1,
    "description": "The name of a mailbox.",
}


def _seconds(least: int) -> dict[str, object]:
    return {"type": "number", "minimum": least, "maximum": LONGEST_WAIT_S, "description": "Seconds to wait."}


_OTHERS: Final = (
    RunTool(
        "wait_run",
        "Wait for news of a run: its end, a new question, or output. Returns status, done, lines, cursor, questions, value, "
        "artifacts, error and usd. Call it again with the cursor until done is true.",
        _schema({"run": _RUN, "cursor": _CURSOR, "timeout_s": _seconds(1)}, "run"),
    ),
    RunTool(
        "run_status",
        "Show the state of a run without waiting: as wait_run, and its workers, mailboxes and number of dead letters.",
        _schema({"run": _RUN, "cursor": _CURSOR}, "run"),
    ),
    RunTool(
        "list_runs",
        "List the runs of the project, the newest first.",
        _schema(
            {
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "status": {
                    "type": "string",
                    "enum": [
                        "running",
                        "waiting",
                        "failed",
                        "completed",
                        "cancelled",
                        "aborted",
                        "interrupted",
                        "unreadable",
                    ],
                },
                "cursor": {"type": "string", "description": "The cursor of a list that was cut."},
            }
        ),
    ),
    RunTool(
        "answer_question",
        "Pass the user's answer to a question of a run. Only what the user said: never an answer of your own. Whether an agent "
        "may use a tool is decided by a person with 'bartack answer', not here.",
        _schema(
            {
                "run": _RUN,
                "question": {"type": "string", "minLength": 1, "description": "The id of the question."},
                "answer": {
                    "description": "The answer: text, a number, true or false, or one of the options."
                },
            },
            "run",
            "question",
            "answer",
        ),
    ),
    RunTool(
        "send_message",
        "Put a message into a mailbox of a run. It is durable when this returns. The same key sends it once.",
        _schema(
            {
                "run": _RUN,
                "mailbox": _MAILBOX,
                "message": {"description": "Any JSON value."},
                "key": {
                    "type": "string",
                    "minLength": 1,
                    "description": "Idempotency key: a repeated call with the same key sends one message.",
                },
            },
            "run",
            "mailbox",
            "message",
        ),
    ),
    RunTool(
        "receive_message",
        "Take the oldest message of a mailbox of a run. It counts as received when you call again, or with ack: its message_id.",
        _schema(
            {
                "run": _RUN,
                "mailbox": _MAILBOX,
                "timeout_s": _seconds(0),
                "ack": {"type": "string", "description": "The message_id of a message that was handled."},
            },
            "run",
            "mailbox",
        ),
    ),
    RunTool(
        "cancel_run",
        "Cancel a run for good; it cannot be resumed.",
        _schema({"run": _RUN, "reason": {"type": "string"}}, "run"),
    ),
)
