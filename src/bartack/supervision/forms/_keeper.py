"""The parent program of agents and shell commands: it executes programs, and forks the interpreters of shell forms."""

from __future__ import annotations

import sys

from bartack.supervision.forms import form_main
from bartack.supervision.parent.parent import run_parent

if __name__ == "__main__":
    sys.exit(run_parent(form_main))
