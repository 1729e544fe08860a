"""``bartack agents doctor`` with the real programs: without cost, and with one word of a model."""

from __future__ import annotations

import json
from typing import Final

import pytest
from tests.realcli.crew import KINDS, Crew, Kind
from tests.realcli.programs import require_program

from bartack.testing import ClaudeSandbox, ModelServer

SCRIPTS: Final[dict[str, list[dict[str, object]]]] = {}
CREDENTIAL: Final = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "acp": ""}
ABOUT: Final = {"claude": "2.1.", "codex": "0.1", "acp": "claude-agent-acp 0."}


@pytest.mark.requirement("doctor-greets-real-agents")
@pytest.mark.parametrize("kind", KINDS)
def test_the_doctor_greets_the_program_and_asks_it_with_live_only(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, is_wrapped=False)

    free = crew.call("agents", "doctor", "--json")
    asked = len(model_server.requests)
    live = crew.call("agents", "doctor", "--live", "--json")

    assert (free.returncode, live.returncode) == (0, 0), free.stdout + live.stdout
    (found,), (answered,) = json.loads(free.stdout), json.loads(live.stdout)
    assert found["version"].startswith(ABOUT[kind]) or ABOUT[kind] in found["version"], found
    assert found["credential"] == CREDENTIAL[kind]
    assert asked == 0
    assert "it answered a prompt" not in found["notes"]
    assert "it answered a prompt" in answered["notes"]
    assert model_server.requests
    assert not (crew.root / ".bartack" / "runs").exists()
