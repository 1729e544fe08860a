"""What a run of the pipeline needs before it is resumed, by the command or from Python: the workspace, its receipts, its settings.

The settings that hold from then on are written to ``settings-HUB.json`` in the run's directory, and every step that looks at the
workspace takes them from there (``newer_settings``). What was changed, and what cannot be, is shown before anything is paid.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import msgspec

from bartack.config.load import Config, kept_sets
from bartack.config.problem import CONFIG_FILE
from bartack.core.files import replace_file
from bartack.errors import BartackError, ConfigError
from bartack.pipeline._steps import note_resume
from bartack.pipeline.lock import hold_workspace, workspace_use
from bartack.pipeline.records.facts import read_order
from bartack.pipeline.records.receipts import put_receipts_aside, restore_receipts
from bartack.pipeline.records.records import PipelineOrder, Settings
from bartack.pipeline.records.task_state import ProgressReader
from bartack.pipeline.settings import SECTIONS, choose_agents, load_settings, renew_with, settings_file
from bartack.pipeline.worktree.old_worktrees import resumed_places
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Describe
from bartack.runtime.rundir.receipts import iter_receipts

BEGUN: Final = "it was decided when the run began"
IN_WORKSPACE: Final = "the run began in the workspace itself, without worktrees"
BY_AGENT: Final = f"because an agent has changed {CONFIG_FILE} in this run; to change it, resume with --set"
MOST_SHOWN: Final = 200
GUARDED: Final = ("tests", "review")
"""The sections that decide how agents are judged."""


@contextmanager
def owning(
    run: RunDir,
    workspace: Path,
    config: Config,
    hub: int,
    show: Callable[[str], object],
    sets: Sequence[str] = (),
    *,
    wait: bool = False,
) -> Generator[Describe]:
    """Hold the workspace for a run of the pipeline, and make ready what it needs to be resumed.

    Args:
        run: The run.
        workspace: Its workspace.
        config: The settings as they are now, ``sets`` included.
        hub: How many times the run will have been started; 1: it is not resumed, but begun.
        show: Shows people a line, before anything is paid.
        sets: Settings that were given for this resume.
        wait: Whether to wait for another run that works in the workspace.

    Raises:
        WorkspaceBusyError: Another run works in the workspace.
        ConfigError: A setting cannot be used.
    """
    order = read_order(run)
    with _holding(run, workspace, config, order, wait=wait):
        if hub > 1:
            for path in put_receipts_aside(run.path):
                show(f"the receipt of an answer that was set aside is now {path}")
            for path in restore_receipts(run.path):
                show(f"{path} was missing and is written again")
        if hub > 1 and order is not None:
            settings = _renew_settings(run, workspace, order, config, hub, show, sets)
            for place in resumed_places(run.path, workspace, order.settings):
                note_resume(place, settings, hub)
        yield describe_run(run)


@contextmanager
def _holding(
    run: RunDir, workspace: Path, config: Config, order: PipelineOrder | None, *, wait: bool
) -> Generator[None]:
    """Keep other runs out of the workspace; a copy that travels with a run belongs to that alone."""
    if order is not None and order.settings.carried:
        yield
        return
    shared = workspace_use(run) == "shared"
    with hold_workspace(workspace, config.state_dir(workspace), wait=wait, shared=shared) as lock:
        lock.sign(run.id)
        yield


def describe_run(run: RunDir) -> Describe:
    """Returns a function that describes how far a run of the pipeline is, from its journal."""
    reader = ProgressReader(run)

    def look() -> dict[str, object]:
        try:
            return cast("dict[str, object]", msgspec.to_builtins(reader.read()))
        except BartackError:
            # It is for people: the hub itself reports what is wrong with the journal.
            return {}

    return look


# Settings.


def _renew_settings(
    run: RunDir,
    workspace: Path,
    order: PipelineOrder,
    config: Config,
    hub: int,
    show: Callable[[str], object],
    sets: Sequence[str],
) -> Settings:
    """Decide which settings hold from now on, report surprising ones, and keep all of them for the steps."""
    if config.tests.mode == "command" and not config.tests.argv:
        raise ConfigError("tests.command", 'tests.mode is "command", and there is none')
    before = _last_settings(run, order.settings, hub)
    given = {assignment.partition("=")[0].strip() for assignment in [*kept_sets(run.path), *sets]}
    guarded = order.settings.parallel.tasks < 2 and _is_changed_by_agents(run)
    settings = renew_with(order.settings, _guard(order.settings, config, given) if guarded else config)
    settings = msgspec.structs.replace(settings, hub=hub)
    for note in _notes(before, settings, config, order, guarded=guarded):
        show(note)
    for note in _overridden(workspace, kept_sets(run.path), sets):
        show(note)
    if settings.tests != before.tests and _is_testing(run):
        show(
            "the test command that was interrupted is run once more as it was; the tests are run again after it"
        )
    replace_file(settings_file(str(run.path), hub), msgspec.json.encode(settings))
    return settings


def _last_settings(run: RunDir, begun: Settings, hub: int) -> Settings:
    """The settings that held until now."""
    for number in range(hub - 1, 1, -1):
        found = load_settings(str(run.path), number)
        if found is not None:
            return found
    return begun


def _is_changed_by_agents(run: RunDir) -> bool:
    return any(change.path == CONFIG_FILE for receipt in iter_receipts(run) for change in receipt.changes)


def _is_testing(run: RunDir) -> bool:
    """Whether a command was under way when the run was interrupted."""
    return any(
        step.step == "shell" for worker in read_state(run).workers.values() for step in worker.open.values()
    )


def _guard(begun: Settings, config: Config, given: set[str]) -> Config:
    """The settings without those of the file that decide how agents are judged: an agent may have written them."""
    guarded = {}
    for section in GUARDED:
        now = getattr(config, section)
        kept = {
            field.name: getattr(getattr(begun, section), field.name)
            for field in msgspec.structs.fields(now)
            if not any(
                name == f"{section}.{field.name}" or name.startswith(f"{section}.{field.name}.")
                for name in given
            )
        }
        guarded[section] = msgspec.structs.replace(now, **kept)
    return msgspec.structs.replace(config, **guarded)


def _notes(
    before: Settings, now: Settings, config: Config, order: PipelineOrder, *, guarded: bool
) -> Iterator[str]:
    """What changes from now on, and what stays although the project has other settings."""
    for section in SECTIONS:
        for field in msgspec.structs.fields(getattr(now, section)):
            was, holds, wanted = (getattr(getattr(of, section), field.name) for of in (before, now, config))
            name = f"{section}.{field.encode_name}"
            if holds != was:
                became = "is no longer set" if holds is None else f"is now {_shown(name, holds)}"
                yield f"{name} {became}; it was {_shown(name, was)}"
            elif wanted != holds:
                yield f"{name} stays {_shown(name, holds)}, not {_shown(name, wanted)}: {_why(section, name, guarded=guarded)}"
    yield from _other_notes(now, config, order)


def _overridden(workspace: Path, kept: Sequence[str], sets: Sequence[str]) -> Iterator[str]:
    """The settings that were given earlier with ``--set`` and still hold, where the file has other values by now."""
    try:
        table = tomllib.loads((workspace / CONFIG_FILE).read_text())
    except (OSError, ValueError):
        return
    given = dict(_assigned(assignment) for assignment in kept)
    for name, text in given.items():
        written = _looked_up(table, name.split("."))
        if written is None or written == _read_value(text) or name in dict(map(_assigned, sets)):
            continue
        if "env" in name.split("."):
            yield f"{name} stays as it was given with --set; {CONFIG_FILE} has another value"  # it may be a secret
        else:
            yield f"{name} stays {text} (from --set); {CONFIG_FILE} has {_shown(name, written)}"


def _assigned(assignment: str) -> tuple[str, str]:
    name, _, text = assignment.partition("=")
    return name.strip(), text.strip()


def _looked_up(table: object, path: list[str]) -> object:
    for part in path:
        table = cast("dict[str, object]", table).get(part) if isinstance(table, dict) else None
    return table


def _read_value(text: str) -> object:
    """What a text means as a value of a setting; itself, if it is nothing else."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _other_notes(now: Settings, config: Config, order: PipelineOrder) -> Iterator[str]:
    for role, name in now.agents.items():
        try:
            chosen = choose_agents(config, [role])[role]  # type: ignore[list-item]  # - roles are what these names are
        except ConfigError:
            continue
        if chosen != name:
            yield f"the agent for {role} stays {name}, not {chosen}: {BEGUN}"
    known = {task.id: task for task in config.tasks}
    for task in order.tasks:
        now_is = known.get(task.id)
        if now_is is not None and (now_is.goal, now_is.title, now_is.files) != (
            task.goal,
            task.title,
            task.task_files,
        ):
            yield f"task {task.id} stays as it was, not as {CONFIG_FILE} has it now: {BEGUN}"


def _why(section: str, name: str, *, guarded: bool) -> str:
    if name == "parallel.tasks":
        return IN_WORKSPACE
    return BY_AGENT if guarded and section in GUARDED else BEGUN


def _shown(name: str, value: object) -> str:
    """A setting for people; of variables only the names."""
    if name == "tests.env" and isinstance(value, dict):
        value = sorted(cast("dict[str, object]", value))
    text = "not set" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
