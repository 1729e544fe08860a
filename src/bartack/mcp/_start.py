"""``start_run``: derives the key of a start, and lets a process of its own make the run.

That process (``_starter.py``) has a session of its own. It completes the start if this server is killed meanwhile. When it ends,
the hub that it started is not a descendant of this server any more.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from typing import Final, cast

from bartack.core.canonical_json import canonical
from bartack.mcp._entries import Startable
from bartack.mcp._errors import ToolError

STARTER: Final = "bartack.mcp._starter"
START_S: Final = 120.0
"""How long a program may take to be read, checked and started."""
SESSION: Final = "CLAUDE_CODE_SESSION_ID"
KEPT: Final = frozenset({"CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"})
"""Variables of Claude Code that a run gets: agents of the run may need them to log in. All others describe the session."""


class Starts:
    """Starts runs for one client.

    Args:
        environ: The environment of this server.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._session = environ.get(SESSION) or secrets.token_hex(16)

    def key(self, entry: Startable, args: dict[str, object]) -> str:
        """What a start is recognised by if the same conversation repeats it."""
        started = [self._session, entry.program, entry.member, args]
        return hashlib.sha256(canonical(started)).hexdigest()

    def start(self, request: dict[str, object]) -> dict[str, object]:
        """Make and start a run; ``_starter.py`` describes the request and the result.

        Raises:
            ToolError: It could not be started.
        """
        with subprocess.Popen(  # bartack: allow[unsupervised_process] it completes the start if we die  # noqa: S603 - our own interpreter and module
            [sys.executable, "-P", "-s", "-m", STARTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=run_environment(self._environ),
        ) as process:
            try:
                out, _ = process.communicate(json.dumps(request).encode(), START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise ToolError(f"The run did not start within {START_S:.0f} s.") from None
        try:
            result = cast("dict[str, object]", json.loads(out))
        except ValueError:
            raise ToolError(
                f"The run did not start: its starter ended with status {process.returncode}."
            ) from None
        if "problem" in result:
            raise ToolError(str(result["problem"]))
        return result


def run_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a run gets: those of the server without what describes the session of the client."""
    return {
        name: value
        for name, value in environ.items()
        if name in KEPT or not name.startswith(("CLAUDE_", "CLAUDECODE"))
    }


def session_name(environ: Mapping[str, str] | None = None) -> str:
    """Who answers and sends through this server, as it stands in the journal."""
    given = os.environ if environ is None else environ
    user = given.get("LOGNAME") or given.get("USER") or "a person"
    return f"{user} through MCP"
