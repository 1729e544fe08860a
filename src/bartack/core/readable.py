"""Waiting until descriptors can be read from, whatever their numbers are: ``select`` takes none above 1,023.

A process that runs many runs, like a node, has more descriptors than that.
"""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def wait_readable(descriptors: Iterable[int], timeout_s: float | None) -> list[int]:
    """Wait until at least one can be read from, or the time is over; returns those that can.

    Args:
        descriptors: Which. The end of what one leads to counts, too.
        timeout_s: How long; ``None``: until then.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    ready = poll.poll(None if timeout_s is None else math.ceil(max(timeout_s, 0.0) * 1000))
    return [descriptor for descriptor, _ in ready]
