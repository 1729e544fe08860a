"""What all runs of a user together may cost on one day: reserved before each call of an agent, settled after it.

One file for each day, in local time, which the hubs of all runs change under a lock. A day begins at midnight, or when the user
says: one that begins at noon has the whole night. A reservation belongs to a step of a run: if its hub is killed, it counts until
the repeated call replaces it, as in the budget of the run itself.

A call is settled before its outcome is in the journal. If the hub is killed in between, the call is repeated, or its outcome is
found, and it is settled again: the day then counts it twice. That may stop a call too early, and never allows one too many. The
file is not synced: after a power cut the last calls may be missing from the sum of the day, and never from the run that paid.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import typed
from bartack.core.clock import Clock
from bartack.core.files import replace_file
from bartack.core.flock import hold_lock
from bartack.core.trust import make_private
from bartack.errors import AgentBudgetError

MIDNIGHT: Final = "00:00"
KEPT_DAYS: Final = 40
"""How many days are kept."""


class Spending(msgspec.Struct, omit_defaults=True):
    """What one run has spent on a day, and what is reserved for its open calls, by the key of their steps."""

    spent: float = 0.0
    open: dict[str, float] = {}

    @property
    def taken(self) -> float:
        """Both together."""
        return self.spent + sum(self.open.values())


Day = dict[str, Spending]


class DailyBudget:
    """The budget of the day, as one run sees it; see the module.

    Args:
        folder: Where the files of the days are.
        limit: What all runs together may cost on a day.
        run: The id of the run.
        clock: What time it is.
        begins: When a day begins: hours and minutes, by the local clock.
    """

    def __init__(self, folder: Path, limit: float, run: str, clock: Clock, begins: str = MIDNIGHT) -> None:
        self._folder = folder
        self._limit = limit
        self._run = run
        self._clock = clock
        self._begins = begins

    def reserve(self, agent: str, key: str, usd: float) -> None:
        """Reserve money for a call; less than wanted if less is left, but never nothing.

        Raises:
            AgentBudgetError: The day has nothing left, or cannot be kept.
        """

        def change(day: Day) -> None:
            mine = day.setdefault(self._run, Spending())
            mine.open.pop(key, None)  # what an attempt before this one reserved is for this one, too
            left = self._limit - sum(one.taken for one in day.values())
            if left < min(usd, self._limit) / 2:
                since = "of today" if self._begins == MIDNIGHT else f"since {self._begins}"
                problem = f"all runs {since} have used {self._limit - left:.2f} USD of {self._limit:g} (budget.daily_usd)"
                raise AgentBudgetError(agent, problem, "daily_budget")
            mine.open[key] = min(usd, left)

        try:
            self._change(change)
        except OSError as error:
            # Without the sum of the day a call could cost more than the user allows.
            raise AgentBudgetError(agent, self.unkept(error), "daily_budget_lost") from None

    def settle(self, key: str, usd: float) -> None:
        """A call has ended, and has cost this much.

        Raises:
            OSError: That cannot be kept; what was reserved for the call counts instead.
        """

        def change(day: Day) -> None:
            mine = day.setdefault(self._run, Spending())
            mine.open.pop(key, None)
            mine.spent += usd

        self._change(change)

    def unkept(self, error: OSError) -> str:
        """Why the spending of the day cannot be kept, in words."""
        why = error.strerror or error
        return f"the spending of the day (budget.daily_usd) cannot be kept in {self._path()}: {why}"

    def _path(self) -> Path:
        return self._folder / f"{self._today()}.json"

    def _change(self, change: Callable[[Day], None]) -> None:
        path = self._path()
        make_private(self._folder)
        with hold_lock(self._folder / "lock"):
            day = _load(path)
            change(day)
            replace_file(path, msgspec.json.encode(day), synced=False)
            if len(day) == 1:
                self._remove_old()

    def _today(self) -> str:
        """The date on which the present day has begun."""
        now = datetime.fromtimestamp(self._clock.now_us() / 1e6).astimezone()
        has_begun = f"{now:%H:%M}" >= self._begins
        return f"{now if has_begun else now - timedelta(days=1):%Y-%m-%d}"

    def _remove_old(self) -> None:
        for path in sorted(self._folder.glob("????-??-??.json"))[:-KEPT_DAYS]:
            path.unlink(missing_ok=True)


def _load(path: Path) -> Day:
    try:
        return typed.decode(path.read_bytes(), type=Day)
    except (OSError, msgspec.DecodeError):
        return {}
