"""The settings of a project, from ``bartack.toml`` at the top of the workspace. Every key is optional.

What the file says is overridden by ``BARTACK_SECTION_KEY`` in the environment, and that by ``--set section.key=value``. A key that
is not known is an error, with the nearest known name.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from bartack.agents import ScriptedAgent
from bartack.agents.config import (
    AgentsConfig,
    ProtocolConfig,
    ScriptedConfig,
    agent_settings,
    examine_agents,
)
from bartack.agents.guard.settings import GuardConfig
from bartack.config.environment import find_overrides, find_strays
from bartack.config.notices import SECTION as NOTICES
from bartack.config.notices import NoticesConfig, notice_flaws
from bartack.config.own import DEPOT, NODE, add_own, own_section
from bartack.config.problem import CONFIG_FILE, SettingProblem, SettingSources
from bartack.config.sections import (
    AllBudgetConfig,
    ArtifactsConfig,
    Bounds,
    DepotConfig,
    IntakeConfig,
    McpConfig,
    NodeConfig,
    ParallelConfig,
    PathText,
    PipelineConfig,
    PluginConfig,
    Positive,
    ProjectConfig,
    QuestionsConfig,
    RedactionConfig,
    ReviewConfig,
    RunConfig,
    SnapshotConfig,
    SpecConfig,
    TaskConfig,
    TestsConfig,
    TranscriptConfig,
    WebConfig,
    WorkersConfig,
    WorkspaceConfig,
)
from bartack.config.timeouts import DEFAULTS
from bartack.core import typed
from bartack.core.batch import Batch
from bartack.core.files import replace_file
from bartack.core.flaws import Flaw, KeyPath, dotted, find_flaws, unknown_name
from bartack.core.trust import check_settings, make_private
from bartack.errors import ConfigError, MailboxNameError, UntrustedError
from bartack.messaging import LetterPolicy
from bartack.messaging.mailboxes import check_name

if TYPE_CHECKING:
    from bartack.depot.elsewhere import Elsewhere

SETS_FILE: Final = "sets.json"
"""Settings that were given on the command line when a run was started or resumed; in its directory."""
_OF_OTHERS: Final = 0o022
_PASSWORD: Final = re.compile(r"//[^/?#@]*:[^/?#]*@|(password|client_secret)\s*=", re.IGNORECASE)
"""In the name of a database."""


class TelemetryConfig(msgspec.Struct, forbid_unknown_fields=True):
    """Receives what happens."""

    otel: bool = False
    """Make spans and metrics of everything, for OpenTelemetry."""


class Config(msgspec.Struct, forbid_unknown_fields=True, rename={"directory": "state_dir"}):
    """All settings."""

    project: ProjectConfig = ProjectConfig()
    agents: AgentsConfig = msgspec.field(default_factory=AgentsConfig)
    protocol: ProtocolConfig = msgspec.field(default_factory=ProtocolConfig)
    workers: WorkersConfig = WorkersConfig()
    budget: AllBudgetConfig = AllBudgetConfig()
    pipeline: PipelineConfig = PipelineConfig()
    tests: TestsConfig = TestsConfig()
    review: ReviewConfig = ReviewConfig()
    spec: SpecConfig = SpecConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    intake: IntakeConfig = IntakeConfig()
    questions: QuestionsConfig = QuestionsConfig()
    guard: GuardConfig = msgspec.field(default_factory=GuardConfig)
    parallel: ParallelConfig = ParallelConfig()
    plugin: PluginConfig = PluginConfig()
    redaction: RedactionConfig = RedactionConfig()
    artifacts: ArtifactsConfig = ArtifactsConfig()
    transcript: TranscriptConfig = TranscriptConfig()
    tasks: list[TaskConfig] = []
    timeouts: dict[str, Positive] = {}
    mailboxes: dict[str, Bounds] = {}
    """The bounds of mailboxes, by name."""
    dead_letters: LetterPolicy = LetterPolicy()
    telemetry: TelemetryConfig = msgspec.field(default_factory=TelemetryConfig)
    mcp: McpConfig = McpConfig()
    web: WebConfig = WebConfig()
    notices: NoticesConfig = NoticesConfig()
    node: NodeConfig = NodeConfig()
    workspace: WorkspaceConfig = WorkspaceConfig()
    run: RunConfig = RunConfig()
    depot: DepotConfig = DepotConfig()
    durability: Literal["power", "process"] = "power"
    directory: PathText = ".bartack"
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
                make_private(folder)
                opened[name] = ScriptedAgent.load(
                    workspace / agent.script,
                    name=name,
                    memory=folder / "used.json",
                    permissions=agent.permissions,
                )
        return opened


SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "project": ProjectConfig,
    "protocol": ProtocolConfig,
    "workers": WorkersConfig,
    "budget": AllBudgetConfig,
    "pipeline": PipelineConfig,
    "tests": TestsConfig,
    "review": ReviewConfig,
    "spec": SpecConfig,
    "snapshot": SnapshotConfig,
    "intake": IntakeConfig,
    "questions": QuestionsConfig,
    "guard": GuardConfig,
    "parallel": ParallelConfig,
    "plugin": PluginConfig,
    "redaction": RedactionConfig,
    "artifacts": ArtifactsConfig,
    "transcript": TranscriptConfig,
    "dead_letters": LetterPolicy,
    "telemetry": TelemetryConfig,
    "mcp": McpConfig,
    "web": WebConfig,
    "notices": NoticesConfig,
    "node": NodeConfig,
    "workspace": WorkspaceConfig,
    "run": RunConfig,
    "depot": DepotConfig,
}
"""The tables whose keys are fixed."""

ELSEWHERE: Final = frozenset({"breaker", "daemon", "health", "lineage", "outbox", "tracking"})
"""Sections that others read, who say themselves what is wrong with them."""

PINNED: Final = (
    "project.*", "state_dir", "durability", "tasks", "tasks.*", "agents.default", "redaction.*", "spec.*",
    "pipeline.review", "pipeline.spec", "pipeline.roles", "pipeline.roles.*", "pipeline.prompts", "pipeline.prompts.*",
    "snapshot.source", "snapshot.roots", "snapshot.exclude", "snapshot.include", "snapshot.ignore",
    "intake.max_candidates", "intake.require_plan", "intake.prefer",
    "questions.from_runs", "run.*",
    "workspace.carry", "workspace.remote", "workspace.push",
    "agents.*.kind", "agents.*.roles",
)  # fmt: skip
"""Settings that hold for a run from its beginning to its end; all others may change when it is resumed."""

_PLACES: Final = {"": "state_dir", "[project]": "workspace"}
"""Which key of which section says where things are."""

_TOP: Final[dict[str, object]] = {field.encode_name: field.type for field in msgspec.structs.fields(Config)}


def find_workspace(project: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Where programs, commands and agents of a project work: where its settings are, unless those say otherwise.

    Raises:
        ConfigError: The settings name a directory that is not there.
    """
    file = project / CONFIG_FILE
    if not file.is_file():
        return project
    workspace = _written_workspace(_load_places(file), os.environ if environ is None else environ)
    place = project / workspace
    if not place.is_dir():
        raise ConfigError(f"{CONFIG_FILE}: project.workspace", f"there is no directory {workspace!r}")
    return project if workspace == "." else place


