from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bartack.cli import main
from bartack.core.user_home import user_home
from bartack.resilience import CircuitBreaker, NewEvent, Outbox, StateStore
from bartack.testing import CountingService

CODE = "def area(w, h):\n    return w * h\n"


class Ran:
    """What a command line has printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.out)
        return found


Call = Callable[..., Ran]


@pytest.fixture
def service() -> Iterator[CountingService]:
    with CountingService() as service:
        yield service


@pytest.fixture
def call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    service: CountingService,
) -> Call:
    """Runs ``bartack`` in this process, in a home of its own, through the real entry point."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INTELLIGENCE_SERVICE_URL", service.url)
    for name in ("PATTERN_CACHE_DIR", "PATTERN_TRACKING_ENABLED", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    user_home().mkdir(parents=True)
    (user_home() / "autostart-off").touch()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def call_main(*args: str) -> Ran:
        capsys.readouterr()
        code = main(args)
        shown = capsys.readouterr()
        return Ran(code, shown.out, shown.err)

    return call_main


def outbox() -> Outbox:
    return Outbox(StateStore(user_home()))


def put(*ids: str, url: str = "http://service", dead: bool = False) -> None:
    state, reason = ("dead", "refused:422") if dead else ("pending", None)
    outbox().put(
        [
            NewEvent(one, "pattern", url, b'{"pattern_id":"secret words"}', state=state, reason=reason)
            for one in ids
        ]
    )


def test_tracking_by_hand_prints_the_id_and_sync_delivers(call: Call, service: CountingService) -> None:
    Path("area.py").write_text(CODE)

    written = call("track", "write", "area.py")
    Path("area.py").write_text(CODE.replace("*", "+"))
    edited = call("track", "edit", "area.py", "--json")
    applied = call("track", "apply", written.out.strip(), "other.py")
    merged = call("track", "merge", written.out.strip(), str(edited.json()["pattern_id"]), "area.py")
    synced = call("track", "sync", "--json")

    assert (written.code, written.out) == (0, "python-code-cebd15f4eeb61910c2b87042\n")
    assert (edited.json()["version"], applied.code, merged.code) == ("1.0.1", 0, 0)
    assert (synced.code, synced.json()["delivered"], synced.json()["waiting"]) == (0, 4, 0)
    assert len(service.received) == 4


def test_a_sync_without_the_service_says_what_still_waits(call: Call, service: CountingService) -> None:
    service.go_away()
    put("a", "b", url=service.url)

    ran = call("track", "sync")

    assert ran.code == 1
    assert "0 of 2 delivered" in ran.out
    assert f"{service.url} is not available" in ran.out


def test_a_sync_that_takes_too_long_ends_with_its_own_code(call: Call, service: CountingService) -> None:
    service.hang()
    put("a", url=service.url)

    assert call("track", "sync", "--timeout", "0.2").code == 8


def test_the_status_shows_counts_breakers_and_errors(call: Call, service: CountingService) -> None:
    put("a", url=service.url)
    CircuitBreaker(name="http://service:80", store=outbox().store).trip("auth", 60)

    shown, found = call("track", "status"), call("track", "status", "--json").json()

    assert (found["pending_events"], found["url"], found["daemon_running"]) == (1, service.url, False)
    assert "http://service:80: open (auth)" in shown.out


def test_the_list_never_shows_what_events_say_unless_asked(call: Call) -> None:
    put("a")
    put("b", dead=True)

    plain, dead = (
        call("track", "outbox", "list"),
        call("track", "outbox", "list", "--state", "dead", "--json"),
    )

    assert "secret words" not in plain.out + dead.out
    assert [json.loads(line)["event_id"] for line in dead.out.splitlines()] == ["b"]
    assert "refused:422" in plain.out
    assert "secret words" in call("track", "outbox", "list", "--payload").out


def test_dead_events_are_tried_again(call: Call) -> None:
    put("a", "b", dead=True)

    assert call("track", "outbox", "retry", "a").out == "1 events queued again\n"
    assert (
        call("track", "outbox", "retry", "--all-dead", "--reason", "expired").out == "0 events queued again\n"
    )
    assert call("track", "outbox", "retry", "--all-dead").out == "1 events queued again\n"
    assert outbox().count()["pending"] == 2


def test_an_unknown_event_is_not_found(call: Call) -> None:
    ran = call("track", "outbox", "retry", "nobody")

    assert (ran.code, "nobody" in ran.err) == (7, True)


def test_waiting_events_are_removed_only_with_yes(call: Call) -> None:
    put("a", "b")

    refused = call("track", "outbox", "purge", "--state", "pending")
    assert (refused.code, outbox().count()["pending"]) == (2, 2)
    assert call("track", "outbox", "purge", "a").code == 2

    assert (
        call("track", "outbox", "purge", "--state", "pending", "--older-than", "1h", "--yes").out
        == "0 events removed\n"
    )
    assert call("track", "outbox", "purge", "a", "--yes").out == "1 events removed\n"
    assert call("track", "outbox", "purge", "b", "--older-than", "soon").code == 2


def test_the_stats_count_by_state(call: Call) -> None:
    put("a")

    found = call("track", "outbox", "stats", "--json").json()

    assert found["states"] == {"pending": 1, "leased": 0, "delivered": 0, "dead": 0}


@pytest.mark.requirement("reset-readdresses")
def test_resetting_a_breaker_sends_what_waits_to_the_configured_service(
    call: Call, service: CountingService
) -> None:
    put("a", url="http://wrong:1")
    CircuitBreaker(name="http://wrong:1", store=outbox().store).trip("redirect", 600)
    assert "open (redirect)" in call("track", "breaker", "status").out

    ran = call("track", "breaker", "reset", "http://wrong:1")
    synced = call("track", "sync")

    assert f"1 events are sent to {service.url} now" in ran.out
    assert synced.code == 0
    assert list(service.received) == ["a"]
    assert call("track", "breaker", "status", "nobody").code == 7
    assert call("track", "breaker", "reset").code == 2


def test_older_files_are_imported(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "older"
    folder.mkdir()
    copy = {"event_id": "x", "event_data": {"pattern_id": "p"}, "timestamp": "2026-01-01T00:00:00+00:00"}
    (folder / "pending_x.json").write_text(json.dumps(copy))

    assert call("track", "import", str(folder)).out == "1 events imported\n"
    assert call("track", "import", str(folder)).out == "0 events imported\n"


def test_hooks_are_installed_shown_and_taken_out(call: Call) -> None:
    assert call("hook", "status").code == 9
    assert call("hook", "install").code == 0
    shown = call("hook", "status")
    assert (shown.code, "async: PostToolUse" in shown.out) == (0, True)
    assert "installed already" in call("hook", "install").out
    assert call("hook", "install", "--mode", "http", "--scope", "project").code != 0
    assert call("hook", "status", "--json").json()["state"] == "working"
    assert call("hook", "uninstall").code == 0
    assert not Path(".claude/settings.local.json").exists()


def test_a_dry_run_shows_the_settings(call: Call) -> None:
    assert "bartack-hook.py" in call("hook", "install", "--dry-run").out
    assert not Path(".claude").exists()


def test_recording_by_hand_runs_the_shim(call: Call, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bartack", "hook", "record", "Stop"],
        input=b'{"n":1}',
        capture_output=True,
        timeout=120,
        check=False,
        env=dict(os.environ),
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(list((user_home() / "spool" / "new").iterdir())) == 1


def test_the_daemon_comes_and_goes_by_command(call: Call) -> None:
    (user_home() / "bartack.toml").write_text("[daemon]\nhttp_port = 0\n")
    assert call("daemon", "status").code == 9

    assert call("daemon", "start").code == 0
    try:
        assert "running already" in call("daemon", "start").out
        status = call("daemon", "status", "--json").json()
        assert (status["running"], call("daemon", "status").code) == (True, 0)
        assert call("daemon", "restart").code == 0
        assert call("daemon", "status", "--json").json()["pid"] != status["pid"]
    finally:
        assert call("daemon", "stop").out == "stopped\n"
    assert call("daemon", "status", "--json").json() == {"running": False}
