"""The parent program of agents and shell commands: it executes programs and forks nothing of ours."""

from __future__ import annotations

import sys

from bartack.supervision._parent import run_parent

if __name__ == "__main__":
    sys.exit(run_parent())
