"""Files in the state home of the user that a service and its clients share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bartack.core.user_home import user_home

TOKEN_FILE: Final = "token"  # noqa: S105 - the name of a file


def service_socket(port: int, home: str | os.PathLike[str] | None = None) -> Path:
    """Where the user's own service for a port of this machine listens besides; a socket, or a link to one."""
    return Path(home if home is not None else user_home()) / f"service-{port}.sock"
