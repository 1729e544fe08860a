"""The one place that chooses between operating systems. Everything else in this package asks here."""

from __future__ import annotations

import sys

if sys.platform == "linux":
    from bartack.supervision.process import _linux as system
else:
    from bartack.supervision.process import _darwin as system

find_flaw = system.find_flaw
hide_process = system.hide_process
iter_open_files = system.iter_open_files
iter_outputs = system.iter_outputs
iter_processes = system.iter_processes
read_command = system.read_command
read_environment = system.read_environment
open_pidfd = system.open_pidfd
read_facts = system.read_facts
rewrite_command = system.rewrite_command
set_death_signal = system.set_death_signal
set_subreaper = system.set_subreaper
thread_count = system.thread_count

__all__ = [
    "find_flaw",
    "hide_process",
    "iter_open_files",
    "iter_outputs",
    "iter_processes",
    "open_pidfd",
    "read_command",
    "read_environment",
    "read_facts",
    "rewrite_command",
    "set_death_signal",
    "set_subreaper",
    "system",
    "thread_count",
]
