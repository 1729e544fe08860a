"""A process that plays the hub: it starts both parent programs, has each start one shape, and ends orphans.

Called with a directory, the descriptor the shapes write to, the name of the shape, and how often the first of its parent programs
starts it. It prints the numbers of its parent programs, each after that of its guardian, as one line once they are ready, and later
a line for each parent program that died, once nothing of it is left.
"""

from __future__ import annotations

import os
import select
import sys

from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.parent.wire import ParentDied, ParentReady
from bartack.supervision.process.system import set_subreaper
from bartack.supervision.process.tree import kill_descendants


def start(directory: str, module: str, stdout: int | None = None) -> ParentClient:
    here = os.path.dirname(__file__)
    env = {**os.environ, "PYTHONPATH": here, "BARTACK_RUN_DIR": directory}
    return ParentClient.start(module, os.path.join(directory, "lock.tree"), env, directory, stdout=stdout)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(directory: str, fd: int, shape: str, forks: int) -> None:
    set_subreaper()
    zygote, keeper = start(directory, "shapes"), start(directory, KEEPER)
    for parent in (zygote, keeper):
        select.select([parent], [], [])
        assert [type(event) for event in parent.read_events()] == [ParentReady]
    for token in range(1, forks + 1):
        zygote.fork(token, shape.encode(), [fd], {"BARTACK_WORKER": f"main#{token}"})
    command = [sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "shapes.py"), shape]
    keeper.exec(1, [command], directory, {"BARTACK_RUN_DIR": directory, "BARTACK_STEP": "ik:1"}, stdout=fd)
    os.close(fd)
    say(f"{zygote.pid} {zygote.program_pid} {keeper.pid} {keeper.program_pid}")
    parents = {zygote, keeper}
    while parents:
        select.select(parents, [], [])
        for parent in list(parents):
            if any(isinstance(event, ParentDied) for event in parent.read_events()):
                parents.remove(parent)
                parent.close()
                survivors = kill_descendants([other.pid for other in parents])
                say(f"ended {parent.program_pid} {len(survivors)}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
