"""Notices of real runs: sent after the commit, once, whichever processes are killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.crash.runs import RealRun, command_of, kill, wait_deaths, wait_until

from bartack.notices import list_notices, open_outbox
from bartack.runtime.rundir.notices import look_after_lost
from bartack.supervision.process.facts import ProcessId
from bartack.supervision.process.system import iter_processes

PROGRAM = """\
from bartack import worker

@worker
async def asks(ctx):
    return await ctx.ask("Ship it?")

@worker
async def ends(ctx):
    return 1

@worker
async def fails(ctx):
    raise ValueError("the key is " + SECRET_PART + "\\x1b[2J\\n" + "x" * 1_000_000)

@worker
async def thinks(ctx):
    return await ctx.think("Hello")

SECRET_PART = "hunter2-hunter2"
"""
APPEND = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
NOTIFIER = "bartack.runtime.hub.notifier"

Begin = Callable[..., RealRun]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Makes a run of a user who has a command for notices, which writes them to ``effects.txt``."""
    home = tmp_path / "state"
    (home / "bartack").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    monkeypatch.setenv("SHOP_TOKEN", "hunter2-hunter2")
    workspace = tmp_path / "shop"
    workspace.mkdir()
    (home / "bartack" / "autostart-off").touch()

    def make(worker: str, after_s: float = 0.0) -> RealRun:
        command = json.dumps([sys.executable, "-c", APPEND, str(workspace / "effects.txt")])
        own = f"[notices]\ncommand = {command}\nafter_s = {after_s}\n"
        (home / "bartack" / "bartack.toml").write_text(own)
        (workspace / "team.py").write_text(PROGRAM)
        return RealRun.create_from(workspace, "team.py", worker)

    return make


def ids(run: RealRun, count: int) -> list[str]:
    """The ids of the notices that were sent, once there are so many, without the id of the run."""
    lines = run.wait_effects(count)
    return [json.loads(line)["id"].partition(":")[2] for line in lines]


def notifiers(run: RealRun) -> list[ProcessId]:
    """The notifiers of this test: they have its own state home."""
    mine = f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}".encode()
    return [
        facts.id
        for facts in iter_processes()
        if NOTIFIER in command_of(facts.pid) and mine in _environ_of(facts.pid)
    ]


def _environ_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def wait_notifiers_gone(run: RealRun) -> None:
    wait_deaths(notifiers(run), time.monotonic() + 60)
    assert notifiers(run) == []


@pytest.mark.requirement("a-person-hears-of-a-run")
def test_a_question_and_the_end_are_sent_while_nobody_looks(begin: Begin) -> None:
    with begin("asks") as run:
        run.start()
        assert ids(run, 1) == ["q1:question"]

        run.api.answer("q1", "yes")
        assert run.wait_hub() == 0

        sent = ids(run, 2)
        wait_notifiers_gone(run)
    assert sent[0] == "q1:question"
    assert sent[1].endswith(":ended")
    assert json.loads(run.effects()[0])["text"] == "Ship it?"
    assert [one.state for one in list_notices(open_outbox(), 10)] == ["sent", "sent"]


@pytest.mark.requirement("answered-questions-send-nothing")
def test_a_question_that_is_answered_in_time_is_not_sent(begin: Begin) -> None:
    with begin("asks", after_s=300.0) as run:
        run.start()
        run.wait_open("ask")
        run.api.answer("q1", "yes")
        run.wait_hub()

        assert [place.rpartition(":")[2] for place in ids(run, 1)] == ["ended"]
        kill(*(process.pid for process in notifiers(run)))


@pytest.mark.requirement("notices-quote-one-safe-line")
@pytest.mark.requirement("notices-have-no-secrets")
def test_a_failure_is_sent_without_secrets_in_one_short_line(begin: Begin) -> None:
    with begin("fails") as run:
        run.finish()

        [line] = run.wait_effects(1)
        wait_notifiers_gone(run)
    notice = json.loads(line)
    assert notice["kind"] == "failed"
    assert "hunter2" not in line
    assert "$env:SHOP_TOKEN" in notice["text"]
    assert notice["text"].isprintable()
    assert len(notice["text"]) <= 200


