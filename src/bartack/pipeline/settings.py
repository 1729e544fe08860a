"""What the pipeline needs of the settings of a project: which agent plays which role, and what may change on resume."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from bartack.agents.prompted import takes_actions
from bartack.agents.protocol.messages import DEADLINES_S, ROLES
from bartack.config.load import Config, kept_sets, load_config
from bartack.config.problem import CONFIG_FILE
from bartack.core import typed
from bartack.core.flaws import unknown_name
from bartack.errors import BartackError, ConfigError, ScriptError
from bartack.pipeline._templates import load_templates
from bartack.pipeline.records.records import Settings

PipelineRole = Literal["builder", "reviewer", "spec_maintainer", "orchestration"]

SECTIONS: Final = (
    "pipeline",
    "tests",
    "review",
    "spec",
    "snapshot",
    "intake",
    "questions",
    "parallel",
    "budget",
    "redaction",
)
"""The sections of a project's settings that a run of the pipeline keeps."""
_BOUNDS: Final = (
    "max_fix_rounds",
    "max_review_rounds",
    "max_spec_rounds",
    "max_rounds",
    "on_limit",
    "on_task_failure",
    "version_pinning",
)


def needed_roles(config: Config, workspace: Path, *, intake: bool = False) -> list[PipelineRole]:
    """The roles that a run may need."""
    roles: list[PipelineRole] = ["builder"]
    if config.pipeline.review:
        roles.append("reviewer")
    if config.pipeline.spec and ((workspace / config.spec.file).is_file() or config.spec.create):
        roles.append("spec_maintainer")
    if intake:
        roles.append("orchestration")
    return roles


def choose_agents(config: Config, roles: Sequence[PipelineRole]) -> dict[str, str]:
    """The agent of each role.

    Raises:
        ConfigError: A role has none, or several without one being chosen.
    """
    chosen: dict[str, str] = {}
    for role in roles:
        able = config.agents.for_role(role)
        named = config.pipeline.roles.get(role, "")
        if named and named not in config.agents.named:
            flaw = unknown_name((), named, list(config.agents.named), f"there is no agent {named!r}")
            raise ConfigError(f"pipeline.roles.{role}", flaw.problem)
        if not named and not able:
            raise ConfigError(
                f"pipeline.roles.{role}",
                f'no agent plays this role; give one roles = ["{role}"] in bartack.toml, under [agents.NAME]',
            )
        if not named and len(able) > 1:
            raise ConfigError(
                f"pipeline.roles.{role}", f"{' and '.join(able)} play this role; name one of them here"
            )
        chosen[role] = named or able[0]
    return chosen


def make_settings(
    config: Config,
    roles: Sequence[PipelineRole],
    *,
    asks: bool,
    workspace: Path | None = None,
    carried: bool = False,
) -> Settings:
    """The settings that a run begins with.

    Args:
        config: The settings of the project.
        roles: The roles that may be needed.
        asks: A person can be asked at a bound.
        workspace: Where scripts and templates are looked for.
        carried: The workspace travels with the run.

    Raises:
        ConfigError: A role has no agent, or a template cannot be used.
    """
    agents = choose_agents(config, roles)
    if config.tests.mode == "command" and not config.tests.argv:
        raise ConfigError("tests.command", 'tests.mode is "command", and there is none')
    deadlines = {
        action: config.agents.deadline_s(agents[role], action)
        for action, role in ROLES.items()
        if role in agents and action in DEADLINES_S
    }
    return Settings(
        **{section: getattr(config, section) for section in SECTIONS if section != "budget"},
        budget=config.budget.of_run,
        agents=agents,
        deadlines=deadlines,
        asks=asks,
        checks_money=True,
        state_dir=_state_dir(config, workspace),
        prompts={} if workspace is None else _templates(config, agents, workspace),
        carried=carried,
    )


def _state_dir(config: Config, workspace: Path | None) -> str:
    """Where runs are, seen from the workspace: snapshots leave it out."""
    if workspace is None:
        return config.directory
    return os.path.relpath(os.path.realpath(config.state_dir(workspace)), os.path.realpath(workspace))


def _templates(config: Config, agents: dict[str, str], workspace: Path) -> dict[str, str]:
    """The templates of the actions of agents that take prompts only."""
    prompted = [name for name in set(agents.values()) if not _takes_actions(config, name, workspace)]
    actions = [action for action, role in ROLES.items() if agents.get(role) in prompted]
    return load_templates(
        {str(name): path for name, path in config.pipeline.prompts.items()}, actions, workspace
    )


def _takes_actions(config: Config, name: str, workspace: Path) -> bool:
    try:
        return takes_actions(name, config.agents.named[name], workspace)
    except ScriptError:
        return True  # the check of all agents reports that it cannot be used


def renew(settings: Settings, workspace: Path, run_dir: Path) -> Settings | None:
    """The settings of a run with those that may change on resume as they are now; ``None`` if there are none."""
    sets = kept_sets(run_dir)
    if not sets and not (workspace / CONFIG_FILE).is_file():
        return None
    try:
        config = load_config(workspace, sets)
    except BartackError:
        return None
    return renew_with(settings, config)


def renew_with(settings: Settings, config: Config) -> Settings:
    """The settings of a run with those that may change on resume as a project has them now."""
    parallel = config.parallel
    if settings.parallel.tasks < 2:
        parallel = msgspec.structs.replace(parallel, tasks=settings.parallel.tasks)
    deadlines = {
        action: config.agents.deadline_s(settings.agents[ROLES[action]], action)
        for action in settings.deadlines
        if settings.agents.get(ROLES[action]) in config.agents.named
    }
    bounds = {name: getattr(config.pipeline, name) for name in _BOUNDS}
    return msgspec.structs.replace(
        settings,
        pipeline=msgspec.structs.replace(settings.pipeline, **bounds),
        tests=config.tests,
        review=config.review,
        snapshot=msgspec.structs.replace(settings.snapshot, threads=config.snapshot.threads),
        intake=msgspec.structs.replace(settings.intake, max_rounds=config.intake.max_rounds),
        questions=config.questions,
        parallel=parallel,
        budget=config.budget.of_run,
        deadlines={**settings.deadlines, **deadlines},
    )


# The settings that hold since a resume.


def settings_file(run_dir: str, hub: int) -> Path:
    """Where the settings are that hold since the run was started for this time."""
    return Path(run_dir, f"settings-{hub}.json")


def load_settings(run_dir: str, hub: int) -> Settings | None:
    """The settings that hold since the run was started for this time; ``None`` if nothing was decided then."""
    try:
        return typed.decode(settings_file(run_dir, hub).read_bytes(), type=Settings)
    except (OSError, msgspec.MsgspecError):
        return None


def newer_settings(run_dir: str, settings: Settings) -> Settings | None:
    """The settings since the last resume, where a worker has older ones that are not the same."""
    now = current_hub()
    found = load_settings(run_dir, now) if now > settings.hub else None
    return None if found is None or msgspec.structs.replace(found, hub=settings.hub) == settings else found


def current_hub() -> int:
    """How many times the run was started; 0 where that is unknown."""
    number = os.environ.get("BARTACK_HUB", "")
    return int(number) if number.isdecimal() else 0
