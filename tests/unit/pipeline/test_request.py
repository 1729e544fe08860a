from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent_sections import read_agents

from bartack.cli.app._pipeline_options import PIPELINE
from bartack.config.load import Config
from bartack.config.sections import PipelineConfig, SpecConfig, TaskConfig, TestsConfig
from bartack.errors import ConfigError, TaskNotFoundError, UsageError, WorkspaceBusyError
from bartack.pipeline import main
from bartack.pipeline.lock import hold_workspace
from bartack.pipeline.request import MAIN, choose_tasks
from bartack.pipeline.settings import choose_agents, make_settings, needed_roles

TASKS = [TaskConfig(id="a", goal="do a"), TaskConfig(id="b", goal="do b", depends_on=["a"], files=["x.py"])]


def agents(**roles: list[str]) -> Config:
    table: dict[str, object] = {
        name: {"script": f"{name}.json", "roles": list_} for name, list_ in roles.items()
    }
    return Config(agents=read_agents(table))


def test_the_first_worker_has_one_name() -> None:
    assert main.ref == MAIN == PIPELINE


def test_without_a_choice_all_configured_tasks_are_meant() -> None:
    found = choose_tasks(Config(tasks=TASKS), "", ())

    assert [(task.id, task.goal, task.depends_on) for task in found] == [
        ("a", "do a", []),
        ("b", "do b", ["a"]),
    ]
    assert found[1].task_files == ["x.py"]


def test_a_chosen_task_does_not_wait_for_one_that_is_not_part_of_the_run() -> None:
    assert choose_tasks(Config(tasks=TASKS), "", ("b",))[0].depends_on == []


def test_an_unknown_task_is_told_with_near_names_and_the_goal() -> None:
    config = Config(tasks=[TaskConfig(id="weeks", goal="g")])

    with pytest.raises(TaskNotFoundError, match=r"did you mean weeks\?.*--goal"):
        choose_tasks(config, "", ("week",))


def test_a_goal_is_one_task() -> None:
    [task] = choose_tasks(Config(), "x" * 100 + "\nmore", ())

    assert (task.id, task.title, task.goal) == ("goal", "x" * 80, "x" * 100 + "\nmore")
    assert choose_tasks(Config(), "do it", ("T-7",))[0].id == "T-7"
    with pytest.raises(UsageError):
        choose_tasks(Config(), "do it", ("a", "b"))
    with pytest.raises(UsageError):
        choose_tasks(Config(), "  ", ())


def test_roles_are_needed_as_configured(tmp_path: Path) -> None:
    plain = Config()
    lean = Config(pipeline=PipelineConfig(review=False, spec=False))

    assert needed_roles(plain, tmp_path) == ["builder", "reviewer"]
    assert needed_roles(lean, tmp_path, intake=True) == ["builder", "orchestration"]
    assert needed_roles(Config(spec=SpecConfig(create=True)), tmp_path)[-1] == "spec_maintainer"
    (tmp_path / "SPEC.md").write_text("# Spec\n")
    assert needed_roles(plain, tmp_path)[-1] == "spec_maintainer"


def test_the_agent_that_lists_a_role_plays_it() -> None:
    config = agents(ann=["builder"], bob=["reviewer"])

    assert choose_agents(config, ["builder", "reviewer"]) == {"builder": "ann", "reviewer": "bob"}


def test_a_role_without_an_agent_or_with_two_is_refused_unless_one_is_named() -> None:
    config = agents(ann=["builder"], bob=["builder"])

    with pytest.raises(ConfigError, match="no agent plays this role"):
        choose_agents(config, ["reviewer"])
    with pytest.raises(ConfigError, match="ann and bob play this role"):
        choose_agents(config, ["builder"])
    config.pipeline = PipelineConfig(roles={"builder": "bob"})
    assert choose_agents(config, ["builder"]) == {"builder": "bob"}
    config.pipeline = PipelineConfig(roles={"builder": "eve"})
    with pytest.raises(ConfigError, match="there is no agent 'eve'"):
        choose_agents(config, ["builder"])


def test_a_mode_needs_its_command() -> None:
    config = agents(ann=["builder"])
    config.tests = TestsConfig(mode="command")

    with pytest.raises(ConfigError, match=r"tests\.command"):
        make_settings(config, ["builder"], asks=False)


def test_deadlines_are_those_of_the_agents() -> None:
    settings = make_settings(agents(ann=["builder"]), ["builder"], asks=True)

    assert settings.deadlines == {"implement": 3600.0, "implement_changes": 3600.0}
    assert settings.asks


@pytest.mark.requirement("one-run-per-workspace")
def test_one_run_at_a_time_holds_a_workspace(tmp_path: Path) -> None:
    with hold_workspace(tmp_path, tmp_path / ".bartack") as lock:
        lock.sign("run-1")
        with (
            pytest.raises(WorkspaceBusyError, match="run-1"),
            hold_workspace(tmp_path, tmp_path / ".bartack"),
        ):
            pass

    with hold_workspace(tmp_path, tmp_path / ".bartack"):
        pass
