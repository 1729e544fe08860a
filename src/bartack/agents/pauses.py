"""Until when an agent must not be asked, for all runs of a user: a limit of a provider holds for each of them.

A file for each agent and account, replaced as a whole. The later moment counts. A file that cannot be read or written holds nothing
back: the provider refuses the call then, as it would without it.

A node of a database shares those whose account is known with nodes that serve the same pools (``read_pauses``, ``keep_pauses``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.clock import Clock
from bartack.core.files import replace_file
from bartack.core.trust import make_private

LONGEST_S: Final = 8 * 24 * 3600.0
"""A limit that lasts longer is a mistake of the provider, or of the clock."""
LONGEST_US: Final = int(LONGEST_S * 1e6)
SHORTEST_US: Final = 5 * 1_000_000
"""A shorter pause is not worth sharing."""

_OF_ACCOUNT: Final = re.compile(r"[A-Za-z0-9-]{1,64}-[0-9a-f]{12}\.json")
"""The name of the file of an account that is known by its credentials: on another machine it stands for the same one."""
MOST_SHARED: Final = 1000
"""More agents and accounts than a machine has."""


class Paused(msgspec.Struct, frozen=True):
    """A pause: until when, in microseconds since 1970, and why."""

    until_us: int
    reason: str = ""


class Pause:
    """The pause of one agent and account; see the module.

    Args:
        path: The file.
        clock: What time it is.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def begin(self, until_us: int, reason: str) -> None:
        """No run asks the agent before this moment."""
        now_us = self._clock.now_us()
        if not SHORTEST_US <= until_us - now_us <= LONGEST_US or until_us <= self.current().until_us:
            return
        with suppress(OSError):
            make_private(self._path.parent)
            replace_file(self._path, msgspec.json.encode(Paused(until_us, reason[:200])), synced=False)

    def current(self) -> Paused:
        """The pause that holds now; its moment is 0 if there is none."""
        try:
            found = typed.decode(self._path.read_bytes(), type=Paused)
        except (OSError, msgspec.DecodeError):
            return NONE
        now_us = self._clock.now_us()
        return found if now_us < found.until_us <= now_us + LONGEST_US else NONE

    def left_s(self) -> float:
        """How long it holds."""
        found = self.current()
        return (found.until_us - self._clock.now_us()) / 1e6 if found.until_us else 0.0


NONE: Final = Paused(0)


def pause_name(kind: str, environ: Mapping[str, str], keys: tuple[str, ...]) -> str:
    """The name of the file for a kind of agents and the account that its variables stand for; the account is only a digest."""
    account = "\n".join(environ.get(key, "") for key in keys)
    kind = "".join(letter if letter.isalnum() else "-" for letter in kind)[:64]
    digest = hashlib.sha256(account.encode()).hexdigest()[:12]
    return f"{kind}-{digest}.json" if account.strip() else f"{kind}.json"


def read_pauses(folder: Path, clock: Clock) -> dict[str, Paused]:
    """The pauses that hold now for accounts that other machines may have, too, by the names of their files."""
    names = (
        [path.name for path in folder.glob("*.json") if _OF_ACCOUNT.fullmatch(path.name)]
        if folder.is_dir()
        else []
    )
    found = {name: Pause(folder / name, clock).current() for name in sorted(names)[:MOST_SHARED]}
    return {name: paused for name, paused in found.items() if paused.until_us}


def keep_pauses(folder: Path, pauses: Mapping[str, Paused], clock: Clock) -> None:
    """Let runs of this machine wait for what runs of others have met. Other names than those of accounts are left out."""
    for name, paused in pauses.items():
        if _OF_ACCOUNT.fullmatch(name):
            Pause(folder / name, clock).begin(paused.until_us, paused.reason)
