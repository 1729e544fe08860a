"""The check of ``bartack doctor`` for nodes of a database: who could read what opens it."""

from __future__ import annotations

import os
import pwd
from typing import Final

from bartack.cli.app._database import own_database
from bartack.cli.app._terminal import printable
from bartack.cli.project.doctor._finding import Finding
from bartack.errors import ConfigError, RunAsError, UntrustedError

_CHECK: Final = "node user"
_SECRET_FILES: Final = ("PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY")
_REMEDY: Final = (
    "Start nodes as root with --run-as USER (node.run_as), or with an account that opens this database alone."
)


def check_own_node() -> list[Finding]:
    """``check_node_user`` if a database is named in the settings or the environment of this user."""
    try:
        has_one = own_database() is not None
    except (ConfigError, UntrustedError):
        return []  # other checks report that
    return [check_node_user()] if has_one else []


def check_node_user() -> Finding:
    """Whether a node that this user starts gives its runs another user than the one who can open the database."""
    from bartack.config.load import load_own_node  # noqa: PLC0415 - the other checks need no runtime
    from bartack.node.account import open_runs_account  # noqa: PLC0415 - likewise

    try:
        name = load_own_node().run_as
        if name:
            open_runs_account(name)
    except (ConfigError, UntrustedError, RunAsError) as error:
        return Finding(_CHECK, "fail", f"no node can be started: {printable(str(error))}", error.remedy or "")
    if name:
        shown = printable(name)
        return Finding(
            _CHECK, "ok", f"a node executes runs as {shown}, who cannot read what opens the database"
        )
    user = printable(_own_name())
    sentence = f"without --run-as, a node of {user} executes runs as {user}, who can read {_readable()}"
    return Finding(_CHECK, "warn", sentence, _REMEDY)


def _readable() -> str:
    """What opens the database and can be read by every process of this user."""
    from bartack.depot.postgres.home import find_own_files  # noqa: PLC0415 - only this check needs it

    files = find_own_files(os.environ)
    found = [printable(files[name]) for name in _SECRET_FILES if name in files]
    return ", ".join(found) or "what opens the database"


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"
