"""The log of a run in a database, on a machine that has never seen it: what the machine prints that runs it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import new_database
from tests.waiting import until

from bartack.depot.postgres._database import Database

Call = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context, end: str = "") -> str:
    ctx.print("begins")
    ctx.log("two", "lines\\nof text")
    ctx.print("x" * 70_000)
    await ctx.shell("sh", "-c", "until [ -e go ]; do sleep 0.05; done")
    ctx.print("continues")
    if end:
        raise ValueError(end)
    return "done"
"""
TEXTS = ["main: begins", "main: [log] two lines", "of text", f"main: {'x' * 70_000}"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "main.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def database() -> Iterator[Database]:
    with Database(new_database()) as made:
        yield made


@pytest.fixture
def on(database: Database) -> tuple[str, str]:
    ((name,),) = database.shared.rows("SELECT current_database()")
    ((folder,),) = database.shared.rows("SHOW unix_socket_directories")
    return "--on", f"postgresql://bartack@/{name}?host={folder}"


def elsewhere(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """From here on commands are those of another machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "elsewhere"))


def without_times(text: str) -> list[str]:
    return [re.sub(r"^\d\d:\d\d:\d\d\.\d{3} ", "", line).strip() for line in text.splitlines()]


def entries_of(database: Database, kind: str) -> bool:
    rows = database.shared.rows("SELECT lines FROM bartack.journal")
    return any(f'"kind":"{kind}"'.encode() in bytes(lines) for (lines,) in rows)


@pytest.mark.requirement("database-log")
@pytest.mark.parametrize("end", ["", "it broke"])
def test_the_log_of_an_ended_run_is_the_same_on_both_machines(
    run: Call, call: Call, place: Path, on: tuple[str, str], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    (place / "go").touch()
    assert run("run", *on, "--here", "main.py", end).returncode == (1 if end else 0)
    there = call("log", "latest").stdout
    elsewhere(monkeypatch, place)

    for options in ([], ["-f"]):
        here = call("log", "latest", *options, *on)
        assert (here.returncode, here.stderr) == (0, "")
        shown = without_times(here.stdout)
        assert shown == [line for line in without_times(there) if "[note]" not in line]
        assert shown[0].startswith("bartack [run] run-")
        assert shown[1:6] == [*TEXTS, "main: continues"]
        assert ("[failed] ValueError: it broke" in shown[-1]) is bool(end)
    for options in ([], ["-f"]):
        lines = call("log", "latest", "--json", *options, *on).stdout.splitlines()
        assert [json.loads(line)["channel"] for line in lines] == ["print", "log", "print", "print"]


@pytest.mark.requirement("database-log")
def test_the_log_of_an_active_run_is_followed_until_its_end(
    start: Start,
    call: Call,
    place: Path,
    database: Database,
    on: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = start("run", *on, "--here", "main.py")
    until(lambda: entries_of(database, "step.started"), "the command to start")
    elsewhere(monkeypatch, place)
    assert without_times(call("log", "latest", *on).stdout)[1:] == TEXTS
    followers = [start("log", "latest", "-f", *on), start("log", "latest", "-f", "--json", *on)]
    outputs = [follower.stdout for follower in followers if follower.stdout is not None]
    assert "[run]" in outputs[0].readline()
    assert json.loads(outputs[1].readline())["text"] == "begins"

    (place / "go").touch()

    hub.communicate(timeout=60)
    assert hub.returncode == 0
    shown, as_json = (output.read() for output in outputs)
    assert without_times(shown) == [*TEXTS, "main: continues"]
    assert len(as_json.splitlines()) == 3


@pytest.mark.requirement("database-log")
def test_the_log_of_a_killed_run_has_every_text_that_is_acknowledged(
    start: Start,
    call: Call,
    place: Path,
    database: Database,
    on: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = start("run", *on, "--here", "main.py")
    until(lambda: entries_of(database, "step.started"), "the command to start")
    hub.kill()
    hub.wait(30)
    database.shared.rows("UPDATE bartack.node SET until = until - interval '1 minute'")
    elsewhere(monkeypatch, place)

    for options in ([], ["-f"]):
        shown = call("log", "latest", *options, *on)
        assert shown.returncode == 0, shown.stderr
        assert without_times(shown.stdout)[1:] == TEXTS
