"""What each setting does that no other test shows: the file is written, read, and something is different from then on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.runtime.stage import Stage, raw

from bartack.agents import AgentResult
from bartack.agents._prices import cost_usd, find_price
from bartack.agents.program.adapter import Surroundings
from bartack.agents.program_config import CodexConfig
from bartack.agents.protocol.messages import Budget, Event, Source, Usage
from bartack.config.load import ELSEWHERE, Config, check_resumed, find_workspace, load_config
from bartack.config.timeouts import Timeouts
from bartack.core.redact import Redactor
from bartack.errors import AgentConfigError, ConfigError, JournalError, QuestionTimeoutError
from bartack.messaging import LetterPolicy
from bartack.messaging.options import Terms
from bartack.pipeline._agent_calls import _costs
from bartack.pipeline.records.records import Spent
from bartack.runtime.hub import launch
from bartack.runtime.hub.agents import requests as requests_module
from bartack.runtime.hub.agents.programs import Programs, _Sink
from bartack.runtime.hub.launch import _settings_of
from bartack.runtime.hub.serve import Quiet
from bartack.runtime.kernel.actions import StartPrompt
from bartack.runtime.protocol import frames as f
from bartack.runtime.protocol import steps as s
from bartack.runtime.rundir.layout import RunDir


def told(folder: Path, text: str) -> Config:
    """The settings of a project whose file says this."""
    (folder / "bartack.toml").write_text(text)
    return load_config(folder, environ={})


def stage_of(config: Config) -> Stage:
    return Stage(settings=_settings_of(config, no_input=False))


# Questions.


def ask(stage: Stage, **options: object) -> int:
    given = {"question": "Go?", **options}
    stage.workers["main"].say(f.Step(i=101, p="main", n=1, step="ask", fp="fp", a=raw(given)))
    return 101


def test_a_question_waits_as_long_as_the_settings_say(tmp_path: Path) -> None:
    stage = stage_of(told(tmp_path, "[questions]\ntimeout_s = 60\n"))
    main = stage.begin()
    i = ask(stage)

    stage.wait(59.0)
    assert stage.core.state.questions
    stage.wait(1.0)

    assert main.error(i) == QuestionTimeoutError.__name__


@pytest.mark.parametrize("timeout_s", [0.0, 90.0])
def test_what_a_program_says_of_a_question_comes_first(tmp_path: Path, timeout_s: float) -> None:
    stage = stage_of(told(tmp_path, "[questions]\ntimeout_s = 60\n"))
    main = stage.begin()
    i = ask(stage, timeout_s=timeout_s)

    stage.wait(89.0)
    assert stage.core.state.questions
    stage.wait(2.0)

    assert bool(stage.core.state.questions) is (timeout_s == 0.0)
    if timeout_s:
        assert main.error(i) == QuestionTimeoutError.__name__


@pytest.mark.parametrize("on_timeout", ["fail", "default"])
def test_a_question_that_nobody_answers_fails_or_takes_its_first_option(
    tmp_path: Path, on_timeout: str
) -> None:
    stage = stage_of(told(tmp_path, f'[questions]\ntimeout_s = 5\non_timeout = "{on_timeout}"\n'))
    main = stage.begin()
    i = ask(stage, options=["keep", "abort"])

    stage.wait(5.0)

    if on_timeout == "fail":
        assert main.error(i) == QuestionTimeoutError.__name__
    else:
        assert main.value(i) == "keep"


def test_without_options_there_is_nothing_to_take(tmp_path: Path) -> None:
    stage = stage_of(told(tmp_path, '[questions]\ntimeout_s = 5\non_timeout = "default"\n'))
    main = stage.begin()
    i = ask(stage)

    stage.wait(5.0)

    assert main.error(i) == QuestionTimeoutError.__name__


# Prompts.

AGENTS = '[agents.ann]\ncommand = "ann"\n[agents.bob]\ncommand = "bob"\n'


def think(stage: Stage, agent: str = "", timeout_s: float | None = None) -> StartPrompt:
    args = s.ThinkArgs(prompt="what?", name="it", agent=agent, timeout_s=timeout_s)
    stage.begin().step(1, "think", args)
    return next(iter(stage.prompts.values()))


def test_the_default_agent_is_the_one_that_is_named(tmp_path: Path) -> None:
    assert told(tmp_path, f'[agents]\ndefault = "bob"\n{AGENTS}').default_agent == "bob"
    assert told(tmp_path, AGENTS).default_agent == ""


@pytest.mark.parametrize(
    ("text", "agent", "seconds"),
    [
        ("", "ann", 3600.0),
        ("[agents]\ntimeout_s = 50\n", "ann", 50.0),
        ("[timeouts]\nprompt = 40\n[agents]\ntimeout_s = 50\n", "ann", 40.0),
        ("[agents.ann.timeouts]\nprompt = 30\n", "ann", 30.0),
        ("[agents.ann.timeouts]\nprompt = 30\n", "bob", 3600.0),
    ],
)
def test_a_prompt_may_take_as_long_as_the_settings_say(
    tmp_path: Path, text: str, agent: str, seconds: float
) -> None:
    config = told(tmp_path, AGENTS + text)
    stage = stage_of(config)
    stage.core.prompts.timeouts = Timeouts({}, config.limits)

    assert think(stage, agent=agent).timeout_s == seconds
    assert think(stage_of(config), agent=agent, timeout_s=7.0).timeout_s == 7.0


# Money.


def test_what_is_reserved_and_how_much_there_is_come_from_the_settings(tmp_path: Path) -> None:
    config = told(tmp_path, "[budget]\nusd = 5\nreserve_usd = 3\n")
    stage = stage_of(config)

    assert think(stage).reserved_usd == 3.0
    assert think(stage_of(told(tmp_path, "[budget]\nusd = 5\n"))).reserved_usd == 2.0
    assert think(stage_of(told(tmp_path, ""))).reserved_usd == 0.0


def test_no_call_is_made_with_less_left_than_the_settings_say(tmp_path: Path) -> None:
    text = "[budget]\nusd = 5\nreserve_usd = 4\nmin_reserve_usd = "
    for least, calls in ((0.5, 2), (1.5, 1)):
        stage = stage_of(told(tmp_path, f"{text}{least}\n"))
        main = stage.begin()
        for n in (1, 2):
            main.step(n, "think", s.ThinkArgs(prompt="p", name="n"))

        assert len(stage.prompts) == calls


class Nobody:
    """Who hears of nothing."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def show(self, channel: str, worker: str, text: str) -> None:
        self.notes.append(text)


