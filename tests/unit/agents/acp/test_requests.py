"""What an agent asks its client for: permissions, files, tools over its bridge, and questions to people."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.acp.acp_stage import Stage

from bartack.agents.acp._text_files import MOST_BYTES, read_text, write_text
from bartack.agents.contract import CallPermission, CallTool, ToolOutcome
from bartack.agents.protocol.messages import ToolSpec

TOOL = ToolSpec("do_1", "Does it.", {"type": "object", "properties": {}, "additionalProperties": False})
COMMAND: dict[str, object] = {"toolCallId": "t1", "kind": "execute", "rawInput": {"command": "make x"}}
ALLOWED = {"outcome": "selected", "optionId": "o-allow_once"}
REJECTED = {"outcome": "selected", "optionId": "o-reject_once"}


@pytest.mark.parametrize(
    ("mode", "kind", "outcome"),
    [
        ("read", "execute", REJECTED),
        ("edit", "execute", REJECTED),
        ("auto", "execute", ALLOWED),
        ("all", "execute", ALLOWED),
        ("read", "read", ALLOWED),
        ("read", "search", ALLOWED),
        ("read", "edit", REJECTED),
        ("edit", "edit", ALLOWED),
        ("edit", "delete", ALLOWED),
        ("edit", "move", ALLOWED),
        ("edit", "fetch", REJECTED),
        ("auto", "fetch", ALLOWED),
        ("edit", "other", REJECTED),
        ("auto", "other", ALLOWED),
    ],
)
@pytest.mark.requirement("acp-permissions")
def test_the_mode_decides_by_the_kind_of_the_tool(
    tmp_path: Path, mode: str, kind: str, outcome: dict[str, str]
) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": mode}})
    stage.open()
    locations = [{"path": str(tmp_path / "a.txt")}]
    answer = stage.ask_permission({"toolCallId": "t1", "kind": kind, "title": "x", "locations": locations})

    assert answer["result"]["outcome"] == outcome
    told = [event.decision for event in stage.events if isinstance(event, CallPermission)]
    assert told == ([] if outcome == ALLOWED else ["deny"])
    assert len(stage.talk.denials) == (0 if outcome == ALLOWED else 1)


@pytest.mark.requirement("acp-permissions")
def test_no_file_that_an_edit_names_is_overlooked(tmp_path: Path) -> None:
    inside, outside = str(tmp_path / "a"), "/etc/passwd"
    stage = Stage(tmp_path, config={"permissions": {"mode": "edit"}})
    stage.open()
    reports: list[dict[str, object]] = [
        {"locations": [{"path": inside}, {"path": outside}]},
        {"rawInput": {"file_path": outside}, "locations": [{"path": inside}]},
        {"toolCallId": "t9", "locations": [{"path": inside}]},
        {"content": [{"type": "diff", "path": outside, "newText": ""}], "locations": [{"path": inside}]},
        {},
    ]
    stage.tool("tool_call", "t9", kind="edit", title="x", locations=[{"path": outside}])
    for number, more in enumerate(reports):
        asked: dict[str, object] = {"toolCallId": f"t{number}", "kind": "edit", **more}
        answer = stage.ask_permission(asked, number=900 + number)

        assert answer["result"]["outcome"] == REJECTED, more


@pytest.mark.requirement("acp-permissions")
def test_what_was_reported_of_a_call_before_counts_for_its_permission(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "auto", "deny": ["Bash(rm *)"]}})
    stage.open()
    stage.tool("tool_call", "t1", title="remove", kind="execute", rawInput={"command": "rm x"})

    assert stage.ask_permission({"toolCallId": "t1"})["result"]["outcome"] == REJECTED


@pytest.mark.requirement("acp-permissions")
def test_only_this_one_call_is_ever_allowed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "auto"}})
    stage.open()

    answer = stage.ask_permission(COMMAND, "allow_always", "reject_always")
    assert answer["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize(
    ("report", "own"),
    [
        ({"name": "mcp__bartack__do_1", "kind": "other", "title": "mcp__bartack__do_1"}, True),
        ({"_meta": {"claudeCode": {"toolName": "mcp__bartack__do_1"}}, "kind": "other", "title": "x"}, True),
        ({"title": "bartack: do_1", "kind": "other"}, True),
        ({"title": "do_1", "kind": "other"}, False),
        ({"title": "bartack: undo_1", "kind": "other"}, False),
        ({"title": "rm -rf / # bartack do_1", "kind": "execute"}, False),
        ({"title": "bartack do_1", "kind": "other", "name": "Bash"}, False),
        ({"title": "bartack do_1", "kind": "other", "rawInput": {"command": "x"}}, False),
    ],
)
@pytest.mark.requirement("acp-permissions")
def test_tools_of_ours_are_allowed_and_nothing_that_only_looks_like_them(
    tmp_path: Path, report: dict[str, object], own: bool
) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "read"}}, tools=[TOOL])
    stage.open()

    answer = stage.ask_permission({"toolCallId": "t1", **report})
    assert answer["result"]["outcome"] == (ALLOWED if own else REJECTED)


@pytest.mark.parametrize(("said", "outcome"), [("allow", ALLOWED), ("deny", REJECTED)])
@pytest.mark.requirement("acp-permissions")
def test_a_person_decides_where_the_mode_is_ask(tmp_path: Path, said: str, outcome: dict[str, str]) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "ask"}})
    stage.open()
    assert stage.ask_permission(COMMAND) == {}
    stage.pass_time(10_000)
    assert not stage.outcomes
    assert (stage.questions[0].kind, stage.questions[0].tool) == ("permission", "Bash")
    stage.answer(said)

    assert stage.answer_to(900)["result"]["outcome"] == outcome


@pytest.mark.requirement("acp-permissions")
def test_a_decision_that_fails_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "all"}})
    stage.open()

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("bartack.agents._tool_permissions.ToolPermissions.decide", fail)
    assert stage.ask_permission(COMMAND)["result"]["outcome"] == REJECTED


@pytest.mark.requirement("acp-permissions")
def test_a_function_with_the_name_of_a_tool_allows_nothing(tmp_path: Path) -> None:
    named = ToolSpec("Bash", "Looks harmless.", {"type": "object", "properties": {}})
    stage = Stage(tmp_path, config={"permissions": {"mode": "read"}}, tools=[named])
    stage.open()

    assert stage.ask_permission({**COMMAND, "name": "Bash"})["result"]["outcome"] == REJECTED


# Files.


def read(stage: Stage, path: str, **more: object) -> dict[str, Any]:
    stage.say(
        {"id": 900, "method": "fs/read_text_file", "params": {"sessionId": "s-1", "path": path, **more}}
    )
    return stage.answer_to(900)


def write(stage: Stage, path: str, content: object = "x") -> dict[str, Any]:
    params = {"sessionId": "s-1", "path": path, "content": content}
    stage.say({"id": 900, "method": "fs/write_text_file", "params": params})
    return stage.answer_to(900)


@pytest.mark.requirement("acp-files")
def test_an_agent_reads_and_writes_text_files_that_it_may(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "edit"}})
    stage.open()
    path = str(tmp_path / "a.txt")

    assert "result" in write(stage, path, "one\ntwo\nthree\n")
    assert read(stage, path)["result"] == {"content": "one\ntwo\nthree\n"}
    assert read(stage, path, line=2, limit=1)["result"] == {"content": "two\n"}
    assert read(stage, str(tmp_path / "b"))["error"]["code"] == -32002


@pytest.mark.requirement("acp-files")
def test_a_write_is_refused_by_the_one_decision(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "read"}})
    stage.open()

    assert "not allowed" in str(write(stage, str(tmp_path / "a.txt"))["error"])
    assert stage.files.texts == {}
    assert len(stage.talk.denials) == 1


@pytest.mark.requirement("acp-files")
def test_a_link_is_resolved_before_the_decision(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "edit"}})
    stage.open()
    link = str(tmp_path / "link")
    stage.files.links[link] = "/etc/hosts"

    assert "not allowed" in str(write(stage, link)["error"])
    assert "not allowed" in str(write(stage, str(tmp_path / ".git" / "config"))["error"])


@pytest.mark.parametrize("path", ["a.txt", "", "/a\0b"])
def test_a_path_that_is_not_absolute_is_refused(tmp_path: Path, path: str) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "all"}})
    stage.open()

    assert read(stage, path)["error"]["code"] == -32602


def test_content_that_is_not_text_is_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "all"}})
    stage.open()

    assert write(stage, str(tmp_path / "a"), 7)["error"]["code"] == -32602


@pytest.mark.requirement("acp-files")
def test_a_person_decides_about_a_file(tmp_path: Path) -> None:
    stage = Stage(tmp_path, config={"permissions": {"mode": "ask"}})
    stage.open()
    path = str(tmp_path / "a.txt")
    assert write(stage, path) == {}
    stage.answer("allow")

    assert stage.files.texts == {path: "x"}
    assert "result" in stage.answer_to(900)


def test_files_are_replaced_whole_and_keep_their_permissions(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.sh"
    write_text(str(path), "one\n")
    path.chmod(0o755)
    before = path.stat().st_ino
    write_text(str(path), "two\n")

    assert (path.read_text(), path.stat().st_mode & 0o777) == ("two\n", 0o755)
    assert path.stat().st_ino != before
    assert [entry.name for entry in path.parent.iterdir()] == ["a.sh"]


def test_what_is_not_a_text_file_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * (MOST_BYTES + 1))

    for name in ("pipe", "bytes", "large"):
        with pytest.raises(ValueError, match="it"):
            read_text(str(tmp_path / name))
    with pytest.raises(ValueError, match="regular"):
        write_text(str(pipe), "x")
    with pytest.raises(ValueError, match="bytes"):
        write_text(str(tmp_path / "a"), "x" * (MOST_BYTES + 1))
    assert read_text(str(tmp_path / "large"), 1, 0) == ""


# Tools over the bridge.


@pytest.mark.requirement("acp-tools")
def test_a_tool_is_called_over_the_bridge_and_its_result_is_written_down_first(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tools=[TOOL])
    prompt = stage.open()
    listed = stage.mcp({"id": 1, "method": "tools/list"})
    assert stage.call("do_1", {}, 2, **{"claudecode/toolUseId": "t1"}) == []
    stage.talk.tool_ended("t1", ToolOutcome(result=42))
    stage.go()

    assert [tool["name"] for tool in listed[0]["result"]["tools"]] == ["do_1"]
    assert "[tool do_1]" in prompt["params"]["prompt"][0]["text"]
    assert [(call.call_id, call.name) for call in stage.calls] == [("t1", "do_1")]
    assert stage.files.tools == [("t1", "do_1", "42")]
    assert b'"structuredContent":{"value":42}' in stage.bridge[-1]


@pytest.mark.requirement("acp-tools")
def test_a_tool_of_ours_pauses_the_limits_of_the_call(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tools=[TOOL], timeout_s=100.0, config={"stall_s": 10})
    stage.open()
    stage.call("do_1", {})
    stage.pass_time(10_000)

    assert not stage.outcomes


@pytest.mark.requirement("large-results-are-stored")
def test_of_a_large_result_the_agent_gets_the_beginning_and_where_all_of_it_is(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tools=[TOOL])
    stage.open()
    stage.call("do_1", {}, 2)
    stage.talk.tool_ended("mcp-1-2", ToolOutcome(result="x" * 70_000))
    stage.go()

    assert [len(text) for text in stage.files.stored] == [70_002]
    assert b"[70002 characters; all of them are in /results/1]" in stage.bridge[-1]
    assert len(stage.bridge[-1]) < 40_000
    assert stage.files.tools[0][2].endswith("/results/1]")


def test_the_failure_of_a_tool_is_told_to_the_agent(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tools=[TOOL])
    stage.open()
    stage.call("do_1", {}, 2)
    stage.talk.tool_ended("mcp-1-2", ToolOutcome(code="tool_failed", message="ValueError: no"))
    stage.go()

    assert b'"isError":true' in stage.bridge[-1]
    assert b"ValueError: no" in stage.bridge[-1]


@pytest.mark.requirement("acp-tools")
def test_a_call_after_the_end_of_the_step_runs_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tools=[TOOL])
    stage.open()
    stage.end()

    answer = stage.call("do_1", {})
    assert answer[0]["result"]["content"][0]["text"] == "this step has ended"
    assert stage.calls == []


def test_a_tool_of_ours_is_reported_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, tools=[TOOL])
    stage.open()
    name: dict[str, object] = {"name": "mcp__bartack__do_1", "kind": "other", "title": "x"}
    stage.tool("tool_call", "t1", **name)
    stage.call("do_1", {}, 2, **{"claudecode/toolUseId": "t1"})
    stage.talk.tool_ended("t1", ToolOutcome(result=1))
    stage.go()
    stage.tool("tool_call_update", "t1", status="completed")

    assert [event.phase for event in stage.events if isinstance(event, CallTool)] == ["started", "finished"]


def test_a_function_called_answer_keeps_its_name(tmp_path: Path) -> None:
    tool = ToolSpec("answer", "Answers.", {"type": "object", "properties": {}})
    stage = Stage(tmp_path, tools=[tool], inputs={"text": "x", "result_schema": {"type": "integer"}})
    prompt = stage.open()
    stage.call("answer_", {"value": 3}, 1)
    stage.call("answer", {}, 2)

    assert "'answer_'" in prompt["params"]["prompt"][0]["text"]
    assert [call.name for call in stage.calls] == ["answer"]


# Questions.


@pytest.mark.requirement("acp-tools")
def test_an_agent_asks_a_person_with_the_tool_ask(tmp_path: Path) -> None:
    stage = Stage(tmp_path, may_ask=True)
    stage.open()
    asked = {"question": "Which one?", "options": ["a", "b"], "default": "a"}
    assert stage.call("ask", dict(asked)) == []
    question = stage.questions[0]
    stage.answer("b")

    assert (question.kind, question.text, question.options, question.default) == (
        "ask",
        "Which one?",
        ["a", "b"],
        "a",
    )
    assert b'"text":"b"' in stage.bridge[-1]


def test_where_no_person_can_be_asked_the_agent_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path, may_ask=True)
    stage.open()
    stage.call("ask", {"question": "Which one?"})
    stage.answer(refused="there is no person to ask")

    assert b'"isError":true' in stage.bridge[-1]


def test_a_question_that_the_agent_takes_back_is_withdrawn(tmp_path: Path) -> None:
    stage = Stage(tmp_path, may_ask=True, timeout_s=100.0)
    stage.open()
    stage.call("ask", {"question": "Which one?"}, 5)
    stage.mcp({"method": "notifications/cancelled", "params": {"requestId": 5}})
    before = len(stage.bridge)
    stage.answer("late")

    assert len(stage.bridge) == before
    assert len(stage.withdrawn) == 1
    assert stage.talk.next_due() is not None
