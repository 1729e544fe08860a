"""Failures of models, by the number of requests that they cost: what cannot get better is asked once, the rest with a bound.

The programs of the agents repeat some requests themselves; Bartack asks for none of these again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from signal import SIGKILL as KILL
from typing import Final, NamedTuple, cast

import pytest
from tests.realcli.crew import KINDS, PATIENT, Crew, Kind, price, send
from tests.realcli.programs import require_program
from tests.realcli.team import Team
from tests.waiting import until

from bartack.testing import ClaudeSandbox, ModelServer

Script = list[dict[str, object]]


def fails(status: int, **more: object) -> Script:
    return [{"text": "at last", "fail": {"status": status, "times": 0, **more}}]


class Row(NamedTuple):
    """What a failure becomes: the code of the error, its cause, and the requests until then."""

    code: str
    cause: str
    requests: int


TERMINAL: Final[dict[str, Script]] = {
    "e401": fails(401),
    "e403": fails(403),
    "e402": fails(402),
    "credit": fails(400, message="Your credit balance is too low to access the API."),
    "e404": fails(404),
    "e413": fails(413),
    "e400": fails(400),
    "refusal": [{"text": "no", "stop_reason": "refusal"}],
    "long": [{"text": "no", "stop_reason": "max_tokens"}],
    "context": fails(200, type="context_length_exceeded"),
    "quota": fails(200, type="insufficient_quota"),
}
AUTH, QUOTA, MISSING = Row("BT810", "", 1), Row("BT809", "", 1), Row("BT812", "not_found", 1)
LARGE, BAD = Row("BT812", "too_large", 1), Row("BT812", "bad_request", 1)
CLAUDE: Final = {
    "e401": AUTH,
    "e403": AUTH,
    "e402": QUOTA,
    "credit": QUOTA,
    "e404": MISSING._replace(requests=2),
    "e413": LARGE,
    "e400": BAD._replace(requests=3),
    "refusal": Row("BT812", "refused", 2),
    "long": LARGE._replace(requests=4),
}
ROWS: Final[dict[Kind, dict[str, Row]]] = {
    "claude": CLAUDE,
    "codex": {
        "e401": AUTH, "e403": AUTH, "e402": QUOTA, "e404": MISSING, "e413": LARGE, "e400": BAD, "long": LARGE, "context": LARGE,
        "quota": QUOTA,
    },
    "acp": CLAUDE | {"e401": AUTH._replace(requests=3)},
}  # fmt: skip
"""Claude Code and claude-agent-acp ask for a refused or a cut reply again by themselves, and the latter after a 401, too."""

BUSY: Final[dict[str, Script]] = {
    "busy": [{"text": "at last", "fail": {"status": 429, "times": 2}}],
    "overloaded": [{"text": "at last", "fail": {"status": 529, "times": 3}}],
    "broken": [{"text": "at last", "fail": {"status": 500, "times": 4}}],
    "cut": [{"text": "one two three four", "cut_after": 4, "cut_times": 1}],
    "e500": fails(500),
    "e529": fails(529),
}
SCRIPTS: Final = {**TERMINAL, **BUSY, "hello": [{"text": "hello back"}]}

TRY: Final = (
    "from bartack.errors import AgentError",
    "found = {}",
    "for script in SCRIPTS:",
    "    try:",
    '        found[script] = await ctx.think(f"[[script:{script}]] try", timeout_s=50)',
    "    except AgentError as error:",
    '        found[script] = [error.code, getattr(error, "cause", ""), error.usd]',
    "return found",
)


def run_all(crew: Crew, *scripts: str) -> dict[str, object]:
    """What comes of each script, one prompt after the other in one run."""
    done = crew.run(*(line.replace("SCRIPTS", repr(scripts)) for line in TRY), timeout_s=120)
    assert done.returncode == 0, done.stderr
    return cast("dict[str, object]", json.loads(done.stdout))


def starts(crew: Crew, count: int) -> dict[str, int]:
    """How often each of so many calls was begun, in their order."""
    keys = [str(event["key"]) for event in crew.named("agent.started")]
    assert len(set(keys)) == count
    return {key: keys.count(key) for key in dict.fromkeys(keys)}


@pytest.mark.requirement("terminal-errors-are-not-repeated")
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_get_better_is_not_asked_again(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, is_wrapped=False)
    rows = ROWS[kind]

    found = run_all(crew, *rows)

    errors = cast("dict[str, tuple[str, str, float]]", found)
    asked = {script: model_server.requests_of(script) for script in rows}
    assert {script: Row(*errors[script][:2], len(asked[script])) for script in rows} == rows
    assert set(starts(crew, len(rows)).values()) == {1}
    assert not crew.named("agent.retry")
    if kind != "acp":
        assert float(str(crew.named("agent.finished")[0]["duration_s"])) < 2 * PATIENT
    if kind == "claude":
        counted = {script: sum(price(request) for request in asked[script]) for script in rows}
        assert {script: error[2] for script, error in errors.items()} == pytest.approx(counted)


@pytest.mark.requirement("terminal-errors-are-not-repeated")
def test_without_a_credential_nothing_is_asked_and_it_is_said_what_to_set(
    sandbox: ClaudeSandbox, model_server: ModelServer
) -> None:
    crew = Crew("claude", sandbox, model_server, is_wrapped=False)
    settings = crew.root / "bartack.toml"
    settings.write_text(
        settings.read_text(encoding="utf-8").replace('"ANTHROPIC_API_KEY", ', "") + 'home = "run"\n',
        encoding="utf-8",
    )

    done = crew.run('return await ctx.think("[[script:hello]] greet")')

    assert done.returncode != 0
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert model_server.requests == []


RETRIED: Final[dict[Kind, dict[str, int]]] = {
    "claude": {"busy": 3, "overloaded": 4, "cut": 2},
    "codex": {"broken": 5, "cut": 2},
    "acp": {"busy": 3, "overloaded": 4, "cut": 2},
}
"""The requests until a script succeeds."""
REPEATS: Final[dict[Kind, dict[str, str]]] = {
    "claude": {"busy": "rate_limited", "overloaded": "temporary_failure"},
    "codex": {"broken": "temporary_failure"},
    "acp": {},
}
"""Why the programs repeat requests by themselves, as their events say. An ACP agent does not report it."""


@pytest.mark.requirement("terminal-errors-are-not-repeated")
@pytest.mark.parametrize("kind", KINDS)
def test_what_gets_better_is_asked_again_in_its_conversation(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, is_wrapped=False)
    scripts = RETRIED[kind]

    found = run_all(crew, *scripts)

    assert {script: len(model_server.requests_of(script)) for script in scripts} == scripts
    # An ACP agent has sent the words before the cut, and sends no sign that they do not count.
    assert [str(text)[-7:] for text in found.values()] == ["at last"] * (len(scripts) - 1) + ["ee four"]
    assert len(list(crew.streams())) == len(scripts)
    assert crew.count("step.finished") == len(scripts)
    calls = dict(zip(scripts, starts(crew, len(scripts)), strict=True))
    own = {(str(event["key"]), event["code"]) for event in crew.named("agent.retry") if event.get("own")}
    assert own >= {(calls[script], code) for script, code in REPEATS[kind].items()}


NEVER: Final[dict[Kind, tuple[str, int]]] = {"claude": ("e529", 9), "codex": ("e500", 12), "acp": ("e529", 9)}
"""A script that fails for ever, and the requests of three attempts."""


@pytest.mark.requirement("terminal-errors-are-not-repeated")
@pytest.mark.parametrize("kind", KINDS)
def test_what_never_gets_better_is_asked_a_bounded_number_of_times(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, is_wrapped=False)
    script, requests = NEVER[kind]

    found = run_all(crew, script)

    assert found == {script: ["BT805", "", 0.0]}
    assert len(model_server.requests_of(script)) == requests
    assert set(starts(crew, 1).values()) == {3}


# Over a restart of the hub.

RESETS_S: Final = (6.0, 20.0, 60.0)
"""After how many seconds a limit ends: one of them is time enough to kill a hub and to start another one."""
WAITS: Final[dict[Kind, tuple[str, int, int]]] = {
    "claude": ("overloaded", 3, 4),
    "codex": ("broken", 4, 5),
    "acp": ("overloaded", 3, 4),
}
"""A script, the requests of the first attempt, and those until it succeeds."""


@pytest.mark.requirement("terminal-errors-are-not-repeated")
@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_for_a_server_that_fails_survives_its_hub(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, "backoff_initial_s = 3600\nbackoff_max_s = 3600")
    script, first, all_of_them = WAITS[kind]
    run = crew.start(f'return await ctx.think("[[script:{script}]] try")')
    until(lambda: crew.count("attempt.failed"), "the first attempt has failed")
    assert len(model_server.requests_of(script)) == first

    send(run.pid, KILL)
    run.communicate(timeout=30)
    done = crew.resume()

    assert (done.returncode, done.stdout) == (0, "at last\n"), done.stderr
    assert len(model_server.requests_of(script)) == all_of_them
    assert len(list(crew.streams())) == 1
    assert crew.count("step.finished") == 1


@pytest.mark.requirement("limits-outlive-the-hub")
def test_the_end_of_a_limit_is_waited_for_across_a_restart(
    tmp_path: Path, claude: list[str], slot: int
) -> None:
    """Claude Code with a login learns when its limit ends. The new hub neither asks before, nor does it ask twice.

    On a busy machine a short limit may end before the new hub begins: then there is nothing to wait for, and a longer one is tried.
    """
    del claude, slot
    tries = (is_waited_for(tmp_path / f"{reset_s:g}", reset_s) for reset_s in RESETS_S)
    assert any(tries), "no hub began before the end of its limit"


def is_waited_for(place: Path, reset_s: float) -> bool:
    """Kill a hub that waits for the end of a limit, and check what another one does; ``False`` if the limit ended before that."""
    ends = int(time.time() + reset_s) + 1
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": str(ends),
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
    }
    scripts = {"limited": [{"text": "at last", "fail": {"status": 429, "times": 1, "headers": headers}}]}
    with ModelServer(scripts) as server, ClaudeSandbox(place, server, login=True) as sandbox:
        team = Team(
            sandbox, 'pass_env = ["CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL", "BARTACK_SANDBOX"]'
        )
        run = team.start('return await ctx.think("[[script:limited]] try")')
        until(lambda: team.count("step.retried") or time.time() >= ends, "the limit is recorded")
        send(run.pid, KILL)
        run.communicate(timeout=30)
        resumed_at = time.time()
        if resumed_at >= ends:
            return False
        done = team.call("resume", team.folder.name, timeout_s=60 + reset_s)

        assert (done.returncode, done.stdout) == (0, "at last\n"), done.stderr
        first, second = server.requests_of("limited")
        assert first.started_at < resumed_at < ends <= second.started_at
        assert len(list(team.streams())) == 1
    return True
