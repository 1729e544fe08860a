"""What a node reports to the hub that it starts: how it has prepared the workspace (``preparation.py``)."""

from __future__ import annotations

from typing import Final

import msgspec

from bartack.runtime.state import entries as e
from bartack.runtime.state.worker_state import Value

SETUP: Final = ".setup"
"""The end of the name of the file beside a workspace that notes how it was prepared."""


class Prepared(msgspec.Struct, frozen=True):
    """A command that has prepared a workspace.

    Attributes:
        words: The command.
        took_us: How long it took.
        output: The end of what it has written, without secrets.
    """

    words: tuple[str, ...]
    took_us: int
    output: str

    def entry(self) -> tuple[e.WorkspacePrepared, Value]:
        """The same as an entry of the journal."""
        data = e.WorkspacePrepared(words=[*self.words], took_us=self.took_us)
        return data, Value(msgspec.Raw(msgspec.json.encode(self.output)))
