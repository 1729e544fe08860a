"""Agents that know prompts and no actions: what they are told, and what their replies become."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.agent_sections import read_agents
from tests.pipeline.team import Team, order, receipts, settings, statuses

from bartack.agents import ScriptedAgent
from bartack.agents.scripted.scripted import read_script
from bartack.config.load import Config
from bartack.config.sections import PipelineConfig
from bartack.errors import ConfigError
from bartack.pipeline._templates import SHIPPED, check_template, fill, load_templates
from bartack.pipeline.records.records import Settings
from bartack.pipeline.settings import make_settings

BUILT = {"event": "builder.completed", "payload": {"tests": {"status": "pass"}, "summary": "done"}}
WRITES = [{"path": "src/a.py", "content": "A = 1\n"}]
OTHERS = [{"path": "src/a.py", "content": "A = 2\n"}]
WANTS = {
    "event": "review.completed",
    "status": "changes_requested",
    "payload": {"findings": [{"message": "no test"}]},
}
APPROVES = {"event": "review.completed", "status": "approved"}


class Prompted(Team):
    """A team whose one agent answers prompts, in this order."""

    def __init__(self, workspace: Path, *rules: dict[str, object]) -> None:
        self._rules = list(rules)
        super().__init__(workspace)

    def _make_agent(self) -> ScriptedAgent:
        return ScriptedAgent.of(
            read_script({"strict_unused": True, "prompts": self._rules}, "team"), name="team"
        )


def prompted(*, templates: dict[str, str] | None = None) -> Settings:
    actions = ("implement", "implement_changes", "review", "update_spec")
    return settings(prompts={**{action: SHIPPED[action] for action in actions}, **(templates or {})})


@pytest.mark.requirement("prompts-stand-for-actions")
def test_a_task_is_done_by_agents_that_know_prompts_only(tmp_path: Path) -> None:
    team = Prompted(
        tmp_path,
        {"pattern": "^Implement this task", "value": BUILT, "write": WRITES, "tokens": {"input": 7}},
        {"pattern": "^Review the work", "value": WANTS},
        {"pattern": "(?s)^Change your work.*no test", "value": BUILT},
        {"pattern": "^Review the work", "value": APPROVES},
    )

    run = team.run(order("T-1", using=prompted()))

    assert statuses(run) == [("T-1", "done")]
    found = receipts(run)
    assert [(receipt.action, receipt.event, receipt.status) for receipt in found] == [
        ("implement", "builder.completed", ""),
        ("review", "review.completed", "changes_requested"),
        ("implement_changes", "builder.completed", ""),
        ("review", "review.completed", "approved"),
    ]
    assert [(artifact.path, artifact.size) for artifact in found[0].artifacts] == [("src/a.py", 6)]
    assert (found[0].tests, found[1].artifacts) == ({"status": "pass"}, [])
    assert found[0].usage is not None
    assert found[0].usage.input_tokens == 7
    asked = [prompt.key for prompt in run.prompts]
    assert asked == [receipt.idempotency_key for receipt in found]
    assert team.commands == []


def test_a_reply_that_is_no_event_of_the_action_is_mended_once(tmp_path: Path) -> None:
    wrong = json.dumps({"event": "review.completed", "status": "maybe"})
    team = Prompted(
        tmp_path,
        {"pattern": "^Implement", "value": BUILT},
        {"pattern": "^Review", "text": wrong},
        {"pattern": "(?s)Your reply is not what was asked for.*status", "text": json.dumps(APPROVES)},
    )

    run = team.run(order("T-1", using=prompted()))

    assert statuses(run) == [("T-1", "done")]


def test_a_reply_without_what_its_event_has_to_say_fails_the_step(tmp_path: Path) -> None:
    empty = {"event": "review.completed", "status": "changes_requested"}
    team = Prompted(
        tmp_path, {"pattern": "^Implement", "value": BUILT}, {"pattern": "^Review", "value": empty}
    )

    run = team.run(order("T-1", using=prompted()))

    assert run.error is not None
    assert run.error.kind == "ReplyInvalidError"


@pytest.mark.requirement("permissions-go-by-role")
def test_a_reviewer_that_is_told_in_words_may_only_read(tmp_path: Path) -> None:
    team = Prompted(tmp_path, {"value": BUILT, "write": WRITES}, {"value": APPROVES, "write": OTHERS})

    run = team.run(order("T-1", using=prompted()))

    assert statuses(run) == [("T-1", "done")]
    assert (tmp_path / "src/a.py").read_text() == "A = 1\n"
    told = b"".join(bytes(entry.value or b"") for entry in run.journal)
    assert b"Write src/a.py was not allowed (mode read)" in told


def test_a_template_of_the_project_is_what_the_agent_is_told(tmp_path: Path) -> None:
    template = "Do {{task_id}}: {{inputs.goal}} ({{iteration.round}})"
    team = Prompted(tmp_path, {"value": BUILT}, {"value": APPROVES})

    run = team.run(order("T-1", using=prompted(templates={"implement": template})))

    assert run.prompts[0].text == "Do T-1: do T-1 (1)"
    assert run.prompts[1].text.startswith("Review the work")


def test_a_killed_run_asks_the_same_again_under_the_same_key(tmp_path: Path) -> None:
    team = Prompted(tmp_path, {"pattern": "^Implement", "value": BUILT, "write": WRITES}, {"value": APPROVES})

    with team.start(order("T-1", using=prompted())) as run:
        run.start()
        run.wait_for("step.started", step="think")
        run.crash()
        run.resume()
        run.finish()

        assert statuses(run) == [("T-1", "done")]
        assert len({prompt.key for prompt in run.prompts}) == 2


# Templates.


@pytest.mark.parametrize("action", list(SHIPPED))
def test_a_shipped_template_uses_only_what_it_may(action: str) -> None:
    check_template(action, SHIPPED[action])

    filled = fill(SHIPPED[action], {"task_id": "T-1", "inputs": {"goal": "g"}, "iteration": {"round": 2}})

    assert "{{" not in filled
    assert "none" in filled


@pytest.mark.parametrize("place", ["{{clock}}", "{{ cwd }}", "{{inputs.}}", "{{}}", "{{task_id.x y}}"])
def test_a_template_that_names_anything_else_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "t.md").write_text(f"Fine: {{{{task_id}}}}\nnot: {place}\n")

    with pytest.raises(ConfigError, match=r"pipeline\.prompts\.review: line 2"):
        load_templates({"review": "t.md"}, ["review"], tmp_path)


@pytest.mark.parametrize(("content", "told"), [(None, "cannot be read"), (" \n", "it is blank")])
def test_a_template_has_to_be_there(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / "t.md").write_text(content)

    with pytest.raises(ConfigError, match=told):
        load_templates({"review": "t.md"}, ["review"], tmp_path)


def test_values_are_shown_as_people_read_them() -> None:
    values = {"inputs": {"goal": "a\nb", "files": ["x"]}, "iteration": {"round": 3}}

    assert fill("{{inputs.goal}}|{{ iteration.round }}|{{inputs.missing.more}}", values) == "a\nb|3|none"
    assert fill("{{inputs.files}}", values) == '[\n  "x"\n]'


def config_of(tmp_path: Path, script: dict[str, object]) -> Config:
    (tmp_path / "team.json").write_text(json.dumps({"version": 1, **script}))
    (tmp_path / "mine.md").write_text("Mine: {{task_id}}")
    roles = ["builder", "reviewer"]
    made = Config(agents=read_agents({"team": {"script": "team.json", "roles": roles}}))
    return msgspec.structs.replace(made, pipeline=PipelineConfig(prompts={"implement": "mine.md"}))


def test_only_agents_that_know_no_actions_are_told_in_words(tmp_path: Path) -> None:
    prompts = config_of(tmp_path, {"prompts": [{"text": "x"}]})
    made = make_settings(prompts, ["builder", "reviewer"], asks=False, workspace=tmp_path)
    assert made.prompts == {
        "implement": "Mine: {{task_id}}",
        "implement_changes": SHIPPED["implement_changes"],
        "review": SHIPPED["review"],
    }

    acts = config_of(tmp_path, {"responses": {"implement": {"events": []}}, "prompts": [{"text": "x"}]})
    assert make_settings(acts, ["builder", "reviewer"], asks=False, workspace=tmp_path).prompts == {}
