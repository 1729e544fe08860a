"""Budgets in USD with real programs: each call is stopped or charged, and no money is promised to two calls."""

from __future__ import annotations

import json
from typing import Final

import pytest
from tests.realcli.crew import Crew, Kind, check_reported, price, shell

from bartack.testing import ClaudeSandbox, ModelServer


def costly(kind: Kind, tokens: int) -> list[dict[str, object]]:
    """Replies that cost much, and more of them than any budget of these tests is enough for."""
    usage = {"input_tokens": 10, "output_tokens": tokens}
    return [{"tools": [shell(kind, f"echo {number}")], "usage": usage} for number in range(5)]


SCRIPTS: Final[dict[str, list[dict[str, object]]]] = {
    "codex": costly("codex", 60_000),
    "claude": costly("claude", 16_000),
    "acp": [{"text": "dear", "usage": {"input_tokens": 10, "output_tokens": 60_000}}],
    "more": [{"text": "more"}],
}
BUDGET: Final = "[budget]\nusd = 1.0\nreserve_usd = "
REFUSED: Final = (
    "try:",
    '    await ctx.think("[[script:more]] more")',
    "except BudgetExceededError:",
    "    return spent",
)


def crew_of(kind: Kind, sandbox: ClaudeSandbox, server: ModelServer, reserved_usd: float) -> Crew:
    crew = Crew(kind, sandbox, server, 'permissions = { mode = "auto" }', is_wrapped=False)
    with (crew.root / "bartack.toml").open("a", encoding="utf-8") as file:
        file.write(f"{BUDGET}{reserved_usd}\n")
    return crew


@pytest.mark.requirement("budgets-end-calls")
def test_codex_is_stopped_between_two_replies_and_the_next_call_is_refused(
    sandbox: ClaudeSandbox, model_server: ModelServer, codex: list[str]
) -> None:
    assert codex
    crew = crew_of("codex", sandbox, model_server, 1.0)

    done = crew.run(
        "from bartack.errors import AgentBudgetError, BudgetExceededError",
        "try:",
        '    await ctx.think("[[script:codex]] spend")',
        "except AgentBudgetError as error:",
        "    spent = [error.usd, error.usd_estimated]",
        *REFUSED,
    )

    assert done.returncode == 0, done.stderr
    assert model_server.requests_of("more") == []
    spent, is_estimated = crew.decode(done)
    counted = [price(request) for request in model_server.requests]
    assert 1.2 <= spent <= sum(counted) + 1e-9, "two replies of 0.60 USD"
    assert len(model_server.requests_of("codex")) <= 3
    assert is_estimated


@pytest.mark.requirement("budgets-end-calls")
def test_an_acp_agent_is_charged_and_the_next_call_is_refused(
    sandbox: ClaudeSandbox, model_server: ModelServer, acp: list[str]
) -> None:
    assert acp
    crew = crew_of("acp", sandbox, model_server, 1.0)

    done = crew.run(
        "from bartack.errors import BudgetExceededError",
        'reply = await ctx.think_reply("[[script:acp]] spend")',
        "spent = [reply.value, reply.usd, reply.usd_estimated]",
        *REFUSED,
    )

    assert done.returncode == 0, done.stderr
    assert model_server.requests_of("more") == []
    assert len(model_server.requests_of("acp")) == 1
    value, usd, is_estimated = crew.decode(done)
    assert value == "dear"
    assert usd > 1.0
    check_reported(usd, model_server.requests, is_estimated=is_estimated)


@pytest.mark.requirement("claude-costs-are-counted")
def test_two_calls_at_once_share_one_budget(
    sandbox: ClaudeSandbox, model_server: ModelServer, claude: list[str]
) -> None:
    """The second call gets what the first one has left, and each is stopped at its own share."""
    assert claude
    crew = crew_of("claude", sandbox, model_server, 0.6)

    done = crew.run(
        "from bartack.errors import AgentBudgetError, BudgetExceededError",
        "async def spend(name):",
        "    try:",
        '        await ctx.think(f"[[script:claude]] {name}")',
        "    except AgentBudgetError as error:",
        "        return error.usd",
        'spent = await ctx.gather(spend("a"), spend("b"))',
        *REFUSED,
    )

    assert done.returncode == 0, done.stderr
    assert model_server.requests_of("more") == []
    reserved = [entry.data["reserved_usd"] for entry in crew.journal() if entry.data.get("reserved_usd")]
    assert reserved == [0.6, pytest.approx(0.4)]
    counted = [price(request) for request in model_server.requests_of("claude")]
    assert sum(json.loads(done.stdout)) == pytest.approx(sum(counted))
    assert 1.0 < sum(counted) <= 1.0 + 2 * max(counted)
