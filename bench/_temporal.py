"""Temporal as a peer: one workflow whose steps are activities, one after the other, on the server at ``$TEMPORAL_ADDRESS``.

Its server is not a package, so it is measured only where one runs already. The activity notes when it is executed: the time between
the first and the last of them is what the steps take, without the start and the end of the workflow.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import perf_counter
from typing import Final

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from bench._peers import TEMPORAL_ADDRESS
from bench._runner import Sample
from bench._work import outcome

LIMIT: Final = timedelta(seconds=60)

_times: list[float] = []


@activity.defn  # type: ignore[untyped-decorator]  # - the SDK is not installed where types are checked
def turn(number: int) -> dict[str, object]:
    """A step."""
    _times.append(perf_counter())
    return dict(outcome(number))


@workflow.defn(sandboxed=False)
class Turns:
    """Steps one after the other."""

    @workflow.run  # type: ignore[untyped-decorator]  # - likewise
    async def run(self, count: int) -> None:
        """Do them all, and one before."""
        for number in range(count + 1):
            await workflow.execute_activity(turn, number, start_to_close_timeout=LIMIT)


def steps(size: int) -> Sample:
    """Steps per second of one workflow."""
    _times.clear()
    asyncio.run(_run(size))
    return Sample(value=size / (_times[-1] - _times[0]))


async def _run(size: int) -> None:
    client = await Client.connect(os.environ[TEMPORAL_ADDRESS])
    queue = f"bartack-bench-{uuid.uuid4().hex}"
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[Turns],
        activities=[turn],
        activity_executor=ThreadPoolExecutor(1),
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        await client.execute_workflow(Turns.run, size, id=queue, task_queue=queue)
