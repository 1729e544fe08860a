"""The settings of a project, from ``bartack.toml`` at the top of the workspace. Every key is optional.

What the file says is overridden by ``BARTACK_SECTION_KEY`` in the environment, and that by ``--set section.key=value``. A key that
nobody knows is an error, with the nearest name that there is.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from bartack.agents import AgentsConfig, ProtocolConfig, ScriptedAgent, ScriptedConfig, read_agents
from bartack.core import replace_file
from bartack.errors import AgentConfigError, BartackError, ConfigError, MailboxNameError
from bartack.messaging import LetterPolicy, check_name
from bartack.runtime._config_sections import (
    ArtifactsConfig,
    BudgetConfig,
    IntakeConfig,
    ParallelConfig,
    PipelineConfig,
    ProjectConfig,
    QuestionsConfig,
    RedactionConfig,
    ReviewConfig,
    SnapshotConfig,
    SpecConfig,
    TaskConfig,
    TestsConfig,
    TranscriptConfig,
)
from bartack.runtime._office import Bounds
from bartack.runtime._timeouts import DEFAULTS

CONFIG_FILE = "bartack.toml"
SETS_FILE: Final = "work/sets.json"
"""Settings that were given on the command line when a run was started or resumed; in its directory."""


class TelemetryConfig(msgspec.Struct, forbid_unknown_fields=True):
    """Who is told what happens."""

    otel: bool = False
    """Make spans and metrics of everything, for OpenTelemetry."""


class Config(msgspec.Struct, forbid_unknown_fields=True, rename={"directory": "state_dir"}):
    """All settings."""

    project: ProjectConfig = ProjectConfig()
    agents: AgentsConfig = msgspec.field(default_factory=AgentsConfig)
    protocol: ProtocolConfig = msgspec.field(default_factory=ProtocolConfig)
    budget: BudgetConfig = BudgetConfig()
    pipeline: PipelineConfig = PipelineConfig()
    tests: TestsConfig = TestsConfig()
    review: ReviewConfig = ReviewConfig()
    spec: SpecConfig = SpecConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    intake: IntakeConfig = IntakeConfig()
    questions: QuestionsConfig = QuestionsConfig()
    parallel: ParallelConfig = ParallelConfig()
    redaction: RedactionConfig = RedactionConfig()
    artifacts: ArtifactsConfig = ArtifactsConfig()
    transcript: TranscriptConfig = TranscriptConfig()
    tasks: list[TaskConfig] = []
    timeouts: dict[str, float] = {}
    mailboxes: dict[str, Bounds] = {}
    """The bounds of mailboxes, by name."""
    dead_letters: LetterPolicy = LetterPolicy()
    telemetry: TelemetryConfig = msgspec.field(default_factory=TelemetryConfig)
    durability: Literal["power", "process"] = "power"
    directory: str = ".bartack"
    """Where runs are kept."""

    @property
    def max_usd(self) -> float | None:
        """What a run may cost."""
        return self.budget.usd

    @property
    def reserve_usd(self) -> float:
        """What is reserved for a call before it is made."""
        return self.budget.reserve_usd

    @property
    def default_agent(self) -> str:
        """The agent that is asked when none is named."""
        return self.agents.default_name

    @property
    def limits(self) -> dict[str, float]:
        """How long things may take, by kind, as far as the settings say."""
        return {**self.agents.limits, **self.timeouts}

    def project_name(self, workspace: Path) -> str:
        """What people call the project."""
        return self.project.name or workspace.resolve().name

    def state_dir(self, workspace: Path) -> Path:
        """Where the runs of a workspace are."""
        return workspace / os.environ.get("BARTACK_STATE_DIR", self.directory)

    def open_scripted(self, workspace: Path, run_dir: Path) -> dict[str, ScriptedAgent]:
        """The agents that answer prompts from a script, in the process of the hub.

        Raises:
            ScriptError: A script cannot be read.
        """
        opened: dict[str, ScriptedAgent] = {}
        for name, agent in self.agents.named.items():
            if isinstance(agent, ScriptedConfig):
                folder = run_dir / "agents" / name
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                opened[name] = ScriptedAgent.load(
                    workspace / agent.script, name=name, memory=folder / "used.json"
                )
        return opened


SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "project": ProjectConfig,
    "protocol": ProtocolConfig,
    "budget": BudgetConfig,
    "pipeline": PipelineConfig,
    "tests": TestsConfig,
    "review": ReviewConfig,
    "spec": SpecConfig,
    "snapshot": SnapshotConfig,
    "intake": IntakeConfig,
    "questions": QuestionsConfig,
    "parallel": ParallelConfig,
    "redaction": RedactionConfig,
    "artifacts": ArtifactsConfig,
    "transcript": TranscriptConfig,
}
"""The tables whose keys are fixed."""

ELSEWHERE: Final = frozenset({"breaker", "daemon", "health", "lineage", "outbox", "tracking"})
"""Sections that others read, who say themselves what is wrong with them."""

PINNED: Final = (
    "project.*", "state_dir", "durability", "tasks", "tasks.*", "agents.default", "redaction.*", "spec.*",
    "pipeline.review", "pipeline.spec", "pipeline.roles", "pipeline.roles.*", "pipeline.prompts", "pipeline.prompts.*",
    "tests.command", "tests.env", "tests.env.*", "tests.honour_waiver", "tests.protect",
    "snapshot.source", "snapshot.roots", "snapshot.exclude", "snapshot.include", "snapshot.ignore",
    "intake.max_candidates", "intake.require_plan", "intake.prefer", "parallel.merge", "parallel.keep", "parallel.setup",
    "agents.*.kind", "agents.*.command", "agents.*.script", "agents.*.roles",
)  # fmt: skip
"""Settings that hold for a run from its beginning to its end; all others may change when it is resumed."""

_PLACES: Final = {"": "state_dir", "[project]": "workspace"}
"""Which key of which section says where things are."""

_TOP: Final = {field.encode_name for field in msgspec.structs.fields(Config)}


def find_workspace(project: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Where programs, commands and agents of a project work: where its settings are, unless those say otherwise.

    Raises:
        ConfigError: The settings name a directory that is not there.
    """
    file = project / CONFIG_FILE
    if not file.is_file():
        return project
    told = _told_workspace(_load_places(file), os.environ if environ is None else environ)
    place = project / told
    if not place.is_dir():
        raise ConfigError(f"{CONFIG_FILE}: project.workspace", f"there is no directory {told!r}")
    return project if told == "." else place


