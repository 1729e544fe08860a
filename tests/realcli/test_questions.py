"""Questions and permissions of agents: durable, answered by a person in another process, while the agent waits or after a restart.

What an agent's own shell says is not an answer of a person.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import pytest
from tests.realcli.crew import KINDS, Crew, Kind, own_tool, shell
from tests.realcli.programs import require_program
from tests.realcli.team import WAITS
from tests.waiting import until

from bartack.errors import PeerRefusedError
from bartack.testing import ClaudeSandbox, ModelServer

COLOURS: Final = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [{"label": "red", "description": "warm"}, {"label": "green", "description": "calm"}],
}
ASKING: Final = 'permissions = { mode = "ask" }'
ROGUE: Final = '[agents.rogue]\nkind = "claude"\npermissions = { mode = "auto" }'


def ask(kind: Kind) -> dict[str, object]:
    """A question of the model: Claude Code has a tool of its own for that."""
    if kind == "claude":
        return {"tools": [{"name": "AskUserQuestion", "input": {"questions": [COLOURS]}}]}
    return {"tools": [own_tool(kind, "ask", question="Which colour?", options=["red", "green"])]}


def scripts(kind: Kind) -> dict[str, list[dict[str, object]]]:
    """After a restart the model is asked to continue. It makes the same call again, whether or not it knows of the first one."""
    make: dict[str, object] = {"tools": [shell(kind, "echo ran >> made.txt")]}
    told = {"expect": {"tool_result": "green"}}
    return {
        f"{kind}-live": [ask(kind), {**make, **told}, {"text": "finished"}],
        f"{kind}-make": [make, make, {"text": "finished"}],
        f"{kind}-ask": [ask(kind), ask(kind), {"text": "painted", **told}],
    }


ATTACK: Final = """
run="$BARTACK_RUN" place="$BARTACK_RUN_DIR"
try() {{
    "$@" > said.txt 2>&1
    echo "$? $(tr '\\n' ' ' < said.txt)" >> attack.txt
}}
for words in "answer $run q1 allow" "fail $run because" "cancel $run"; do
    try {python} -m bartack $words
    try env -i HOME="$HOME" setsid --wait {python} -m bartack $words
done
mkdir -p "$place/inbox"
echo '{{"value":"allow","question":"q1","at":1,"asked":9,"seal":"0"}}' > "$place/inbox/q-q1.json"
touch attacked.txt
"""
"""What an agent's shell tries: with its own variables, and as a process in another session that has none."""
SCRIPTS: Final[dict[str, list[dict[str, object]]]] = {
    **{name: steps for kind in KINDS for name, steps in scripts(kind).items()},
    "attack": [{"tools": [shell("claude", "sh attack.sh")]}, {"text": "attacked"}],
}
BESIDE: Final = (
    "wait = ['sh', '-c', 'until [ -e {gates}/go ]; do sleep 0.05; done']",
    'text, _ = await ctx.gather(ctx.think("[[script:{kind}-live]] work"), ctx.shell(*wait))',
    "return text",
)


@pytest.mark.requirement("agents-ask-people")
@pytest.mark.requirement("permissions-need-a-person")
@pytest.mark.parametrize("kind", KINDS)
def test_people_answer_while_the_agent_waits(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    """Another step keeps the run going, so that it does not stop to wait. The first answer counts."""
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, ASKING)
    crew.program(*(line.format(gates=crew.gates, kind=kind) for line in BESIDE))
    run = crew.begin("run", "team.py")
    for number, answer in enumerate(("green", "allow"), 1):
        until(partial(has_asked, crew, number), "a question is asked")
        assert not (crew.root / "made.txt").exists()
        answered = crew.call("answer", crew.folder.name, f"q{number}", answer)
        again = crew.call("answer", crew.folder.name, f"q{number}", "red" if number == 1 else "deny")
        assert answered.returncode == 0, answered.stderr
        assert again.returncode == 1
        assert f"question q{number} was already answered" in again.stderr
    until(lambda: crew.count("step.finished"), "the agent is done")
    (crew.gates / "go").touch()
    out, err = run.communicate(timeout=30)

    assert out == "finished\n", err
    assert (crew.root / "made.txt").read_text(encoding="utf-8") == "ran\n"
    assert len(crew.named("agent.started")) == 1
    assert len(model_server.requests_of(f"{kind}-live")) == 3


def has_asked(crew: Crew, count: int) -> bool:
    return crew.count("question.asked") == count


@pytest.mark.requirement("permissions-need-a-person")
@pytest.mark.parametrize("answer", ["allow", "deny"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_permission_waits_for_a_person_across_restarts(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind, answer: str
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, ASKING, is_wrapped=False)
    crew.program(f'return await ctx.think("[[script:{kind}-make]] make it")')

    done = crew.answer_all(lambda _: answer)

    assert (done.returncode, done.stdout) == (0, "finished\n"), done.stderr
    made = crew.root / "made.txt"
    ran = made.read_text(encoding="utf-8").splitlines() if made.exists() else []
    settled = [entry for entry in crew.journal() if entry.kind == "question.settled"]
    assert len(ran) == (len(settled) if answer == "allow" else 0)
    results = [found.text for request in model_server.requests for found in request.tool_results]
    if kind == "claude":
        assert any("A person has denied it." in text for text in results) == (answer == "deny")


@pytest.mark.requirement("permissions-need-a-person")
def test_the_shell_of_an_agent_answers_nothing_and_ends_nothing(
    sandbox: ClaudeSandbox, model_server: ModelServer, claude: list[str]
) -> None:
    """One agent waits for a person. The shell of another one answers for this person, fails and cancels the run."""
    assert claude
    crew = Crew("claude", sandbox, model_server, f"{ASKING}\n{ROGUE}", is_wrapped=False)
    (crew.root / "attack.sh").write_text(ATTACK.format(python=sys.executable), encoding="utf-8")
    crew.program(
        "await ctx.gather(",
        '    ctx.think("[[script:attack]] work", agent="rogue"),',
        '    ctx.think("[[script:claude-make]] make it"),',
        ")",
        'return "done"',
    )

    stopped = crew.call("run", "team.py")

    assert stopped.returncode == WAITS, stopped.stderr
    assert (crew.root / "attacked.txt").exists()
    said = (crew.root / "attack.txt").read_text(encoding="utf-8").splitlines()
    assert [(line.partition(" ")[0] != "0", PeerRefusedError.code in line) for line in said] == [
        (True, True)
    ] * 6
    again = crew.resume()
    assert again.returncode == WAITS, again.stderr
    assert not (crew.root / "made.txt").exists()
    settled = [entry for entry in crew.journal() if entry.kind in {"question.settled", "run.failed"}]
    assert settled == []


@pytest.mark.requirement("agents-ask-people")
@pytest.mark.parametrize("kind", KINDS)
def test_a_question_of_the_model_is_answered_while_nothing_runs(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, ASKING, is_wrapped=False)
    crew.program(f'return await ctx.think("[[script:{kind}-ask]] paint it")')

    done = crew.answer_all(lambda _: "green")

    assert (done.returncode, done.stdout) == (0, "painted\n"), done.stderr


@pytest.mark.requirement("permissions-need-a-person")
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_person_what_would_be_asked_is_denied(
    sandbox: ClaudeSandbox, model_server: ModelServer, kind: Kind
) -> None:
    require_program(kind)
    crew = Crew(kind, sandbox, model_server, ASKING, is_wrapped=False)

    done = crew.run(f'return await ctx.think("[[script:{kind}-make]] make it")')

    assert done.stdout == "finished\n", done.stderr
    assert not (crew.root / "made.txt").exists()