def settled(
    config: Config, tmp_path: Path, cost_usd: float | None, turns: int | None = None
) -> tuple[float, list[str]]:
    """What an answer is counted as, and what people are told of it."""
    programs = Programs(config, folder=tmp_path, workspace=".", environment={"BARTACK_RUN": "r"})
    host = Nobody()
    programs._host = host  # type: ignore[assignment]  # - it only shows
    action = StartPrompt(1, "main", "ik:k", 1, s.ThinkArgs(prompt="p", name="n"), reserved_usd=2.0)
    event = Event(
        message_id="m",
        correlation_id="c",
        task_id="t",
        sender=Source("general"),
        event="prompt.completed",
        occurred_at="2026-01-01T00:00:00Z",
    )
    _Sink(programs, action, "ann").done(AgentResult(event=event, usage=Usage(cost_usd=cost_usd, turns=turns)))
    [(_, outcome)] = programs.take_ready()
    assert isinstance(outcome, s.ThinkOutcome)
    return outcome.usd, host.notes


@pytest.mark.parametrize(("strict", "usd"), [("true", 2.0), ("false", 0.0)])
def test_an_agent_that_does_not_say_what_it_cost_costs_all_or_nothing(
    tmp_path: Path, strict: str, usd: float
) -> None:
    config = told(tmp_path, f"[budget]\nusd = 5\nstrict = {strict}\n")

    assert settled(config, tmp_path, 0.25) == (0.25, [])
    assert settled(config, tmp_path, None) == (
        usd,
        [f"agent ann did not report its cost: {usd:.2f} USD are counted"],
    )
    assert settled(config, tmp_path, None, turns=1) == (
        2.0,
        ["agent ann did not report its cost: 2.00 USD are counted, all that was reserved"],
    ), "it reports that it used a model"


