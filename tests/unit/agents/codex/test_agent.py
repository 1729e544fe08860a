"""Which process is started for a call of Codex: its words, its variables, its home, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.codex.stage import KEY, THREAD, request_for, usage

from bartack.agents._permissions import Permissions
from bartack.agents._record import Link
from bartack.agents.codex._agent import CodexAdapter, CodexCall
from bartack.agents.codex._command import toml
from bartack.agents.codex._home import user_home
from bartack.agents.codex._messages import tool_reply
from bartack.agents.contract import AgentRequest
from bartack.agents.conversation._actions import Done
from bartack.agents.program._json_lines import JsonLine, read_json_line
from bartack.agents.program._json_rpc import JsonRpc
from bartack.agents.program._stream import load_session, save_session
from bartack.agents.program.adapter import Surroundings
from bartack.agents.program_config import CodexConfig, Price
from bartack.agents.protocol.ids import conversation_id
from bartack.errors import (
    AgentBusyError,
    AgentCancelledError,
    AgentCapabilityError,
    AgentRequestError,
    AgentStartError,
)
from bartack.testing import VirtualClock


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "codex").write_text("", encoding="utf-8")
    (folder / "codex").chmod(0o700)
    return folder


def adapter_for(
    tmp_path: Path,
    bin_folder: Path,
    config: CodexConfig | None = None,
    *,
    travels: bool = False,
    **environ: str,
) -> CodexAdapter:
    surroundings = Surroundings(
        travels=travels,
        run={"BARTACK_RUN": "run-1"},
        folder=tmp_path / "agents",
        environ={"PATH": str(bin_folder), "HOME": "/people/me", "CANARY": "sings", **environ},
        prices={"gpt-x": Price(input=1.0)},
    )
    return CodexAdapter("codex", config or CodexConfig(), VirtualClock(), surroundings)


def open_call(adapter: CodexAdapter, tmp_path: Path, **given: object) -> CodexCall:
    request: AgentRequest = request_for(cwd=str(tmp_path), **given)
    return adapter.open_call(request, tmp_path / "agents" / "codex")


def line(value: dict[str, object]) -> JsonLine:
    read = read_json_line(msgspec.json.encode(value))
    assert isinstance(read, JsonLine)
    return read


def test_codex_is_started_as_an_app_server_without_traffic_of_its_own(
    tmp_path: Path, bin_folder: Path
) -> None:
    call = open_call(adapter_for(tmp_path, bin_folder), tmp_path)

    launch = call.launch()

    assert list(launch.argv[:2]) == [str(bin_folder / "codex"), "app-server"]
    assert "features.plugins=false" in launch.argv
    assert "analytics.enabled=false" in launch.argv
    assert launch.cwd == str(tmp_path)


def test_settings_of_codex_are_passed_on_word_by_word(tmp_path: Path, bin_folder: Path) -> None:
    own: dict[str, str | int | float | bool] = {"a.b": 'say "x" \\ \n', "n": 3, "yes": True, "part": 0.5}
    config = CodexConfig(command=["codex", "--more"], config=own)

    argv = list(open_call(adapter_for(tmp_path, bin_folder, config), tmp_path).launch().argv)

    assert argv[1:3] == ["--more", "app-server"]
    assert argv[-8:] == [
        "-c",
        'a.b="say \\"x\\" \\\\ \\u000a"',
        "-c",
        "n=3",
        "-c",
        "yes=true",
        "-c",
        "part=0.5",
    ]
    assert msgspec.toml.decode(f"x = {toml(str(own['a.b']))}") == {"x": own["a.b"]}


def test_the_search_of_the_model_is_off_where_no_person_has_allowed_it(
    tmp_path: Path, bin_folder: Path
) -> None:
    allowed = CodexConfig(permissions=Permissions(mode="edit", allow=["WebSearch"]))

    off = open_call(adapter_for(tmp_path, bin_folder), tmp_path, key="ik:a").launch().argv
    on = open_call(adapter_for(tmp_path, bin_folder, allowed), tmp_path, key="ik:b").launch().argv

    assert 'web_search="disabled"' in off
    assert 'web_search="disabled"' not in on


def test_further_directories_are_in_the_sandbox(tmp_path: Path, bin_folder: Path) -> None:
    argv = open_call(adapter_for(tmp_path, bin_folder), tmp_path, extra_dirs=["/a", "/b"]).launch().argv

    assert 'sandbox_workspace_write.writable_roots=["/a", "/b"]' in argv


def test_variables_of_the_hub_are_not_passed_on_but_a_few(tmp_path: Path, bin_folder: Path) -> None:
    adapter = adapter_for(tmp_path, bin_folder, OPENAI_API_KEY="k", CODEX_HOME="/mine")

    env = open_call(adapter, tmp_path).launch().env

    assert "CANARY" not in env
    assert env["OPENAI_API_KEY"] == "k"
    assert env["BARTACK_STEP"] == KEY
    assert env["SHELL"].endswith("bash")


@pytest.mark.parametrize(
    ("home", "key", "in_run"),
    [("auto", "k", True), ("auto", "", False), ("run", "", True), ("user", "k", False)],
)
def test_the_home_is_in_the_run_if_there_is_a_credential(
    tmp_path: Path, bin_folder: Path, home: str, key: str, in_run: bool
) -> None:
    config = msgspec.convert({"kind": "codex", "home": home}, type=CodexConfig)
    call = open_call(adapter_for(tmp_path, bin_folder, config, OPENAI_API_KEY=key), tmp_path)

    env = call.launch().env

    own = call.folder / "home"
    assert env["CODEX_HOME"] == (str(own) if in_run else "/people/me/.codex")
    assert own.is_dir() is in_run
    assert not in_run or own.stat().st_mode & 0o777 == 0o700


def test_a_conversation_that_began_in_the_run_stays_there(tmp_path: Path, bin_folder: Path) -> None:
    begun = open_call(adapter_for(tmp_path, bin_folder, OPENAI_API_KEY="k"), tmp_path)
    home = begun.launch().env["CODEX_HOME"]
    begun.close()

    resumed = open_call(adapter_for(tmp_path, bin_folder), tmp_path, attempt=2)

    assert resumed.launch().env["CODEX_HOME"] == home


def test_the_home_of_a_person_is_where_the_variable_says() -> None:
    assert user_home({"CODEX_HOME": "/x", "HOME": "/y"}) == Path("/x")


def test_a_credential_is_for_the_memory_of_the_process_only(tmp_path: Path, bin_folder: Path) -> None:
    call = open_call(adapter_for(tmp_path, bin_folder, OPENAI_API_KEY="sk-hidden"), tmp_path)
    launch = call.launch()
    call.talk.begin()
    call.talk.attached(Link(1))
    read = line({"id": 1, "result": {"userAgent": "x/1.2"}})
    call.copy_in(read, call.talk.line(read))
    sent = [getattr(action, "line", b"") for action in call.talk.take()]
    for one in sent:
        call.copy_out(one)

    assert 'cli_auth_credentials_store="ephemeral"' in launch.argv
    assert b"sk-hidden" in sent[-1]
    assert b"account/login/start" in sent[-1]
    assert b"thread/start" not in b"".join(sent)
    assert "sk-hidden" not in (call.folder / "stream.ndjson").read_text(encoding="utf-8")


def test_a_program_that_is_nowhere_is_not_started(tmp_path: Path, bin_folder: Path) -> None:
    call = open_call(adapter_for(tmp_path, bin_folder, CodexConfig(command="no-such-codex")), tmp_path)

    with pytest.raises(AgentStartError, match="bartack\\[codex-cli\\]"):
        call.launch()


@pytest.mark.parametrize("text", ["", "a\0b", 3])
def test_a_prompt_that_is_no_text_is_refused_before_anything_starts(
    tmp_path: Path, bin_folder: Path, text: object
) -> None:
    with pytest.raises(AgentRequestError):
        adapter_for(tmp_path, bin_folder).check(request_for(inputs={"text": text}))


def test_a_conversation_has_one_owner(tmp_path: Path, bin_folder: Path) -> None:
    adapter = adapter_for(tmp_path, bin_folder)
    first = open_call(adapter, tmp_path)

    with pytest.raises(AgentBusyError):
        open_call(adapter, tmp_path)
    first.close()
    open_call(adapter, tmp_path).close()


def test_the_thread_is_on_disk_before_the_prompt_is_sent(tmp_path: Path, bin_folder: Path) -> None:
    call = open_call(adapter_for(tmp_path, bin_folder), tmp_path)
    launch = call.launch()
    assert launch.stdout is None
    call.talk.begin()

    call.talk.attached(Link(1))
    answers: list[dict[str, object]] = [
        {"id": 1, "result": {"userAgent": "x/1.2"}},
        {"id": 2, "result": {"thread": {"id": THREAD}}},
    ]
    for answer in answers:
        read = line(answer)
        call.copy_in(read, call.talk.line(read))

    sent = b"".join(getattr(action, "line", b"") for action in call.talk.take())
    assert b"turn/start" in sent
    assert load_session(call.folder) == THREAD


def test_what_a_dead_hub_has_used_and_delivered_is_read_back(tmp_path: Path, bin_folder: Path) -> None:
    adapter = adapter_for(tmp_path, bin_folder)
    dead = open_call(adapter, tmp_path)
    tool = {"type": "dynamicToolCall", "id": "call-1", "tool": "do_1", "status": "completed"}
    lines: list[dict[str, object]] = [
        {"id": 2, "result": {"thread": {"id": THREAD}, "model": "gpt-x-1"}},
        {"method": "thread/tokenUsage/updated", "params": usage(7, turn="older")},
        {"method": "turn/started", "params": {"turn": {"id": "turn-1"}}},
        {"method": "thread/tokenUsage/updated", "params": usage(100)},
        {"method": "item/completed", "params": {"item": tool}},
        {"id": 0, "method": "item/tool/call", "params": {"callId": "call-2", "tool": "do_2"}},
    ]
    for value in lines:
        dead.copy_in(line(value), "")
    dead.copy_out(JsonRpc().reply(0, tool_reply("42", success=True)))
    save_session(dead.folder, THREAD)
    dead.close()

    call = open_call(adapter, tmp_path, attempt=2)

    used = call.talk.attempts.usage()
    assert (used.input_tokens, used.output_tokens, used.turns) == (100, 10, 1)
    assert used.cost_usd == pytest.approx(100 / 1e6)
    assert call.talk.usd_estimated
    call.launch()
    call.talk.begin()
    assert list(call.talk._dialect.delivered()) == ["call-1"]


def write_rollout(home: Path, *replies: tuple[str, int]) -> None:
    """The file of a thread: for each reply its turn and its input tokens."""
    folder = home / "sessions" / "2026" / "03" / "01"
    folder.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, object]] = [
        {
            "type": "token_usage_record",
            "payload": {"turn_id": turn, "usage": {"input_tokens": tokens, "output_tokens": 10}},
        }
        for turn, tokens in replies
    ]
    lines = [msgspec.json.encode(record) for record in [{"type": "event_msg"}, *records]]
    (folder / f"rollout-x-{THREAD}.jsonl").write_bytes(b"\n".join([*lines, b'{"type":"token_us']))


def speak(call: CodexCall, *values: dict[str, object]) -> None:
    for value in values:
        call.copy_in(line(value), "")


BEGINS: list[dict[str, object]] = [
    {"id": 2, "result": {"thread": {"id": THREAD}, "model": "gpt-x-1"}},
    {"method": "turn/started", "params": {"threadId": THREAD, "turn": {"id": "turn-1"}}},
    {"method": "thread/tokenUsage/updated", "params": usage(100)},
]


@pytest.mark.requirement("codex-continues")
def test_replies_that_a_killed_process_has_not_reported_are_counted_once(
    tmp_path: Path, bin_folder: Path
) -> None:
    adapter = adapter_for(tmp_path, bin_folder, OPENAI_API_KEY="k")
    dead = open_call(adapter, tmp_path)
    speak(dead, *BEGINS)
    write_rollout(dead.folder / "home", ("turn-1", 100), ("turn-1", 200), ("another", 7))
    save_session(dead.folder, THREAD)
    dead.close()

    call = open_call(adapter, tmp_path, attempt=2)
    call.launch()
    call.launch()

    used = call.talk.attempts.usage()
    assert (used.input_tokens, used.output_tokens, used.turns) == (300, 20, 2)
    assert used.cost_usd == pytest.approx(300 / 1e6)
    assert call.talk.usd_estimated


def test_what_an_earlier_step_of_the_conversation_has_used_is_not_paid_again(
    tmp_path: Path, bin_folder: Path
) -> None:
    adapter = adapter_for(tmp_path, bin_folder, OPENAI_API_KEY="k")
    failed = open_call(adapter, tmp_path)
    speak(failed, *BEGINS)
    write_rollout(failed.folder / "home", ("turn-1", 100), ("turn-1", 200))
    save_session(failed.folder, THREAD)
    failed.close()
    open_call(adapter, tmp_path, attempts_before=1).close()

    call = open_call(adapter, tmp_path, attempts_before=1, attempt=2)
    call.launch()

    assert call.talk.attempts.usage().input_tokens is None


def test_a_call_that_is_given_up_is_charged_with_what_was_not_reported(
    tmp_path: Path, bin_folder: Path
) -> None:
    call = open_call(adapter_for(tmp_path, bin_folder, OPENAI_API_KEY="k"), tmp_path)
    call.launch()
    call.talk.begin()
    call.talk.attached(Link(1))
    call._thread.id = THREAD
    speak(call, *BEGINS[:2])
    write_rollout(call.folder / "home", ("turn-1", 100))

    call.talk.cancel("user")
    call.talk.exited(-9)

    (done,) = [action for action in call.talk.take() if isinstance(action, Done)]
    assert isinstance(done.outcome, AgentCancelledError)
    assert done.outcome.usd == pytest.approx(100 / 1e6)


def test_a_later_conversation_of_the_step_is_continued(tmp_path: Path, bin_folder: Path) -> None:
    adapter = adapter_for(tmp_path, bin_folder)
    request = request_for(cwd=str(tmp_path))
    later = conversation_id(request.run_id, request.key, 1)
    (tmp_path / "agents" / "codex" / later).mkdir(parents=True)

    call = open_call(adapter, tmp_path, attempt=2)

    assert (call.talk.generation, call.talk.conversation) == (1, later)
    assert call.folder.name == later


def test_a_conversation_that_is_continued_is_found_with_its_file(tmp_path: Path, bin_folder: Path) -> None:
    adapter = adapter_for(tmp_path, bin_folder, OPENAI_API_KEY="k")
    parent = tmp_path / "agents" / "codex" / "parent"
    sessions = parent / "home" / "sessions" / "2026" / "03" / "01"
    sessions.mkdir(parents=True)
    (sessions / "rollout-x-thread-0.jsonl").write_text("{}\n", encoding="utf-8")
    save_session(parent, "thread-0")

    call = open_call(adapter, tmp_path, continues="parent")
    call.launch()

    assert call._thread.parent == "thread-0"
    copied = call.folder / "home" / "sessions" / "2026" / "03" / "01" / "rollout-x-thread-0.jsonl"
    assert copied.read_text(encoding="utf-8") == "{}\n"
    assert copied.stat().st_mode & 0o777 == 0o600


def test_a_conversation_that_is_continued_gets_no_tools_of_its_own(tmp_path: Path, bin_folder: Path) -> None:
    tool = {"name": "double", "description": "d", "input_schema": {"type": "object"}}

    with pytest.raises(AgentCapabilityError):
        adapter_for(tmp_path, bin_folder).check(request_for(continues="parent", tools=[tool]))


def test_a_conversation_that_is_not_there_cannot_be_continued(tmp_path: Path, bin_folder: Path) -> None:
    call = open_call(adapter_for(tmp_path, bin_folder), tmp_path, continues="gone")

    with pytest.raises(AgentRequestError, match="gone"):
        call.launch()


# The home of a person, in a run that may be continued on another machine.


def thread_file(home: Path) -> Path:
    folder = home / "sessions/2026/03/01"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"rollout-2026-{THREAD}.jsonl"


@pytest.mark.requirement("fleet-conversations")
@pytest.mark.parametrize("elsewhere", ["mine", "other"])
def test_a_thread_in_the_home_of_a_person_travels_with_the_run(
    tmp_path: Path, bin_folder: Path, elsewhere: str
) -> None:
    mine = thread_file(tmp_path / "mine")
    here = adapter_for(tmp_path, bin_folder, travels=True, CODEX_HOME=str(tmp_path / "mine"))
    killed = open_call(here, tmp_path)
    killed._thread.id = THREAD
    save_session(killed.folder, THREAD)
    mine.write_text("one\n", "utf-8")
    killed.save()  # with the copy of the files
    killed._stream.close()
    mine.write_text("one\nan edit that is gone\n", "utf-8")

    home = tmp_path / elsewhere
    call = open_call(
        adapter_for(tmp_path, bin_folder, travels=True, CODEX_HOME=str(home)), tmp_path, attempt=2
    )
    call.launch()

    assert thread_file(home).read_text("utf-8") == "one\n"
    assert call._thread.id == THREAD
    call.close()
    continued = open_call(
        adapter_for(tmp_path, bin_folder, travels=True, CODEX_HOME=str(tmp_path / "third")),
        tmp_path,
        key="ik:2",
        continues=call.folder.name,
    )
    continued.launch()
    assert thread_file(tmp_path / "third").read_text("utf-8") == "one\n"


def test_a_thread_that_stays_on_its_machine_is_not_copied(tmp_path: Path, bin_folder: Path) -> None:
    thread_file(tmp_path / "mine").write_text("one\n", "utf-8")
    call = open_call(adapter_for(tmp_path, bin_folder, CODEX_HOME=str(tmp_path / "mine")), tmp_path)
    call._thread.id = THREAD

    call.close()

    assert not (call.folder / "copies").exists()
