"""Hubs that are forked from a warm process: the same as those of a new interpreter, whatever happens to that process."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from tests.crash.node_stage import _is_there
from tests.waiting import until

from bartack.config.load import load_config
from bartack.depot import Job
from bartack.node import Ending, RealHubs, WarmHubs, _fork_server
from bartack.node._fork_server import serve_forks
from bartack.node._fork_wire import PID, encode_order
from bartack.node._hubs import RealHub
from bartack.node._warm import MODULE
from bartack.runtime.client.start_hub import SERVER, HubOrder, Spawn, spawn_interpreter, start_hub
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.rundir.layout import RunDir
from bartack.supervision.process.system import read_command, read_environment, read_facts
from bartack.supervision.process.tree import descendants

PROGRAM = """
import os
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    await ctx.shell("sh", "-c", "echo $COLOUR $(pwd) > seen-$COLOUR.txt")
    await ctx.sleep(3600)
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hubs are forked on Linux only")


class Stage:
    """A run that waits, and its hubs, one after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        (self.work / "waiting.py").write_text(PROGRAM, encoding="utf-8")
        self.run: RunDir = create_run(RunRequest(program="waiting.py"), self.work, load_config(self.work))
        self.environ: dict[str, str] = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
        self.hub = 0

    def start(self, spawn: Spawn, **environ: str) -> int:
        """Start a hub; the one before is ended."""
        self.end()
        self.hub = start_hub(self.run, environ={**self.environ, **environ}, spawn=spawn)
        return self.hub

    def end(self) -> None:
        if self.hub:
            os.kill(self.hub, signal.SIGTERM)
            until(lambda: not _is_there(self.hub), "the hub has ended")
            self.hub = 0


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    made = Stage(tmp_path)
    yield made
    made.end()


def is_forked(pid: int) -> bool:
    """Whether a process was forked by a server. The words of a server do not have the room that they were given."""
    facts = read_facts(pid)
    return facts is not None and MODULE in read_command(facts.ppid)


def server_of(pid: int) -> int:
    facts = read_facts(pid)
    assert facts is not None
    assert is_forked(pid)
    return facts.ppid


def facts_of(pid: int) -> dict[str, object]:
    """What distinguishes a process from another one, as the system shows it."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    kept = ("Name", "Umask", "Uid", "Gid", "Groups", "Threads", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs")
    stat = (proc / "stat").read_text().rpartition(")")[2].split()
    return {
        **{name: status[name].strip() for name in kept},
        "command": read_command(pid),
        "cwd": os.readlink(proc / "cwd"),
        "exe": os.readlink(proc / "exe"),
        "session": int(stat[3]) == pid and int(stat[2]) == pid,
        "terminal": stat[4],
        "nice": stat[16],
        "oom": (proc / "oom_score_adj").read_text(),
        "cgroup": (proc / "cgroup").read_text(),
        "limits": (proc / "limits").read_text(),
        "files": sorted(_name_of(proc / "fd" / name) for name in os.listdir(proc / "fd")),
    }


def _name_of(link: Path) -> str:
    """A descriptor's number and file; that of a socket or a pipe without its own number, which is never the same twice."""
    try:
        return os.readlink(link).partition(":[")[0]
    except OSError:
        return "closed"


def until_same(pid: int, wanted: Mapping[str, object]) -> None:
    """Wait until a hub has come as far as the one before, and differs from it in nothing."""
    try:
        until(lambda: facts_of(pid) == wanted, "it is the same")
    except AssertionError:
        assert facts_of(pid) == wanted
        raise


@pytest.mark.requirement("detached-runs-start-fast")
def test_a_forked_hub_is_what_a_new_interpreter_would_be(stage: Stage) -> None:
    fresh = stage.start(spawn_interpreter, COLOUR="red")
    until(lambda: '"sleep"' in _journal(stage.run), "the program waits", stage.run.path)
    wanted = facts_of(fresh)
    with WarmHubs(stage.environ) as warm:
        for colour in ("blue", "green"):
            hub = stage.start(warm, COLOUR=colour)
            assert is_forked(hub)
            until_same(hub, wanted)
            assert {read_environment(one.pid).get("COLOUR") for one in descendants(hub)} == {colour}

    assert wanted["command"] == [
        sys.executable, "-P", "-s", "-m", SERVER, str(stage.run.path), str(stage.work),
    ]  # fmt: skip
    assert (stage.work / "seen-red.txt").read_text() == f"red {stage.work}\n"


