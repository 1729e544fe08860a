"""A node that resumes a killed run at once and never gives one up, so that runs can be killed hundreds of times in a minute.

Everything else is as ``bartack node run`` has it. Started as ``python quick_node.py SLOTS``.
"""

from __future__ import annotations

import os
import sys

from bartack.core.boot import boot_id
from bartack.core.clock import SystemClock
from bartack.depot import user_depot
from bartack.node import Node, Policy, RealHubs, WarmHubs, new_node

POLICY = Policy(strikes=1_000_000, first_s=0.01, longest_s=0.05)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> None:
    """Be the node."""
    clock = SystemClock()
    facts = new_node(int(sys.argv[1]), boot_id(), clock)
    _say(f"node {facts.id}")
    with WarmHubs(os.environ) as warm:
        Node(user_depot(), facts, RealHubs(os.environ, warm), _say, policy=POLICY, clock=clock).run()


if __name__ == "__main__":
    main()
