"""The hub of a run of the pipeline that a node or a program starts: ``python -m bartack.pipeline._serve RUN_DIR WORKSPACE``.

It is the hub of any other run, with what a run of the pipeline needs around it. Its output goes to the run's hub.log.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bartack.config.load import Config
from bartack.pipeline.resume import owning
from bartack.runtime.hub.serve import Instructions, serve
from bartack.runtime.hub.serve import main as serve_run
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Describe


def main(argv: list[str], *, instructions: Instructions) -> int:
    """Run a run of the pipeline; see ``main`` of any other hub."""
    return serve_run(argv, _around, instructions)


def _around(
    run: RunDir, workspace: Path, config: Config, sets: Sequence[str]
) -> AbstractContextManager[Describe]:
    return owning(run, workspace, config, read_state(run).hub + 1, _show, sets)


def _show(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], _around))
