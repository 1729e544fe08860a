"""Where state lives: the state home of an event, and the time that all share. That of the user is ``core.user_home``.

Directories are made on first use, for their owner only. Which file is where in them is decided by the modules that own them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bartack.core.user_home import user_home
from bartack.resilience.settings import find_config, find_state_dir, load_settings

DATABASE: Final = "outbox.db"


def state_home(
    explicit: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start: str | os.PathLike[str] | None = None,
) -> Path:
    """The directory that holds ``outbox.db`` for an event of the directory ``start``; the first that is given wins."""
    environ = os.environ if environ is None else environ
    if explicit is not None:
        return Path(os.path.expanduser(os.fspath(explicit)))
    chosen = (
        environ.get("PATTERN_CACHE_DIR")
        or environ.get("BARTACK_STATE_DIR")
        or _configured_dir(environ, start)
        or find_state_dir(start)
    )
    return Path(os.path.expanduser(chosen)) if chosen else user_home(environ)


def _configured_dir(environ: Mapping[str, str], start: str | os.PathLike[str] | None) -> str:
    named = load_settings(environ, start=start).cache_dir
    return os.path.join(os.path.dirname(find_config(start) or ""), named) if named else ""
