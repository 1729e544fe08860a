"""The piece of work everybody does: keep that one step of a worker has finished, with a small outcome."""

from __future__ import annotations

from typing import Final

KIND: Final = "step.finished"
APPENDERS: Final = 64
"""How many work at once in the concurrent race."""

_KEY: Final = "ik:" + "0123456789abcdef" * 4


def outcome(number: int) -> dict[str, object]:
    """What a step gave."""
    return {"exit": 0, "stdout": f"built target {number:08d} of the project in 0.25 s", "warnings": []}


def entry_data(number: int) -> dict[str, object]:
    """What is kept of a step: whose it is, which one, its key and its outcome."""
    return {"worker": "main", "step": number, "key": _KEY, "outcome": outcome(number)}
