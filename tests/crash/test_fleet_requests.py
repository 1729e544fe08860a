"""Requests to a run of a node that is killed at each moment between a request and its answer: each is carried out once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.crash.test_fleet import LIMIT_S, Fleet
from tests.history import check_history, rows_of
from tests.waiting import until

from bartack import Run, Session

PROGRAM = Path(__file__).with_name("programs") / "asked.py"


class Asked(Fleet):
    """See ``Fleet``; its run does what messages say."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self._workspace / PROGRAM.name).write_bytes(PROGRAM.read_bytes())

    def submit_asked(self) -> subprocess.Popen[bytes]:
        return self.start("run", "--on", self.url, PROGRAM.name, str(self.effects))

    def command(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of another machine: one that has never seen the run."""
        return subprocess.Popen(
            [sys.executable, "-m", "bartack", *words, "--on", self.url],
            cwd=self._folder,
            env={**self._env, "XDG_STATE_HOME": str(self._folder / "elsewhere")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def blocked(self, query: str) -> bool:
        """Whether a statement waits for a lock."""
        statement = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        return bool(self.database.shared.rows(statement, f"%{query}%"))

    def open_requests(self) -> int:
        ((found,),) = self.database.shared.rows("SELECT count(*) FROM bartack.request WHERE state = 'open'")
        return int(found)

    @contextmanager
    def locked(self, statement: str) -> Generator[None]:
        """Hold the locks of a statement."""
        with self.database.session() as session, session.use() as connection, connection.transaction():
            connection.execute(statement.encode())
            yield

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        node.kill()
        node.wait(LIMIT_S)
        until(lambda: not self.hub_pids(), "the hub to end with its node")
        # The server would carry out what a dead node has sent, and waits for a lock.
        self.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND datname = current_database()"
        )


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Asked]:
    made = Asked(tmp_path)
    yield made
    made.close()


def kill_before_the_hub_has_it(fleet: Asked, node: subprocess.Popen[bytes], ask: Callable[[], None]) -> None:
    os.kill(node.pid, signal.SIGSTOP)
    ask()
    fleet.kill(node)


def kill_before_the_commit(fleet: Asked, node: subprocess.Popen[bytes], ask: Callable[[], None]) -> None:
    (hub,) = fleet.hub_pids()
    os.kill(hub, signal.SIGSTOP)
    ask()
    with fleet.locked("SELECT 1 FROM bartack.owner FOR UPDATE"):
        os.kill(hub, signal.SIGCONT)
        until(lambda: fleet.blocked("bartack.append"), "the commit of the request")
        fleet.kill(node)


def kill_before_the_answer_is_stored(
    fleet: Asked, node: subprocess.Popen[bytes], ask: Callable[[], None]
) -> None:
    (hub,) = fleet.hub_pids()
    os.kill(hub, signal.SIGSTOP)
    ask()
    with fleet.locked("SELECT 1 FROM bartack.request WHERE state = 'open' FOR UPDATE"):
        os.kill(hub, signal.SIGCONT)
        until(lambda: fleet.blocked("bartack.settle"), "the answer of the hub")
        fleet.kill(node)


def send_one(fleet: Asked, text: str, senders: list[subprocess.Popen[str]]) -> None:
    """Send a message in another process, and wait until its request is stored."""
    senders.append(fleet.command("mailbox", "send", "latest", "inbox", f'"{text}"'))
    until(lambda: fleet.open_requests() == 1, "the request to be stored")


RESTS = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> object:
    await ctx.mailbox.news.subscribe("news.*")
    for number in range(2):
        await ctx.mailbox.out.send(f"ready {number}")
    return await ctx.ask("Continue?")
"""


@pytest.mark.requirement("requests-wake-resting-runs")
def test_a_run_that_rests_is_continued_by_those_who_receive_publish_or_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARTACK_NODE_REST_AFTER_S", "3")
    fleet = Asked(tmp_path)
    try:
        fleet.node("one")
        (tmp_path / "workspace" / "rests.py").write_text(RESTS, encoding="utf-8")
        for _ in range(3):
            assert fleet.start("run", "--on", fleet.url, "--detach", "rests.py").wait(LIMIT_S) == 0
        rest = "SELECT count(*) FROM bartack.owner JOIN bartack.run ON no = run WHERE state = 'resting' AND summary IS NOT NULL"
        until(lambda: fleet.rows(rest) == [(3,)], "the runs to rest")
        first, second, third = (
            str(run_id) for (run_id,) in fleet.rows("SELECT id FROM bartack.run ORDER BY no")
        )

        output, problem = fleet.command("mailbox", "receive", first, "out").communicate(timeout=LIMIT_S)
        assert "ready 0" in output, problem
        publisher = fleet.command("mailbox", "publish", second, "news.today", '"extra"')
        assert publisher.communicate(timeout=LIMIT_S)[1] == ""
        assert publisher.returncode == 0
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
        with Session.join(third, on=fleet.url) as session:
            assert session.mailbox.out.receive(LIMIT_S) == "ready 0"
            Run.open(third, on=fleet.url).answer("q1", "yes")
        assert Run.open(third, on=fleet.url).wait(LIMIT_S).status == "completed"
    finally:
        fleet.close()


@pytest.mark.requirement("fleet-requests-once")
def test_each_request_is_carried_out_once_whenever_its_node_is_killed(fleet: Asked) -> None:
    node = fleet.node("one")
    follower = fleet.submit_asked()
    gaps = [kill_before_the_hub_has_it, kill_before_the_commit, kill_before_the_answer_is_stored]
    for kill in gaps:
        until(lambda: bool(fleet.owner()) and bool(fleet.hub_pids()), "the run to be active")
        # Three deaths in a row without a finished step would hold it, and the first message may not have come to its step.
        fleet.rows("UPDATE bartack.owner SET strikes = 0")
        senders = list[subprocess.Popen[str]]()
        kill(fleet, node, partial(send_one, fleet, kill.__name__, senders))
        node = fleet.node("one")
        (sender,) = senders
        said, problem = sender.communicate(timeout=LIMIT_S)
        assert sender.returncode == 0, problem + fleet.output()
        assert said.startswith("m-")

    run = Run.open("latest", on=fleet.url)
    run.send("inbox", "ask")
    assert run.wait(LIMIT_S, until="waiting").status == "waiting", fleet.output()
    until(
        lambda: f"question q1: bartack answer {run.id} q1 VALUE" in fleet.output(), "the follower to show it"
    )
    status = fleet.command("status", run.id)
    assert "waiting on node one" in status.communicate(timeout=LIMIT_S)[0]
    run.answer("q1", "stop")
    assert follower.wait(LIMIT_S) == 0, fleet.output()
    assert run.result() == "stop"
    assert f"{run.id} continues on node one after " in fleet.output()
    # A step in flight is executed again, so effects may be there twice. Messages may not.
    assert set(fleet.done()) == {kill.__name__ for kill in gaps}
    assert len([*run.messages("inbox")]) == len(gaps) + 1
    assert fleet.rows("SELECT DISTINCT state FROM bartack.request") == [("done",)]
    ((number,),) = fleet.database.shared.rows("SELECT no FROM bartack.run")
    check_history(rows_of(fleet.database.shared, number))
