"""The cost of supervised delivery: supervised sends, broadcasts, the notification of a crash, telemetry.

Run with ``python -m bench.delivery [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Final

import msgspec

from bartack.core.clock import SystemClock
from bartack.journal import open_reader
from bartack.runtime.kernel.mail_events import EventEmitter
from bartack.runtime.state import entries as e
from bartack.runtime.state.run_state import State
from bartack.runtime.state.worker_state import Value
from bartack.telemetry import Telemetry
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample
from bench._runs import drive_here, make_run, run_worker

RECIPIENTS: Final = 100


def sends(directory: str, size: int, *, worker: str, durability: str) -> Sample:
    """Microseconds per send."""
    return Sample(value=run_worker(directory, float, worker, size, durability=durability) / size * 1e6)


def broadcast(directory: str, size: int) -> Sample:
    """Milliseconds per broadcast, and how many commits the copies of one took."""
    run = make_run(directory, "broadcasts", RECIPIENTS, size)
    drive_here(run)
    with open_reader(run.dir) as reader:
        last = [entry for entry in reader.read() if entry.kind == "message.sent"][-RECIPIENTS:]
    commits = len({entry.commit for entry in last})
    return Sample(value=run.result(float) / size * 1e3, facts={"commits": str(commits)})


def one_by_one(directory: str, size: int) -> Sample:
    """Milliseconds for plain sends to as many mailboxes."""
    return Sample(value=run_worker(directory, float, "sends_to_many", RECIPIENTS, size) / size * 1e3)


def death(directory: str, size: int) -> Sample:
    """Milliseconds from the kill of a worker's process to the entry that says so, the median of several runs."""
    times: list[float] = []
    for number in range(size):
        folder = Path(directory, str(number))
        folder.mkdir()
        run = make_run(str(folder), "death")
        drive_here(run)
        with open_reader(run.dir) as reader:
            known = next(entry.at for entry in reader.read() if entry.kind == "worker.crashed")
        times.append((known - run.result(int)) / 1e3)
    return Sample(value=median(times))


def silence(directory: str, size: int) -> Sample:
    """Nanoseconds per entry of telemetry without a handler."""
    del directory
    emitter = EventEmitter(Telemetry(), State(), SystemClock())
    sent = e.MessageSent(mailbox="box", id="m-1", size=3, sender="main", p="main", n=1, fp="f")
    value = Value(msgspec.Raw(b"[1]"))
    began = perf_counter_ns()
    for _ in range(size):
        emitter.note(sent, 0, value)
    return Sample(value=(perf_counter_ns() - began) / size)


def _sends(key: str, title: str, durability: str, size: int) -> Race:
    return Race(
        key=key,
        title=title,
        unit="µs",
        better="lower",
        contestants=(
            Contestant(
                key=OURS,
                label="supervised send",
                measure=partial(sends, worker="supervised_sends", durability=durability),
                size=size,
            ),
            Contestant(
                key="plain",
                label="plain send",
                measure=partial(sends, worker="plain_sends", durability=durability),
                size=size,
            ),
        ),
    )


BENCH: Final = Bench(
    name="delivery",
    title="Deliveries",
    races=(
        _sends("send", "one send, accepted, synced", "power", 1000),
        _sends("process", "one send, accepted, process-durable", "process", 3000),
        Race(
            key="broadcast",
            title=f"to {RECIPIENTS} mailboxes, all or nothing, synced",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="broadcast", measure=broadcast, size=20, quick_size=5),
                Contestant(key="sends", label="plain sends", measure=one_by_one, size=5, quick_size=2),
            ),
        ),
        Race(
            key="death",
            title="kill of a worker's process → entry in the journal",
            unit="ms",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=death, size=3, quick_size=1, every=2),
            ),
        ),
        Race(
            key="silence",
            title="one message, telemetry without a handler",
            unit="ns",
            better="lower",
            contestants=(
                Contestant(key=OURS, label="bartack", measure=silence, size=200_000, quick_size=20_000),
            ),
        ),
    ),
    goals=(
        Goal(
            race="send",
            title="supervised to plain send",
            bound="at most",
            target=1.15,
            stretch=1.05,
            against="plain",
        ),
        Goal(
            race="broadcast",
            title="broadcast to plain sends",
            bound="at most",
            target=0.3,
            stretch=0.15,
            against="sends",
        ),
        Goal(race="death", title="death is known", bound="at most", target=5.0, stretch=2.0),
        Goal(race="silence", title="telemetry without a handler", bound="at most", target=900, stretch=600),
    ),
    notes=("One percent of a step of 60 to 90 µs is 600 to 900 ns.",),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
