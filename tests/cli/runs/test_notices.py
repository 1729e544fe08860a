"""``bartack notices`` through the real entry point."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.notices.receiver import answer, open_receiver

from bartack.config.notices import NoticesConfig
from bartack.core.user_home import user_home
from bartack.notices import Fact, Subject, open_outbox, put_facts

Call = Callable[..., subprocess.CompletedProcess[str]]
AT = 1_767_225_600_000_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOOK", "secret-of-a-test")
    user_home().mkdir(parents=True, mode=0o700)
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")


def own(text: str) -> None:
    (user_home() / "bartack.toml").write_text(f"[notices]\n{text}\n")


@pytest.mark.requirement("notices-can-be-tested")
def test_a_sample_is_sent_by_each_way_and_what_happened_is_reported(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    with open_receiver(answer(500)) as receiver:
        own(
            f"command = {json.dumps([sys.executable, '-c', code])}\nwebhook = '{receiver.url}'\nsecret_env = 'HOOK'"
        )
        found = call("notices", "test")

    assert found.returncode == 1
    program = Path(sys.executable).name
    assert found.stdout == f"command {program}: sent\nwebhook 127.0.0.1: the receiver answered 500\n"
    assert json.loads(out.read_text())["text"] == "A sample: nothing waits for you."
    assert json.loads(receiver.requests[0][1])["project"] == "shop"


def test_the_outcome_is_json_for_programs_and_without_secrets(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RING_TOKEN", "tok-en-tok-en")
    own(
        f"command = {json.dumps([sys.executable, '-c', 'import sys; sys.exit(chr(10).join(sys.argv))', 'tok-en-tok-en'])}"
    )

    found = call("notices", "test", "--json")

    assert found.returncode == 1
    assert json.loads(found.stdout)["sent"] is False
    assert "tok-en" not in found.stdout
    assert "$env:RING_TOKEN" in json.loads(found.stdout)["problem"]


def test_without_a_way_the_settings_are_named(call: Call) -> None:
    found = call("notices", "test")

    assert found.returncode == 2
    assert str(user_home() / "bartack.toml") in found.stderr


def test_a_mistake_in_the_settings_is_an_error_with_a_code(call: Call) -> None:
    own("quiet = 'always'")

    found = call("notices", "test")

    assert found.returncode == 2
    assert "BT101" in found.stderr


@pytest.mark.requirement("notices-are-listed")
def test_notices_are_listed_with_the_state_of_their_delivery(call: Call) -> None:
    assert call("notices", "list").stdout == "no notices\n"
    fact = Fact(kind="question", place="q1", at=AT, question="q1", text="Ship\x1b[2J it?")
    subject = Subject(run="run-1", run_dir="", project="shop")
    put_facts(open_outbox(), NoticesConfig(desktop=True), subject, [(fact, 1)], str)

    shown = call("notices", "list")
    listed = json.loads(call("notices", "list", "--json", "--limit", "1").stdout)

    assert shown.stdout == (
        "2026-01-01T00:00:00Z  waiting  desktop  run-1:q1:question  shop: q1 waits for your answer\n"
    )
    assert listed == {
        "id": "run-1:q1:question",
        "kind": "question",
        "run": "run-1",
        "title": "shop: q1 waits for your answer",
        "text": "Ship\\x1b[2J it?",
        "way": "desktop",
        "state": "waiting",
        "attempts": 0,
        "at": "2026-01-01T00:00:00Z",
        "problem": "",
    }