def _written_workspace(table: Mapping[str, object], environ: Mapping[str, str]) -> str:
    section = table.get("project")
    written = cast("dict[str, object]", section).get("workspace") if isinstance(section, dict) else None
    workspace = environ.get("BARTACK_PROJECT_WORKSPACE") or written
    return workspace if isinstance(workspace, str) and workspace.strip() else "."


def _settings_file(workspace: Path, environ: Mapping[str, str]) -> Path:
    """The file with the settings of a workspace: in it, or above it if that one says that this is its workspace."""
    here = workspace / CONFIG_FILE
    if here.is_file():
        return here
    place = workspace.resolve()
    for above in place.parents:
        file = above / CONFIG_FILE
        if file.is_file():
            try:
                written = _written_workspace(_load_places(file), environ)
            except UntrustedError:
                # The workspace was named, so what another user put above it has no say.
                return here
            return file if (above / written).resolve() == place else here
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
    reading = read_settings(workspace, sets, environ)
    reading.check()
    return reading.config


def find_state_dir(workspace: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Where the runs of a workspace are, whatever else is wrong with its settings: who looks at runs needs no more.

    Raises:
        ConfigError: Just this setting has an unusable value.
    """
    table = _load_places(_settings_file(workspace, os.environ if environ is None else environ))
    reading = Reading({name: table[name] for name in table if name == "state_dir"})
    reading.check()
    return reading.config.state_dir(workspace)


def load_web_config(workspace: Path, environ: Mapping[str, str] | None = None) -> WebConfig:
    """The section ``web``, whatever else is wrong with the settings: who looks at runs needs no more.

    Raises:
        ConfigError: A setting of this section is unknown or has an unusable value.
    """
    try:
        reading = read_settings(workspace, environ=environ)
    except ConfigError:
        return WebConfig()  # it is not TOML
    for problem in reading.problems:
        if problem.setting.partition(".")[0] == "web":
            raise problem.error
    return reading.config.web


def keep_sets(run_dir: Path, sets: Sequence[str]) -> None:
    """Keep the settings that were given for a run; later ones stand after earlier ones, and count.

    They are kept for good: only who has read the settings with them, and owns the run, may do this.
    """
    if sets:
        kept = [*kept_sets(run_dir), *sets]
        replace_file(run_dir / SETS_FILE, msgspec.json.encode(kept))


def write_sets(run_dir: Path, sets: Sequence[str], batch: Batch) -> None:
    """Keep the settings that were given for a run that is being made; they become durable with the batch."""
    if sets:
        batch.write(str(run_dir / SETS_FILE), msgspec.json.encode(sets))


def keep_settings(run_dir: Path, workspace: Path, environ: Mapping[str, str] | None = None) -> None:
    """Keep the settings of a workspace with a run that other machines may continue: there they are read from here."""
    file = _settings_file(workspace, os.environ if environ is None else environ)
    content = file.read_bytes() if file.is_file() else b""
    replace_file(run_dir / CONFIG_FILE, content, synced=False)


def load_kept_config(run_dir: Path, workspace: Path, sets: Sequence[str] = ()) -> Config:
    """The settings of a run on a node: those that are kept with it, whatever its workspace has by now.

    Args:
        run_dir: The directory of the run.
        workspace: Where they are if none are kept with the run.
        sets: See ``load_config``.

    Raises:
        ConfigError: See ``load_config``.
    """
    return load_config(run_dir if (run_dir / CONFIG_FILE).is_file() else workspace, sets)


def kept_sets(run_dir: Path) -> list[str]:
    """The settings that were given for a run.

    Raises:
        ConfigError: They cannot be read.
    """
    file = _sets_file(run_dir)
    try:
        return typed.decode(file.read_bytes(), type=list[str])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        problem = f"what was given with --set cannot be read ({error}); remove the file, and give it again"
        raise ConfigError(str(file), problem) from None


def _sets_file(run_dir: Path) -> Path:
    """Where they are: older runs have them in ``work``, which counts only if no other user can write there."""
    file, before = run_dir / SETS_FILE, run_dir / "work" / SETS_FILE
    is_old = not file.exists() and before.is_file() and not before.is_symlink()
    return before if is_old and not before.parent.stat().st_mode & _OF_OTHERS else file


class Reading:
    """One reading of the settings: every part by itself, so that all problems are found at once.

    Attributes:
        config: The settings, as far as they can be used.
        problems: Everything that is wrong with the others.
        blame: Who gave which setting.
    """

    def __init__(self, table: Mapping[str, object], blame: SettingSources | None = None) -> None:
        self.config = Config()
        self.problems: list[SettingProblem] = []
        self.blame = blame or SettingSources()
        for name, given in table.items():
            if name not in ELSEWHERE:
                self._take(name, given)

    def check(self) -> None:
        """Raise the first problem that there is.

        Raises:
            ConfigError: A setting is unknown or has an unusable value.
            AgentConfigError: A secret is written down.
        """
        if not self.problems:
            return
        first, *more = self.problems
        if more:
            problems = "problem" if len(more) == 1 else "problems"
            problem = f"{first.problem} ({len(more)} more {problems}: bartack check lists all)"
            first = msgspec.structs.replace(first, problem=problem)
        raise first.error

    def _take(self, name: str, given: object) -> None:
        if name not in _TOP:
            self._add([unknown_name((name,), name, sorted(_TOP), "there is no such setting")])
        elif name == "agents":
            self._take_agents(given)
        else:
            flaws = [*find_flaws(given, _TOP[name], (name,)), *_own_rules(name, given)]
            self._add(flaws)
            if not flaws:
                made = typed.convert({name: given}, type=Config)
                field = "directory" if name == "state_dir" else name
                setattr(self.config, field, getattr(made, field))

    def _take_agents(self, given: object) -> None:
        if not isinstance(given, dict):
            self._add([Flaw(("agents",), "it is not a table")])
            return
        read = examine_agents(cast("dict[str, object]", given))
        self.config.agents = read.config
        self._add(read.flaws)
        self.problems += [self.blame.flaw(flaw, agent) for agent, flaw in read.secrets]

    def _add(self, flaws: Iterable[Flaw]) -> None:
        self.problems += map(self.blame.flaw, flaws)


def _own_rules(name: str, given: object) -> Iterator[Flaw]:
    """What is wrong with a section that its type does not say."""
    if not isinstance(given, dict):
        return
    if name == NOTICES:
        yield from notice_flaws(cast("dict[str, object]", given))
    database = cast("dict[str, object]", given).get("on") if name == DEPOT else ""
    if isinstance(database, str) and _PASSWORD.search(database):
        yield Flaw(
            (name, "on"), "it has a password in it; put it into ~/.pgpass, or name a service: service:NAME"
        )
    command = cast("dict[str, object]", given).get("command") if name == "tests" else ""
    if isinstance(command, str) and "\0" in command:
        yield Flaw((name, "command"), "it has a NUL character in it")
    for key in cast("dict[str, object]", given):
        if name == "timeouts" and key not in DEFAULTS:
            yield unknown_name((name, key), key, list(DEFAULTS), "there is no such limit")
        if name == "mailboxes":
            try:
                check_name(key)
            except MailboxNameError as error:
                yield Flaw((name, key), error.reason)


def read_settings(
    workspace: Path,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    *,
    shown: str = CONFIG_FILE,
    everywhere: bool = False,
) -> Reading:
    """Read the settings of a workspace, with everything that is wrong with them; nothing is started.

    Args:
        workspace: Where ``bartack.toml`` is.
        sets: Settings that override everything, each ``section.key=value``.
        environ: The environment; that of this process by default.
        shown: What the file is called where it is blamed.
        everywhere: Look at the sections of tracking, too, whose problems are only warnings.

    Raises:
        ConfigError: The file is not TOML, or one of ``sets`` is not an assignment.
    """
    environ = os.environ if environ is None else environ
    file = _settings_file(workspace, environ)
    source, table = _load(file, shown)
    given: dict[str, str] = {}
    own = own_settings_file()
    foreign = (
        [] if file.resolve() == own.resolve() else add_own(table, _load(own, str(own))[1], str(own), given)
    )
    known = list(_all_settings(table))
    for path, text, variable in find_overrides(environ, known):
        _put(table, [str(part) for part in path], text)
        given[dotted(path)] = f"{variable}: {dotted(path)}"
    for assignment in sets:
        setting, equals, text = assignment.partition("=")
        if not equals or not setting.strip():
            raise ConfigError(f"--set {assignment}", "it has to be section.key=value")
        _put(table, setting.strip().split("."), text)
        given.pop(setting.strip(), None)  # the last one counts, and stands last
        given[setting.strip()] = f"--set {assignment}"
    reading = Reading(table, SettingSources(source, given, shown))
    # These are blamed on the file also where another source overrides them.
    reading.problems += map(SettingSources(source, {}, shown).flaw, foreign)
    if everywhere:
        from bartack.resilience.settings import setting_flaws  # noqa: PLC0415 - only who checks settings needs it

        reading.problems += map(reading.blame.flaw, setting_flaws(table))
    reading.problems += find_strays(environ, known)
    return reading


def own_settings_file() -> Path:
    """The user's own settings, of which runs read what ``own.py`` names."""
    from bartack.core.user_home import user_home  # noqa: PLC0415 - loaded by its first use

    return user_home() / CONFIG_FILE


def load_own_node(environ: Mapping[str, str] | None = None) -> NodeConfig:
    """The settings of the user's node, which belongs to no project.

    Raises:
        ConfigError: One is unknown or has an unusable value, or the user's own settings are not TOML.
        UntrustedError: Another user made them or can change them.
    """
    return _load_own(NODE, NodeConfig.__struct_encode_fields__, environ).node


def load_own_depot(environ: Mapping[str, str] | None = None) -> DepotConfig:
    """The settings of the user for runs in a database. Those of a project cannot choose one.

    Raises:
        ConfigError: One is unknown or has an unusable value, or the user's own settings are not TOML.
        UntrustedError: Another user made them or can change them.
    """
    return _load_own(DEPOT, DepotConfig.__struct_encode_fields__, environ).depot


def load_elsewhere(on: str, *, insecure: bool = False, environ: Mapping[str, str] | None = None) -> Elsewhere:
    """A database as it was named, with the object store that the user's own settings give it.

    Raises:
        ConfigError: See ``load_own_depot``.
        UntrustedError: Likewise.
    """
    from bartack.depot.elsewhere import Elsewhere  # noqa: PLC0415 - only runs in a database need it

    return Elsewhere(on, insecure, load_own_depot(environ).blobs)


def load_own_notices(environ: Mapping[str, str] | None = None) -> NoticesConfig:
    """How the user wants to be notified of what belongs to no project, or to one whose settings cannot be read.

    Raises:
        ConfigError: One is unknown or has an unusable value, or the user's own settings are not TOML.
        UntrustedError: Another user made them or can change them.
    """
    return _load_own(NOTICES, NoticesConfig.__struct_encode_fields__, environ).notices


def _load_own(name: str, keys: Sequence[str], environ: Mapping[str, str] | None) -> Config:
    """One section of the user's own settings."""
    file = own_settings_file()
    table: dict[str, object] = {name: own_section(_load(file, str(file))[1], name, str(file))}
    given = {f"{name}.{key}": f"{file}: {name}.{key}" for key in keys}
    known = [(name, key) for key in keys]
    for path, text, variable in find_overrides(os.environ if environ is None else environ, known):
        _put(table, [str(part) for part in path], text)
        given[dotted(path)] = f"{variable}: {dotted(path)}"
    reading = Reading(table, SettingSources("", given, str(file)))
    reading.check()
    return reading.config


def _all_settings(table: Mapping[str, object]) -> Iterator[KeyPath]:
    """Every setting that a variable can override; those of agents and mailboxes as far as the file has these."""
    yield ("durability",)
    for name, section in SECTIONS.items():
        yield from ((name, key) for key in section.__struct_encode_fields__)
    yield from (("timeouts", kind) for kind in DEFAULTS)
    agents, mailboxes = table.get("agents"), table.get("mailboxes")
    yield from agent_settings(cast("dict[str, object]", agents) if isinstance(agents, dict) else {})
    for mailbox in cast("dict[str, object]", mailboxes) if isinstance(mailboxes, dict) else {}:
        yield from (("mailboxes", mailbox, key) for key in Bounds.__struct_encode_fields__)


def _load(file: Path, shown: str = CONFIG_FILE) -> tuple[str, dict[str, object]]:
    """The text of a file with settings, and what it says; nothing if it is not there.

    Raises:
        ConfigError: It is not TOML.
        UntrustedError: Another user made it or can change it.
    """
    source = ""
    check_settings(file)
    try:
        source = file.read_text("utf-8")
        return source, tomllib.loads(source)
    except (FileNotFoundError, NotADirectoryError):
        return "", {}
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{shown}:{line}", "it is not UTF-8 text") from None
    except RecursionError:
        raise ConfigError(shown, "it is not TOML: too many brackets inside each other") from None
    except tomllib.TOMLDecodeError as error:
        problem, _, at = str(error).rpartition(" (at ")
        place = ":".join(re.findall(r"\d+", at)) or str(source.rstrip().count("\n") + 1)
        raise ConfigError(f"{shown}:{place}", f"it is not TOML: {problem}") from None


def _load_places(file: Path) -> dict[str, object]:
    """What a file with settings says; if it is not TOML, what can be read of it line by line."""
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


def _put(table: dict[str, object], setting: Sequence[str], text: str) -> None:
    *path, key = setting
    place = table
    for part in path:
        below = place.get(part)
        if not isinstance(below, dict):
            below = place[part] = dict[str, object]()
        place = cast("dict[str, object]", below)
    place[key] = _value(".".join(setting), text)


def _value(setting: str, text: str) -> object:
    """A value as TOML writes it; a text where the setting is one, or where it is not TOML."""
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
