from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.claude.driver import reply, request_of, result

from bartack.agents.claude._agent import ClaudeAdapter, ClaudeCall
from bartack.agents.config import ProtocolConfig
from bartack.agents.contract import AgentRequest
from bartack.agents.conversation._actions import Done
from bartack.agents.conversation._dialect import AgentFailure
from bartack.agents.program._continuation import CONTINUE
from bartack.agents.program._json_lines import Json, JsonLine
from bartack.agents.program.adapter import Surroundings
from bartack.agents.program_config import ClaudeConfig
from bartack.agents.protocol.messages import Budget, Event
from bartack.errors import (
    AgentBudgetError,
    AgentBusyError,
    AgentExitedError,
    AgentRequestError,
    AgentStartError,
    ReplyInvalidError,
)
from bartack.testing import VirtualClock

BEGUN: Json = {"type": "bartack.begun"}
STARTED: Json = {"type": "bartack.started"}
SENT: Json = {"type": "bartack.sent"}


@pytest.fixture
def adapter(tmp_path: Path) -> ClaudeAdapter:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    return make_adapter(tmp_path)


def make_adapter(root: Path, path: str = "bin", *, travels: bool = False, **config: object) -> ClaudeAdapter:
    around = Surroundings(
        travels=travels,
        run={"BARTACK_RUN": "run-20260301-101500-0badcafe", "BARTACK_RUN_DIR": str(root)},
        folder=root / "agents",
        environ={
            "PATH": str(root / path),
            "HOME": str(root / "person"),
            "ANTHROPIC_API_KEY": "k",
            "CANARY": "x",
        },
        protocol=ProtocolConfig(),
    )
    settings = msgspec.convert({"kind": "claude", **config}, type=ClaudeConfig)
    return ClaudeAdapter("claude", settings, VirtualClock(), around)


def opened(adapter: ClaudeAdapter, request: AgentRequest) -> ClaudeCall:
    adapter.check(request)
    return adapter.open_call(request, adapter.surroundings.folder / adapter.name)


def write(call: ClaudeCall, *lines: Json) -> None:
    with (call.folder / "stream.ndjson").open("ab") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)


def leave_transcript(call: ClaudeCall, name: str = "-x") -> None:
    path = call.folder / "home" / "projects" / name / f"{call.talk.conversation}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"type":"user","message":{"content":"do it"}}\n', encoding="utf-8")


def again(adapter: ClaudeAdapter, root: Path, *lines: Json, **changes: object) -> ClaudeCall:
    """A call whose first hub has died, with this stream."""
    first = opened(adapter, request_of(root))
    write(first, *lines)
    first.close()
    return opened(adapter, request_of(root, attempt=2, **changes))


# The request.


@pytest.mark.parametrize("text", ["", "  \n", "a\0b"])
def test_a_prompt_that_says_nothing_or_has_a_nul_is_refused(
    adapter: ClaudeAdapter, tmp_path: Path, text: str
) -> None:
    with pytest.raises(AgentRequestError) as raised:
        adapter.check(request_of(tmp_path, inputs={"text": text}))

    assert raised.value.cause == "bad_request"


