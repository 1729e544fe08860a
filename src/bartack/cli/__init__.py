"""The command line parses arguments, calls the packages below it and shows their results.

``main`` is the entry point. It loads a command's module only when that command is called. Read ``app/_app.py`` for the table of
commands and ``app/_boundary.py`` for error reporting.

- ``app/``: the frame of all commands. ``runs/`` starts, steers and deletes runs, ``look/`` shows them and changes nothing.
- ``live/``: views of an active run, and its questions on a terminal.
- ``queued/`` gives runs to the node of the user; ``nodes/`` controls the node, its schedules and notices.
- ``project/``: settings, programs and agents of a project, with ``project/check/`` and ``project/doctor/``.
- ``tracking/``: hooks, daemon, lineage. ``plugin/``: plugins of Claude Code. ``demo/``: the demonstration.
"""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False  # type checkers know it by its name; importing typing would cost most of the time
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, without the program's name, and return its exit code.

    The guard as a hook takes a short cut: an agent waits for it before every tool call.
    """
    gc.set_threshold(50_000, 20, 50)  # imports make no garbage, and looking for it is a tenth of their time
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["hook", "guard"]:
        return _guard()
    from bartack.cli.app._boundary import main as run  # noqa: PLC0415 - likewise

    return run(args)


def _guard() -> int:
    try:
        from bartack.plugin.guard_hook import run_guard_hook  # noqa: PLC0415 - see above
    except Exception as error:  # noqa: BLE001 - a broken installation must block as well: any other exit code lets the call through
        sys.stderr.write(f"Blocked: the guard could not decide ({type(error).__name__})\n")
        return 2
    return run_guard_hook()
