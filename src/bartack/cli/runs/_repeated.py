"""A start that is repeated finds the run that it has made: the node repeats one that a crash has interrupted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bartack.config.load import Config
from bartack.runtime.rundir.find import list_runs
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.starts import has_key, one_start


@contextmanager
def repeated_start(workspace: Path, config: Config, key: str) -> Generator[RunDir | None]:
    """Wait for other starts with this key; yields the run that one of them has made, if there is one."""
    with one_start(config.state_dir(workspace), key):
        yield next((run for run in list_runs(workspace) if has_key(run, key)), None)
