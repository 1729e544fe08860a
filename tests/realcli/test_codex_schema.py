"""What is sent to Codex has the form that the program itself declares."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import jsonschema_rs
import msgspec
import pytest
from tests.unit.agents.codex.stage import THREAD, TURN, Stage, request_for

from bartack.agents._permissions import Permissions
from bartack.agents.codex._messages import (
    CodexPlan,
    fork_params,
    login_params,
    resume_params,
    start_params,
    turn_params,
)
from bartack.agents.codex._schema import plan_value
from bartack.agents.contract import ToolOutcome
from bartack.testing import ClaudeSandbox

Json = dict[str, object]

SCRIPTS: dict[str, list[Json]] = {"none": [{"text": "nothing is asked"}]}
CLOSED: Json = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
TOOL: Json = {"name": "double", "description": "d", "input_schema": {"type": "object"}}
REPLIES = {
    "item/commandExecution/requestApproval": "CommandExecutionRequestApprovalResponse",
    "item/fileChange/requestApproval": "FileChangeRequestApprovalResponse",
    "item/permissions/requestApproval": "PermissionsRequestApprovalResponse",
    "item/tool/call": "DynamicToolCallResponse",
    "item/tool/requestUserInput": "ToolRequestUserInputResponse",
}


@pytest.fixture
def schemas(sandbox: ClaudeSandbox, codex: list[str], tmp_path: Path) -> Path:
    """The schemas that Codex writes."""
    words = [*codex, "app-server", "generate-json-schema", "--experimental", "--out", str(tmp_path)]
    done = sandbox.run(words, timeout_s=60)
    assert done.returncode == 0, done.stderr
    return tmp_path


def validator(folder: Path, name: str) -> jsonschema_rs.Validator:
    schema = msgspec.json.decode((folder / f"{name}.json").read_bytes())
    return jsonschema_rs.validator_for(cast("Json", closed(schema)))


def closed(schema: object) -> object:
    """A schema in which a member that is not listed is an error: Codex ignores those, and so a misspelt one."""
    if isinstance(schema, list):
        return [closed(part) for part in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = {name: closed(part) for name, part in cast("Json", schema).items()}
    if isinstance(parts.get("properties"), dict) and "type" in parts and "oneOf" not in parts:
        parts.setdefault("additionalProperties", False)
    return parts


def sent(stage: Stage) -> list[Json]:
    return [{name: part for name, part in message.items() if name != "jsonrpc"} for message in stage.sent]


def everything() -> Stage:
    """A call in which everything that is ever sent is sent, but what begins a thread."""
    request = request_for(
        tools=[TOOL], system="be brief", inputs={"text": "x", "result_schema": {"type": "integer"}}
    )
    stage = Stage(request, permissions=Permissions(mode="auto", deny=["Bash(rm*)"]), may_ask=True)
    stage.open_turn()
    stage.ask("item/commandExecution/requestApproval", {"itemId": "a", "command": "make"}, 0)
    stage.ask("item/commandExecution/requestApproval", {"itemId": "b", "command": "rm a"}, 1)
    stage.ask("item/fileChange/requestApproval", {"itemId": "c"}, 2)
    wanted = {"network": {"enabled": True}}
    stage.ask("item/permissions/requestApproval", {"itemId": "d", "permissions": wanted}, 3)
    stage.ask("item/permissions/requestApproval", {"itemId": "e", "permissions": {}}, 4)
    stage.ask("item/tool/call", {"callId": "f", "tool": "double", "arguments": {}}, 5)
    stage.end_tool(ToolOutcome(result=[1]))
    stage.ask("item/tool/call", {"callId": "g", "tool": "answer", "arguments": {"value": 1}}, 6)
    question = {"id": "q", "header": "h", "question": "A?"}
    stage.ask("item/tool/requestUserInput", {"itemId": "h", "questions": [question]}, 7)
    stage.answer("yes")
    stage.cancel()
    return stage


METHODS = {
    0: "item/commandExecution/requestApproval",
    1: "item/commandExecution/requestApproval",
    2: "item/fileChange/requestApproval",
    3: "item/permissions/requestApproval",
    4: "item/permissions/requestApproval",
    5: "item/tool/call",
    6: "item/tool/call",
    7: "item/tool/requestUserInput",
}


@pytest.mark.requirement("codex-messages")
def test_requests_have_the_form_that_the_program_declares(schemas: Path) -> None:
    check = validator(schemas, "ClientRequest")
    stage = everything()
    requests = [message for message in sent(stage) if "method" in message and "id" in message]
    plan = CodexPlan(
        request=stage.request, value=plan_value(CLOSED), model="m", effort="high", mode="read", may_ask=True
    )
    params = {
        "account/login/start": login_params("k"),
        "thread/start": start_params(plan),
        "thread/resume": resume_params(plan, THREAD),
        "thread/fork": fork_params(plan, THREAD),
        "turn/start": turn_params(plan, THREAD, "text", "ik:1#1"),
    }
    requests += [{"id": 90, "method": method, "params": given} for method, given in params.items()]

    assert {str(message["method"]) for message in requests} == {
        "initialize", "account/login/start", "thread/start", "thread/resume", "thread/fork", "turn/start", "turn/steer",
        "turn/interrupt",
    }  # fmt: skip
    for message in requests:
        check.validate(message)
    assert not check.is_valid({"id": 1, "method": "turn/start", "params": {"threadId": TURN, "inputs": []}})


@pytest.mark.requirement("codex-messages")
def test_answers_have_the_form_that_the_program_declares(schemas: Path) -> None:
    answers = [message for message in sent(everything()) if "result" in message]

    assert {message["id"] for message in answers} == set(METHODS)
    for message in answers:
        number = message["id"]
        assert isinstance(number, int)
        validator(schemas, REPLIES[METHODS[number]]).validate(message["result"])


@pytest.mark.requirement("codex-messages")
def test_notifications_have_the_form_that_the_program_declares(schemas: Path) -> None:
    notes = [message for message in sent(everything()) if "method" in message and "id" not in message]

    assert notes == [{"method": "initialized"}]
    validator(schemas, "ClientNotification").validate(notes[0])