def test_strictly_tokens_and_turns_that_nobody_counted_are_all_that_were_reserved() -> None:
    reserved = Spent(tokens=60, turns=4)

    assert _costs(Usage(), 2.0, Spent()) == Spent(wall_s=2.0)
    assert _costs(Usage(), 2.0, reserved) == Spent(tokens=60, turns=4, wall_s=2.0)
    assert _costs(Usage(input_tokens=1, turns=1), 2.0, reserved) == Spent(tokens=1, turns=1, wall_s=2.0)


# Agents.


def surroundings(config: Config, tmp_path: Path) -> Surroundings:
    made = Programs(config, folder=tmp_path, workspace=".", environment={"BARTACK_RUN": "r"})
    return made._surroundings


def test_prices_of_the_settings_reach_agents(tmp_path: Path) -> None:
    text = '[agents.prices]\n"some-model" = { input = 1, output = 2.5, cache_read = 3, cache_write = 4 }\n'
    prices = surroundings(told(tmp_path, text), tmp_path).prices
    usage = Usage(input_tokens=10**6, output_tokens=10**6, cache_read_tokens=10**6, cache_write_tokens=10**6)

    price = find_price("some-model-2026", prices)
    assert price is not None
    assert cost_usd(usage, price) == 10.5
    assert find_price("some-model-2026") is None


def test_the_extra_directories_of_an_agent_reach_its_calls(tmp_path: Path) -> None:
    work, more = tmp_path / "work", tmp_path / "more"
    for place in (work / ".bartack" / "runs", work / "docs", more):
        place.mkdir(parents=True)

    def given(*places: str) -> list[str]:
        named = ", ".join(f'"{place}"' for place in places)
        config = told(tmp_path, f"[agents.codex]\nextra_dirs = [{named}]\n")
        made = Programs(config, folder=tmp_path, workspace=str(work), environment={"BARTACK_RUN": "r"})
        agent = config.agents.named["codex"]
        assert isinstance(agent, CodexConfig)
        return made._extra_dirs("codex", agent)

    assert given("docs", "../more", str(more)) == [str(work / "docs"), str(more), str(more)]
    with pytest.raises(
        AgentConfigError, match=r"its extra directory 'gone' does not exist; correct extra_dirs"
    ):
        given("gone")
    (work / "link").symlink_to(work / ".bartack" / "runs")
    with pytest.raises(AgentConfigError, match=r"'link' is in \.bartack, where the runs are"):
        given("link")


def test_what_a_prompt_may_use_at_most_is_its_budget() -> None:
    args = s.ThinkArgs(prompt="p", name="n", max_usd=0.5, max_turns=3, max_tokens=700)
    action = StartPrompt(1, "main", "ik:k", 1, args)

    assert requests_module.make_request(action, "r", "/w").budget == Budget(usd=0.5, tokens=700, turns=3)


def test_what_agents_may_see_and_leave_comes_from_the_settings(tmp_path: Path) -> None:
    text = '[redaction]\nnames = ["LOGIN"]\nexcept = ["PUBLIC_KEY"]\nmin_length = 3\n[artifacts]\nmax_bytes = 5\n'
    text += "[protocol]\nmax_violations = 1\nsuspect_grace_s = 2\n"
    environ = {"LOGIN": "anna", "PUBLIC_KEY": "published-widely", "API_KEY": "abcd"}

    plain, changed = surroundings(Config(), tmp_path), surroundings(told(tmp_path, text), tmp_path)

    shown = "anna published-widely abcd"
    assert Redactor(environ, plain.secrets).redact_text(shown) == "anna $env:PUBLIC_KEY abcd"
    assert Redactor(environ, changed.secrets).redact_text(shown) == "$env:LOGIN published-widely $env:API_KEY"
    assert (plain.max_artifact_bytes, changed.max_artifact_bytes) == (1024**3, 5)
    assert (changed.protocol.max_violations, changed.protocol.suspect_grace_s) == (1, 2.0)


def test_the_trace_of_a_step_reaches_its_agent() -> None:
    action = StartPrompt(1, "main", "ik:k", 1, s.ThinkArgs(prompt="p", name="n"), trace="00-1-2-01")
    command = s.CommandArgs(action="review", task_id="T-1", inputs={})
    told_too = msgspec.structs.replace(action, args=s.ThinkArgs(prompt="", name="n", command=command))

    assert requests_module.make_request(action, "r", ".").trace == "00-1-2-01"
    assert requests_module.make_request(told_too, "r", ".").trace == "00-1-2-01"


