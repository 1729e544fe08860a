"""What is wrong with a call of any program for coding, found before anything is started.

Each adapter calls it in its ``check``; what only one of them cannot do is checked there.
"""

from __future__ import annotations

import os

from bartack.agents.contract import AgentRequest
from bartack.errors import AgentPlaceError, AgentRequestError

BAD_REQUEST = "bad_request"


def check_prompt(agent: str, request: AgentRequest) -> None:
    """Check the text of a prompt.

    Raises:
        AgentRequestError: It is empty, or cannot be sent.
    """
    text = request.inputs.get("text")
    if not isinstance(text, str) or not text.strip():
        raise AgentRequestError(agent, "the prompt is empty", BAD_REQUEST)
    for what, given in (("prompt", text), ("system text", request.system)):
        if "\0" in given:
            problem = f"the {what} has a NUL character at position {given.index(chr(0))}"
            raise AgentRequestError(agent, problem, BAD_REQUEST)


def check_place(agent: str, request: AgentRequest) -> None:
    """Check the working directory of a call, before each of its processes is started.

    Raises:
        AgentPlaceError: It does not exist.
    """
    if not os.path.isdir(request.cwd):
        raise AgentPlaceError(agent, f"its working directory {request.cwd!r} does not exist", "not_found")


def free_name(request: AgentRequest, wanted: str) -> str:
    """The name of a tool of ours beside those of the request."""
    taken = {tool.name for tool in request.tools}
    while wanted in taken:
        wanted += "_"
    return wanted