def _told_workspace(table: Mapping[str, object], environ: Mapping[str, str]) -> str:
    section = table.get("project")
    written = cast("dict[str, object]", section).get("workspace") if isinstance(section, dict) else None
    told = environ.get("BARTACK_PROJECT_WORKSPACE") or written
    return told if isinstance(told, str) and told.strip() else "."


def _settings_file(workspace: Path, environ: Mapping[str, str]) -> Path:
    """The file with the settings of a workspace: in it, or above it if that one says that this is its workspace."""
    here = workspace / CONFIG_FILE
    if here.is_file():
        return here
    place = workspace.resolve()
    for above in place.parents:
        file = above / CONFIG_FILE
        if file.is_file():
            told = _told_workspace(_load_places(file), environ)
            return file if (above / told).resolve() == place else here
    return here


def check_resumed(sets: Sequence[str]) -> None:
    """Raise unless each of these settings may be changed when a run is resumed.

    Raises:
        ConfigError: One holds for a run from its beginning to its end.
    """
    for assignment in sets:
        setting = assignment.partition("=")[0].strip()
        if any(fnmatchcase(setting, pattern) for pattern in PINNED):
            raise ConfigError(
                f"--set {assignment}", f"{setting} was decided when the run began, and cannot change"
            )


def load_config(
    workspace: Path, sets: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Config:
    """The settings of a workspace; the defaults if it has none.

    Args:
        workspace: Where ``bartack.toml`` is.
        sets: Settings that override everything, each ``section.key=value``.
        environ: The environment; that of this process by default.

    Raises:
        ConfigError: A setting is unknown or has an unusable value.
        AgentConfigError: A secret is written down.
    """
    reading = _read(workspace, sets, os.environ if environ is None else environ)
    for problem in reading.problems:
        raise problem
    return reading.config


def find_state_dir(workspace: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Where the runs of a workspace are, whatever else is wrong with its settings: who looks at runs needs no more.

    Raises:
        ConfigError: Just this setting has an unusable value.
    """
    table = _load_places(_settings_file(workspace, os.environ if environ is None else environ))
    reading = _Reading({name: table[name] for name in table if name == "state_dir"}, "")
    reading.run()
    for problem in reading.problems:
        raise problem
    return reading.config.state_dir(workspace)


def check_settings(workspace: Path, environ: Mapping[str, str] | None = None) -> list[BartackError]:
    """Everything that is wrong with the settings of a workspace; nothing is started."""
    try:
        return _read(workspace, (), os.environ if environ is None else environ).problems
    except ConfigError as error:
        return [error]


def keep_sets(run_dir: Path, sets: Sequence[str]) -> None:
    """Keep the settings that were given for a run; later ones stand behind earlier ones, and count.

    They are kept for good: only who has read the settings with them, and owns the run, may do this.
    """
    if sets:
        kept = [*kept_sets(run_dir), *sets]
        replace_file(run_dir / SETS_FILE, msgspec.json.encode(kept))


def kept_sets(run_dir: Path) -> list[str]:
    """The settings that were given for a run.

    Raises:
        ConfigError: They cannot be read.
    """
    file = run_dir / SETS_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[str])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        problem = f"what was given with --set cannot be read ({error}); remove the file, and give it again"
        raise ConfigError(str(file), problem) from None


class _Reading:
    """One reading of the settings: every section by itself, so that all problems are found at once."""

    def __init__(self, table: dict[str, object], source: str, given: dict[str, str] | None = None) -> None:
        self.config = Config()
        self.problems: list[BartackError] = []
        self._table = table
        self._source = source
        self._given = given or {}
        """Who gave a setting that is not from the file, by its name."""

    def run(self) -> None:
        for name, given in self._table.items():
            try:
                self._take(name, given)
            except (ConfigError, AgentConfigError) as error:
                self.problems.append(error)

    def _take(self, name: str, given: object) -> None:
        if name in ELSEWHERE:
            return
        if name not in _TOP:
            raise ConfigError(self._place(name), _unknown(name, sorted(_TOP), "there is no such setting"))
        if name == "agents":
            if not isinstance(given, dict):
                raise ConfigError(self._place(name), "it is no table")
            self._take_agents(cast("dict[str, object]", given))
            return
        section = SECTIONS.get(name)
        if section is not None:
            self._check_keys(name, given, section)
        if name == "tasks":
            self._check_tasks(given)
        if name == "timeouts" and isinstance(given, dict):
            self._check_timeouts(cast("dict[str, object]", given))
        try:
            made = msgspec.convert({name: given}, type=Config)
        except msgspec.ValidationError as error:
            told, _, path = str(error).partition(" - at ")
            where = path.strip("`").removeprefix("$.")
            raise ConfigError(self._place(where or name), told) from None
        for mailbox, bounds in made.mailboxes.items():
            _check_mailbox(self._place(f"mailboxes.{mailbox}"), mailbox, bounds)
        for kind, seconds in made.timeouts.items():
            if not math.isfinite(seconds):
                raise ConfigError(self._place(f"timeouts.{kind}"), "it must be a number of seconds")
        field = "directory" if name == "state_dir" else name
        setattr(self.config, field, getattr(made, field))

    def _take_agents(self, given: dict[str, object]) -> None:
        try:
            self.config.agents = read_agents(given, f"{CONFIG_FILE}: agents")
        except ConfigError as error:
            giver = self._giver(error.setting.removeprefix(f"{CONFIG_FILE}: "))
            if not giver:
                raise
            raise ConfigError(giver, error.problem) from None

    def _check_keys(self, name: str, given: object, section: type[msgspec.Struct]) -> None:
        if not isinstance(given, dict):
            raise ConfigError(self._place(name), "it is no table")
        known = [field.encode_name for field in msgspec.structs.fields(section)]
        unknown = [key for key in cast("dict[str, object]", given) if key not in known]
        errors = [
            ConfigError(self._place(f"{name}.{key}"), _unknown(key, known, "there is no such key"))
            for key in unknown
        ]
        self.problems += errors[1:]
        if errors:
            raise errors[0]

    def _check_tasks(self, given: object) -> None:
        known = [field.encode_name for field in msgspec.structs.fields(TaskConfig)]
        for place, task in enumerate(cast("list[object]", given) if isinstance(given, list) else []):
            for key in cast("dict[str, object]", task) if isinstance(task, dict) else {}:
                if key not in known:
                    raise ConfigError(
                        self._place(f"tasks[{place}].{key}", key),
                        _unknown(key, known, "there is no such key"),
                    )

    def _check_timeouts(self, given: dict[str, object]) -> None:
        for key in given:
            if key not in DEFAULTS:
                raise ConfigError(
                    self._place(f"timeouts.{key}"), _unknown(key, list(DEFAULTS), "there is no such limit")
                )

    def _place(self, setting: str, key: str = "") -> str:
        giver = self._giver(setting)
        if giver:
            return giver
        line = _line_of(self._source, setting, key)
        return f"{CONFIG_FILE}:{line}: {setting}" if line else f"{CONFIG_FILE}: {setting}"

    def _giver(self, setting: str) -> str:
        """Who gave a setting, or something it belongs to; or else something in it that the file does not have."""
        plain = setting.partition("[")[0]
        for name, giver in reversed(self._given.items()):
            if f"{plain}.".startswith(f"{name}."):
                return giver
        if _line_of(self._source, setting):
            return ""
        return next((giver for name, giver in self._given.items() if name.startswith(f"{plain}.")), "")


def _read(workspace: Path, sets: Sequence[str], environ: Mapping[str, str]) -> _Reading:
    source, table = _load(_settings_file(workspace, environ))
    given: dict[str, str] = {}
    for setting, text, variable in _from_environment(environ):
        _put(table, setting, text)
        given[setting] = f"{variable}: {setting}"
    for assignment in sets:
        setting, equals, text = assignment.partition("=")
        if not equals or not setting.strip():
            raise ConfigError(f"--set {assignment}", "it has to be section.key=value")
        _put(table, setting.strip(), text)
        given.pop(setting.strip(), None)  # the last one counts, and stands last
        given[setting.strip()] = f"--set {assignment}"
    reading = _Reading(table, source, given)
    reading.run()
    return reading


def _load(file: Path) -> tuple[str, dict[str, object]]:
    """The text of a file with settings, and what it says; nothing if it is not there."""
    try:
        source = file.read_text("utf-8")
        return source, tomllib.loads(source)
    except (FileNotFoundError, NotADirectoryError):
        return "", {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(CONFIG_FILE, str(error)) from None


def _load_places(file: Path) -> dict[str, object]:
    """What a file with settings says; if it is no TOML, as far as it says on lines of their own where things are."""
    try:
        return _load(file)[1]
    except ConfigError:
        lines = file.read_text("utf-8", "replace").splitlines()
    table: dict[str, object] = {}
    section = ""
    for line in lines:
        if line.lstrip().startswith("["):
            section = line.partition("#")[0].strip()
        elif _PLACES.get(section) == line.partition("=")[0].strip():
            with suppress(tomllib.TOMLDecodeError):
                found = tomllib.loads(line)
                table.update({"project": found} if section else found)
    return table


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Settings that variables override, each with its value and the variable."""
    for name, section in SECTIONS.items():
        for field in msgspec.structs.fields(section):
            variable = f"BARTACK_{name}_{field.encode_name}".upper()
            text = environ.get(variable)
            if text is not None:
                yield f"{name}.{field.encode_name}", text, variable


def _put(table: dict[str, object], setting: str, text: str) -> None:
    *path, key = setting.split(".")
    place = table
    for part in path:
        below = place.get(part)
        if not isinstance(below, dict):
            below = place[part] = dict[str, object]()
        place = cast("dict[str, object]", below)
    place[key] = _value(setting, text)


def _value(setting: str, text: str) -> object:
    """A value as TOML writes it; a text where the setting is one, or where it is no TOML."""
    if _is_text(setting):
        return text.strip('"')
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _is_text(setting: str) -> bool:
    section, _, key = setting.partition(".")
    known = SECTIONS.get(section)
    field = next((f for f in msgspec.structs.fields(known) if f.encode_name == key), None) if known else None
    return field is not None and isinstance(field.default, str)


def _line_of(source: str, setting: str, key: str = "") -> int:
    """The line of a key, 0 if it is nowhere to be seen."""
    section, _, name = setting.rpartition(".")
    inside = not section
    table = re.compile(rf"\s*\[+\s*{re.escape(section.partition('[')[0])}\s*\]")
    written = re.compile(rf"\s*(?:{re.escape(setting)}|{re.escape(key or name)})\s*=")
    heading = re.compile(rf"\s*\[+\s*{re.escape(setting)}\s*\]")
    for number, line in enumerate(source.splitlines(), 1):
        if heading.match(line) or ((inside or line.strip().startswith(setting)) and written.match(line)):
            return number
        if line.lstrip().startswith("["):
            inside = bool(section) and table.match(line) is not None
    return 0


def _unknown(given: str, known: Sequence[str], problem: str) -> str:
    near = get_close_matches(given, known, 1)
    return f"{problem}; did you mean {near[0]!r}?" if near else f"{problem} (there are: {', '.join(known)})"


def _check_mailbox(place: str, name: str, bounds: Bounds) -> None:
    try:
        check_name(name)
    except MailboxNameError as error:
        raise ConfigError(place, error.reason) from None
    if bounds.capacity < 1 or bounds.max_bytes < 1:
        raise ConfigError(place, "capacity and max_bytes must be at least 1")
