"""Whether the end of a run was reported to a client: a file in its directory with the place of that end in the journal.

A start that a client repeats after a crash returns a run whose end it does not know. The file is written after the reply has left:
a server that is killed in between reports the end twice, but never omits it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from bartack.core.files import open_private, replace_file
from bartack.runtime.rundir.layout import RunDir

NAME: Final = "reported"


def mark_reported(run: RunDir, seq: int) -> None:
    """Note that a client knows how the run ended: with this entry."""
    with suppress(OSError):  # without the note its end is reported once more
        replace_file(run.path / NAME, f"{seq}\n".encode())


def was_reported(run: RunDir, seq: int) -> bool:
    """Whether a client knows this end of the run; one that failed and was resumed has another end later."""
    try:
        with open(run.path / NAME, "rb", opener=open_private) as file:
            return int(file.read(32)) == seq
    except (OSError, ValueError):
        return False
