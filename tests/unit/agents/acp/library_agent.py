"""An agent made with the library of the protocol: it asks for a permission and writes a file through its client."""

import asyncio
from pathlib import Path
from typing import Any, cast

import acp
from acp import schema as s


class LibraryAgent:
    """Does one thing for each prompt."""

    def __init__(self) -> None:
        self._client: Any = None
        self._cwd = ""

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **more: Any) -> s.InitializeResponse:
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **more: Any) -> s.NewSessionResponse:
        self._cwd = cwd
        return acp.NewSessionResponse(session_id="library-1")

    async def prompt(self, session_id: str, **more: Any) -> s.PromptResponse:
        call = s.ToolCallUpdate(
            tool_call_id="t1", title="make", kind="execute", raw_input={"command": "make"}
        )
        options = [
            s.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            s.PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        asked = await self._client.request_permission(session_id=session_id, tool_call=call, options=options)
        chosen = asked.outcome.option_id
        path = str(Path(self._cwd, "made.txt"))
        await self._client.write_text_file(session_id=session_id, path=path, content=f"{chosen}\n")
        read = await self._client.read_text_file(session_id=session_id, path=path)
        text = f"{chosen} {read.content.strip()}"
        await self._client.session_update(session_id=session_id, update=acp.update_agent_message_text(text))
        return acp.PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **more: Any) -> None:
        """Nothing takes long here."""


if __name__ == "__main__":
    asyncio.run(acp.run_agent(cast("Any", LibraryAgent())))