# Dead letters.


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base", 7.0),
        ("factor", 3.0),
        ("cap", 70.0),
        ("max_attempts", 2),
        ("expire_after", 9.0),
        ("retry", False),
    ],
)
def test_when_letters_are_tried_again_comes_from_the_settings(
    tmp_path: Path, key: str, value: float | bool
) -> None:
    config = told(tmp_path, f"[dead_letters]\n{key} = {str(value).lower()}\n")

    assert _settings_of(config, no_input=False).letters == msgspec.structs.replace(
        LetterPolicy(), **{key: value}
    )


# Projects.


def test_the_workspace_may_be_below_the_settings(tmp_path: Path) -> None:
    below = tmp_path / "code"
    told(tmp_path, '[project]\nworkspace = "."\n')
    assert find_workspace(tmp_path) == tmp_path

    (tmp_path / "bartack.toml").write_text('state_dir = "state"\n[project]\nworkspace = "code"\n')
    with pytest.raises(ConfigError, match="there is no directory 'code'"):
        find_workspace(tmp_path)
    below.mkdir()

    assert find_workspace(tmp_path) == below
    assert find_workspace(below) == below
    assert load_config(below, environ={}).directory == "state"


def test_settings_above_a_directory_that_is_not_their_workspace_are_none_of_its(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "code").mkdir()
    told(tmp_path, 'state_dir = "state"\n[project]\nworkspace = "code"\n')

    assert load_config(tmp_path / "other", environ={}).directory == ".bartack"
    (tmp_path / "bartack.toml").write_text("= broken")
    assert load_config(tmp_path / "other", environ={}) == Config()


def test_a_project_is_called_as_it_says_or_as_its_directory(tmp_path: Path) -> None:
    assert told(tmp_path, '[project]\nname = "Weeks"\n').project_name(tmp_path) == "Weeks"
    assert told(tmp_path, "").project_name(tmp_path) == tmp_path.name


def test_sections_of_others_are_left_to_them(tmp_path: Path) -> None:
    for section in ELSEWHERE:
        assert told(tmp_path, f"[{section}]\nanything = 1\n") == Config()


# Resuming.


@pytest.mark.parametrize(
    "setting",
    [
        "project.name",
        "state_dir",
        "snapshot.source",
        "spec.file",
        "agents.ann.kind",
        "pipeline.roles.builder",
    ],
)
def test_what_was_decided_when_a_run_began_cannot_change(setting: str) -> None:
    with pytest.raises(ConfigError, match="was decided when the run began"):
        check_resumed(["budget.usd=1", f"{setting}=x"])


def test_bounds_may_change_when_a_run_is_resumed() -> None:
    check_resumed(
        [
            "pipeline.max_rounds=5",
            "tests.timeout_s=5",
            "budget.usd=7",
            "agents.ann.retries=2",
            "snapshot.threads=1",
        ]
    )


# Runs.


@pytest.mark.parametrize("durability", ["power", "process"])
def test_a_journal_is_as_durable_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    opened: list[str] = []

    def open_recorded(run: RunDir, **options: object) -> object:
        opened.append(str(options["durability"]))
        raise JournalError("seen enough")

    monkeypatch.setattr(RunDir, "open_journal", open_recorded)
    run = RunDir(tmp_path / ".bartack" / "runs" / "run-20260101-000000-00000000")
    run.make()

    with pytest.raises(JournalError):
        launch.drive(run, told(tmp_path, f'durability = "{durability}"\n'), Quiet())

    assert opened == [durability]


@pytest.mark.parametrize(
    ("bounds", "full"), [("", False), ("max_bytes = 9\n", True), ("capacity = 1\n", True)]
)
def test_a_mailbox_has_the_room_that_the_settings_give_it(tmp_path: Path, bounds: str, *, full: bool) -> None:
    stage = stage_of(told(tmp_path, f'[mailboxes.box]\noverflow = "reject"\n{bounds}'))
    main = stage.begin()
    args = s.SuperviseArgs(mailbox="box", terms=msgspec.convert({"retries": 0}, type=Terms))

    sent = [main.answer(main.step(n, "send_supervised", args, "12345")) for n in (1, 2)]

    assert ["full" in str(outcome) for outcome in sent] == [False, full]
