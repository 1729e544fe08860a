"""The model server over HTTP: streams, failures, waits, holds, the log, and the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from bartack.errors import ScriptError
from bartack.testing import ModelRequest, ModelServer, TokenUsage

STEPS: dict[str, list[dict[str, Any]]] = {
    "hello": [{"text": "one two", "usage": {"input_tokens": 10, "output_tokens": 5}}],
    "tool": [
        {"tools": [{"name": "Bash", "input": {"command": "true"}}]},
        {"text": "done", "expect": {"tool_result": "^fine$", "tools": ["Bash"]}},
    ],
    "flaky": [{"text": "ok", "fail": {"status": 429, "retry_after": 3, "headers": {"x-a": "b"}}}],
    "broken": [{"text": "ok", "fail": {"status": 200, "type": "overloaded_error", "message": "late"}}],
    "cut": [{"text": "a b c", "usage": {"input_tokens": 10}, "cut_after": 3, "cut_times": 1}],
    "hang": [{"text": "never", "hang_s": 600}],
    "slow": [{"text": "a b", "delay_s": 0.05, "chunk_s": 0.02, "headers": {"x-limit": "9"}}],
}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(STEPS) as running:
        yield running


def ask(server: ModelServer, text: str, *more: dict[str, object], stream: bool = True) -> httpx.Response:
    body = {
        "model": "m",
        "stream": stream,
        "tools": [{"name": "Bash"}],
        "messages": [{"role": "user", "content": text}, *more],
    }
    return httpx.post(f"{server.url}/v1/messages?beta=true", json=body, timeout=30, trust_env=False)


def events(answer: httpx.Response) -> list[str]:
    return [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]


@contextmanager
def asking(server: ModelServer, text: str) -> Generator[list[httpx.Response | httpx.HTTPError]]:
    """A request from another thread, and its end as soon as there is one."""
    ends: list[httpx.Response | httpx.HTTPError] = []

    def call() -> None:
        try:
            ends.append(ask(server, text))
        except httpx.HTTPError as error:
            ends.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield ends
    finally:
        thread.join(30)
    assert not thread.is_alive()


def test_a_stream_has_all_events_and_an_id(server: ModelServer) -> None:
    answer = ask(server, "[[script:hello]]")

    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["request-id"].startswith("req_")
    assert (events(answer)[0], events(answer)[-1]) == ("message_start", "message_stop")


def test_a_reply_without_a_stream_is_one_object(server: ModelServer) -> None:
    answer = ask(server, "[[script:hello]]", stream=False)

    assert answer.json()["content"] == [{"type": "text", "text": "one two"}]
    assert server.requests[0].stream is False


@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        ("/v1/responses", {"input": "[[script:hello]]"}, "response.completed"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "[[script:hello]]"}]}, "[DONE]"),
    ],
)
def test_the_other_apis_are_served(
    server: ModelServer, path: str, body: dict[str, object], found: str
) -> None:
    tools = [{"type": "function", "name": "Bash", "function": {"name": "Bash"}}]
    answer = httpx.post(
        server.url + path, json={**body, "tools": tools, "stream": True}, trust_env=False, timeout=30
    )

    assert found in answer.text
    assert (server.requests[0].path, server.requests[0].script) == (path, "hello")
    assert server.usage == TokenUsage(10, 5)


def test_other_requests_get_something_harmless(server: ModelServer) -> None:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        assert client.get("/v1/models").json() == {"data": [], "has_more": False}
        assert client.head("/").status_code == 200
        assert client.post("/api/event_logging", json={}).json() == {}
        assert client.post("/v1/messages/count_tokens", content=b"x" * 40).json() == {"input_tokens": 10}
        assert client.post("/v1/messages", content=b"[1").status_code == 400
        assert (
            client.post("/v1/messages", content=(part for part in (b'{"model"', b': "m"}'))).status_code
            == 200
        )


def test_the_log_has_what_was_asked(server: ModelServer) -> None:
    call: dict[str, object] = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "fine"}
    ask(
        server,
        "do it [[script:tool]]",
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    )

    (request,) = server.requests
    assert (request.script, request.step, request.tools) == ("tool", 1, ("Bash",))
    assert [(one.id, one.text) for one in request.tool_results] == [("t", "fine")]
    assert request.prompt == "do it [[script:tool]]"
    assert (request.outcome, request.status) == ("sent", 200)
    assert 0 < request.started_at <= request.ended_at
    assert request.body is None
    assert server.requests_of("tool") == [request]


def test_bodies_are_kept_on_request() -> None:
    with ModelServer(STEPS, bodies=True) as server:
        ask(server, "[[script:hello]]")

        body = server.requests[0].body
    assert body is not None
    assert body["model"] == "m"


def test_a_failure_has_its_status_headers_and_type(server: ModelServer) -> None:
    first, second = ask(server, "[[script:flaky]]"), ask(server, "[[script:flaky]]")

    assert first.status_code == 429
    assert (first.headers["retry-after"], first.headers["x-a"]) == ("3", "b")
    assert first.json()["error"]["type"] == "rate_limit_error"
    assert second.status_code == 200
    assert [request.outcome for request in server.requests] == ["failed", "sent"]


def test_a_failure_can_come_inside_the_stream(server: ModelServer) -> None:
    answer = ask(server, "[[script:broken]]")

    assert answer.status_code == 200
    assert events(answer) == ["error"]
    assert events(ask(server, "[[script:broken]]"))[-1] == "message_stop"


def test_a_cut_stream_ends_early_and_is_charged_as_far_as_it_was_sent(server: ModelServer) -> None:
    assert len(events(ask(server, "[[script:cut]]"))) == 3
    assert server.wait_for(lambda request: request.outcome == "cut").usage == TokenUsage(10, 1)

    assert events(ask(server, "[[script:cut]]"))[-1] == "message_stop"
    assert server.usage == TokenUsage(20, 21)


def test_a_step_that_hangs_sends_nothing_and_ends_with_the_server() -> None:
    with ModelServer(STEPS) as server, asking(server, "[[script:hang]]") as ends:
        server.wait_for(lambda request: request.script == "hang")
        assert ends == []
        server.close()

    assert isinstance(ends[0], httpx.HTTPError)


def test_a_slow_step_arrives_whole_with_its_headers(server: ModelServer) -> None:
    answer = ask(server, "[[script:slow]]")

    assert answer.headers["x-limit"] == "9"
    assert events(answer)[-1] == "message_stop"
    request = server.wait_for(lambda request: request.outcome == "sent")
    assert request.ended_at - request.started_at >= 0.05 + 0.02 * (request.events - 1)


def test_a_held_step_waits_until_it_is_released(server: ModelServer) -> None:
    hold = server.hold("hello")
    with asking(server, "[[script:hello]]") as ends:
        hold.wait()
        assert (ends, server.requests[0].outcome) == ([], "open")
        hold.release()

    assert isinstance(ends[0], httpx.Response)
    assert events(ask(server, "[[script:hello]]"))[-1] == "message_stop"


def test_a_stream_can_be_held_in_the_middle(server: ModelServer) -> None:
    with server.hold("hello", after=2) as hold:
        body = {
            "stream": True,
            "tools": [{"name": "B"}],
            "messages": [{"role": "user", "content": "[[script:hello]]"}],
        }
        with httpx.stream(
            "POST", f"{server.url}/v1/messages", json=body, trust_env=False, timeout=30
        ) as answer:
            lines = answer.iter_lines()
            first = [next(lines) for _ in range(6)]
            hold.wait()
            hold.release()
            rest = list(lines)

    assert [line for line in first if line.startswith("event")] == [
        "event: message_start",
        "event: content_block_start",
    ]
    assert "event: message_stop" in rest


def test_a_hold_that_is_not_reached_says_so(server: ModelServer) -> None:
    with pytest.raises(TimeoutError, match="step 0 of 'hello'"):
        server.hold("hello").wait(0.01)
    with pytest.raises(ScriptError, match="no script 'helo'"):
        server.hold("helo")


def test_waiting_in_vain_shows_what_came(server: ModelServer) -> None:
    ask(server, "[[script:hello]]")

    with pytest.raises(TimeoutError, match=r"1: /v1/messages hello\[0\] sent 200"):
        server.wait_for(lambda request: request.script == "other", timeout_s=0.01)


def test_waiting_for_the_second_request_waits_for_it(server: ModelServer) -> None:
    for _ in range(2):
        ask(server, "[[script:hello]]")

    assert server.wait_for(lambda request: request.script == "hello", count=2).number == 2


@pytest.mark.requirement("unmet-expectations-fail-the-test")
def test_an_unmet_expectation_is_refused_and_fails_the_test() -> None:
    server = ModelServer(STEPS)
    with pytest.raises(AssertionError, match="step 1: expected a tool result with"), server:
        ask(server, "[[script:tool]]", {"role": "assistant", "content": "x"})

    assert [request.status for request in server.requests] == [400]


def test_the_failure_of_a_test_is_not_replaced_by_the_one_of_a_script() -> None:
    server = ModelServer(STEPS)
    with pytest.raises(ZeroDivisionError), server:
        assert 1 // (ask(server, "[[script:missing]]").status_code - 400)

    assert server.problems == ["script 'missing', step 0: there is no script 'missing'"]


def test_a_used_port_is_an_error_with_a_code(server: ModelServer) -> None:
    with pytest.raises(ScriptError, match="cannot listen on port"), ModelServer(STEPS, port=server.port):
        pass


def test_only_the_loopback_interface_is_served(server: ModelServer) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bartack.testing.model_server", *arguments]


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_the_command_serves_a_file_and_writes_a_log(tmp_path: Path, suffix: str) -> None:
    scripts, log = tmp_path / f"scripts{suffix}", tmp_path / "log.ndjson"
    toml = '[[hello]]\ntext = "hi"\n'
    scripts.write_text(toml if suffix == ".toml" else json.dumps({"hello": [{"text": "hi"}]}), "utf-8")
    with subprocess.Popen(
        command(str(scripts), "--log", str(log)), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        body = {"tools": [{"name": "B"}], "messages": [{"role": "user", "content": "[[script:hello]]"}]}
        answer = httpx.post(f"{url}/v1/messages", json=body, trust_env=False, timeout=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0

    assert answer.json()["content"][0]["text"] == "hi"
    (line,) = log.read_text("utf-8").splitlines()
    assert (json.loads(line)["script"], json.loads(line)["outcome"]) == ("hello", "sent")
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "arguments", "status", "problem"),
    [
        ("[[hello]]\ntxet = 1\n", [], 1, "BT802: agent 'model server': "),
        ("[[hello]\n", [], 1, "scripts.toml: "),
        (None, [], 1, "cannot be read"),
        ("", ["--port", "x"], 2, "'x' is not a port"),
    ],
)
def test_the_command_explains_what_is_wrong(
    tmp_path: Path, text: str | None, arguments: list[str], status: int, problem: str
) -> None:
    scripts = tmp_path / "scripts.toml"
    if text is not None:
        scripts.write_text(text, "utf-8")
    done = subprocess.run(
        command(str(scripts), *arguments), capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, "Traceback" in done.stderr) == (status, False)
    assert problem in done.stderr


def test_the_end_of_a_request_is_reported() -> None:
    ended: list[ModelRequest] = []
    with ModelServer(STEPS, on_request=ended.append) as server:
        ask(server, "[[script:hello]]")
        server.wait_for(lambda request: request.outcome == "sent")

    assert [request.script for request in ended] == ["hello"]
