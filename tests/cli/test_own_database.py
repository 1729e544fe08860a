"""The database of the user: ``BARTACK_ON``, and ``depot.on`` in the user's own settings, never in those of a project."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import cluster, new_database

from bartack.cli.app._database import DatabaseOptions
from bartack.cli.nodes._fleet import FleetOptions
from bartack.config.load import load_config, own_settings_file
from bartack.depot.postgres._database import Database
from bartack.errors import ConfigError
from bartack.node import fleet

PROGRAM = """\
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return "done"
"""
GET_DUMPABLE, SET_DUMPABLE = 3, 4
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARTACK_ON", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def own(text: str) -> None:
    own_settings_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own_settings_file().write_text(text, encoding="utf-8")


@pytest.mark.requirement("database-is-chosen-by-its-user")
def test_commands_that_need_a_database_take_the_users_own(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("db", "stats").returncode == 2
    own(f"[depot]\non = '{new_database()}'\n")

    assert call("db", "stats").returncode == 0
    assert call("nodes", "list").returncode == 0
    monkeypatch.setenv("BARTACK_ON", cluster().url("missing_database"))
    assert "missing_database" in call("db", "stats").stderr
    assert call("db", "stats", "--on", new_database()).returncode == 0


def test_no_run_goes_to_a_database_because_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARTACK_ON", "service:team")

    assert DatabaseOptions().where("bartack run") is None
    assert not FleetOptions().given
    assert DatabaseOptions(pool="default").database == "service:team"
    assert DatabaseOptions(pool="default").is_for_nodes
    assert FleetOptions(name="alpha").database == "service:team"


@pytest.mark.requirement("database-is-chosen-by-its-user")
def test_a_project_chooses_no_database(call: Call) -> None:
    Path("bartack.toml").write_text("[depot]\non = 'service:evil'\n", encoding="utf-8")

    assert call("db", "stats").returncode == 2
    with pytest.raises(ConfigError, match="must not choose a database"):
        load_config(Path.cwd(), (), {})
    Path("bartack.toml").write_text("[depot]\nblobs = 's3://evil'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="must not choose a database"):
        load_config(Path.cwd(), (), {})


@pytest.mark.requirement("database-is-chosen-by-its-user")
@pytest.mark.parametrize(
    "name",
    [
        "postgresql://ada:pa55word@db/x",
        "postgresql://:pa55word@db/x",
        "postgresql://db/x?password=pa55word",
        "postgresql://db/x?sslPassword=pa55word",
    ],
)
def test_a_password_in_settings_is_refused_and_not_repeated(call: Call, name: str) -> None:
    own(f"[depot]\non = '{name}'\n")

    refused = call("db", "stats")
    assert refused.returncode == 2
    assert "~/.pgpass" in refused.stderr
    assert "pa55word" not in refused.stderr + refused.stdout


@pytest.mark.usefixtures("nodes")
@pytest.mark.requirement("database-is-chosen-by-its-user")
@pytest.mark.parametrize("words", [("node", "run"), ("nodes", "list"), ("doctor", "--on")])
def test_a_password_in_a_url_is_refused_and_not_repeated(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    url = "postgresql://ada:pa55word@localhost/x"
    monkeypatch.setenv("BARTACK_ON", url)
    options = ("--name", "one") if words == ("node", "run") else ()

    refused = call(*words, *((url,) if words[-1] == "--on" else options))

    assert refused.returncode == 2
    assert "~/.pgpass" in refused.stderr
    assert "pa55word" not in refused.stderr + refused.stdout


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[fleet.FleetSettings]]:
    """The settings of the nodes that were started in this process, which take no runs."""
    made: list[fleet.FleetSettings] = []

    class Loop:
        def __init__(self, settings: fleet.FleetSettings) -> None:
            made.append(settings)

        def run(self) -> None:
            pass

    monkeypatch.setattr(fleet, "FleetLoop", Loop)
    yield made
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)


@pytest.mark.requirement("nodes-hide-their-memory")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hides processes of the same user")
def test_the_system_gives_nothing_of_a_node_to_processes_of_its_user(
    call: Call, nodes: list[fleet.FleetSettings]
) -> None:
    assert ctypes.CDLL(None).prctl(GET_DUMPABLE, 0, 0, 0, 0) == 1

    assert call("node", "run", "--on", new_database()).returncode == 0

    assert len(nodes) == 1
    assert ctypes.CDLL(None).prctl(GET_DUMPABLE, 0, 0, 0, 0) == 0


def test_a_node_of_a_database_reads_the_users_own_settings(
    call: Call, nodes: list[fleet.FleetSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    own(
        "[node]\npools = ['red']\nlabels = ['gpu']\ndrain_s = 20\npass_env = ['AWS_REGION']\n"
        "[depot]\nlease_s = 7\nhold_s = 90\nblobs = 's3://team/red'\n"
    )
    url = new_database()
    variables = "AWS_REGION", "AWS_SECRET_ACCESS_KEY"
    for name in variables:
        monkeypatch.setenv(name, "x")

    assert call("node", "run", "--on", url).returncode == 0
    options = ("--pool", "blue", "--label", "x", "--lease", "9", "--drain", "0", "--blobs", "file:///x")
    assert call("node", "run", "--on", url, *options).returncode == 0

    first, second = nodes
    assert (first.pools, first.labels[0], first.lease_s, first.hold_s) == (("red",), "gpu", 7.0, 90.0)
    assert (second.pools, second.labels[0], second.lease_s) == (("blue",), "x", 9.0)
    assert [settings.team.where.blobs for settings in nodes] == ["s3://team/red", "file:///x"]
    opening = [[name in settings.environ for name in variables] for settings in nodes]
    assert opening == [[True, False], [True, True]], "variables of AWS open nothing where no bucket is named"
    assert (first.drain_s, second.drain_s) == (20.0, 0.0)


@pytest.mark.requirement("node-command")
def test_options_of_a_node_run_it_and_a_number_of_slots_is_taken_as_it_is(
    call: Call, nodes: list[fleet.FleetSettings]
) -> None:
    url = new_database()

    assert call("node", "--on", url, "--slots", "500", "--name", "alpha").returncode == 0
    assert call("node", "run", "--on", url, "--max-runs", "300").returncode == 0

    assert [settings.slots for settings in nodes] == [500, 300]
    assert nodes[0].name == "alpha"
    assert "Commands:" in call("node").stdout
    assert "Commands:" in call("node", "--help").stdout


@pytest.mark.requirement("node-command")
def test_nodes_without_a_command_lists_them(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database()

    listed = call("nodes", "--on", url)
    monkeypatch.setenv("BARTACK_ON", url)

    assert "no node takes runs from this database" in listed.stdout
    assert call("nodes").stdout == listed.stdout
    assert call("nodes", "--json").stdout == "[]\n"
    assert "Commands:" in call("nodes", "--help").stdout


@pytest.mark.requirement("named-run-in-own-database")
def test_a_named_run_that_is_not_here_is_found_in_the_users_own_database(
    call: Call, run: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = new_database()
    Path("main.py").write_text(PROGRAM, encoding="utf-8")
    assert run("run", "--on", url, "--here", "main.py").returncode == 0
    ((name,),) = Database(url).shared.rows("SELECT id FROM bartack.run")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    named = str(name)

    assert call("show", named).returncode == 7
    monkeypatch.setenv("BARTACK_ON", url)

    for words in (("status", named), ("show", named), ("log", named), ("show", named.removeprefix("run-"))):
        found = call(*words)
        assert found.returncode == 0, found.stderr
    assert "completed" in call("status", named).stdout
    assert "no run 'run-20200101'" in call("show", "run-20200101").stderr
    assert call("show", "latest").returncode == 7, "only a run that is named"
    assert call("show", named, "-C", ".").returncode == 7
    monkeypatch.setenv("BARTACK_ON", cluster().url("missing_database"))
    missing = call("show", named)
    assert "your database was not searched" in missing.stderr
    assert "[BT301]" in missing.stderr
