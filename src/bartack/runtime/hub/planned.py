"""A run that is made later and somewhere else, any number of times: what a schedule of a database keeps of it.

What can keep a run from being made is found out by the process that plans it. Making one from the plan executes no code of the
program, so a node does it, which has the credentials of the database.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bartack.config.load import keep_settings, write_sets
from bartack.core import typed
from bartack.core.batch import Batch
from bartack.journal import BlobRef, Draft
from bartack.runtime.copies.copies import WHOLE
from bartack.runtime.hub.carried import carry_workspace
from bartack.runtime.hub.create import Plan
from bartack.runtime.program.pin import pin
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.secrets import open_veil
from bartack.runtime.state import entries as e


class PackedPlan(NamedTuple):
    """A run that can be made.

    Attributes:
        job: Its first entries, as JSON and without secrets.
        program: Its program and its settings, as one archive.
        copy: The workspace that travels with each run; empty if none does.
        needs: The labels that a node must have for the agents that it may ask.
    """

    job: bytes
    program: bytes
    copy: bytes = b""
    needs: Sequence[str] = ()


class _Job(msgspec.Struct):
    created: e.RunCreated
    arguments: msgspec.Raw
    kept: e.WorkspaceKept | None = None
    copy: BlobRef | None = None


def pack_plan(plan: Plan) -> PackedPlan:
    """Pack everything that a run is made of, but for its id.

    Raises:
        WorkspaceCarryError: Its workspace is too large to travel.
        WorkspaceKeepError: Its workspace cannot be copied.
    """
    created = plan.created
    veil = open_veil(plan.config, created.workspace, created.root, created.program)
    made = _Job(created, msgspec.Raw(plan.arguments))
    content = b""
    with tempfile.TemporaryDirectory(prefix="bartack-plan-") as folder:
        batch = Batch(synced=False)
        run = RunDir(folder)
        pin(plan.sources, run.program, batch)
        write_sets(run.path, plan.sets, batch)
        batch.settle(leaving=(str(Path(folder).parent),))
        keep_settings(run.path, Path(created.workspace))
        if plan.is_carried:
            # A schedule keeps one value for its workspace.
            carried = carry_workspace(run, Path(created.workspace), plan.config.workspace, WHOLE)
            made.kept, (made.copy,) = carried
            content = run.open_blobs().verify(made.copy)
        return PackedPlan(veil.hide(msgspec.json.encode(made)), run.pack(), content, created.needs)


def first_entries(job: bytes, run_id: str) -> Sequence[Draft]:
    """The first entries of a new run of a plan."""
    found = typed.decode(job, type=_Job)
    created = msgspec.structs.replace(found.created, run=run_id, seed=secrets.randbelow(2**32))
    spawned = e.WorkerSpawned(path=created.name, worker=created.worker)
    first = [e.draft(created), e.draft(spawned, bytes(found.arguments))]
    if found.kept is not None:
        first.append(e.draft(found.kept, ref=found.copy))
    return first