@pytest.mark.requirement("notices-survive-kills")
def test_a_hub_that_is_killed_after_the_commit_of_a_question_loses_no_notice(begin: Begin) -> None:
    with begin("asks") as run:
        run.start_doomed("before:Transition", 2)
        assert run.wait_hub() == -signal.SIGKILL
        assert run.count("step.started") == 1

        assert sorted(ids(run, 2)) == ["hub1:failed", "q1:question"]
        wait_notifiers_gone(run)

        run.start()
        run.api.answer("q1", "yes")
        assert run.wait_hub() == 0
        sent = ids(run, 3)
        wait_notifiers_gone(run)
    assert sent[2].endswith(":ended")
    assert len(run.effects()) == 3


@pytest.mark.requirement("notices-survive-kills")
def test_a_hub_that_is_killed_after_the_last_commit_loses_no_notice(begin: Begin) -> None:
    with begin("ends") as run:
        run.start_doomed("before:EndHub")
        assert run.wait_hub() == -signal.SIGKILL

        [place] = ids(run, 1)
        wait_notifiers_gone(run)
    assert place == f"{run.last_seq()}:ended"
    assert len(run.effects()) == 1


@pytest.mark.requirement("notices-survive-kills")
def test_the_next_process_sends_what_a_killed_hub_and_notifier_leave(begin: Begin) -> None:
    with begin("asks", after_s=300.0) as run:
        run.start()
        run.wait_open("ask")
        wait_until(lambda: bool(list_notices(open_outbox(), 10)))
        [process] = notifiers(run)
        os.kill(process.pid, signal.SIGSTOP)
        run.api.answer("q1", "yes")
        run.wait_hub()
        kill(process.pid)

        outbox = open_outbox()
        look_after_lost(outbox)
        look_after_lost(outbox)

        found = [one.id.partition(":")[2] for one in list_notices(outbox, 10)]
    assert found == ["q1:question", f"{run.last_seq()}:ended"]


@pytest.mark.requirement("notices-survive-kills")
def test_a_notifier_that_is_killed_is_started_again_and_sends_nothing_twice(begin: Begin) -> None:
    with begin("asks", after_s=0.0) as run:
        run.start()
        ids(run, 1)
        [first] = notifiers(run)
        kill(first.pid)
        wait_until(lambda: bool(notifiers(run)))

        run.api.answer("q1", "yes")
        run.wait_hub()
        sent = ids(run, 2)
        wait_notifiers_gone(run)
    assert sent[1].endswith(":ended")
    assert len(run.effects()) == 2


def agent(run_settings: str, script: str, workspace: Path) -> None:
    (workspace / "script.toml").write_text(script)
    (workspace / "bartack.toml").write_text(f'[agents.stub]\nscript = "script.toml"\n{run_settings}')


def test_a_budget_that_is_used_up_and_the_failure_by_it_are_sent(begin: Begin, tmp_path: Path) -> None:
    agent("[budget]\nusd = 0.0\n", '[[prompts]]\ntext = "x"\n', tmp_path / "shop")
    with begin("thinks") as run:
        run.finish()

        sent = [place.rpartition(":")[2] for place in ids(run, 2)]
        wait_notifiers_gone(run)
    assert sent == ["budget", "failed"]
    assert "the budget of 0 USD is used up" in json.loads(run.effects()[0])["text"]


def test_a_pause_by_a_rate_limit_is_sent_with_its_end(begin: Begin, tmp_path: Path) -> None:
    script = '[[prompts]]\nfail = { outcome = "rate_limited", until_s = 7200 }\n'
    agent("", script, tmp_path / "shop")
    with begin("thinks") as run:
        run.start()

        [line] = run.wait_effects(1)
        run.kill_hub()
        wait_notifiers_gone(run)
    notice = json.loads(line)
    began, ends = (datetime.fromisoformat(notice[name]) for name in ("at", "until"))
    assert notice["kind"] == "paused"
    assert timedelta(minutes=110) < ends - began <= timedelta(minutes=121)


def test_a_run_of_a_user_without_ways_has_no_notifier(begin: Begin) -> None:
    with begin("asks") as run:
        (Path(os.environ["XDG_STATE_HOME"]) / "bartack/bartack.toml").write_text("")
        run.start()
        run.wait_open("ask")

        assert notifiers(run) == []
