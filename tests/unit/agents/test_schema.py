"""Everything that is written validates: what we write by the closed schemas, what we accept by the open ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import jsonschema_rs
import msgspec
import pytest
from tests.unit.agents.stage import ANSWERS, Stage, request_for, valid, validator
from tests.wire import faults_below

import bartack.agents
from bartack.agents import read_line
from bartack.agents.protocol.messages import Budget, ToolSpec
from bartack.agents.schema import schema, schema_names, schema_text
from bartack.cli.project._schema import all_names, find_schema

SHIPPED = Path(bartack.agents.__file__).parent / "schemas"
pytestmark = pytest.mark.requirement("output-validates")


def test_the_schemas_that_are_shipped_are_those_of_the_code() -> None:
    made = {f"{name}.v1.json": schema_text(schema(name)) for name in schema_names()}

    assert {path.name: path.read_bytes() for path in SHIPPED.iterdir()} == made


@pytest.mark.parametrize("name", schema_names())
def test_a_schema_is_one_and_has_its_name(name: str) -> None:
    made = schema(name)

    jsonschema_rs.meta.validate(made)
    assert made["$id"] == f"urn:bartack:schema:{name}:v1"


@pytest.mark.parametrize("action", ANSWERS)
def test_everything_that_both_sides_write_validates(action: str, tmp_path: Path) -> None:
    replies = [
        {"inject": [{"do": "malformed"}], "logs": {"count": 2, "level": "warn"}, "error": "overloaded"},
        {
            "write": [{"path": "a", "content": "x"}],
            "events": [{"type": "progress", "payload": {"message": "m"}}],
            "error": "odd",
        },
        {"delay_s": 500},
    ]
    stage = Stage(tmp_path, {"responses": {action: replies}})
    tools = [ToolSpec("do_1", "does", {"type": "object"})]
    stage.ask(
        request_for(action, tmp_path, timeout_s=60.0, tools=tools, budget=Budget(usd=1, turns=5, wall_s=900))
    )

    assert {type(message).__name__ for message in stage.sent} >= {"Command", "Cancel", "Notice"}
    assert [line for line in stage.lines if not valid(line, closed=True)] == []
    assert [line for line in stage.heard if not valid(line, closed=True)] == []
    transcript = validator("agent-transcript-line", closed=True)
    assert all(transcript.is_valid(msgspec.to_builtins(event)) for event in stage.events)
    assert len(stage.events) > 5


def test_what_a_newer_agent_says_more_is_refused_by_the_closed_schema_only() -> None:
    log = {
        "kind": "log",
        "level": "info",
        "message": "m",
        "timestamp": "2026-01-01T00:00:00Z",
        "mood": "fine",
    }
    line = json.dumps(log).encode()

    assert (valid(line, closed=False), valid(line, closed=True)) == (True, False)
    assert not isinstance(read_line(line), bartack.agents.BadLine)


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"heartbeat","agent":{"agent_type":"builder"},"seq":1,"status":"asleep","pid":1,"uptime_s":1,'
        b'"last_activity_at":"2026-01-01T00:00:00Z"}',
        b'{"kind":"log","level":"loud","message":"m","timestamp":"2026-01-01T00:00:00Z"}',
        b'{"kind":"hello","protocol":1,"name":"a","version":"1"}',
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(line: bytes) -> None:
    assert isinstance(read_line(line), bartack.agents.BadLine)
    assert not valid(line, closed=False)


def test_a_script_validates_by_its_schema() -> None:
    script = {
        "version": 1,
        "prompts": [{"pattern": "x", "text": "y"}],
        "responses": {"review": [{"events": [{"type": "review.completed"}], "inject": [{"do": "crash"}]}]},
    }

    assert validator("script", closed=False).is_valid(script)
    assert not validator("script", closed=False).is_valid(
        {"responses": {"review": {"inject": [{"do": "dance"}]}}}
    )


def test_a_line_that_a_run_leaves_and_no_schema_wants_is_found(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("run")
    notice = {"kind": "notice", "message_id": "m", "code": "late", "message": "x"}
    more = {**notice, "mood": "good"}
    copies = [
        {"at": "", "dir": "out", "bytes": 1, "line": notice},
        {"at": "", "dir": "out", "bytes": 1, "line": more},
        {"at": "", "dir": "in", "bytes": 1, "line": {"kind": "log", "level": "info"}},
        {"at": "", "dir": "in", "bytes": 1, "case": "malformed", "text": "{"},
    ]
    text = "".join(msgspec.json.encode(copy).decode() + "\n" for copy in copies)
    (folder / "stream.ndjson").write_text(f'{text}{{"torn')
    (folder / "transcript.ndjson").write_text('{"event": "agent.dreamt"}\n')

    faults = faults_below(folder)

    assert sum("mood" in fault for fault in faults) == 1
    assert any('"message" is a required property' in fault for fault in faults)
    assert any("agent-transcript-line" in fault for fault in faults)


def patterns(part: object) -> list[str]:
    """All patterns in a schema."""
    if isinstance(part, list):
        return [found for item in cast("list[object]", part) for found in patterns(item)]
    if not isinstance(part, dict):
        return []
    members = cast("dict[str, object]", part)
    own = [members["pattern"]] if isinstance(members.get("pattern"), str) else []
    return [*cast("list[str]", own), *(found for member in members.values() for found in patterns(member))]


@pytest.mark.parametrize("name", all_names())
def test_a_schema_is_one_that_every_validator_can_read(name: str) -> None:
    made = find_schema(name)

    assert jsonschema_rs.meta.is_valid(made)
    for pattern in patterns(made):
        # What Python has and ECMAScript has not, or has in another meaning.
        assert not re.search(r"\\[AZz]|\(\?P|\(\?[aiLmsux]+\)|\(\?#|\(\?\(", pattern), pattern
    if name == "config":
        assert "^[^\\x00]*$" in patterns(made)
