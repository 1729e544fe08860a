"""Whether trees really get control groups here: a program of its own tries it once, for ``bartack doctor``.

It is a process apart because only one with a single thread may fork as parent programs do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Final

from bartack.supervision.process.cgroup import Cgroup, CgroupTree, NoCgroupsError, open_cgroup_tree
from bartack.supervision.process.system import system

_LIMIT_S: Final = 10
_MODULE: Final = "bartack.supervision.process.cgroup_probe"


def probe_cgroups() -> str:
    """Why process trees get no control groups here; empty if they do."""
    command = [sys.executable, "-P", "-s", "-m", _MODULE]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)  # noqa: S603 - our own
    except (OSError, subprocess.SubprocessError) as error:
        return f"trying it failed: {error}"
    return said.stdout.strip()


def try_cgroups() -> str:
    """Make a group, start a process in it, kill it by the group; return what went wrong."""
    try:
        cgroups = open_cgroup_tree()
    except NoCgroupsError as error:
        return str(error)
    try:
        group = cgroups.make(1)
        return _try_group(cgroups, group) if group is not None else f"no group can be made in {cgroups.path}"
    except OSError as error:
        return f"no process can be started in a group: {error.strerror}"
    finally:
        cgroups.close()


def _try_group(cgroups: CgroupTree, group: Cgroup) -> str:
    pid = system.fork_into(group.fd)
    if not pid:
        signal.alarm(_LIMIT_S)
        signal.pause()
        os._exit(0)
    cgroups.settle(group)
    placed = cgroups.token_of(pid) == 1
    group.kill()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "" if placed and status == -signal.SIGKILL else "a group does not kill the processes started in it"


if __name__ == "__main__":
    print(try_cgroups())  # noqa: T201 - this is what the program is for