def _journal(run: RunDir) -> str:
    return (run.path / "journal.ndjson").read_text(encoding="utf-8", errors="replace")


@pytest.mark.requirement("detached-runs-start-fast")
def test_a_hub_outlives_a_killed_server_and_the_next_one_has_a_new_server(stage: Stage) -> None:
    with WarmHubs(stage.environ) as warm:
        hub = stage.start(warm)
        first = server_of(hub)
        os.kill(first, signal.SIGKILL)
        until(lambda: not _is_there(first), "the server is gone")
        assert stage.run.is_active()

        second = server_of(stage.start(warm))
    assert second != first

    until(lambda: not _is_there(second), "the server has ended with its node")
    assert stage.run.is_active()


def test_a_server_that_does_not_answer_is_replaced_by_an_interpreter(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WarmHubs(stage.environ) as warm:
        server = server_of(stage.start(warm))
        monkeypatch.setattr("bartack.node._warm.ANSWER_S", 0.05)
        monkeypatch.setattr("bartack.node._warm.END_S", 0.05)
        os.kill(server, signal.SIGSTOP)

        hub = stage.start(warm)

        assert not is_forked(hub)
        until(lambda: not _is_there(server), "the server was killed")


def test_a_server_whose_files_were_changed_forks_no_more(stage: Stage) -> None:
    site = stage.root / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("version = 1\n", encoding="utf-8")
    stage.environ["PYTHONPATH"] = str(site)
    with WarmHubs(stage.environ) as warm:
        first = server_of(stage.start(warm))
        (site / "sitecustomize.py").write_text("version = 2, 'newer'\n", encoding="utf-8")

        assert not is_forked(stage.start(warm))
        assert server_of(stage.start(warm)) != first


def test_a_hub_with_variables_that_an_interpreter_reads_at_its_start_has_one_of_its_own(stage: Stage) -> None:
    with WarmHubs(stage.environ) as warm:
        assert not is_forked(stage.start(warm, PYTHONMALLOC="debug"))


def test_a_hub_whose_node_has_not_noted_it_does_not_begin(stage: Stage) -> None:
    """The node, or the server, is killed when the hub is forked: a hub that no node knows of would keep the next one out."""
    ours, theirs = socket.socketpair()
    server = subprocess.Popen(
        [sys.executable, "-m", MODULE, str(theirs.fileno()), " "],
        pass_fds=(theirs.fileno(),),
        env=stage.environ,
    )
    theirs.close()
    order = HubOrder(
        module=SERVER, words=(str(stage.run.path), str(stage.work)), workspace="/", environ=stage.environ
    )
    report, writer = os.pipe()
    go, start = os.pipe()
    with open(os.memfd_create("order"), "wb") as file, open(os.devnull, "wb") as log:
        file.write(encode_order(order))
        file.flush()
        socket.send_fds(ours, [SERVER.encode()], [file.fileno(), log.fileno(), writer, go])
    (pid,) = PID.unpack(ours.recv(PID.size))
    for fd in (writer, go, start):
        os.close(fd)

    assert select.select([report], [], [], 30)[0]
    assert os.read(report, 100) == b""
    until(lambda: not _is_there(pid), "it has ended")
    os.close(report)
    ours.close()
    assert server.wait(30) == 0
    assert "hub.started" not in _journal(stage.run)


def test_a_hub_that_comes_late_is_not_given_up_and_the_next_start_meets_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hubs = RealHubs(stage.environ)
    job = Job(run=stage.run.id, path=str(stage.run.path), workspace=str(stage.work))
    with monkeypatch.context() as hurried:
        hurried.setattr("bartack.runtime.client.start_hub.START_TIMEOUT_S", 0.0)
        late = hubs.start(job)
    until(stage.run.is_active, "it has come")
    stage.hub = stage.run.owner_pid()

    met = hubs.start(job)

    assert isinstance(late, Ending)
    assert msgspec.structs.replace(late, last_us=0) == Ending(status="interrupted")
    assert isinstance(met, RealHub)
    assert met.pid == stage.hub
    met.close()


def test_a_server_without_a_hub_ends_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fork_server, "IDLE_S", 0.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert serve_forks(theirs) is None
