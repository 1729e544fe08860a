"""A run with a million entries: what its hub needs, and how long it takes to go on."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable

import msgspec
import pytest
from tests.crash.runs import Begin, RealRun
from tests.crash.test_run_rights import memory_kb
from tests.crash.warden import waited

from bartack.journal import Draft, open_journal
from bartack.runtime.state import entries as e

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")

Record = Callable[[str, object], None]

SOAK = "BARTACK_CHAOS_SOAK" in os.environ
WORKERS = 10
ENTRIES = 1_000_000 if SOAK else 50_000
STEPS = ENTRIES // WORKERS
HUB_LIMIT_KB = 120 * 1024
RESUME_LIMIT_S = 10.0


def learn_fingerprint(run: RealRun) -> str:
    """What a step of the worker looks like in the journal."""
    run.start()
    done = run.wait_entry(lambda entry: entry.kind == "step.finished" and entry.data["step"] == "body")
    run.kill_hub()
    return str(done.data["fp"])


def write_history(run: RealRun, fp: str) -> None:
    """Every worker but the last has done all of its steps and ended; the last has one left."""
    have = {str(entry.data["p"]): 0 for entry in run.entries() if entry.kind == "step.finished"}
    for entry in run.entries():
        if entry.kind == "step.finished" and entry.data["step"] == "body":
            have[str(entry.data["p"])] += 1
    with open_journal(run.run.path, durability="process") as journal:
        for number in range(1, WORKERS + 1):
            path = f"long/1.{number}:ticker"
            last = STEPS - 1 if number == WORKERS else STEPS
            for first in range(have.get(path, 0) + 1, last + 1, 1000):
                for n in range(first, min(first + 1000, last + 1)):
                    journal.stage(draft(path, n, fp))
                journal.commit()
            if number < WORKERS:
                journal.stage(e.draft(e.WorkerEnded(path=path), msgspec.json.encode(STEPS)))
                journal.commit()


def draft(path: str, n: int, fp: str) -> Draft:
    return e.draft(e.StepFinished(p=path, n=n, step="body", fp=fp), b"null")


def test_a_run_with_many_entries_goes_on_soon_and_needs_little(begin: Begin, record_property: Record) -> None:
    run = begin("long", WORKERS, STEPS)
    write_history(run, learn_fingerprint(run))
    last = run.last_seq()

    began = time.time()
    hub = run.start()
    pidfd = os.pidfd_open(hub.pid)
    memory = 0
    while not select.select([pidfd], [], [], 0.1)[0]:
        memory = max(memory, memory_kb(run))
    os.close(pidfd)
    stalled_s = waited(hub.pid)

    assert run.wait_hub() == 0, run.story()
    new = next(entry for entry in run.entries() if entry.seq > last and entry.kind.startswith("step."))
    took_s = new.at / 1e6 - began - stalled_s
    assert run.api.result() == [STEPS] * WORKERS
    assert took_s < RESUME_LIMIT_S
    assert memory < HUB_LIMIT_KB
    record_property("long_run", f"{ENTRIES:,} entries: {took_s:.1f} s to go on, hub {memory // 1024} MB")
