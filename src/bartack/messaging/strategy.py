"""How many recipients of a broadcast must be reached."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from bartack.errors import DeliveryOptionError

STRATEGIES: Final = ("all_or_nothing", "best_effort", "at_least_one", "quorum(k)")

_QUORUM: Final = re.compile(r"quorum\(([0-9]{1,6})\)")


def quorum(k: int) -> str:
    """The strategy of a broadcast that succeeds when ``k`` recipients were reached.

    Raises:
        DeliveryOptionError: It is not a number of recipients.
    """
    if k < 1:
        raise DeliveryOptionError("strategy", f"quorum needs a number of recipients from 1 on, not {k!r}")
    return f"quorum({k})"


def needed(strategy: object, recipients: int) -> int:
    """How many of a number of recipients must be reached.

    Raises:
        DeliveryOptionError: There is no such strategy, or there are too few recipients for it.
    """
    if strategy == "all_or_nothing":
        return recipients
    if strategy == "best_effort":
        return 0
    if strategy == "at_least_one":
        return 1
    found = _QUORUM.fullmatch(strategy) if isinstance(strategy, str) else None
    if found is None:
        raise DeliveryOptionError("strategy", f"it must be one of {', '.join(STRATEGIES)}, not {strategy!r}")
    k = int(found[1])
    if k < 1 or (recipients and k > recipients):
        raise DeliveryOptionError("strategy", f"a quorum of {k} is not possible with {recipients} recipients")
    return k


def check_distinct(recipients: Iterable[str]) -> None:
    """Raise unless every recipient of a broadcast is another one.

    Raises:
        DeliveryOptionError: One is given twice.
    """
    seen: set[str] = set()
    for recipient in recipients:
        if recipient in seen:
            raise DeliveryOptionError("recipients", f"{recipient!r} is given twice")
        seen.add(recipient)
