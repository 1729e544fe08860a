"""A run that is made later and somewhere else, any number of times: what a schedule of a database keeps of it.

What can keep a run from being made is found out by the process that plans it. Making one from the plan executes no code of the program, so a
node does it, which has the credentials of the database.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bartack.config.load import write_sets
from bartack.core.batch import Batch
from bartack.journal import Draft
from bartack.runtime.hub.create import Plan
from bartack.runtime.program.pin import pin
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.secrets import open_veil
from bartack.runtime.state import entries as e


class PackedPlan(NamedTuple):
    """A run that can be made.

    Attributes:
        job: Its first entries, as JSON and without secrets.
        program: Its program and the settings that were given for it, as one archive.
    """

    job: bytes
    program: bytes


class _Job(msgspec.Struct):
    created: e.RunCreated
    arguments: msgspec.Raw


def pack_plan(plan: Plan) -> PackedPlan:
    """Pack everything that a run is made of, but for its id."""
    created = plan.created
    veil = open_veil(plan.config, created.workspace, created.root, created.program)
    job = veil.hide(msgspec.json.encode(_Job(created, msgspec.Raw(plan.arguments))))
    with tempfile.TemporaryDirectory(prefix="bartack-plan-") as folder:
        batch = Batch(synced=False)
        run = RunDir(folder)
        pin(plan.sources, run.program, batch)
        write_sets(run.path, plan.sets, batch)
        batch.settle(leaving=(str(Path(folder).parent),))
        return PackedPlan(job, run.pack())


def first_entries(job: bytes, run_id: str) -> Sequence[Draft]:
    """The first entries of a new run of a plan."""
    found = msgspec.json.decode(job, type=_Job)
    created = msgspec.structs.replace(found.created, run=run_id, seed=secrets.randbelow(2**32))
    spawned = e.WorkerSpawned(path=created.name, worker=created.worker)
    return e.draft(created), e.draft(spawned, bytes(found.arguments))
