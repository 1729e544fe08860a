"""Where the runs of a database have their directories for those that only read them, or ask something of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bartack.core.user_home import user_home

if TYPE_CHECKING:
    from bartack.depot.elsewhere import Elsewhere


def shown_place(where: Elsewhere) -> Path:
    """What stands for the workspace of the runs of a database."""
    return where.place_in(user_home() / "databases")


def shown_runs(where: Elsewhere) -> Path:
    """The directory of the runs in it; made if it is not there."""
    runs = shown_place(where) / ".bartack" / "runs"
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    return runs
