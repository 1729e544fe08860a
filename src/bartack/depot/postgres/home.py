"""The files in the home directory of a user with which the library opens a database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_FILES: Final = {
    "PGPASSFILE": ".pgpass",
    "PGSERVICEFILE": ".pg_service.conf",
    "PGSSLCERT": ".postgresql/postgresql.crt",
    "PGSSLKEY": ".postgresql/postgresql.key",
    "PGSSLROOTCERT": ".postgresql/root.crt",
    "PGSSLCRL": ".postgresql/root.crl",
}
"""By the variable that names another one."""


def find_own_files(environ: Mapping[str, str]) -> dict[str, str]:
    """The files of this user that exist, each under the variable that names it.

    With these variables the library finds them also when another home directory is in the environment.
    """
    home = os.path.expanduser("~")
    named = {name: environ.get(name) or os.path.join(home, place) for name, place in _FILES.items()}
    return {name: path for name, path in named.items() if os.path.exists(path)}
