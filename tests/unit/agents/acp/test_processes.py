"""Programs that speak ACP as real processes: hostile ones, one made with the protocol's library, their files and variables."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.agents.loop import Loop, Sink, open_loop
from tests.waiting import until

from bartack.agents import AgentRequest, AgentResult
from bartack.agents.acp._home import HOME_VARIABLES, agent_environment, choose_home
from bartack.agents.contract import CallNotice
from bartack.agents.program_config import AcpConfig
from bartack.errors import (
    AgentDeadlineError,
    AgentExitedError,
    AgentProtocolError,
    AgentRequestError,
    AgentStartError,
)
from bartack.supervision.process.tree import find_by_environment

HOSTILE = Path(__file__).with_name("hostile_agent.py")
LIBRARY = Path(__file__).with_name("library_agent.py")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    with open_loop(tmp_path) as opened:
        yield opened


def key_of(root: Path) -> str:
    """A key that no other test has: processes are found by it."""
    return "ik:" + hashlib.sha256(str(root).encode()).hexdigest()


def request(root: Path, **changes: object) -> AgentRequest:
    base = AgentRequest(
        run_id="run-20260301-101500-0badcafe",
        key=key_of(root),
        worker="main",
        inputs={"text": "Do it."},
        cwd=str(root),
    )
    return msgspec.structs.replace(base, **changes)


def hostile(behaviour: str, *more: str) -> list[str]:
    return [sys.executable, str(HOSTILE), behaviour, *more]


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [("exits", AgentExitedError), ("chatters", AgentProtocolError), ("floods", AgentProtocolError)],
)
def test_a_hostile_agent_ends_with_an_error(
    loop: Loop, tmp_path: Path, behaviour: str, error: type[Exception]
) -> None:
    outcome = loop.ask(loop.acp(hostile(behaviour), retries=1), request(tmp_path))

    assert type(outcome) is error
    assert find_by_environment("BARTACK_STEP", key_of(tmp_path)) == []


def test_an_agent_that_never_answers_ends_with_its_deadline(loop: Loop, tmp_path: Path) -> None:
    outcome = loop.ask(loop.acp(hostile("silent")), request(tmp_path, timeout_s=1.0))

    assert isinstance(outcome, AgentDeadlineError)


def test_an_agent_that_answers_twice_is_heard_once(loop: Loop, tmp_path: Path) -> None:
    sink = Sink()
    loop.acp(hostile("twice")).start(request(tmp_path), sink)
    loop.until(lambda: bool(sink.outcomes))

    assert isinstance(sink.outcomes[0], AgentResult)
    assert sink.outcomes[0].text == "Done."
    assert [event.case for event in sink.events if isinstance(event, CallNotice)][:1] == ["unexpected_reply"]


def test_a_process_that_an_agent_leaves_ends_with_the_call(loop: Loop, tmp_path: Path) -> None:
    result = loop.result(loop.acp(hostile("daemon")), request(tmp_path))

    assert result.text == "Done."
    assert find_by_environment("BARTACK_STEP", key_of(tmp_path)) == []


def test_a_program_that_is_not_there_is_not_tried_again(loop: Loop, tmp_path: Path) -> None:
    assert isinstance(loop.ask(loop.acp(["no-such-program"]), request(tmp_path)), AgentStartError)


@pytest.mark.requirement("acp-permissions")
@pytest.mark.parametrize(("mode", "chosen"), [("auto", "yes"), ("edit", "no")])
def test_an_agent_of_the_protocols_library_is_served(
    loop: Loop, tmp_path: Path, mode: str, chosen: str
) -> None:
    agent = loop.acp([sys.executable, str(LIBRARY)], permissions={"mode": mode})
    result = loop.result(agent, request(tmp_path))

    assert result.text == f"{chosen} {chosen}"
    assert (tmp_path / "made.txt").read_text() == f"{chosen}\n"
    assert len(result.denials) == (0 if chosen == "yes" else 1)


@pytest.mark.requirement("acp-sessions-continue")
def test_a_conversation_that_cannot_be_continued_is_followed_by_another_one(
    loop: Loop, tmp_path: Path
) -> None:
    agent = loop.acp(hostile("dies once", str(tmp_path / "died")), home="run")
    result = loop.result(agent, request(tmp_path))

    assert (result.text, result.generation) == ("Done.", 1)
    folders = sorted(path.parent.name for path in tmp_path.glob("agents/stub/*/session"))
    assert len(folders) == 2
    assert result.conversation in folders
    assert len(list(tmp_path.glob("agents/stub/*/abandoned"))) == 1
    assert len(list(tmp_path.glob("agents/stub/*/home"))) == 2


@pytest.mark.requirement("fleet-conversations-acp")
@pytest.mark.parametrize(("travels", "begins"), [(True, "session/new"), (False, "session/load")])
def test_a_session_in_the_home_of_a_person_is_not_continued_with_files_of_a_copy(
    tmp_path: Path, begins: str, *, travels: bool
) -> None:
    noted = tmp_path / "noted"
    with open_loop(tmp_path) as dead:
        agent = dead.acp(hostile("notes sessions", str(noted)), home="user", travels=travels)
        agent.start(request(tmp_path), Sink())
        dead.until(noted.with_suffix(".over").exists)
    with open_loop(tmp_path) as loop:
        agent = loop.acp(hostile("notes sessions", str(noted)), home="user", travels=travels)
        result = loop.result(agent, request(tmp_path, attempt=2))

    assert result.text == "Done."
    assert noted.read_text().split() == ["session/new", "session/prompt", begins, "session/prompt"]


@pytest.mark.requirement("acp-sessions-continue")
def test_an_answer_that_no_hub_has_read_is_not_asked_for_again(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    with open_loop(tmp_path) as dead:
        agent = dead.acp(hostile("counts", str(asked)))
        agent.start(request(tmp_path), Sink())
        dead.until(asked.exists)
        # From now on nothing is read, as if the hub was stopped; then it dies.
        (stream,) = tmp_path.glob("agents/stub/*/stream.ndjson")
        until(lambda: "end_turn" in stream.read_text(), "the agent is done", stream.parent)
    with open_loop(tmp_path) as loop:
        result = loop.result(loop.acp(hostile("counts", str(asked))), request(tmp_path, attempt=2))

    assert (result.text, result.harvested) == ("Done.", True)
    assert asked.read_text() == "asked\n"


def test_files_of_a_call_are_private(loop: Loop, tmp_path: Path) -> None:
    loop.result(loop.acp(hostile("plain"), home="run"), request(tmp_path))

    found = list((tmp_path / "agents").rglob("*"))
    assert {path.name for path in found} >= {"stream.ndjson", "session", "home", "transcript.ndjson"}
    assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_an_agent_gets_the_variables_it_is_given_and_a_home(loop: Loop, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nowhere",
        "CANARY": "1",
        "MY_API_KEY": "k",
        "CLAUDECODE": "1",
    }
    agent = loop.acp(hostile("environment", str(seen)), environ, pass_env=["MY_*"], env={"OWN": "x"})
    loop.result(agent, request(tmp_path))
    env = json.loads(seen.read_text())

    assert (env["OWN"], env["MY_API_KEY"], env["HOME"], env["BARTACK_STEP"]) == (
        "x",
        "k",
        "/nowhere",
        key_of(tmp_path),
    )
    assert not {"CANARY", "CLAUDECODE", "BARTACK_STEP_TOKEN"} & set(env)
    assert env["CLAUDE_CONFIG_DIR"].startswith(str(tmp_path / "agents" / "stub"))


@pytest.mark.parametrize(
    ("home", "variable", "own"),
    [("run", "", True), ("user", "MY_API_KEY", False), ("auto", "MY_API_KEY", True), ("auto", "", False)],
)
def test_the_home_is_chosen_by_the_settings_and_the_credentials(
    tmp_path: Path, home: str, variable: str, own: bool
) -> None:
    given = {"kind": "acp", "command": "x", "home": home, "pass_env": ["MY_API_KEY"]}
    config = msgspec.convert(given, type=AcpConfig)
    environ = {variable: "k"} if variable else {}
    chosen = choose_home(config, environ, tmp_path)
    names = set(agent_environment(config, environ, chosen))

    assert (chosen is not None) is own
    assert (set(HOME_VARIABLES) <= names) is own


def test_a_home_that_was_chosen_once_is_kept(tmp_path: Path) -> None:
    config = msgspec.convert({"kind": "acp", "command": "x"}, type=AcpConfig)
    assert choose_home(config, {}, tmp_path) is None
    (tmp_path / "home").mkdir()

    assert choose_home(config, {}, tmp_path) == tmp_path / "home"


def test_a_prompt_that_is_empty_or_has_a_nul_is_refused(loop: Loop, tmp_path: Path) -> None:
    agent = loop.acp(hostile("plain"))
    for text in ("", " \n", "a\0b"):
        with pytest.raises(AgentRequestError):
            agent.start(request(tmp_path, inputs={"text": text}), Sink())


def test_a_conversation_that_is_not_there_cannot_be_continued(loop: Loop, tmp_path: Path) -> None:
    outcome = loop.ask(loop.acp(hostile("plain")), request(tmp_path, continues="0" * 36))

    assert isinstance(outcome, AgentRequestError)


@pytest.mark.requirement("acp-sessions-continue")
def test_a_step_that_continues_another_one_has_a_copy_of_its_home(loop: Loop, tmp_path: Path) -> None:
    agent = loop.acp(hostile("homes"), home="run")
    first = loop.result(agent, request(tmp_path))
    folder = tmp_path / "agents" / "stub" / first.conversation
    session = (folder / "session").read_text().strip()
    second = loop.result(agent, request(tmp_path, key="ik:" + "2" * 64, continues=first.conversation))
    forked = tmp_path / "agents" / "stub" / second.conversation

    assert (first.text, second.text) == ("nothing Done.", f"{session} Done.")
    assert (forked / "session").read_text().strip() == f"fork-of-{session}"
    assert (folder / "home" / "note").read_text() == session
