"""The real programs take the scripted model server for a model: replies, tools, failures, cut streams."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Final

import pytest
from tests.realcli.conftest import MakeSandbox

from bartack.testing import ClaudeSandbox, ModelServer

USAGE: Final = {"input_tokens": 1000, "output_tokens": 50}

RESET: Final = 4_000_000_000
LIMIT: Final = {
    "anthropic-ratelimit-unified-reset": str(RESET),
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
}

SCRIPTS: Final[dict[str, list[dict[str, Any]]]] = {
    "hello": [{"text": "Hello from {{cwd}}", "usage": USAGE}],
    "bash": [
        {
            "text": "I look.",
            "tools": [
                {"name": "Bash", "input": {"command": "echo first-$((40 + 2))"}},
                {"name": "Bash", "input": {"command": "echo second > '{{cwd}}/made.txt'"}},
            ],
        },
        {"text": "Done.", "expect": {"tool_result": "first-42", "tools": ["Bash", "Read"]}},
    ],
    "exec": [
        {
            "text": "I look.",
            "tools": [
                {"name": "exec_command", "input": {"cmd": "echo first-$((40 + 2))"}},
                {"name": "exec_command", "input": {"cmd": "echo second > made.txt"}},
            ],
        },
        {"text": "Done.", "expect": {"tool_result": "first-42", "tools": ["exec_command", "apply_patch"]}},
    ],
    "code": [
        {
            "tools": [
                {
                    "name": "exec",
                    "input": {"input": 'text(await tools.exec_command({cmd: "echo first-$((40+2))"}))'},
                }
            ]
        },
        {"text": "Done.", "expect": {"tool_result": "first-42"}},
    ],
    "patch": [
        {
            "tools": [
                {
                    "name": "apply_patch",
                    "input": {"input": "*** Begin Patch\n*** Add File: made.txt\n+second\n*** End Patch\n"},
                }
            ]
        },
        {"text": "Done."},
    ],
    "limited": [{"text": "At last.", "usage": USAGE, "fail": {"times": 2, "status": 429}}],
    "overloaded": [{"text": "At last.", "usage": USAGE, "fail": {"times": 2, "status": 500}}],
    "always": [{"fail": {"times": 0, "status": 401}}],
    "cut": [{"text": "one two three four", "usage": USAGE, "cut_after": 4, "cut_times": 1}],
    "inside": [{"text": "At last.", "fail": {"status": 200, "type": "overloaded_error", "message": "busy"}}],
    "refused": [{"text": "", "stop_reason": "refusal"}],
    "warned": [{"text": "Soon.", "headers": LIMIT | {"anthropic-ratelimit-unified-status": "allowed"}}],
    "rejected": [
        {
            "fail": {
                "times": 0,
                "status": 429,
                "headers": LIMIT | {"anthropic-ratelimit-unified-status": "rejected"},
            }
        }
    ],
    "endless": [{"text": "and so on", "stop_reason": "max_tokens"}],
    "parent": [
        {"tools": [{"name": "Agent", "input": {"description": "look", "prompt": "look [[script:hello]]"}}]},
        {"text": "Both are done."},
    ],
    "next": [{"text": "The second prompt."}],
}

Line = dict[str, Any]


def ask_claude(sandbox: ClaudeSandbox, prompt: str, *arguments: str) -> tuple[list[Line], Line]:
    """The lines that Claude Code writes, and its result."""
    done = sandbox.claude(
        "-p", prompt, "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash", *arguments
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr
    assert lines[-1]["type"] == "result", done.stdout
    return lines, lines[-1]


def ask_codex(sandbox: ClaudeSandbox, prompt: str) -> tuple[list[Line], str]:
    """The lines that Codex writes, and its last message."""
    done = sandbox.codex("exec", "--json", "--skip-git-repo-check", "--sandbox", "danger-full-access", prompt)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    items = [line["item"] for line in lines if line["type"] == "item.completed"]
    texts = [item["text"] for item in items if item["type"] == "agent_message"]
    return lines, texts[-1] if texts else ""


class AcpClient:
    """As much of a client of the Agent Client Protocol as a prompt takes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.updates: list[Line] = []
        self._last = 0

    def call(self, method: str, params: Line) -> Line:
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        assert self.process.stdout is not None
        for text in self.process.stdout:
            line: Line = json.loads(text)
            if "method" not in line:
                assert line["id"] == self._last
                return line
            if line["method"] == "session/request_permission":
                option = next(one for one in line["params"]["options"] if one["kind"] == "allow_once")
                outcome = {"outcome": "selected", "optionId": option["optionId"]}
                self._send({"id": line["id"], "result": {"outcome": outcome}})
            elif line["method"] == "session/update":
                self.updates.append(line["params"]["update"])
        raise AssertionError(f"the agent left: {self.process.stderr.read() if self.process.stderr else ''}")

    def open_session(self, sandbox: ClaudeSandbox) -> str:
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        answer = self.call("session/new", {"cwd": str(sandbox.work), "mcpServers": []})
        session: str = answer["result"]["sessionId"]
        return session

    def ask(self, session: str, prompt: str) -> Line:
        self.updates.clear()
        return self.call(
            "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": prompt}]}
        )

    @property
    def text(self) -> str:
        chunks = [one for one in self.updates if one["sessionUpdate"] == "agent_message_chunk"]
        return "".join(chunk["content"]["text"] for chunk in chunks)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _send(self, message: Line) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()