def test_a_schema_that_fits_on_no_command_line_is_too_large(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    schema = {"type": "object", "description": "x" * 110_000}

    with pytest.raises(AgentRequestError) as raised:
        adapter.check(request_of(tmp_path, inputs={"text": "x", "result_schema": schema}))

    assert raised.value.cause == "too_large"


def test_a_conversation_has_one_owner(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = opened(adapter, request_of(tmp_path))

    with pytest.raises(AgentBusyError):
        opened(adapter, request_of(tmp_path))
    call.close()
    opened(adapter, request_of(tmp_path)).close()


def test_a_missing_program_is_said_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(_name: str) -> None:
        return None

    monkeypatch.setattr("bartack.agents.program.find.find_spec", find_nothing)
    call = opened(make_adapter(tmp_path, "nowhere"), request_of(tmp_path))

    with pytest.raises(AgentStartError, match="claude-cli"):
        call.launch()


# Processes.


def test_the_first_process_has_a_home_of_its_own_and_few_variables(
    adapter: ClaudeAdapter, tmp_path: Path
) -> None:
    call = opened(adapter, request_of(tmp_path, system="Be brief."))

    launch = call.launch()

    assert f"--session-id={call.talk.conversation}" in launch.argv
    assert launch.env["CLAUDE_CONFIG_DIR"] == str(call.folder / "home")
    assert "CANARY" not in launch.env
    assert launch.env["BARTACK_STEP"] == "ik:1"
    assert (call.folder / "system.txt").read_text(encoding="utf-8") == "Be brief."
    assert f"--append-system-prompt-file={call.folder / 'system.txt'}" in launch.argv
    assert launch.stdout == call.folder / "stream.ndjson"


def test_a_conversation_with_a_transcript_is_resumed(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = opened(adapter, request_of(tmp_path))
    leave_transcript(call)

    launch = call.launch()

    assert f"--resume={call.talk.conversation}" in launch.argv
    assert call.dialect._opening == CONTINUE


def test_a_refused_answer_is_the_first_thing_a_resumed_process_reads(
    adapter: ClaudeAdapter, tmp_path: Path
) -> None:
    call = opened(adapter, request_of(tmp_path, rejected="artifact_missing", rejected_because="no notes.txt"))
    leave_transcript(call)

    call.launch()

    assert "no notes.txt" in call.dialect._opening


def test_an_id_that_is_taken_leads_to_the_transcript_or_to_another_generation(
    adapter: ClaudeAdapter, tmp_path: Path
) -> None:
    call = opened(adapter, request_of(tmp_path))
    first = call.talk.conversation
    call.dialect.taken = True

    launch = call.launch()

    assert call.talk.generation == 1
    assert call.talk.conversation != first
    assert f"--session-id={call.talk.conversation}" in launch.argv
    call.dialect.lost = "No conversation found"
    with pytest.raises(AgentExitedError, match="No conversation found"):
        call.launch()
    call.close()
    assert opened(adapter, request_of(tmp_path)).talk.generation == 1


def test_an_id_that_is_taken_by_a_transcript_is_resumed(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = opened(adapter, request_of(tmp_path))
    call.dialect.taken = True
    leave_transcript(call)

    assert f"--resume={call.talk.conversation}" in call.launch().argv
    assert call.talk.generation == 0


def test_a_step_that_continues_another_forks_its_transcript(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    parent = opened(adapter, request_of(tmp_path, key="ik:0"))
    leave_transcript(parent)
    call = opened(adapter, request_of(tmp_path, continues=parent.talk.conversation))

    argv = call.launch().argv

    (source,) = [word for word in argv if word.startswith("--resume=")]
    assert source.endswith(f"{parent.talk.conversation}.jsonl")
    assert {"--fork-session", f"--session-id={call.talk.conversation}"} <= set(argv)
    lost = opened(adapter, request_of(tmp_path, key="ik:2", continues="none"))
    with pytest.raises(AgentRequestError) as raised:
        lost.launch()
    assert raised.value.cause == "not_found"


def test_a_long_result_of_a_tool_is_a_private_file_of_the_call(
    adapter: ClaudeAdapter, tmp_path: Path
) -> None:
    call = opened(adapter, request_of(tmp_path))

    path = Path(call.dialect.tools._store("x" * 100))

    assert path.read_text(encoding="utf-8") == "x" * 100
    assert path.is_relative_to(call.folder)
    assert path.stat().st_mode & 0o777 == 0o600


# What dead hubs have left.


def test_an_answer_that_came_is_found(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = again(adapter, tmp_path, STARTED, SENT, reply("m1"), result(result="found"))

    found = call.recover()

    assert isinstance(found, JsonLine)
    event = call.dialect.recover(found)
    assert isinstance(event, Event)
    assert event.payload == {"text": "found"}
    assert event.usage is not None
    assert event.usage.cost_usd == 0.25
    assert call.talk.attempts.usage(event.usage).cost_usd == 0.25


@pytest.mark.parametrize(
    ("lines", "asked"), [((STARTED, SENT), True), ((STARTED, SENT, result(), SENT), False)]
)
def test_a_reply_is_not_repaired_twice_although_a_hub_died(
    adapter: ClaudeAdapter, tmp_path: Path, lines: tuple[Json, ...], *, asked: bool
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    inputs = {"text": "do it", "result_schema": schema}
    call = again(adapter, tmp_path, *lines, result(result="no value"), inputs=inputs)

    call.talk.begin(call.recover())

    ended = [action.outcome for action in call.talk.take() if isinstance(action, Done)]
    assert [type(outcome) for outcome in ended] == ([] if asked else [ReplyInvalidError])


def test_a_final_failure_is_found_too(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = again(adapter, tmp_path, STARTED, SENT, result(is_error=True, api_error_status=404))

    found = call.recover()

    assert found is not None
    failure = call.dialect.recover(found)
    assert isinstance(failure, AgentFailure)
    assert failure.code == "not_found"


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (STARTED,),
        (STARTED, SENT, reply("m1")),
        (STARTED, SENT, result(is_error=True, api_error_status=529)),
        (STARTED, SENT, result(is_error=True, subtype="error_during_execution")),
        (STARTED, SENT, result(), SENT),
        (STARTED, SENT, result(), STARTED),
        (
            STARTED,
            SENT,
            {"type": "system", "subtype": "task_started", "task_id": "a", "task_type": "local_agent"},
            result(),
        ),
    ],
)
def test_what_is_not_an_answer_is_not_taken_for_one(
    adapter: ClaudeAdapter, tmp_path: Path, lines: tuple[Json, ...]
) -> None:
    assert again(adapter, tmp_path, *lines).recover() is None


def test_what_dead_hubs_have_used_is_counted(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = again(
        adapter, tmp_path, STARTED, SENT, reply("m0"), result(), SENT, reply("m1"), STARTED, reply("m2")
    )

    assert call.recover() is None

    estimated = 2 * (1000 * 5 + 100 * 25) / 1e6
    assert call.talk.attempts.usage().cost_usd == pytest.approx(0.25 + estimated)
    assert call.talk.attempts.usage().turns == 3
    assert call.talk.usd_estimated


def test_an_earlier_step_with_the_same_key_is_not_counted(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = again(adapter, tmp_path, STARTED, SENT, reply("m0"), result(), BEGUN, STARTED, SENT, reply("m1"))

    assert call.recover() is None
    assert call.talk.attempts.usage().turns == 1


def test_the_program_gets_what_is_left_of_the_budget(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = again(
        adapter, tmp_path, STARTED, SENT, reply("m0"), result(), SENT, budget=Budget(usd=1.0, turns=5)
    )
    call.recover()

    argv = call.launch().argv

    assert {"--max-budget-usd=0.7500", "--max-turns=4"} <= set(argv)


def test_a_step_that_has_used_its_budget_is_not_asked_again(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    call = again(adapter, tmp_path, STARTED, SENT, result(), SENT, budget=Budget(usd=0.2))
    call.recover()

    with pytest.raises(AgentBudgetError):
        call.launch()


def test_results_of_tools_are_remembered_for_the_next_process(adapter: ClaudeAdapter, tmp_path: Path) -> None:
    tool: Json = {"type": "bartack.tool", "id": "t1", "name": "do_1", "text": "41"}
    call = again(adapter, tmp_path, STARTED, SENT, tool)
    leave_transcript(call)
    call.recover()

    call.launch()

    assert "mcp__bartack__do_1: 41" in call.dialect._opening


# The home of a person, in a run that may be continued on another machine.


class Person:
    """The home of the person whose login is used, and what a conversation has there."""

    def __init__(self, root: Path, *, travels: bool = True) -> None:
        self.root = root
        self.travels = travels
        program = root / "bin/claude"
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n", encoding="utf-8")
        program.chmod(0o755)

    def open(self, attempt: int = 1, adapter: ClaudeAdapter | None = None) -> ClaudeCall:
        """Open the call, in a new hub unless one is given."""
        adapter = adapter or make_adapter(self.root, travels=self.travels, home="user")
        return opened(adapter, request_of(self.root, attempt=attempt))

    def transcript(self, call: ClaudeCall) -> Path:
        folder = self.root / "person/.claude/projects/-x"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{call.talk.conversation}.jsonl"

    def remember(self, call: ClaudeCall, *texts: str) -> None:
        lines = [msgspec.json.encode({"type": "user", "message": {"content": text}}) for text in texts]
        self.transcript(call).write_bytes(b"".join(line + b"\n" for line in lines))


@pytest.mark.requirement("fleet-conversations")
def test_what_a_copy_brought_counts_and_not_what_a_killed_hub_has_left_in_the_home(tmp_path: Path) -> None:
    person = Person(tmp_path)
    killed = person.open()
    person.remember(killed, "do it")
    killed.save()  # with the copy of the files
    killed._stream.close()
    person.remember(killed, "do it", "an edit that is gone")

    call = person.open(attempt=2)
    launch = call.launch()

    found = person.transcript(call).read_text("utf-8")
    assert "do it" in found
    assert "an edit that is gone" not in found
    assert f"--resume={call.talk.conversation}" in launch.argv


@pytest.mark.requirement("fleet-conversations")
def test_a_conversation_that_began_after_the_copy_begins_again(tmp_path: Path) -> None:
    person = Person(tmp_path)
    killed = person.open()
    killed._stream.close()
    person.remember(killed, "do it", "an edit that is gone")

    call = person.open(attempt=2)
    launch = call.launch()

    assert not person.transcript(call).exists()
    assert f"--session-id={call.talk.conversation}" in launch.argv


def test_later_attempts_of_the_same_hub_continue_with_the_home(tmp_path: Path) -> None:
    person = Person(tmp_path)
    adapter = make_adapter(tmp_path, travels=True, home="user")
    first = person.open(adapter=adapter)
    person.remember(first, "do it")
    first.launch()
    person.remember(first, "do it", "an edit that is there")
    first.launch()
    first.close()
    person.open(attempt=2, adapter=adapter).launch()

    assert "an edit that is there" in person.transcript(first).read_text("utf-8")


def test_a_run_that_stays_on_its_machine_continues_with_what_is_newest(tmp_path: Path) -> None:
    person = Person(tmp_path, travels=False)
    killed = person.open()
    person.remember(killed, "do it")
    killed.save()
    killed._stream.close()
    person.remember(killed, "do it", "an edit that is there")

    person.open(attempt=2).launch()

    assert "an edit that is there" in person.transcript(killed).read_text("utf-8")
