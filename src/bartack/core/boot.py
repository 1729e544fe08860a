"""Which start of the machine this is."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """Identifies one boot of this machine; readings of the monotonic clock compare within one only."""
    if sys.platform == "darwin":
        import subprocess  # noqa: PLC0415 - only here

        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)  # noqa: S603 - a fixed command
        return done.stdout.strip()
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
