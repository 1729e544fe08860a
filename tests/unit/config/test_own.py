"""The user's own settings of the node and of the budget that all runs share, and what of them a project can change."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.config.load import load_config, load_own_node, own_settings_file
from bartack.config.sections import NodeConfig
from bartack.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state/bartack").mkdir(parents=True, mode=0o700)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def own(text: str) -> None:
    own_settings_file().write_text(text)


def of_project(project: Path, text: str) -> None:
    (project / "bartack.toml").write_text(text)


def test_without_settings_the_node_has_its_defaults() -> None:
    assert load_own_node({}) == NodeConfig()


def test_the_node_reads_the_users_own_section_and_the_environment_overrides_it() -> None:
    own("[node]\nmax_runs = 3\nrest_after_s = 60\n[budget]\nusd = 'not read here'\n")

    assert load_own_node({}) == NodeConfig(max_runs=3, rest_after_s=60.0)
    assert load_own_node({"BARTACK_NODE_MAX_RUNS": "5"}) == NodeConfig(max_runs=5, rest_after_s=60.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[node]\nmax_runs = -1\n", "node.max_runs"),
        ("[node]\nmax_run = 1\n", "max_runs"),
        ("[node]\nretries = 101\n", "node.retries"),
        ("[node]\non_failure = 'again'\n", "node.on_failure"),
        ("node = 1\n", "it is not a table"),
        ("[node", "it is not TOML"),
    ],
)
def test_a_mistake_is_named_with_its_place_by_the_node_and_by_every_project(
    project: Path, text: str, problem: str
) -> None:
    own(text)

    for read in (lambda: load_own_node({}), lambda: load_config(project, (), {})):
        with pytest.raises(ConfigError) as caught:
            read()

        assert problem in str(caught.value)
        assert str(own_settings_file()) in str(caught.value)


def test_a_variable_with_a_mistake_is_named() -> None:
    with pytest.raises(ConfigError, match="BARTACK_NODE_MAX_RUNS"):
        load_own_node({"BARTACK_NODE_MAX_RUNS": "many"})


def test_a_project_decides_about_its_failures_and_not_about_the_node(project: Path) -> None:
    own("[node]\nmax_runs = 3\nretries = 5\n")
    of_project(project, "[node]\non_failure = 'retry'\n")

    assert load_config(project).node == NodeConfig(max_runs=3, retries=5, on_failure="retry")
    of_project(project, "[node]\nmax_runs = 64\n")
    with pytest.raises(ConfigError, match="the node serves all projects") as caught:
        load_config(project)
    assert caught.value.setting == "bartack.toml:2:1: node.max_runs"


def test_a_project_does_not_change_the_budget_that_all_runs_share(project: Path) -> None:
    of_project(project, "[budget]\nusd = 7\ndaily_usd = 1000\n")
    assert load_config(project).budget.daily_usd == 1000.0
    own("[budget]\ndaily_usd = 40\nusd = 1\n")

    found = load_config(project).budget

    assert (found.daily_usd, found.usd) == (40.0, 7.0)
    assert load_config(project, ["budget.daily_usd=50"]).budget.daily_usd == 50.0
