"""The state home of this user: no setting moves it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def user_home(environ: Mapping[str, str] | None = None) -> Path:
    """The state home of this user: socket, token and log of the daemon, the queue, and the workspaces are always there."""
    environ = os.environ if environ is None else environ
    if sys.platform == "darwin":
        return Path(os.path.expanduser("~/Library/Application Support/bartack"))
    # A relative path in the variable has no meaning, by the specification of these variables.
    base = environ.get("XDG_STATE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/state")) / "bartack"
