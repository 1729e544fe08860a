"""The command of the line protocol that a request becomes: the same for a program, for an agent in memory and for a check.

Which attempt it is and when it is due is decided by the caller; ids are computed in ``protocol/ids.py``.
"""

from __future__ import annotations

from bartack.agents.contract import AgentRequest
from bartack.agents.protocol.ids import conversation_id, correlation_id, moment
from bartack.agents.protocol.messages import Budget, Command, Party, Retry


def task_of(request: AgentRequest) -> str:
    """The task that messages about a request name: its own, or the worker that asks."""
    return request.task_id or request.worker


def correlation_of(request: AgentRequest) -> str:
    """What all messages about a request have in common."""
    task_id = task_of(request)
    return correlation_id(
        request.run_id, task_id, request.action, request.worker, request.epoch, request.step
    )


def make_command(
    request: AgentRequest, agent: str, retry: Retry, *, message_id: str, deadline_us: int
) -> Command:
    """A request as a command to an agent."""
    return Command(
        protocol=1,
        message_id=message_id,
        correlation_id=correlation_of(request),
        run_id=request.run_id,
        task_id=task_of(request),
        idempotency_key=request.key,
        to=Party(request.role, agent),
        action=request.action,
        inputs=request.inputs,
        expected_outputs=request.expected_outputs,
        version=request.version,
        deadline=moment(deadline_us),
        retry=retry,
        budget=None if request.budget == Budget() else request.budget,
        conversation=conversation_id(request.run_id, request.key),
        tools=request.tools or None,
        priority=5,
    )
