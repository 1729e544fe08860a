"""What a script can say, and how the agent that plays it keeps to the protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.agents.stage import ANSWERS, Stage, request_for

from bartack.agents import AgentResult
from bartack.agents.contract import CallFinished, CallText
from bartack.agents.replies import findings_of
from bartack.agents.scripted._script import Write, apply_write, ignored_members, load_script
from bartack.agents.scripted.scripted import read_script
from bartack.errors import AgentError, AgentRequestError, ScriptError, UnsafePathError

pytestmark = pytest.mark.requirement("scripts-are-played")


def key(number: int) -> str:
    return f"ik:{number:064x}"


def summaries(stage: Stage, root: Path, count: int, **changes: object) -> list[object]:
    """Ask several times, each time for something new; what the answers say."""
    told: list[object] = []
    for number in range(count):
        outcome = stage.ask(request_for("implement", root, key=key(number), step=number, **changes))
        told.append(outcome.payload.get("summary") if isinstance(outcome, AgentResult) else outcome.reason)
    return told


def reply(text: str, **more: object) -> dict[str, object]:
    return {"events": [{"type": "builder.completed", "payload": {"summary": text}}], **more}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("repeat_last", ["a", "b", "b", "b"]),
        ("cycle", ["a", "b", "a", "b"]),
        ("error", ["a", "b", "script_exhausted", "script_exhausted"]),
        ("hang", ["a", "b", "deadline_exceeded", "deadline_exceeded"]),
    ],
)
def test_call_n_gets_reply_n_and_then_what_the_script_says(
    mode: str, expected: list[str], tmp_path: Path
) -> None:
    script: dict[str, object] = {
        "defaults": {"on_exhausted": mode},
        "responses": {"implement": [reply("a"), reply("b")]},
    }
    stage = Stage(tmp_path, script, config={"stall_s": 0})

    assert summaries(stage, tmp_path, 4, timeout_s=60.0) == expected


def test_a_reply_may_serve_several_calls(tmp_path: Path) -> None:
    script: dict[str, object] = {"responses": {"implement": [reply("a", times=2), reply("b", times=0)]}}

    assert summaries(Stage(tmp_path, script), tmp_path, 4) == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        ({"task": "T-1"}, True),
        ({"task": "T-2"}, False),
        ({"cause": "start", "round": 1}, True),
        ({"round": 2}, False),
        ({"attempt": 1}, True),
        ({"attempt": 2}, False),
        ({"input": {"goal": "x"}}, True),
        ({"input": {"goal": "y"}}, False),
    ],
)
def test_a_reply_is_for_the_calls_that_it_names(
    when: dict[str, object], tmp_path: Path, *, fits: bool
) -> None:
    script: dict[str, object] = {"responses": {"implement": [reply("named", when=when), reply("other")]}}

    assert summaries(Stage(tmp_path, script), tmp_path, 1) == ["named" if fits else "other"]


def test_an_action_without_an_entry_is_not_supported(tmp_path: Path) -> None:
    outcome = Stage(tmp_path, {"responses": {}}).ask(request_for("review", tmp_path))

    assert isinstance(outcome, AgentRequestError)
    assert outcome.reason == "unsupported_action"


def test_prompts_are_answered_by_rules_first_then_by_a_reply_then_by_strictness(tmp_path: Path) -> None:
    rule = {"pattern": "week", "text": "by rule", "usd": 0.5, "times": 0}
    both: dict[str, object] = {
        "prompts": [rule],
        "responses": {
            "prompt": {"events": [{"type": "prompt.completed", "payload": {"result": "by reply"}}]}
        },
    }

    def ask(script: dict[str, object], text: str) -> object:
        outcome = Stage(tmp_path, script, remembers=False).ask(
            request_for("prompt", tmp_path, inputs={"text": text})
        )
        return outcome.payload["result"] if isinstance(outcome, AgentResult) else outcome.reason

    assert ask(both, "which week") == "by rule"
    assert ask(both, "which day") == "by reply"
    assert ask({"prompts": [rule]}, "which day") == "invalid_inputs"
    assert ask({"prompts": [rule], "strict": False}, "which day") == ""


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [("transient", "temporary_failure"), ("terminal", "invalid_inputs"), ("die", "agent_exited")],
)
def test_a_rule_may_fail_in_the_words_of_rules(outcome: str, reason: str, tmp_path: Path) -> None:
    script: dict[str, object] = {"prompts": [{"times": 0, "fail": {"outcome": outcome}}]}

    failed = Stage(tmp_path, script).ask(request_for("prompt", tmp_path, inputs={"text": "x"}))

    assert isinstance(failed, AgentError)
    assert failed.reason == reason


def test_rules_give_values_where_a_schema_is_wanted(tmp_path: Path) -> None:
    script: dict[str, object] = {"prompts": [{"value": {"level": 3}}]}
    inputs = {"text": "x", "result_schema": {"type": "object"}}

    result = Stage(tmp_path, script).result(request_for("prompt", tmp_path, inputs=inputs))

    assert result.payload["result"] == {"level": 3}


def test_a_key_is_answered_from_memory_on_a_resend_only(tmp_path: Path) -> None:
    script: dict[str, object] = {"responses": {"implement": [reply("a"), reply("b")]}}
    first = Stage(tmp_path, script)
    first.result(request_for("implement", tmp_path))

    resent = Stage(tmp_path, script).result(request_for("implement", tmp_path, attempt=2))
    other_run = Stage(tmp_path, script).result(
        request_for("implement", tmp_path, run_id="run-20260301-101500-0badcaff", attempt=2)
    )

    assert (resent.payload["summary"], resent.event.replayed) == ("a", True)
    assert (other_run.payload["summary"], other_run.event.replayed) == ("b", None)


def test_a_refused_answer_is_made_anew_though_its_key_is_known(tmp_path: Path) -> None:
    bad = {"events": [{"type": "review.completed", "status": "hm"}]}
    stage = Stage(tmp_path, {"responses": {"review": [bad, {"events": [ANSWERS["review"]]}]}})

    result = stage.result(request_for("review", tmp_path))

    assert (result.event.status, result.event.replayed) == ("approved", None)


def test_what_a_reply_says_is_reported_before_it_waits(tmp_path: Path) -> None:
    slow = reply("done", says="reading prices.py", delay_s=5.0)
    stage = Stage(tmp_path, {"responses": {"implement": slow}})

    stage.result(request_for("implement", tmp_path))

    said = [event for event in stage.events if isinstance(event, CallText)]
    assert [event.text for event in said] == ["reading prices.py"]
    (finished,) = [event for event in stage.events if isinstance(event, CallFinished)]
    assert (finished.at > said[0].at, finished.duration_s >= 5.0) == (True, True)


def test_files_are_changed_before_anything_is_said(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("x")
    write = [
        {"path": "src/deep/a.txt", "content": "one"},
        {"path": "src/deep/a.txt", "content": "two", "append": True},
        {"path": "raw", "content_b64": "AAE=", "mode": 0o600},
        {"path": "gone", "delete": True},
    ]
    stage = Stage(tmp_path, {"responses": {"implement": reply("done", write=write)}})

    stage.result(request_for("implement", tmp_path))

    assert (tmp_path / "src/deep/a.txt").read_text() == "onetwo"
    assert (tmp_path / "raw").read_bytes() == b"\x00\x01"
    assert (tmp_path / "raw").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "gone").exists()


def test_a_path_that_leads_out_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(UnsafePathError):
        apply_write(str(root), Write("../x", "y"))

    apply_write(str(root), Write("../x", "y", unsafe=True))

    assert (tmp_path / "x").read_text() == "y"
    stage = Stage(root, {"responses": {"implement": reply("a", write=[{"path": "../z"}])}})
    outcome = stage.ask(request_for("implement", root))
    assert isinstance(outcome, AgentError)
    assert outcome.reason == "artifact_write_failed"


def test_missing_files_are_made_where_that_is_asked_for(tmp_path: Path) -> None:
    answer = {**ANSWERS["implement"], "artifacts": [{"path": "d/a.txt", "size": 99}]}
    stage = Stage(tmp_path, {"materialize": True, "responses": {"implement": {"events": [answer]}}})

    result = stage.result(request_for("implement", tmp_path))

    assert (tmp_path / "d/a.txt").read_text() == "d/a.txt\n"
    assert result.artifacts[0].size == 8


def test_the_same_script_says_the_same(tmp_path: Path) -> None:
    def play(root: Path) -> list[dict[str, object]]:
        root.mkdir()
        script: dict[str, object] = {"responses": {"implement": [reply("a", delay_s=25), reply("b")]}}
        stage = Stage(root, script)
        summaries(stage, root, 3)
        lines = [json.loads(line) for line in stage.heard]
        for line in lines:
            for name in ("message_id", "in_reply_to"):
                line.pop(name, None)
        return lines

    assert play(tmp_path / "one") == play(tmp_path / "two")


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ({"responses": {"review": {"events": [{"type": "x", "statsu": 1}]}}}, "$.responses[...].events[0]"),
        ({"version": 2}, "version is 2"),
        ({"prompts": [{"txt": "x"}]}, "$.prompts[0]"),
        ({"responses": {"review": {"inject": [{"do": "dance"}]}}}, "$.responses[...].inject[0].do"),
    ],
)
def test_a_script_with_a_mistake_is_refused_with_its_place(script: dict[str, object], place: str) -> None:
    with pytest.raises(ScriptError) as caught:
        read_script(script, "stub", "a.json")

    assert place in caught.value.message


def test_scripts_are_json_or_toml(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"version": 1, "responses": {"review": {"odd": 1}}}')
    (tmp_path / "a.toml").write_text("version = 1")
    (tmp_path / "broken.json").write_text("{")

    assert ignored_members(load_script(tmp_path / "a.json", "stub")) == ["responses.review[0].odd"]
    assert load_script(tmp_path / "a.toml", "stub") == {"version": 1}
    for name in ("broken.json", "gone.toml"):
        with pytest.raises(ScriptError, match=name.partition(".")[0]):
            load_script(tmp_path / name, "stub")


def test_a_line_that_cannot_be_read_is_logged_and_the_agent_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"responses": {"implement": reply("a", delay_s=5)}})
    stage.begin(request_for("implement", tmp_path))
    assert stage.process is not None

    stage.process.side.line(b"{oops")
    stage.process.side.line(b'{"kind":"riddle"}')
    while stage.outcome is None:
        stage.turn()

    assert isinstance(stage.outcome, AgentResult)
    assert any(b"cannot be read" in line for line in stage.heard)


OLDER: dict[str, object] = {
    "comment": "made for the tool that was before",
    "responses": {
        "implement": {
            "delay_ms": 1500,
            "events": [
                {"type": "builder.progress", "payload": {"stage": "planning", "progress": 0.2}},
                {
                    "type": "builder.completed",
                    "status": "success",
                    "payload": {"summary": "done", "tests": {"status": "pass", "total": 15}},
                },
            ],
        },
        "review": {
            "delay_ms": 50,
            "events": [
                {
                    "type": "review.completed",
                    "status": "changes_requested",
                    "payload": {
                        "summary": "please",
                        "issues": ["no test", {"description": "slow", "path": "a.py", "line": 3}],
                    },
                }
            ],
        },
        "update_spec": {
            "events": [{"type": "spec.changes_requested", "payload": {"required_changes": ["say why"]}}]
        },
        "intake": {"events": [{"type": "error", "payload": {"error": "compilation failed", "line": 42}}]},
    },
}


@pytest.mark.requirement("scripts-of-before-are-played")
def test_a_script_of_the_older_tool_waits_for_its_milliseconds(tmp_path: Path) -> None:
    stage = Stage(tmp_path, OLDER)
    began = stage.clock.now_us()

    result = stage.result(request_for("implement", tmp_path))

    assert result.payload["summary"] == "done"
    assert 1_500_000 <= stage.clock.now_us() - began < 3_000_000
    assert ignored_members(OLDER) == []


@pytest.mark.requirement("scripts-of-before-are-played")
@pytest.mark.parametrize(
    ("action", "found"),
    [
        ("review", [("no test", None, None), ("slow", "a.py", 3)]),
        ("update_spec", [("say why", None, None)]),
    ],
)
def test_issues_of_the_older_tool_are_findings(
    tmp_path: Path, action: str, found: list[tuple[object, ...]]
) -> None:
    result = Stage(tmp_path, OLDER).result(request_for(action, tmp_path))

    assert [(one.message, one.path, one.line) for one in findings_of(result.event)] == found


@pytest.mark.requirement("scripts-of-before-are-played")
def test_an_error_of_the_older_tool_keeps_its_text(tmp_path: Path) -> None:
    outcome = Stage(tmp_path, OLDER).ask(request_for("intake", tmp_path))

    assert isinstance(outcome, AgentError)
    assert (outcome.reason, "compilation failed" in outcome.message) == ("internal_error", True)


def test_findings_in_the_words_of_today_win_over_issues(tmp_path: Path) -> None:
    payload = {"findings": [{"message": "a"}], "issues": ["b"]}
    event = {"type": "review.completed", "status": "changes_requested", "payload": payload}

    result = Stage(tmp_path, {"responses": {"review": {"events": [event]}}}).result(
        request_for("review", tmp_path)
    )

    assert [one.message for one in findings_of(result.event)] == ["a"]
