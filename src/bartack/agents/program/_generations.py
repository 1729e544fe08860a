"""The conversations of one step. One that cannot be resumed is abandoned, and the next *generation* begins, with an id of its own.

Each generation has a directory of its own, so a later hub finds the newest one by looking.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bartack.agents.contract import AgentRequest
from bartack.agents.protocol.ids import conversation_id
from bartack.errors import AgentRequestError

GENERATIONS: Final = 2
"""At most this many conversations are begun for one step."""


def generation_id(request: AgentRequest, generation: int) -> str:
    """The id of the conversation of a generation, which is also the name of its directory."""
    return conversation_id(request.run_id, request.key, generation)


def newest_generation(folder: Path, request: AgentRequest) -> int:
    """The newest generation that a hub has begun for a step; ``folder`` is the directory of the agent."""
    newest = 0
    while (folder / generation_id(request, newest + 1)).is_dir():
        newest += 1
    return newest


def missing_parent(agent: str, conversation: str) -> AgentRequestError:
    """A call is to continue a conversation that is not there."""
    problem = f"there is no conversation {conversation} of this agent to continue"
    return AgentRequestError(agent, problem, "not_found", "not_found")
