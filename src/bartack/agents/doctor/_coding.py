"""Whether programs for coding can be used: Claude Code, Codex, agents that speak ACP. ``doctor.py`` has the other kinds.

Before a run only what costs neither money nor much time is looked at: where the program is, its version, a credential or a login.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bartack.agents.doctor._handshake import greet
from bartack.agents.program.cli_facts import (
    CliFacts,
    credentials_in,
    facts_of,
    find_unwritable,
    home_of,
    is_older,
    login_of,
    read_in_project,
    read_version,
)
from bartack.agents.program.find import PACKAGES, explain_missing, find_program
from bartack.agents.program_config import PASSED, AcpConfig, CliConfig, CodexConfig
from bartack.core.accounts import user_of_children

VERSION_S: Final = 5.0
"""How long a program may take to print its version."""
LISTED_S: Final = 2.0
"""The same for a list."""
LIVE_USD: Final = 0.05
"""What an answer may cost."""


class CliVisit(NamedTuple):
    """How closely an agent is checked, and from where.

    Attributes:
        workspace: Where it works.
        environ: The variables it would get some of.
        start: Whether it is started, and greeted as an adapter does it.
        live: Whether it is also asked for a word, which costs something.
        probe: Whether its version is looked at.
    """

    workspace: Path
    environ: Mapping[str, str]
    start: bool
    live: bool
    probe: bool


class CliFindings(NamedTuple):
    """What was found out."""

    found: str
    version: str
    problems: list[str]
    notes: list[str]
    credential: str = ""
    """By what it logs in: the name of a variable, or the file of a login. Never its content."""


def check_cli(name: str, config: CliConfig, visit: CliVisit) -> CliFindings:
    """Look at an agent that is a program for coding."""
    facts = facts_of(config)
    env = config.environment(visit.environ)
    found = find_program(config.argv[0], visit.workspace, env.get("PATH", ""))
    if not found:
        path = env.get("PATH", "")
        problem = explain_missing(name, config.argv[0], visit.workspace, path, facts.install)
        return CliFindings("", "", [problem], [])
    missing = list(_missing_credentials(name, config, facts, env))
    findings = CliFindings(found, "", missing, [], _credential_of(config, facts, env))
    _check_home(name, config, facts, env, findings)
    findings.notes.extend(read_in_project(config, visit.workspace))
    if visit.start or visit.probe:
        findings = findings._replace(version=_check_version(config, facts, found, env, findings))
    if visit.start and not findings.problems:
        findings = _greet(config, found, env, visit, findings)
    if credentials_in(facts, env):
        findings.notes.append("its credential reaches every command, hook and server that it starts")
    if isinstance(config, AcpConfig):
        findings.notes.append("Bartack can decide only about tool calls that the agent asks about")
    return findings


def installed_version(config: CliConfig, workspace: Path, environ: Mapping[str, str]) -> str:
    """The version of a program that the user has installed; empty if it is not known.

    Nothing of the project is started, and nothing that its settings name: only a plain ``claude`` or ``codex`` outside of the
    workspace, with the variables of the user.
    """
    own = str(type(config).__struct_config__.tag)
    if config.argv != [own] or own not in PACKAGES:
        return ""
    found = find_program(own, workspace, environ.get("PATH", ""))
    if not found or Path(os.path.realpath(found)).is_relative_to(os.path.realpath(workspace)):
        return ""
    env = {name: environ[name] for name in PASSED if name in environ}
    try:
        said = subprocess.run(  # noqa: S603 - installed by the user
            [found, "--version"],
            cwd="/",
            user=user_of_children(),
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LISTED_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return read_version(said.stdout.decode("utf-8", "replace"))


def _credential_of(config: CliConfig, facts: CliFacts, env: Mapping[str, str]) -> str:
    names = credentials_in(facts, env)
    if names:
        return names[0]
    login = login_of(facts, env) if config.home != "run" else None
    return f"the login in {login}" if login is not None else ""


def _missing_credentials(
    name: str, config: CliConfig, facts: CliFacts, env: Mapping[str, str]
) -> Iterator[str]:
    """Why it cannot log in, as far as is known: on macOS a login leaves no file, and other providers have keys of their own."""
    if not facts.credentials or credentials_in(facts, env):
        return
    variables = " or ".join(facts.credentials)
    if config.home == "run":
        yield f"there is no credential for it: set {variables}, or agents.{name}.home to user after a login"
        return
    configured = isinstance(config, CodexConfig) and any("provider" in key for key in config.config)
    if login_of(facts, env) is None and sys.platform != "darwin" and not configured and not _elsewhere(env):
        yield f"it is not logged in, and there is no credential for it: log in with {config.argv[0]}, or set {variables}"


def _check_home(
    name: str, config: CliConfig, facts: CliFacts, env: Mapping[str, str], findings: CliFindings
) -> None:
    """Look at the home of the user, if the program is to use it. A home in the run is made with the run."""
    if config.home == "run" or (config.home == "auto" and credentials_in(facts, env)):
        return
    place, reason = home_of(facts, env), ""
    if place is not None:
        reason = find_unwritable(place)
    if not reason:
        return
    problem = f"its home {place} cannot be written: {reason}; correct that, or set agents.{name}.home to run"
    # Where other programs keep their sessions is not known: perhaps not there.
    (findings.problems if facts.login else findings.notes).append(problem)


def _elsewhere(env: Mapping[str, str]) -> bool:
    """Whether it uses a service that has credentials of its own."""
    return any(
        env.get(name)
        for name in ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
    )


def _check_version(
    config: CliConfig, facts: CliFacts, found: str, env: Mapping[str, str], findings: CliFindings
) -> str:
    if isinstance(config, AcpConfig):
        return ""  # it introduces itself
    try:
        said = subprocess.run(  # noqa: S603 - the project's own words
            [found, *config.argv[1:], "--version"],
            user=user_of_children(),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        findings.problems.append(f"{found} --version did not end within {VERSION_S:g} s")
        return ""
    except OSError as error:
        findings.problems.append(f"{found} cannot be started: {error.strerror or error}")
        return ""
    version = read_version(said.stdout.decode("utf-8", "replace"))
    oldest = config.min_version or facts.oldest
    if not version:
        findings.problems.append(f"{found} --version printed no version (exit status {said.returncode})")
    elif oldest and is_older(version, oldest):
        findings.problems.append(f"version {version} is too old: {oldest} or newer is needed")
    elif facts.tested and is_older(facts.tested, version):
        findings.notes.append(f"version {version} is untested: Bartack is tested with {facts.tested}")
    return version


def _greet(
    config: CliConfig, found: str, env: Mapping[str, str], visit: CliVisit, findings: CliFindings
) -> CliFindings:
    with tempfile.TemporaryDirectory(prefix="bartack-doctor-") as home:
        variable, _ = facts_of(config).home
        # A home of its own, unless the login of the user is needed: a check leaves no trace in theirs.
        logged_in = visit.live and not credentials_in(facts_of(config), env)
        own = {variable: home} if variable and not logged_in else {}
        argv = [found, *config.argv[1:]]
        try:
            greeting = greet(config, argv, visit.workspace, {**env, **own}, ask=visit.live, usd=LIVE_USD)
        except OSError as error:
            return findings._replace(
                problems=[*findings.problems, f"it cannot be started: {error.strerror or error}"]
            )
    problems = [greeting.problem] if greeting.problem else []
    return findings._replace(
        version=findings.version or greeting.version,
        problems=[*findings.problems, *problems],
        notes=[*findings.notes, *greeting.notes],
    )
