"""``bartack check`` for ``bartack.toml``: all its problems at once. It starts no agent and no tests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bartack.config.load import Config, Reading, find_workspace, read_settings
from bartack.config.problem import CONFIG_FILE, SettingProblem
from bartack.errors import ConfigError
from bartack.pipeline.ready import Obstacle, find_obstacles, warn_of_conflicts
from bartack.pipeline.settings import needed_roles
from bartack.runtime.hub.launch import check_telemetry


class Examined(NamedTuple):
    """What is wrong with the settings of a project, in the order of the file.

    Attributes:
        problems: A run with these settings is refused on every machine.
        cautions: Warnings about valid settings, each without a code. An agent that cannot be used here is one: a machine that
            only checks, as in CI, has neither its program nor a login.
    """

    problems: list[SettingProblem]
    cautions: list[SettingProblem]


def examine_settings(project: Path, shown: str = CONFIG_FILE) -> Examined:
    """Look for everything that is wrong with the settings of a project.

    Args:
        project: The directory of ``bartack.toml``.
        shown: The name of the file in messages.
    """
    try:
        reading = read_settings(project, shown=shown, everywhere=True)
    except ConfigError as error:
        return Examined([_of_text(error, shown)], [])
    try:
        workspace = find_workspace(project)
        check_telemetry(reading.config)
    except ConfigError as error:
        found = reading.blame.setting(error.setting.rpartition(" ")[2], error.problem)
        return Examined(_in_order([*reading.problems, found]), [])
    roles = needed_roles(reading.config, workspace) if _has_pipeline(reading.config) else []
    obstacles = find_obstacles(reading.config, workspace, os.environ, roles)
    cautions = [*_missing_here(reading, obstacles), *_conflicts(reading, workspace)]
    return Examined(_in_order([*reading.problems, *_in_use(reading, obstacles)]), _in_order(cautions))


def _of_text(error: ConfigError, shown: str) -> SettingProblem:
    """The problem of an unreadable file."""
    at = re.search(r":(\d+)(?::(\d+))?$", error.setting)
    line, column = (int(number or 0) for number in at.groups()) if at else (0, 0)
    return SettingProblem(place=error.setting, problem=error.problem, file=shown, line=line, column=column)


def _in_order(found: list[SettingProblem]) -> list[SettingProblem]:
    return sorted(found, key=lambda problem: (problem.line == 0, problem.line, problem.column))


def _in_use(reading: Reading, obstacles: list[Obstacle]) -> Iterator[SettingProblem]:
    """The problems that would stop a run anywhere, without those that only follow from another problem."""
    broken = {_section(problem.setting) for problem in reading.problems}
    if "agents" in broken:
        broken.add("pipeline")
    for found in obstacles:
        if not found.is_local and _section(found.setting) not in broken:
            yield reading.blame.setting(found.setting, found.problem, found.near, found.error.code)


def _missing_here(reading: Reading, obstacles: list[Obstacle]) -> Iterator[SettingProblem]:
    for found in obstacles:
        if found.is_local:
            yield reading.blame.setting(found.setting, f"{found.setting}: {found.problem}", code="")


def _conflicts(reading: Reading, workspace: Path) -> Iterator[SettingProblem]:
    config = reading.config
    if not config.tasks:
        return
    roles = needed_roles(config, workspace)
    caution = warn_of_conflicts(config, roles, {task.id: task.depends_on for task in config.tasks})
    if caution:
        yield reading.blame.setting("pipeline.spec", caution, code="")


def _section(setting: str) -> str:
    return re.split(r"[.\[]", setting)[0]


def _has_pipeline(config: Config) -> bool:
    return bool(config.tasks) or any(agent.roles for agent in config.agents.named.values())
