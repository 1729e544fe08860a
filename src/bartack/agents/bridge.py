"""The bridge of a step: how an agent that starts MCP servers itself reaches the tools of its step.

The agent starts ``mcp/_bridge.py`` as its server. That program connects to the loop in which the agent is driven and copies bytes.
This module has only the types: ``BridgeHost`` is implemented by the hub.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from bartack.agents.process.process import Host

TOKEN_VARIABLE: Final = "BARTACK_STEP_TOKEN"  # noqa: S105 - the name of a variable
"""The variable of the bridge's environment that holds its token, and of no other process of the agent."""


class Bridge(Protocol):
    """The end of a bridge on the side of the tools. Its token is valid until ``close``, for one connection."""

    @property
    def argv(self) -> Sequence[str]:
        """The program that the agent is to start as its MCP server, with its arguments."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """What that program needs in its environment, and no other process may have."""
        ...

    def send(self, data: bytes) -> None:
        """Write to the agent, as soon as it reads; dropped if it is not connected."""
        ...

    def close(self) -> None:
        """End the connection, and refuse every later one."""
        ...


class BridgeHost(Host, Protocol):
    """A loop that agents live in, and that bridges can connect to."""

    def open_bridge(self, on_bytes: Callable[[bytes], None], on_closed: Callable[[], None]) -> Bridge:
        """Expect one connection of a bridge.

        Args:
            on_bytes: Called with bytes that came over it.
            on_closed: Called once when the other side is gone; not after ``Bridge.close``.
        """
        ...


def bridge_argv(socket: str) -> list[str]:
    """The command line of the program that connects to a socket."""
    program = Path(__file__).with_name("mcp") / "_bridge.py"
    return [sys.executable, "-I", "-S", str(program), socket]