@pytest.mark.usefixtures("claude")
def test_claude_code_gets_a_reply(sandbox: ClaudeSandbox, model_server: ModelServer) -> None:
    _, result = ask_claude(sandbox, "say hello [[script:hello]]")

    assert (result["result"], result["is_error"]) == (f"Hello from {sandbox.work}", False)
    assert sandbox.is_alone or sandbox.environment["ANTHROPIC_BASE_URL"] == model_server.url
    (request,) = model_server.requests
    assert (request.path, request.script, request.stream) == ("/v1/messages", "hello", True)
    assert not any(sandbox.home.glob("*.json")), "settings are in the folder of their own"


@pytest.mark.usefixtures("claude")
@pytest.mark.requirement("scripts-answer-real-agents")
def test_claude_code_executes_the_tools_of_a_turn(sandbox: ClaudeSandbox, model_server: ModelServer) -> None:
    _, result = ask_claude(sandbox, "look [[script:bash]]")

    assert result["result"] == "Done."
    assert (sandbox.work / "made.txt").read_text() == "second\n"
    assert [request.step for request in model_server.requests] == [0, 1]
    assert "first-42" in [found.text for found in model_server.requests[1].tool_results]


@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize("script", ["limited", "overloaded"])
def test_claude_code_repeats_failed_requests(
    sandbox: ClaudeSandbox, model_server: ModelServer, script: str
) -> None:
    lines, result = ask_claude(sandbox, f"try [[script:{script}]]")

    assert result["result"] == "At last."
    assert [line["error_status"] for line in lines if line.get("subtype") == "api_retry"] == [
        SCRIPTS[script][0]["fail"]["status"]
    ] * 2
    assert [request.outcome for request in model_server.requests] == ["failed", "failed", "sent"]


@pytest.mark.usefixtures("claude")
def test_claude_code_gives_up_in_the_end(sandbox: ClaudeSandbox, model_server: ModelServer) -> None:
    _, result = ask_claude(sandbox, "try [[script:always]]")

    assert (result["is_error"], result["api_error_status"]) == (True, 401)
    assert {request.status for request in model_server.requests} == {401}


