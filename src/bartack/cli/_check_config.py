"""``bartack check`` for ``bartack.toml``: everything that is wrong with it, at once. Nothing is started."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from bartack.errors import BartackError, ConfigError
from bartack.pipeline import check_ready, choose_tasks, make_order, make_settings, needed_roles
from bartack.runtime.operate import CONFIG_FILE, check_settings, load_config


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong: where, what, and the code of the error it would be."""

    place: str
    problem: str
    code: str


def check_config(workspace: Path) -> list[Problem]:
    """Everything that is wrong with the settings of a workspace."""
    errors = check_settings(workspace)
    if not errors:
        errors = _check_use(workspace)
    return [_problem(error) for error in errors]


def _check_use(workspace: Path) -> list[BartackError]:
    """What would stop a run of the pipeline, if there are agents for one."""
    config = load_config(workspace)
    if not config.tasks and not any(agent.roles for agent in config.agents.named.values()):
        return []
    roles = needed_roles(config, workspace)
    try:
        settings = make_settings(config, roles, asks=False)
        make_order(settings, choose_tasks(config, "", ()))
        check_ready(config, workspace, os.environ, roles)
    except BartackError as error:
        return [error]
    return []


def _problem(error: BartackError) -> Problem:
    if isinstance(error, ConfigError):
        return Problem(error.setting, error.problem, error.code)
    return Problem(CONFIG_FILE, error.message, error.code)
