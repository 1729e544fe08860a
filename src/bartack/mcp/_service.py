"""The tools of one project or plugin, for ``_stdio.py``. It lists them at once, and imports what they need with the first call."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bartack.mcp._entries import Entries, PluginEntries, ProjectEntries
from bartack.mcp._errors import ToolError
from bartack.mcp._stdio import OpenCall, serve_stdio
from bartack.mcp._tools import ListedEntry

if TYPE_CHECKING:
    from bartack.mcp._operations import Operations


def serve_runs(project: Callable[[], str], plugin: str = "", *, read_only: bool = False) -> None:
    """Serve the runs of a project on standard input and output until the input ends.

    Args:
        project: Finds the directory of the project; called when it is first needed.
        plugin: The folder of the plugin whose entries can be started; without it, those that the settings of the project name.
        read_only: Offer only tools that change nothing.
    """
    entries = PluginEntries(plugin) if plugin else ProjectEntries(project)
    serve_stdio(lambda: RunService(project, entries), read_only=read_only)


class RunService:
    """See ``Service``."""

    def __init__(self, project: Callable[[], str], entries: Entries) -> None:
        self._project = project
        self._entries = entries
        self._made: Operations | None = None
        self._making = threading.Lock()

    def entries(self) -> Sequence[ListedEntry]:
        """See ``Service.entries``. Problems are reported when an entry is started, and noted here."""
        from bartack.errors import BartackError  # noqa: PLC0415 - the first message is answered without it

        try:
            return [entry.listed for entry in self._entries.all().values()]
        except (ToolError, BartackError) as problem:
            sys.stderr.write(f"bartack mcp: {problem}\n")
            return []

    def call(self, name: str, arguments: dict[str, object], call: OpenCall) -> dict[str, object]:
        """See ``Service.call``."""
        return self._operations().call(name, arguments, call)

    def answered(self, name: str, result: dict[str, object], call: OpenCall) -> None:
        """See ``Service.answered``."""
        self._operations().answered(name, result)

    def _operations(self) -> Operations:
        with self._making:
            if self._made is None:
                from bartack.mcp._operations import Operations  # noqa: PLC0415 - likewise

                self._made = Operations(self._project, self._entries)
            return self._made
