"""The directories that an agent may use beside its working directory: ``extra_dirs`` of its settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bartack.agents.program_config import CliConfig


def resolve_dirs(config: CliConfig, workspace: Path) -> list[str]:
    """The directories as absolute paths; relative ones begin in the workspace, wherever the agent works."""
    return [os.path.normpath(workspace / place) for place in config.extra_dirs]


def find_bad_dirs(config: CliConfig, workspace: Path, state_dir: str) -> Iterator[str]:
    """Why directories cannot be used: each in words.

    Args:
        config: The settings of the agent.
        workspace: Where relative paths begin.
        state_dir: Where runs are kept; relative to the workspace, or absolute. No agent may change anything there.
    """
    state = Path(os.path.realpath(workspace / state_dir))
    for place, path in zip(config.extra_dirs, resolve_dirs(config, workspace), strict=True):
        if not os.path.isdir(path):
            reason = "is not a directory" if os.path.exists(path) else "does not exist"
            yield f"its extra directory {place!r} {reason}; correct extra_dirs"
        elif Path(os.path.realpath(path)).is_relative_to(state):
            yield f"its extra directory {place!r} is in {state_dir}, where the runs are; remove it from extra_dirs"
