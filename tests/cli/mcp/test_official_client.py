"""The official client of the protocol as the peer, in every version that it knows."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the official library is not installed")

import mcp.client.session as official
from mcp.client import Client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from mcp import StdioServerParameters

pytestmark = pytest.mark.requirement("mcp-speaks-the-protocol")


def parameters(project: Path, *options: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "bartack", "mcp", *options],
        cwd=str(project),
        env={**os.environ, "CLAUDE_CODE_SESSION_ID": "official"},
    )


async def use(client: Client) -> dict[str, Any]:
    """Everything that a client does with a run, several calls at once among it."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait(message or "")

    tools = await client.list_tools()
    started = (await client.call_tool("start_run", {"entry": "gated"})).structured_content
    assert started is not None
    run = started["run"]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        wait = group.create_task(client.call_tool("wait_run", {"run": run}, progress_callback=progress))
        received = await client.call_tool("receive_message", {"run": run, "mailbox": "out"})
        first = await heard.get()
        await client.call_tool("send_message", {"run": run, "mailbox": "gate", "message": {"go": 1}})
    ended = wait.result()
    refused = await client.call_tool("run_status", {"run": "run-1999-nothing"})
    return {
        "tools": [tool.name for tool in tools.tools],
        "message": (received.structured_content or {})["message"],
        "value": (ended.structured_content or {})["value"],
        "heard": first,
        "refused": refused.is_error,
    }


EXPECTED = {"message": {"n": 1}, "value": {"go": 1}, "heard": "gated: before", "refused": True}


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_the_official_client_uses_the_server_in_each_version(
    project: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official, "LATEST_HANDSHAKE_VERSION", version)

    async def main() -> dict[str, Any]:
        async with Client(parameters(project), mode="legacy") as client:
            assert client.protocol_version == version
            return await use(client)

    found = asyncio.run(main())

    assert found.pop("tools")[0] == "start_run"
    assert found == EXPECTED


def test_a_client_of_the_newest_version_falls_back(project: Path) -> None:
    async def main() -> dict[str, Any]:
        async with Client(parameters(project)) as client:
            assert client.protocol_version == HANDSHAKE_PROTOCOL_VERSIONS[-1]
            return await use(client)

    found = asyncio.run(main())

    assert len(found.pop("tools")) == 8
    assert found == EXPECTED


def test_a_call_that_the_client_gives_up_leaves_the_server_usable(project: Path) -> None:
    async def main() -> bool:
        async with Client(parameters(project)) as client:
            started: Any = (await client.call_tool("start_run", {"entry": "gated"})).structured_content
            run: str = started["run"]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.call_tool("wait_run", {"run": run}), 1)
            listed = await client.call_tool("list_runs", {})
            return run in str(listed.structured_content)

    assert asyncio.run(main())
