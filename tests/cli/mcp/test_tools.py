"""What the tools of ``bartack mcp`` do, one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.mcp.peer import Peer

from bartack import Run
from bartack.testing import wait_for

TOOLS = [
    "start_run",
    "wait_run",
    "run_status",
    "list_runs",
    "answer_question",
    "send_message",
    "receive_message",
    "cancel_run",
]


def test_the_tools_are_listed_with_the_entries_of_the_project(peer: Peer) -> None:
    tools = peer.request("tools/list")["result"]["tools"]

    assert [tool["name"] for tool in tools] == TOOLS
    assert tools[0]["inputSchema"]["properties"]["entry"]["enum"][:2] == ["sort", "chatty"]
    assert [tool["name"] for tool in tools if "annotations" in tool] == [
        "wait_run",
        "run_status",
        "list_runs",
    ]


@pytest.mark.requirement("mcp-read-only-changes-nothing")
def test_a_read_only_server_has_no_tool_that_changes_something(project: Path) -> None:
    with Peer(project, "--read-only") as peer:
        tools = peer.request("tools/list")["result"]["tools"]
        refused = peer.request("tools/call", {"name": "start_run", "arguments": {"entry": "sort"}})

    assert [tool["name"] for tool in tools] == ["wait_run", "run_status", "list_runs"]
    assert refused["error"]["code"] == -32602


@pytest.mark.requirement("mcp-starts-and-reports-runs")
def test_a_run_is_started_waited_for_and_reported(peer: Peer) -> None:
    started = peer.call("start_run", entry="sort", args={"folder": "in; rm -rf /", "limit": 7})
    found = peer.finish(started["run"])

    assert (started["existing"], started["cursor"]) == (False, 0)
    assert found["status"] == "completed"
    assert found["value"] == {"folder": "in; rm -rf /", "limit": 7}
    assert found["lines"] == ["main: sorting in; rm -rf /"]
    assert (found["questions"], found["artifacts"], found["error"], found["usd"]) == ([], [], None, 0)


@pytest.mark.parametrize(
    ("args", "named"),
    [({}, "folder"), ({"folder": 5}, "folder"), ({"folder": "a", "limits": 1}, "limits")],
)
def test_wrong_arguments_are_refused_with_the_signature_and_no_run_is_made(
    peer: Peer, project: Path, args: dict[str, object], named: str
) -> None:
    text = peer.refused("start_run", entry="sort", args=args)

    assert named in text
    assert "limit" in text
    assert Run.list(project) == []


def test_an_unknown_entry_is_refused_by_its_schema(peer: Peer) -> None:
    assert "sort" in peer.refused("start_run", entry="nothing")


def test_a_program_that_is_not_there_is_an_error_with_its_code(peer: Peer) -> None:
    assert "BT3" in peer.refused("start_run", entry="missing")


def test_an_agent_or_a_budget_that_the_project_does_not_allow_is_refused(peer: Peer, project: Path) -> None:
    agent = peer.refused("start_run", entry="sort", args={"folder": "a"}, agent="nobody")
    budget = peer.refused("start_run", entry="sort", args={"folder": "a"}, budget_usd=50)

    assert "nobody" in agent
    assert "at most 5" in budget
    assert Run.list(project) == []


def test_a_smaller_budget_holds_for_the_run(peer: Peer, project: Path) -> None:
    started = peer.call("start_run", entry="sort", args={"folder": "a"}, budget_usd=1.5)

    sets = json.loads((project / ".bartack/runs" / started["run"] / "sets.json").read_text())
    assert sets == ["budget.usd=1.5"]


def test_long_output_comes_in_parts_that_add_up(peer: Peer) -> None:
    started = peer.call("start_run", entry="chatty", args={"lines": 90, "wide": 60})
    cursor, lines, sizes = 0, list[str](), list[int]()
    while True:
        part = peer.call("wait_run", run=started["run"], cursor=cursor)
        assert part["cursor"] > cursor or part["done"]
        cursor = part["cursor"]
        lines += part["lines"]
        sizes.append(len(part["lines"]))
        if part["done"] and not part["lines"]:
            break

    wide = "x" * 60
    assert lines == [f"chatty: line {n} {wide}" for n in range(90)] + [f"chatty: part {n}" for n in range(90)]
    assert max(sizes) <= 40


def test_a_value_that_is_too_large_is_cut_and_said_to_be(peer: Peer) -> None:
    started = peer.call("start_run", entry="chatty", args={"lines": 1, "wide": 100})
    found = peer.finish(started["run"])

    assert found["truncated"] is True
    assert found["value"].startswith("yyyy")
    assert found["status"] == "completed"


@pytest.mark.requirement("mcp-starts-and-reports-runs")
def test_a_failed_run_is_reported_with_its_error_and_how_to_resume_it(peer: Peer) -> None:
    started = peer.call("start_run", entry="broken")
    found = peer.finish(started["run"])

    assert (found["status"], found["done"]) == ("failed", True)
    assert "no luck" in found["error"]
    assert found["resume_hint"] == f"bartack resume {started['run']}"


def test_a_wait_returns_at_its_time_limit_and_holds_up_no_other_call(peer: Peer) -> None:
    started = peer.call("start_run", entry="gated")
    waiting = peer.begin_call("wait_run", run=started["run"], timeout_s=50)
    short = peer.call("wait_run", run=started["run"], timeout_s=1)

    assert short["status"] == "running"
    assert short["done"] is False
    peer.call("send_message", run=started["run"], mailbox="gate", message={"go": True})
    assert peer.result(waiting)["value"] == {"go": True}


def test_news_of_a_wait_are_sent_as_progress(peer: Peer) -> None:
    started = peer.call("start_run", entry="gated")
    waiting = peer.begin_call("wait_run", {"progressToken": "p"}, run=started["run"])
    while not peer.notes:
        peer.notes.append(peer.read())
    peer.call("cancel_run", run=started["run"])

    assert peer.notes[0]["params"] == {"progressToken": "p", "progress": 1, "message": "gated: before"}
    assert peer.result(waiting)["status"] == "cancelled"


def test_a_withdrawn_wait_is_not_answered_and_the_server_goes_on(peer: Peer, project: Path) -> None:
    started = peer.call("start_run", entry="gated")
    waiting = peer.begin_call("wait_run", run=started["run"])
    peer.send(
        json.dumps(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}}
        ).encode()
        + b"\n"
    )
    peer.call("cancel_run", run=started["run"])
    assert peer.call("run_status", run=started["run"])["status"] == "cancelled"
    assert waiting not in peer._replies
    # Its end was not reported, so a repeated start returns it.
    assert peer.call("start_run", entry="gated")["run"] == started["run"]


def test_the_status_of_a_run_has_its_workers_mailboxes_and_dead_letters(peer: Peer, project: Path) -> None:
    started = peer.call("start_run", entry="gated")
    wait_for(Run.open(started["run"], project), "message.sent", count=2)
    found = peer.call("run_status", run=started["run"])

    assert found["workers"] == [{"path": "gated", "status": found["workers"][0]["status"]}]
    assert {"name": "out", "waiting": 2} in found["mailboxes"]
    assert found["dead_letters"] == 0


def test_runs_are_listed_newest_first_by_status_and_in_pages(peer: Peer) -> None:
    runs = [peer.call("start_run", entry="sort", args={"folder": f"{n}"})["run"] for n in range(3)]
    for run in runs:
        peer.finish(run)
    gated = peer.call("start_run", entry="gated")["run"]

    listed = peer.call("list_runs")["runs"]
    assert [row["run"] for row in listed] == [gated, *reversed(runs)]
    assert set(listed[0]) == {"run", "program", "status", "started", "usd", "questions"}
    assert [row["run"] for row in peer.call("list_runs", status="running")["runs"]] == [gated]
    assert [row["run"] for row in peer.call("list_runs", limit=2)["runs"]] == [gated, runs[2]]
    assert [row["run"] for row in peer.call("list_runs", cursor=runs[1])["runs"]] == [runs[0]]


@pytest.mark.requirement("mcp-passes-answers-on")
def test_a_question_is_reported_answered_and_answered_once(peer: Peer) -> None:
    started = peer.call("start_run", entry="asking")
    found = peer.call("wait_run", run=started["run"])
    question = found["questions"][0]

    assert (question["text"], question["options"], question["default"]) == (
        "Which colour?",
        ["red", "green"],
        "red",
    )
    assert (question["kind"], found["done"]) == ("ask", False)
    assert "BT" in peer.refused("answer_question", run=started["run"], question="q9", answer="red")
    assert "red" in peer.refused("answer_question", run=started["run"], question="q1", answer="blue")
    both = [
        peer.begin_call("answer_question", run=started["run"], question="q1", answer=answer)
        for answer in ("green", "red")
    ]
    results = [peer.result(number) for number in both]
    first = next(result for result in results if not result["accepted"])
    assert [result["accepted"] for result in results].count(True) == 1
    assert first["answered_by"].endswith("through MCP")
    assert first["answered_at"].endswith("Z")
    value = peer.finish(started["run"])["value"]
    assert value == first["answer"]
    again = peer.call("answer_question", run=started["run"], question="q1", answer="red")
    assert (again["accepted"], again["answer"]) == (False, value)


def test_messages_are_sent_once_by_their_key(peer: Peer, project: Path) -> None:
    started = peer.call("start_run", entry="gated")
    ids = {
        peer.call("send_message", run=started["run"], mailbox="in", message=1, key="k")["message_id"]
        for _ in range(2)
    }

    assert len(ids) == 1
    boxes = peer.call("run_status", run=started["run"])["mailboxes"]
    assert {"name": "in", "waiting": 1} in boxes


@pytest.mark.requirement("mcp-loses-no-message")
def test_a_message_is_given_again_until_it_is_acknowledged_or_the_next_is_received(peer: Peer) -> None:
    run = peer.call("start_run", entry="gated")["run"]
    first = peer.call("receive_message", {"claudecode/toolUseId": "t1"}, run=run, mailbox="out")
    again = peer.call("receive_message", {"claudecode/toolUseId": "t1"}, run=run, mailbox="out")
    second = peer.call("receive_message", {"claudecode/toolUseId": "t2"}, run=run, mailbox="out")

    assert (first["message"], again, second["message"]) == ({"n": 1}, first, {"n": 2})
    acked = peer.call(
        "receive_message",
        {"claudecode/toolUseId": "t2"},
        run=run,
        mailbox="out",
        timeout_s=0,
        ack=second["message_id"],
    )
    assert acked == {"empty": True}


@pytest.mark.requirement("mcp-loses-no-message")
def test_a_message_whose_receiver_died_is_given_to_the_next_server(project: Path) -> None:
    with Peer(project) as peer:
        run = peer.call("start_run", entry="gated")["run"]
        first = peer.call("receive_message", run=run, mailbox="out")
        peer.process.kill()
    with Peer(project) as peer:
        again = peer.call("receive_message", run=run, mailbox="out")

    assert again == first


@pytest.mark.requirement("mcp-loses-no-message")
def test_a_message_that_was_handled_before_its_server_died_does_not_come_again(project: Path) -> None:
    with Peer(project) as peer:
        run = peer.call("start_run", entry="gated")["run"]
        first = peer.call("receive_message", run=run, mailbox="out")
        peer.process.kill()
    with Peer(project) as peer:
        second = peer.call("receive_message", run=run, mailbox="out", ack=first["message_id"])

    assert (first["message"], second["message"]) == ({"n": 1}, {"n": 2})


def test_the_settings_may_be_above_the_workspace(project: Path) -> None:
    (project / "work").mkdir()
    (project / "desk.py").rename(project / "work/desk.py")
    settings = (project / "bartack.toml").read_text()
    (project / "bartack.toml").write_text(settings.replace("[project]", '[project]\nworkspace = "work"'))
    with Peer(project) as peer:
        run = peer.call("start_run", entry="sort", args={"folder": "a"})["run"]

        assert peer.finish(run)["status"] == "completed"


@pytest.mark.parametrize(
    "name",
    [
        "../../etc",
        "/tmp",
        ".",
        "latest",
        "run-",
        "run-1999",
        "x" * 65,
        "run-2099-nothing",
        "",
        "a\u0000b" * 4,
    ],
)
def test_a_name_that_is_no_run_is_refused(peer: Peer, name: str) -> None:
    run = peer.call("start_run", entry="sort", args={"folder": "a"})["run"]
    text = peer.refused("run_status", run=name)

    assert "BT301" in text or "at least 8 characters" in text
    assert run in text or "at least 8 characters" in text


def test_a_run_is_found_by_a_prefix_that_only_it_has(peer: Peer) -> None:
    runs = [peer.call("start_run", entry="sort", args={"folder": f"{n}"})["run"] for n in range(2)]
    common = runs[0][:12]
    text = peer.refused("run_status", run=common)

    assert all(run in text for run in runs)
    assert peer.call("run_status", run=runs[1][:-1])["run"] == runs[1]


def test_a_cancelled_run_cannot_be_cancelled_again(peer: Peer) -> None:
    run = peer.call("start_run", entry="gated")["run"]

    assert peer.call("cancel_run", run=run, reason="enough") == {"run": run, "status": "cancelled"}
    assert "BT" in peer.refused("cancel_run", run=run)


def test_what_is_left_for_a_run_that_is_not_active_says_how_to_resume_it(peer: Peer, project: Path) -> None:
    run = peer.call("start_run", entry="gated")["run"]
    Run.open(run, project).interrupt()
    Run.open(run, project).wait(30)
    sent = peer.call("send_message", run=run, mailbox="gate", message=1)
    found = peer.call("wait_run", run=run)

    assert sent["kept"] is True
    assert sent["resume_hint"] == f"bartack resume {run}"
    assert (found["status"], found["done"]) == ("interrupted", True)
    assert found["resume_hint"] == f"bartack resume {run}"
    assert "BT" in peer.refused("receive_message", run=run, mailbox="out", timeout_s=1)


@pytest.mark.requirement("mcp-does-not-approve")
def test_a_permission_cannot_be_given_by_a_model(project: Path) -> None:
    (project / "bartack.toml").write_text(
        '[agents.tidy]\nkind = "scripted"\nscript = "script.toml"\n\n[mcp.entries]\ntidy = "tidy.py"\n'
    )
    (project / "script.toml").write_text(
        '[[prompts]]\ntext = "done"\n\n[prompts.ask]\nquestion = "May it?"\nkind = "permission"\n'
        'tool = "Bash"\ninput = { command = "rm -rf old" }\nexpect = "deny"\n'
    )
    (project / "tidy.py").write_text(
        "from bartack import Context, worker\n\n@worker\nasync def main(ctx: Context) -> str:\n"
        '    return await ctx.think("Tidy up.")\n'
    )
    with Peer(project) as peer:
        run = peer.call("start_run", entry="tidy")["run"]
        question = peer.call("wait_run", run=run)["questions"][0]
        text = peer.refused("answer_question", run=run, question="q1", answer="allow")
        Run.open(run, project).answer("q1", "deny")
        late = peer.call("answer_question", run=run, question="q1", answer="allow")
        value = peer.finish(run)["value"]

    assert (question["kind"], question["tool"], question["input"]) == (
        "permission",
        "Bash",
        '{"command":"rm -rf old"}',
    )
    assert f"bartack answer {run} q1" in text
    assert (late["accepted"], late["answer"], value) == (False, "deny", "done")
