"""What Codex asks to be allowed, in the common vocabulary, and the answers to it. ``_tool_permissions.py`` decides.

An approved command is executed again outside of Codex's sandbox if the sandbox stops it, so an approval is never only one for the
sandbox. Anything that cannot be read is denied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, NamedTuple, cast

from bartack.agents._permissions import Decision
from bartack.agents._tool_permissions import Decides, decide_or_deny
from bartack.agents.codex._reading import inner_command, read_places
from bartack.agents.program._json_lines import Json, member, object_of, objects_of, text_of
from bartack.agents.program._json_rpc import RpcId
from bartack.agents.tool_use import ToolUse

COMMAND: Final = "item/commandExecution/requestApproval"
FILES: Final = "item/fileChange/requestApproval"
GRANT: Final = "item/permissions/requestApproval"
METHODS: Final = frozenset({COMMAND, FILES, GRANT})

_STRICTNESS: Final = {"allow": 0, "ask": 1, "deny": 2}


class Approval(NamedTuple):
    """A request of Codex that waits for a decision.

    Attributes:
        rpc_id: The request.
        method: What is asked.
        item: The tool call that it is about.
        uses: What it comes to; empty if it cannot be read.
        params: The request as it came.
    """

    rpc_id: RpcId
    method: str
    item: str
    uses: tuple[ToolUse, ...]
    params: Json

    @property
    def shown(self) -> ToolUse:
        """The one that people are shown."""
        return self.uses[0] if self.uses else ToolUse("unknown")

    def answer(self, *, allowed: bool) -> Json:
        """The answer, in the form that the request wants. What is granted is granted for this turn only."""
        if self.method == GRANT:
            granted = object_of(self.params, "permissions") if allowed else {}
            return {
                "permissions": {name: value for name, value in granted.items() if value is not None},
                "scope": "turn",
            }
        return {"decision": "accept" if allowed else "decline"}


def read_approval(rpc_id: RpcId, method: str, params: Json, changes: Iterable[Json]) -> Approval:
    """What a request asks for. ``changes`` are those of the file change it is about, as they were announced."""
    item = text_of(params, "approvalId") or text_of(params, "itemId")
    if method == COMMAND:
        uses = _of_command(params)
    elif method == FILES:
        uses = _of_files(params, changes)
    else:
        uses = _of_grant(object_of(params, "permissions"))
    return Approval(rpc_id, method, item, tuple(uses), params)


def decide(approval: Approval, permissions: Decides) -> Decision:
    """The strictest decision about all that is asked for; a decision that fails is a denial."""
    if not approval.uses:
        return Decision("deny", "mode", "it does not say what it is for")
    found = [_decide_use(use, approval.params, permissions) for use in approval.uses]
    return max(found, key=lambda decision: _STRICTNESS[decision.decision])


def _decide_use(use: ToolUse, params: Json, permissions: Decides) -> Decision:
    decided = decide_or_deny(permissions, use)
    if decided.decision == "allow" or decided.by != "mode" or use.tool != "Bash":
        return decided
    # The mode has no place for commands, but this one may only look.
    places = read_places(use.command)
    if places is None:
        return decided
    cwd = text_of(params, "cwd")
    looks = [
        decide_or_deny(permissions, ToolUse.of_path("Read", os.path.join(cwd, place))) for place in places
    ]
    return max(
        looks, key=lambda one: _STRICTNESS[one.decision], default=Decision("allow", "mode", "it only looks")
    )


def _of_command(params: Json) -> list[ToolUse]:
    host = text_of(params, "networkApprovalContext", "host")
    command = text_of(params, "command")
    uses = [ToolUse.of_command(inner_command(command))] if command else []
    if host:
        uses.append(ToolUse("WebFetch", {"url": host}))
    if member(params, "additionalPermissions") is not None:
        uses += _of_grant(object_of(params, "additionalPermissions")) or [ToolUse("permissions")]
    return uses


def _of_files(params: Json, changes: Iterable[Json]) -> list[ToolUse]:
    paths = [path for change in changes for path in _paths(change)]
    root = text_of(params, "grantRoot")
    paths += [root] if root else []
    if not paths or not all(paths):
        return []
    return [ToolUse.of_paths("Edit", paths)]


def _paths(change: Json) -> list[str]:
    moved = member(change, "kind", "move_path")
    return [text_of(change, "path"), *([moved] if isinstance(moved, str) else [])]


def _of_grant(wanted: Json) -> list[ToolUse]:
    files = object_of(wanted, "fileSystem")
    uses = [ToolUse.of_path("Edit", path) for path in _texts(member(files, "write"))]
    uses += [ToolUse.of_path("Read", path) for path in _texts(member(files, "read"))]
    for entry in objects_of(files, "entries"):
        path = text_of(entry, "path", "path")
        tool = "Read" if text_of(entry, "access") in {"read", "deny"} else "Edit"
        uses.append(ToolUse.of_path(tool, path) if path else ToolUse("permissions"))
    if member(wanted, "network", "enabled"):
        uses.append(ToolUse("WebFetch"))
    return uses


def _texts(value: object) -> list[str]:
    given = cast("list[object]", value) if isinstance(value, list) else []
    return [one for one in given if isinstance(one, str)]
