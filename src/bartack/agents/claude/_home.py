"""Where Claude Code keeps its sessions: a directory of the conversation in the run, or the home of the person who is logged in.

Its transcripts are found by the id of the conversation, never by a name computed from the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

from bartack.agents.program._home_files import COPIES, HomeFiles
from bartack.agents.program._json_lines import JsonLine, objects_of, read_json_line, text_of
from bartack.agents.program.cli_facts import CLAUDE, credentials_in
from bartack.agents.program_config import Home
from bartack.core.files import write_file
from bartack.core.trust import make_private

HOME: Final = "home"

Chosen = Literal["run", "user"]


class Transcript(NamedTuple):
    """A transcript of the program.

    Attributes:
        path: The file.
        results: The ids of tool calls whose results are in it.
        texts: What was said to the model. A process that was killed at once may have only the texts of its parent.
    """

    path: Path
    results: frozenset[str]
    texts: frozenset[str] = frozenset()

    def has(self, prompt: str) -> bool:
        """Whether the model has got this text."""
        return any(prompt.strip() in text for text in self.texts)


def choose_home(folder: Path, wanted: Home, env: Mapping[str, str]) -> Chosen:
    """The kind of home, decided once for an agent of a run: a resumed conversation has to be found again.

    Args:
        folder: The directory of the agent.
        wanted: The setting.
        env: What the process gets.
    """
    if wanted != "auto":
        return wanted
    note = folder / HOME
    try:
        noted = note.read_text(encoding="utf-8").strip()
    except OSError:
        noted = ""
    if noted in {"run", "user"}:
        return cast("Chosen", noted)
    chosen: Chosen = "run" if credentials_in(CLAUDE, env) else "user"
    make_private(folder)
    write_file(note, chosen.encode() + b"\n")
    return chosen


class SessionHome:
    """The home of one conversation.

    Args:
        folder: The directory of the conversation.
        kind: Whose home it is.
        env: What the process gets: it says where the home of a person is.
    """

    def __init__(self, folder: Path, kind: Chosen, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.kind = kind
        self._variable, below = CLAUDE.home
        own = env.get(self._variable) or os.path.join(env.get("HOME", ""), below)
        self.place = folder / HOME if kind == "run" else Path(own)

    def prepare(self) -> dict[str, str]:
        """Make it; returns the variables by which the program finds it."""
        if self.kind == "user":
            return {}
        make_private(self.place)
        return {self._variable: str(self.place)}

    def find_transcript(self, conversation: str) -> Transcript | None:
        """The transcript of a conversation, if there is one that can be resumed."""
        return read_transcript(_single(self.place, conversation))

    def save(self, conversation: str) -> None:
        """Copy a transcript of a person's home into the run."""
        if self.kind == "user" and _single(self.place, conversation) is not None:
            self._files(conversation).save()

    def restore(self, conversation: str) -> None:
        """Copy it back, if it is missing there."""
        if self.kind == "user":
            self._files(conversation).restore()

    def set_back(self, conversation: str) -> None:
        """Have in a person's home the transcript that the run has, or none."""
        if self.kind == "user":
            self._files(conversation).set_back()

    def _files(self, conversation: str) -> HomeFiles:
        return HomeFiles(self.place, self.folder / COPIES, _pattern(conversation))


def find_parent(agents: Path, conversation: str) -> Path | None:
    """The transcript of a finished conversation of any agent of the run."""
    for place in sorted(agents.glob(f"*/{conversation}/*")):
        found = _single(place, conversation) if place.name in {HOME, COPIES} else None
        if found is not None:
            return found
    return None


def read_transcript(path: Path | None) -> Transcript | None:
    """A transcript with at least one message of ours; a torn last line does not matter."""
    if path is None:
        return None
    asked, results, texts = False, set[str](), set[str]()
    with open(path, "rb") as file:
        for raw in file:
            read = read_json_line(raw.rstrip(b"\n"))
            if not isinstance(read, JsonLine) or text_of(read.value, "type") != "user":
                continue
            asked = True
            blocks = objects_of(read.value, "message", "content")
            results |= {text_of(block, "tool_use_id") for block in blocks}
            texts |= {
                text_of(read.value, "message", "content"),
                *(text_of(block, "text") for block in blocks),
            }
    return Transcript(path, frozenset(results - {""}), frozenset(texts - {""})) if asked else None


def _single(place: Path, conversation: str) -> Path | None:
    found = list(place.glob(_pattern(conversation)))
    return found[0] if len(found) == 1 else None


def _pattern(conversation: str) -> str:
    return f"projects/*/{conversation}.jsonl"
