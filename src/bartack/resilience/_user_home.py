"""The state home of this user, and what is in it for services: no setting moves it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file


def user_home(environ: Mapping[str, str] | None = None) -> Path:
    """The state home of this user: socket, token and log of the daemon are always there."""
    environ = os.environ if environ is None else environ
    if sys.platform == "darwin":
        return Path(os.path.expanduser("~/Library/Application Support/bartack"))
    # A relative path in the variable has no meaning, by the specification of these variables.
    base = environ.get("XDG_STATE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/state")) / "bartack"


def service_socket(port: int, home: str | os.PathLike[str] | None = None) -> Path:
    """Where the user's own service for a port of this machine listens besides; a socket, or a link to one."""
    return Path(home if home is not None else user_home()) / f"service-{port}.sock"
