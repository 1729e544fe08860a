"""``bartack check`` for ``bartack.toml``: all its problems at once. It starts no agent and no tests."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bartack.config.load import Config, Reading, find_workspace, read_settings
from bartack.config.problem import CONFIG_FILE, SettingProblem
from bartack.errors import ConfigError
from bartack.pipeline.ready import find_obstacles, warn_of_conflicts
from bartack.pipeline.settings import needed_roles
from bartack.runtime.hub.launch import check_telemetry


def check_config(project: Path, shown: str = CONFIG_FILE) -> list[SettingProblem]:
    """Return all problems of the settings of a project, in the order of the file.

    Args:
        project: The directory of ``bartack.toml``.
        shown: The name of the file in messages.
    """
    try:
        reading = read_settings(project, shown=shown, everywhere=True)
    except ConfigError as error:
        return [_of_text(error, shown)]
    found = [*reading.problems, *_in_use(reading, project)]
    return sorted(found, key=lambda problem: (problem.line == 0, problem.line, problem.column))


def find_cautions(project: Path, shown: str = CONFIG_FILE) -> list[SettingProblem]:
    """Return warnings about valid settings, each without a code; the arguments are those of ``check_config``."""
    reading = read_settings(project, shown=shown)
    config = reading.config
    if not config.tasks:
        return []
    roles = needed_roles(config, find_workspace(project))
    caution = warn_of_conflicts(config, roles, {task.id: task.depends_on for task in config.tasks})
    return [reading.blame.setting("pipeline.spec", caution, code="")] if caution else []


def _of_text(error: ConfigError, shown: str) -> SettingProblem:
    """The problem of an unreadable file."""
    at = re.search(r":(\d+)(?::(\d+))?$", error.setting)
    line, column = (int(number or 0) for number in at.groups()) if at else (0, 0)
    return SettingProblem(place=error.setting, problem=error.problem, file=shown, line=line, column=column)


def _in_use(reading: Reading, project: Path) -> list[SettingProblem]:
    """The problems that would stop a run, without those that only follow from another problem."""
    broken = {re.split(r"[.\[]", problem.setting)[0] for problem in reading.problems}
    if "agents" in broken:
        broken.add("pipeline")
    config, blame = reading.config, reading.blame
    try:
        workspace = find_workspace(project)
        check_telemetry(config)
    except ConfigError as error:
        return [blame.setting(error.setting.rpartition(" ")[2], error.problem)]
    roles = needed_roles(config, workspace) if _has_pipeline(config) else []
    return [
        blame.setting(found.setting, found.problem, found.near, found.error.code)
        for found in find_obstacles(config, workspace, os.environ, roles)
        if re.split(r"[.\[]", found.setting)[0] not in broken
    ]


def _has_pipeline(config: Config) -> bool:
    return bool(config.tasks) or any(agent.roles for agent in config.agents.named.values())
