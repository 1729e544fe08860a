"""The rows of the decision table as tool calls of real agents: how each agent makes the call, or why it cannot.

``test_decisions.py`` has the agents make them, and checks that each reason is true.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from tests.realcli.crew import Kind, own_tool, shell
from tests.unit.agents.decision_table import MODES, OWN, TABLE, Row

from bartack.agents._permissions import Mode
from bartack.testing import ModelRequest

Call = dict[str, object]
Outcome = Literal["allow", "deny", "missing", "invalid"]
"""What became of a call: the agent has no such tool, or refuses its input before it asks."""

PATCH: Final = "*** Begin Patch\n{files}*** End Patch\n"
ADDED: Final = "*** Add File: {path}\n+x\n"
LEAVES: Final = re.compile(r"(?:^cd (?P<place>\w+) && )?(?:.*; )?(?:touch|echo a >) (?P<file>\w+(?:\.txt)?)$")
"""Commands of the table that leave a file."""
NOTEBOOK: Final = "a.ipynb"
OUTSIDE: Final = "../elsewhere"
"""Takes the place of directories of the machine that a row writes to."""
WRITES: Final = frozenset({"Write", "Edit", "NotebookEdit"})
MORE: Final[dict[str, dict[str, object]]] = {
    "Write": {"content": "x\n"},
    "Edit": {"old_string": "", "new_string": "x\n"},
    "NotebookEdit": {"new_source": "x", "cell_type": "code", "edit_mode": "insert"},
    "MultiEdit": {"edits": [{"old_string": "", "new_string": "x\n"}]},
    "WebFetch": {"prompt": "x"},
    "Task": {"description": "look", "subagent_type": "general-purpose", "run_in_background": False},
}
"""What a tool of Claude Code wants beside what the table says."""

NO_TOOL: Final = "it has no such tool"
ONE_FILE: Final = "its tools change one file at a time"
NEEDS_PATH: Final = "its tools refuse a call without a path, before they ask"
PATCHES: Final = "a patch names each file that it changes"
NO_OTHER_SERVER: Final = "it gets no MCP servers but that of the run"
REFUSED: Final = "a prompt refuses no paths, only commands of the pipeline do: they have a test of their own"
READS_BY_COMMANDS: Final = "it looks at files by commands only, which other rows are about"
ON_A_SERVER: Final = "it searches on the servers of its vendor, where no call is asked about"


def name_of(row: Row) -> str:
    """A row for people."""
    return f"{row.use.tool} {' '.join(row.use.paths) or row.use.subject}".strip().replace("\0", "NUL")


def _of_claude() -> dict[str, str]:
    rows = {
        "LS /": NO_TOOL,
        f"NotebookRead {NOTEBOOK}": NO_TOOL,
        "MultiEdit a.txt": NO_TOOL,
        "TodoWrite": NO_TOOL,
        "Unheard": NO_TOOL,
        "Edit": NEEDS_PATH,
        "Write state/a": REFUSED,
        "mcp__other__thing": NO_OTHER_SERVER,
        "mcp__other__thing git push": NO_OTHER_SERVER,
    }
    return rows | {name_of(row): ONE_FILE for row in TABLE if len(row.use.paths) > 1}


CANNOT: Final[dict[Kind, dict[str, str]]] = {
    "claude": _of_claude(),
    "acp": _of_claude() | {"Grep .": NO_TOOL, "Glob *": NO_TOOL},
    "codex": {
        **{name_of(row): READS_BY_COMMANDS for row in TABLE if row.use.name in {"Read", "Grep", "Glob"}},
        "MultiEdit a.txt": NO_TOOL,
        f"NotebookEdit {NOTEBOOK}": NO_TOOL,
        "Edit": PATCHES,
        "Write state/a": REFUSED,
        "WebFetch http://example.invalid": NO_TOOL,
        "WebSearch prices": ON_A_SERVER,
        "Task": NO_TOOL,
        "TodoWrite": NO_TOOL,
        "mcp__other__thing": NO_OTHER_SERVER,
        "mcp__other__thing git push": NO_OTHER_SERVER,
        "Unheard": NO_TOOL,
    },
}
"""The rows that an agent cannot try, with the reason."""
TESTED: Final = frozenset({NO_TOOL, NEEDS_PATH, NO_OTHER_SERVER})
"""Reasons that show in the answer to a call."""
ONLY_READING: Final = frozenset({"Grep .", "Glob *"})
"""Tools that Claude Code has only if it may do nothing else; else it searches with commands."""
NOT_READING: Final = frozenset({"Task", f"NotebookEdit {NOTEBOOK}", "WebFetch http://example.invalid"})
"""Tools that Claude Code does not have if it may only read."""


class Deed(NamedTuple):
    """Something that the model wants to be done.

    Attributes:
        row: The name of its row.
        verdicts: What each mode says.
        call: The call, as the agent's tool takes it.
        trace: A file that it leaves; empty if it leaves none.
    """

    row: str
    verdicts: str
    call: Call
    trace: str = ""

    def verdict(self, mode: Mode) -> str:
        """What a mode says: ``a`` or ``d``."""
        return self.verdicts[MODES.index(mode)]


def deeds_of(kind: Kind) -> list[Deed]:
    """The rows that an agent tries."""
    return [_deed(kind, number, row) for number, row in enumerate(TABLE) if name_of(row) not in CANNOT[kind]]


def impossible_of(kind: Kind) -> list[Deed]:
    """The rows that it cannot try, as far as its answers show why."""
    return [
        _deed(kind, number, row)
        for number, row in enumerate(TABLE)
        if CANNOT[kind].get(name_of(row)) in TESTED
    ]


def command(kind: Kind, text: str, trace: str, verdicts: str) -> Deed:
    """A command that leaves a file."""
    return Deed(text, verdicts, shell(kind, text), trace)


def write(kind: Kind, path: str, verdicts: str) -> Deed:
    """A new file."""
    return Deed(f"Write {path}", verdicts, _change(kind, "Write", [path]), path)


def _deed(kind: Kind, number: int, row: Row) -> Deed:
    use, name = row.use, name_of(row)
    if use.tool == "Bash":
        return _command_of(kind, number, row)
    if use.tool == OWN:
        return Deed(name, row.verdicts, own_tool(kind, OWN.rpartition("__")[2]))
    if use.tool in WRITES and use.paths and CANNOT[kind].get(name) != NO_TOOL:
        paths = [_numbered(_sandboxed(path), number) for path in use.paths]
        trace = "" if use.tool == "NotebookEdit" or "\0" in paths[-1] else paths[-1]
        paths = [NOTEBOOK] if use.tool == "NotebookEdit" else paths
        return Deed(name, row.verdicts, _change(kind, use.tool, paths), trace)
    given = {key: _absolute(value) if key in _PATHS else value for key, value in use.input.items()}
    return Deed(name, row.verdicts, {"name": use.tool, "input": {**given, **MORE.get(use.tool, {})}})


_PATHS: Final = ("file_path", "notebook_path")


def _command_of(kind: Kind, number: int, row: Row) -> Deed:
    text, made = row.use.command, LEAVES.match(row.use.command)
    if made is not None:
        return Deed(
            name_of(row),
            row.verdicts,
            shell(kind, text),
            os.path.join(made["place"] or "", made["file"]),
        )
    trace = f"made{number}.txt"  # what follows a command is decided with it
    return Deed(name_of(row), row.verdicts, shell(kind, f"{text}; touch {trace}"), trace)


def _change(kind: Kind, tool: str, paths: Sequence[str]) -> Call:
    whole = [_absolute(path) for path in paths]
    if kind == "codex":
        files = "".join(ADDED.format(path=path) for path in whole)
        return {"name": "apply_patch", "input": {"input": PATCH.format(files=files)}}
    key = "notebook_path" if tool == "NotebookEdit" else "file_path"
    return {"name": tool, "input": {key: whole[0], **MORE[tool]}}


def _absolute(path: object) -> str:
    return str(path) if os.path.isabs(str(path)) else f"{{{{cwd}}}}/{path}"


def _sandboxed(path: str) -> str:
    return f"{OUTSIDE}/{os.path.basename(path)}" if os.path.isabs(path) else path


def _numbered(path: str, number: int) -> str:
    """The same place, and another file in each row."""
    whole, suffix = os.path.splitext(path)
    return f"{whole}{number}{suffix}"


def outcomes(
    requests: Iterable[ModelRequest], events: Iterable[Mapping[str, object]], first: int = 0
) -> dict[int, Outcome]:
    """What became of each call of a script, by its number.

    Args:
        requests: Those that the script answered: each has the results of the calls before it.
        events: The transcript of the agent.
        first: The number of the step that makes the first call.
    """
    denied = {event["id"] for event in events if event.get("decision") == "deny"}
    found: dict[int, Outcome] = {}
    for request in requests:
        for result in request.tool_results:
            found.setdefault(
                request.step - 1 - first, "deny" if result.id in denied else _outcome(result.text)
            )
    return found


def _outcome(text: str) -> Outcome:
    if "No such tool available" in text or "unsupported call" in text:
        return "missing"
    if "<tool_use_error>" in text or "verification failed" in text or "invalid patch" in text.lower():
        return "invalid"
    return "allow"
