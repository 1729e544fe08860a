"""Runs every benchmark there is: each module of this package whose name has no underscore, in a process of its own.

``report`` is not one: it makes a page of their results.

A benchmark is a program (``python -m bench.NAME``) that prints a table, or with ``--json`` one JSON object; other options are
handed on to it.
"""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import bench

REPORT: Final = "report"


def names() -> list[str]:
    """The benchmarks, in the order of their names."""
    found = (module.name for module in pkgutil.iter_modules(bench.__path__))
    return sorted(name for name in found if not name.startswith("_") and name != REPORT)


def main(argv: Sequence[str]) -> int:
    """Run them all; returns the worst exit code."""
    worst = 0
    results: dict[str, object] = {}
    for name in names():
        done = subprocess.run(
            [sys.executable, "-m", f"bench.{name}", *argv], stdout=subprocess.PIPE, text=True, check=False
        )
        worst = max(worst, abs(done.returncode))
        if "--json" not in argv:
            print(done.stdout, flush=True)
        elif done.stdout:
            results[name] = json.loads(done.stdout)
    if "--json" in argv:
        print(json.dumps(results))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
