from __future__ import annotations

from pathlib import Path

import pytest

from bartack.agents.claude._home import SessionHome, choose_home, find_parent
from bartack.agents.program_config import Home

KEY = {"ANTHROPIC_API_KEY": "k"}


@pytest.mark.parametrize(
    ("wanted", "env", "chosen"),
    [
        ("auto", KEY, "run"),
        ("auto", {"CLAUDE_CODE_OAUTH_TOKEN": "t"}, "run"),
        ("auto", {"ANTHROPIC_API_KEY": ""}, "user"),
        ("auto", {}, "user"),
        ("run", {}, "run"),
        ("user", KEY, "user"),
    ],
)
def test_the_home_is_chosen_by_the_settings_and_the_credentials(
    tmp_path: Path, wanted: Home, env: dict[str, str], chosen: str
) -> None:
    assert choose_home(tmp_path, wanted, env) == chosen


def test_the_choice_is_made_once_for_a_run(tmp_path: Path) -> None:
    assert choose_home(tmp_path / "claude", "auto", KEY) == "run"

    assert choose_home(tmp_path / "claude", "auto", {}) == "run"
    assert (tmp_path / "claude" / "home").stat().st_mode & 0o777 == 0o600


def write_transcript(place: Path, name: str, text: str) -> Path:
    path = place / "projects" / "-tmp-x" / f"{name}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_transcript_is_found_by_its_id_if_it_has_a_message_of_ours(tmp_path: Path) -> None:
    home = SessionHome(tmp_path, "run", {})
    assert home.find_transcript("c1") is None
    path = write_transcript(tmp_path / "home", "c1", '{"type":"summary"}\n')
    assert home.find_transcript("c1") is None

    result = '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1"}]}}\n'
    path.write_text(result + '{"type":"user","mess', encoding="utf-8")
    found = home.find_transcript("c1")

    assert found is not None
    assert (found.path, found.results) == (path, frozenset({"t1"}))


def test_a_transcript_says_whether_the_model_was_told_a_prompt(tmp_path: Path) -> None:
    """A fork that was killed at once may have only what its parent was told."""
    told = '{"type":"user","message":{"content":"of the parent"}}\n'
    block = '{"type":"user","message":{"content":[{"type":"text","text":"of the fork "}]}}\n'
    home = SessionHome(tmp_path, "run", {})
    path = write_transcript(tmp_path / "home", "c1", told)

    before = home.find_transcript("c1")
    path.write_text(told + block, encoding="utf-8")
    after = home.find_transcript("c1")

    assert before is not None
    assert after is not None
    assert (before.has("of the parent"), before.has("of the fork")) == (True, False)
    assert (after.has("of the parent"), after.has("of the fork")) == (True, True)


def test_two_files_of_one_id_are_not_a_transcript(tmp_path: Path) -> None:
    write_transcript(tmp_path / "home", "c1", '{"type":"user"}\n')
    other = tmp_path / "home" / "projects" / "other"
    other.mkdir()
    (other / "c1.jsonl").write_text('{"type":"user"}\n', encoding="utf-8")

    assert SessionHome(tmp_path, "run", {}).find_transcript("c1") is None


def test_transcripts_of_a_person_are_copied_into_the_run_and_back(tmp_path: Path) -> None:
    person, run = tmp_path / "person", tmp_path / "run"
    path = write_transcript(person / ".claude", "c1", '{"type":"user"}\n')
    home = SessionHome(run / "agents" / "claude" / "c1", "user", {"HOME": str(person)})

    assert home.prepare() == {}
    home.save("c1")
    path.unlink()
    assert home.find_transcript("c1") is None
    home.restore("c1")

    assert home.find_transcript("c1") is not None
    assert find_parent(run / "agents", "c1") is not None


def test_a_home_in_the_run_is_private(tmp_path: Path) -> None:
    home = SessionHome(tmp_path / "c1", "run", {})

    env = home.prepare()

    assert env == {"CLAUDE_CONFIG_DIR": str(tmp_path / "c1" / "home")}
    assert (tmp_path / "c1" / "home").stat().st_mode & 0o777 == 0o700


def test_the_transcript_of_a_parent_is_found_in_any_agent_of_the_run(tmp_path: Path) -> None:
    path = write_transcript(tmp_path / "claude" / "c1" / "home", "c1", '{"type":"user"}\n')

    assert find_parent(tmp_path, "c1") == path
    assert find_parent(tmp_path, "c2") is None