@pytest.mark.usefixtures("claude")
def test_claude_code_recovers_from_a_cut_stream_and_is_charged_as_the_server_counts(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    _, result = ask_claude(sandbox, "try [[script:cut]]")

    assert result["result"] == "one two three four"
    assert [request.outcome for request in model_server.requests] == ["cut", "sent"]
    counted = model_server.usage
    assert (counted.input_tokens, counted.output_tokens) == (2000, 51)
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (2000, 51)


@pytest.mark.usefixtures("claude")
@pytest.mark.requirement("steps-need-no-memory")
def test_claude_code_resumes_a_conversation_at_the_right_step(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    _, first = ask_claude(sandbox, "look [[script:bash]]")
    _, second = ask_claude(sandbox, "and now [[script:next]]", "--resume", first["session_id"])
    _, third = ask_claude(sandbox, "go on", "--resume", first["session_id"])

    assert second["result"] == third["result"] == "The second prompt."
    assert [(one.script, one.step) for one in model_server.requests] == [
        ("bash", 0),
        ("bash", 1),
        ("next", 0),
        ("next", 1),
    ]


@pytest.mark.usefixtures("claude")
def test_claude_code_reports_a_refusal(sandbox: ClaudeSandbox) -> None:
    lines, result = ask_claude(sandbox, "try [[script:refused]]")

    replies = [line for line in lines if line["type"] == "assistant"]
    assert (result["is_error"], result["stop_reason"]) == (True, "refusal"), replies


@pytest.mark.usefixtures("claude")
@pytest.mark.parametrize(("script", "status"), [("warned", "allowed"), ("rejected", "rejected")])
def test_claude_code_with_a_login_reads_limits_from_the_headers_of_a_step(
    make_sandbox: MakeSandbox, model_server: ModelServer, script: str, status: str
) -> None:
    lines, result = ask_claude(make_sandbox(login=True), f"try [[script:{script}]]")

    (event,) = [line["rate_limit_info"] for line in lines if line["type"] == "rate_limit_event"]
    assert (event["status"], event["resetsAt"], event["rateLimitType"]) == (status, RESET, "five_hour")
    assert result["is_error"] is (status == "rejected")
    assert len(model_server.requests) == 1


@pytest.mark.usefixtures("claude")
def test_claude_code_continues_a_reply_that_is_too_long_three_times(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    _, result = ask_claude(sandbox, "try [[script:endless]]")

    assert result["is_error"]
    assert [request.step for request in model_server.requests] == [0, 1, 2, 3]


@pytest.mark.usefixtures("claude")
def test_a_subagent_of_claude_code_has_a_script_of_its_own(
    make_sandbox: MakeSandbox, model_server: ModelServer
) -> None:
    sandbox = make_sandbox(env={"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"})
    _, result = ask_claude(sandbox, "look [[script:parent]]")

    assert result["result"] == "Both are done."
    assert [(one.script, one.step) for one in model_server.requests] == [
        ("parent", 0),
        ("hello", 0),
        ("parent", 1),
    ]
    assert "Hello from" in model_server.requests[2].tool_results[0].text


@pytest.mark.usefixtures("claude")
def test_a_test_can_kill_claude_code_while_a_reply_is_under_way(
    sandbox: ClaudeSandbox, model_server: ModelServer, claude: list[str]
) -> None:
    with model_server.hold("hello", after=2) as hold:
        process = sandbox.start([*claude, "-p", "say hello [[script:hello]]"])
        hold.wait()
        process.kill()
        process.communicate(timeout=30)

    request = model_server.wait_for(lambda one: one.outcome != "open")
    assert (request.script, request.events) >= ("hello", 2)
    assert process.returncode == -9


@pytest.mark.usefixtures("codex")
def test_codex_gets_a_reply(sandbox: ClaudeSandbox, model_server: ModelServer) -> None:
    lines, text = ask_codex(sandbox, "say hello [[script:hello]]")

    assert text == f"Hello from {sandbox.work}"
    assert [request.path for request in model_server.requests] == ["/v1/responses"]
    usage = lines[-1]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (1000, 50)


@pytest.mark.usefixtures("codex")
@pytest.mark.parametrize("script", ["exec", "patch"])
@pytest.mark.requirement("scripts-answer-real-agents")
def test_codex_executes_the_tools_of_a_turn(
    sandbox: ClaudeSandbox, model_server: ModelServer, script: str
) -> None:
    _, text = ask_codex(sandbox, f"look [[script:{script}]]")

    assert text == "Done."
    assert (sandbox.work / "made.txt").read_text() == "second\n"
    assert [request.step for request in model_server.requests] == [0, 1]


@pytest.mark.usefixtures("codex")
def test_codex_with_a_model_that_writes_code_is_served(
    make_sandbox: MakeSandbox, model_server: ModelServer
) -> None:
    _, text = ask_codex(make_sandbox(codex_model="gpt-6.1-sol"), "look [[script:code]]")

    assert text == "Done."
    assert "exec" in model_server.requests[0].tools


@pytest.mark.usefixtures("codex")
def test_codex_repeats_failed_requests(sandbox: ClaudeSandbox, model_server: ModelServer) -> None:
    _, text = ask_codex(sandbox, "try [[script:overloaded]]")

    assert text == "At last."
    assert [request.outcome for request in model_server.requests] == ["failed", "failed", "sent"]


@pytest.mark.usefixtures("codex")
def test_codex_recovers_from_a_cut_stream(sandbox: ClaudeSandbox, model_server: ModelServer) -> None:
    lines, text = ask_codex(sandbox, "try [[script:cut]]")

    assert text == "one two three four"
    assert [request.outcome for request in model_server.requests] == ["cut", "sent"]
    assert lines[-1]["usage"]["input_tokens"] == model_server.usage.input_tokens == 1000


@pytest.mark.usefixtures("codex")
def test_codex_reports_a_limit(sandbox: ClaudeSandbox) -> None:
    lines, text = ask_codex(sandbox, "try [[script:limited]]")

    assert text == ""
    assert lines[-1]["type"] == "turn.failed"
    assert "429" in lines[-1]["error"]["message"]


@pytest.mark.usefixtures("acp")
@pytest.mark.requirement("scripts-answer-real-agents")
def test_claude_agent_acp_gets_replies_tools_failures_and_cut_streams(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    client = AcpClient(sandbox.start_acp())
    try:
        session = client.open_session(sandbox)
        texts: dict[str, str] = {}
        for script in ("hello", "bash", "limited", "cut"):
            answer = client.ask(session, f"do it [[script:{script}]]")
            assert answer["result"]["stopReason"] == "end_turn"
            texts[script] = client.text
    finally:
        client.close()

    assert texts["hello"] == f"Hello from {sandbox.work}"
    assert texts["bash"].endswith("Done.")
    assert (sandbox.work / "made.txt").read_text() == "second\n"
    assert (texts["limited"], texts["cut"][-18:]) == ("At last.", "one two three four")
    outcomes = [request.outcome for request in model_server.requests if request.tools]
    assert outcomes == ["sent", "sent", "sent", "failed", "failed", "sent", "cut", "sent"]
