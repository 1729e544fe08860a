"""Who may speak in a conversation: the process that has locked its ``stream.ndjson``.

The directory of a call is ``agents/<name>/<conversation>/``. Programs do not lock their sessions themselves: if two
resume the same one, both write to it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from bartack.core.files import open_private
from bartack.core.trust import make_private
from bartack.errors import AgentBusyError

STREAM: Final = "stream.ndjson"


def take_conversation(agent: str, folder: Path) -> int:
    """Take a conversation for this process; returns its stream, opened for appending. Closing that releases the conversation.

    Raises:
        AgentBusyError: Another process has it.
    """
    make_private(folder)
    stream = open_private(folder / STREAM, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(stream)
        raise AgentBusyError(agent, "another call uses this conversation", "busy") from None
    return stream
