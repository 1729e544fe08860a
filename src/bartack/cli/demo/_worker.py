"""The process that the demo kills: it executes numbered steps, one after the other, and acknowledges each on stdout.

It kills itself with SIGKILL, so it cannot clean up or flush. ``DyingDisk`` puts the kill inside a commit of the journal;
everything else is the journal of an ordinary run. ``_story.py`` starts it and has the proof.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from typing import Final, Literal, get_args

import msgspec

from bartack.cli.app._boundary import run_guarded
from bartack.cli.app._exit import Exit
from bartack.core import typed
from bartack.core.disk import RealDisk
from bartack.journal import Journal
from bartack.journal.file import open_journal

Moment = Literal["done", "half", "written", "durable"]
"""When to die: the step is done, half of its line is written, all of it is written, or it is durable but unacknowledged."""

MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)
STEP_FINISHED: Final = "step.finished"
EFFECTS: Final = "effects.log"


class Started(msgspec.Struct, frozen=True, tag=True):
    """The first message: how many steps the journal has, and how many bytes were cut off."""

    pid: int
    found: int
    cut_bytes: int


class Acknowledged(msgspec.Struct, frozen=True, tag=True):
    """The message after a step is durable. ``again`` means that its effect existed already and was not repeated."""

    step: int
    seq: int
    result: str
    again: bool


class Finished(msgspec.Struct, frozen=True):
    """Data of a step's entry."""

    step: int
    key: str
    result: str


class Orders(msgspec.Struct, frozen=True):
    """The instructions for a worker: the number of steps, and when to die, if at all."""

    directory: str
    steps: int
    die_at_step: int = 0
    moment: Moment = "done"
    as_json: bool = False


class DyingDisk(RealDisk):
    """The real disk, used by a process that dies during an operation."""

    def __init__(self) -> None:
        self.dies: Moment | None = None

    def write(self, fd: int, data: bytes, offset: int) -> int:
        """See ``Disk.write``."""
        if self.dies == "half":
            super().write(fd, data[: len(data) // 2], offset)
            die()
        taken = super().write(fd, data, offset)
        if self.dies == "written":
            die()
        return taken

    def sync(self, fd: int) -> None:
        """See ``Disk.sync``."""
        super().sync(fd)
        if self.dies == "durable":
            die()


class Effects:
    """The effects of the steps: one line each in a file outside the journal.

    It recognises the key of an effect that it has seen before, as a payment service or an agent would.
    """

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, EFFECTS)
        self._keys = {line.split()[1] for line in read_effects(directory)}

    def make(self, step: int, key: str) -> bool:
        """Perform the effect of a step unless its key is known; return whether it was known."""
        if key in self._keys:
            return True
        with open(self._path, "a", encoding="ascii") as log:
            log.write(f"{step} {key} {os.getpid()}\n")
        return False


def read_effects(directory: str) -> list[str]:
    """Return the lines of the effects so far: step, key, process."""
    try:
        with open(os.path.join(directory, EFFECTS), encoding="ascii") as log:
            return log.read().splitlines()
    except FileNotFoundError:
        return []


def key_of(step: int) -> str:
    """Return the idempotency key of a step: the same in every process that executes it."""
    return "ik:" + hashlib.sha256(b"demo step %d" % step).hexdigest()


def result_of(step: int, before: str) -> str:
    """Return the result of a step. It depends on all earlier results, so none can be missing or counted twice."""
    return hashlib.sha256(f"{before}:{step}".encode()).hexdigest()[:16]


def die() -> None:
    """Kill this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def work(orders: Orders) -> int:
    """Execute the steps that the journal does not have, and acknowledge each after its commit."""
    disk = DyingDisk()
    with open_journal(orders.directory, disk=disk) as journal:
        done = load_steps(journal)
        cut = journal.recovery.size_bytes if journal.recovery else 0
        _send(Started(os.getpid(), len(done), cut))
        effects = Effects(orders.directory)
        result = done[-1].result if done else ""
        for step in range(len(done) + 1, orders.steps + 1):
            again = effects.make(step, key_of(step))
            if step == orders.die_at_step:
                disk.dies = orders.moment
                if orders.moment == "done":
                    die()
            result = result_of(step, result)
            seq = journal.append(STEP_FINISHED, Finished(step, key_of(step), result))
            _send(Acknowledged(step, seq, result, again))
    return Exit.OK


def load_steps(journal: Journal) -> list[Finished]:
    """The steps in a journal, in their order."""
    return [entry.decode(Finished) for entry in journal.read() if entry.kind == STEP_FINISHED]


def _send(message: Started | Acknowledged) -> None:
    # Unbuffered: a message that was sent before a kill has arrived.
    os.write(sys.stdout.fileno(), msgspec.json.encode(message) + b"\n")


def main() -> int:
    """Execute the ``Orders`` in the first argument, as JSON."""
    orders = typed.decode(sys.argv[1], type=Orders)
    return run_guarded(lambda: work(orders), as_json=orders.as_json)


if __name__ == "__main__":
    sys.exit(main())
