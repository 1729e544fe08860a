"""The program that forks workers. It imports Bartack and the standard library, and never a module of the user."""

from __future__ import annotations

import sys

from bartack.runtime.worker_process.child import worker_main
from bartack.runtime.worker_process.warm_up import warm_up
from bartack.supervision.parent.parent import run_parent

if __name__ == "__main__":
    sys.exit(run_parent(worker_main, warm_up))
