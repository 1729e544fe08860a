"""The section of notices: the user's own settings, those of a project, and what a project must not set."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.config.load import load_config, own_settings_file, read_settings
from bartack.config.notices import OWN_KEYS, NoticesConfig
from bartack.core.trust import add_trusted
from bartack.errors import ConfigError
from bartack.notices import ways_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "state/bartack"
    place.mkdir(parents=True, mode=0o700)
    return place


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def own(text: str) -> None:
    own_settings_file().write_text(f"[notices]\n{text}\n")


def of_project(project: Path, text: str) -> None:
    (project / "bartack.toml").write_text(f"[notices]\n{text}\n")


def notices(project: Path, *sets: str, **environ: str) -> NoticesConfig:
    return load_config(project, sets, environ).notices


def test_nothing_is_sent_by_default(project: Path) -> None:
    assert notices(project) == NoticesConfig()
    assert not NoticesConfig().has_ways


def test_the_users_own_settings_hold_for_every_project(project: Path) -> None:
    own('command = ["~/bin/ring", "-x"]\nafter_s = 3\ndesktop = true')

    found = notices(project)

    assert (found.after_s, found.desktop, found.has_ways) == (3.0, True, True)
    assert [way.recipient for way in ways_of(found)] == ["desktop", "command ring"]


@pytest.mark.requirement("settings-of-notices-are-layered")
def test_a_project_overrides_the_user_the_environment_both_and_set_all(project: Path) -> None:
    own("after_s = 1\nquiet = '22:00-07:00'\ndesktop = true\non = ['question']")
    of_project(project, "after_s = 2\nquiet = ''\non = ['failed', 'ended']")

    assert notices(project).on == ["failed", "ended"]
    assert notices(project).quiet == ""
    assert notices(project).desktop
    assert notices(project, BARTACK_NOTICES_AFTER_S="3").after_s == 3.0
    assert notices(project, "notices.after_s=4", BARTACK_NOTICES_AFTER_S="3").after_s == 4.0


@pytest.mark.requirement("clone-cannot-notify")
@pytest.mark.parametrize(
    "line",
    [
        'command = ["touch", "/tmp/x"]',
        'webhook = "https://evil.example"',
        'secret_file = "~/.ssh/id_rsa"',
        'secret_env = "ANTHROPIC_API_KEY"',
        'link = "https://evil.example/{run}"',
    ],
)
def test_the_file_of_a_project_can_start_nothing_and_send_nowhere(project: Path, line: str) -> None:
    of_project(project, line)

    with pytest.raises(ConfigError, match="allowed only in your own settings") as caught:
        load_config(project)

    assert caught.value.setting == f"bartack.toml:2:1: notices.{line.split(maxsplit=1)[0]}"
    assert read_settings(project).config.notices == NoticesConfig()


@pytest.mark.requirement("clone-cannot-notify")
def test_trust_in_a_project_does_not_change_that(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.parent / "config"))
    add_trusted(project)
    of_project(project, 'command = ["touch"]')

    with pytest.raises(ConfigError):
        load_config(project)


def test_every_key_that_acts_is_only_the_users_own() -> None:
    harmless = {"on", "after_s", "quiet", "urgent", "desktop", "command_s"}

    assert set(NoticesConfig.__struct_fields__) - harmless == OWN_KEYS


def test_a_person_can_name_a_command_for_one_run(project: Path) -> None:
    assert notices(project, 'notices.command=["ring", "a b"]').command == ["ring", "a b"]
    assert notices(project, BARTACK_NOTICES_COMMAND='["ring"]').command == ["ring"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("on = ['questions']", "question"),
        ("quiet = '10pm-7am'", "22:00-07:00"),
        ("quiet = '24:00-07:00'", "22:00-07:00"),
        ("quiet = '07:00-07:00'", "begins and ends at the same time"),
        ("command = 'ring me'", "command"),
        ("command = ['', 'x']", "name a program"),
        ("command_s = 0", "command_s"),
        ("command_s = 601", "command_s"),
        ("webhook = 'https://x.example'", "needs either secret_file or secret_env"),
        ("webhook = 'https://x.example'\nsecret_file = 'a'\nsecret_env = 'A'", "needs either"),
        ("webhook = 'http://x.example'\nsecret_env = 'A'", "only for this machine"),
        ("webhook = 'ftp://x.example'\nsecret_env = 'A'", "https address"),
        ("webhook = 'https://me:pw@x.example'\nsecret_env = 'A'", "user name or a password"),
        ("webhook = 'https://x.example:99999/'\nsecret_env = 'A'", "not a valid address"),
        ("webhook = 'https://x.example/a b'\nsecret_env = 'A'", "not a valid address"),
        ("link = 'javascript:alert(1)'", "has to begin with https://"),
        ("link = 'https://x/{secret}'", "{secret} is not replaced"),
        ("link = 'https://x/{run.__class__}'", "is not replaced"),
        ("link = 'https://x/{run!r}'", "is not replaced"),
        ("link = 'https://x/{run'", "cannot be read"),
        ("desktpo = true", "desktop"),
    ],
)
def test_a_mistake_is_named_with_its_place_in_the_users_own_file(
    project: Path, text: str, problem: str
) -> None:
    own(text)

    with pytest.raises(ConfigError) as caught:
        load_config(project)

    assert problem in str(caught.value)
    assert str(own_settings_file()) in str(caught.value)


@pytest.mark.parametrize("text", ["notices = 1", "[notices", "[notices]\nx = \xff"])
def test_a_file_of_the_user_that_cannot_be_read_is_an_error(project: Path, text: str) -> None:
    own_settings_file().write_text(text, encoding="latin-1")

    with pytest.raises(ConfigError, match=r"state/bartack/bartack\.toml"):
        load_config(project)


def test_webhooks_on_this_machine_need_no_certificate(project: Path) -> None:
    own("webhook = 'http://localhost:9/x'\nsecret_env = 'A'")

    assert ways_of(notices(project))[0].url == "http://localhost:9/x"


def test_the_secret_is_found_from_the_users_own_directory_and_never_from_the_workspace(
    project: Path, home: Path
) -> None:
    own("webhook = 'https://x.example/token-in-path'\nsecret_file = 'hook-secret'")

    [way] = ways_of(notices(project))

    assert way.secret_file == str(home / "hook-secret")
    assert way.recipient == "webhook x.example"


def test_in_the_state_home_itself_the_file_is_the_users_own(home: Path) -> None:
    own('command = ["ring"]')

    assert notices(home).command == ["ring"]
