from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bartack.cli import main
from bartack.tracking import LineageStore

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs ``bartack lineage`` in this process, through the real entry point."""

    def call_main(*args: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = main(["lineage", *args])
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(args, code, shown.out, shown.err)

    return call_main


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database with a chain of three patterns, a merge of the last with one that is not known, and a deprecated one."""
    path = tmp_path / "lineage.db"
    with LineageStore(path) as store:
        track(store, "a")
        track(store, "b", "a", event_type="pattern_modified")
        track(store, "c", "b", event_type="pattern_modified", pattern_version="1.1.0")
        track(store, "m", "c", "lost", event_type="pattern_merged", pattern_version="2.0.0")
        track(store, "old", "a", event_type="pattern_forked")
        store.track({"event_type": "pattern_deprecated", "pattern_id": "old"})
    return str(path)


def track(store: LineageStore, pattern: str, *parents: str, **members: object) -> None:
    store.track(
        {
            "event_type": "pattern_created",
            "pattern_id": pattern,
            "pattern_name": f"name {pattern}",
            "language": "python",
            "parent_pattern_ids": list(parents),
            "pattern_data": {"code": f"def {pattern}(): return 'x'"},
            **members,
        }
    )


def test_show_draws_a_tree_in_both_directions(call: Call, db: str) -> None:
    done = call("show", "b", "--db", db)

    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "name b 1.0.0  python, generation 1",
        "b",
        "",
        "came from",
        "└─ modified_from  name a 1.0.0  a",
        "",
        "became",
        "└─ modified_from  name c 1.1.0  c",
        "   └─ merged_from  name m 2.0.0  m",
    ]


def test_show_goes_up_or_down_and_as_far_as_it_is_told(call: Call, db: str) -> None:
    up = call("show", "m", "--db", db, "--up", "--depth", "1").stdout
    down = call("show", "m", "--db", db, "--down").stdout

    assert "└─ merged_from  lost 1.0.0 (not recorded yet)" in up
    assert "├─ merged_from  name c 1.1.0 …  c" in up
    assert "became" not in up
    assert down.endswith("became\n└─ none\n")


def test_show_tells_what_is_deprecated(call: Call, db: str) -> None:
    assert "generation 1, deprecated" in call("show", "old", "--db", db).stdout
    assert "name old 1.0.0 (deprecated)" in call("show", "a", "--db", db).stdout


def test_show_prints_the_graph_for_programs(call: Call, db: str) -> None:
    shown = json.loads(call("show", "c", "--db", db, "--json").stdout)

    assert shown["root"]["pattern_id"] == "c"
    assert {node["pattern_id"] for node in shown["nodes"]} == {"a", "b", "c", "m"}
    assert len(shown["edges"]) == 3
    assert shown["cut"] == []


def test_show_takes_a_version(call: Call, db: str) -> None:
    assert call("show", "c", "--version", "1.1.0", "--db", db).returncode == 0
    assert call("show", "c", "--version", "9.9.9", "--db", db).returncode == 7


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_unknown_id_is_not_found(call: Call, db: str, options: list[str]) -> None:
    done = call("show", "nobody", "--db", db, *options)

    assert (done.returncode, done.stdout) == (7, "")
    assert "BT722" in done.stderr


@pytest.mark.parametrize("command", [["show", "a"], ["search", "a"], ["stats"], ["validate"]])
def test_a_database_that_is_not_there_is_not_made(call: Call, tmp_path: Path, command: list[str]) -> None:
    done = call(*command, "--db", str(tmp_path / "none.db"))

    assert done.returncode == 7
    assert "BT728" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_database_of_the_state_home_is_the_default(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bartack.core.user_home.user_home", lambda: tmp_path, raising=False)
    with LineageStore(tmp_path / "lineage.db") as store:
        track(store, "a")

    assert "name a" in call("show", "a").stdout


def test_a_drawing_goes_into_a_file(call: Call, db: str, tmp_path: Path) -> None:
    svg, html = tmp_path / "x.svg", tmp_path / "x.html"

    done = [call("show", "b", "--db", db, "-o", str(path)) for path in (svg, html)]

    assert [(one.returncode, one.stdout) for one in done] == [(0, ""), (0, "")]
    assert ElementTree.fromstring(svg.read_bytes()).tag.endswith("svg")  # noqa: S314 - our own text
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_drawing_of_another_kind_is_refused(call: Call, db: str, tmp_path: Path) -> None:
    done = call("show", "b", "--db", db, "-o", str(tmp_path / "x.png"))

    assert done.returncode == 2
    assert ".svg" in done.stderr
    assert not (tmp_path / "x.png").exists()


def test_names_cannot_steer_the_terminal(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "lineage.db"
    with LineageStore(path) as store:
        track(store, "a\x1b[2J", pattern_name="b\x1b]0;x\x07", pattern_data={"code": "b \x1b[31m"})

    shown = call("show", "a\x1b[2J", "--db", str(path)).stdout
    found = call("search", "b", "--db", str(path)).stdout

    assert "\x1b" not in shown + found
    assert "\\x1b" in shown


def test_search_finds_words_and_shows_where(call: Call, db: str) -> None:
    done = call("search", "name b", "--db", db)
    code = call("search", "def old", "--db", db)

    assert done.stdout.splitlines()[0] == "name b 1.0.0  b"
    assert "[def] [old]()" in code.stdout


def test_search_says_how_many_more_there_are(call: Call, db: str) -> None:
    assert call("search", "name", "--limit", "2", "--db", db).stdout.endswith("... and 3 more\n")
    assert call("search", "nowhere", "--db", db).stdout == "nothing found\n"
    assert json.loads(call("search", "name", "--json", "--db", db).stdout)["total"] == 5
    assert call("search", "name", "--language", "rust", "--db", db).stdout == "nothing found\n"


def test_stats_count_what_is_there(call: Call, db: str) -> None:
    done = call("stats", "--db", db)
    counted = json.loads(call("stats", "--json", "--db", db).stdout)

    assert "versions            6 (1 not recorded yet, 1 deprecated)" in done.stdout
    assert (counted["nodes"], counted["events"]["pattern_modified"]) == (6, 2)


def test_validate_ends_with_one_when_something_is_wrong(call: Call, db: str, tmp_path: Path) -> None:
    with LineageStore(tmp_path / "sound.db") as store:
        track(store, "a")

    wrong = call("validate", "--db", db)
    sound = call("validate", "--db", str(tmp_path / "sound.db"))

    assert (wrong.returncode, wrong.stdout.count("orphans")) == (1, 1)
    assert (sound.returncode, sound.stdout) == (0, "no problems found\n")
    assert json.loads(call("validate", "--json", "--db", db).stdout)["lineage_valid"] is False


def test_serve_refuses_addresses_that_others_can_reach(call: Call, tmp_path: Path) -> None:
    files = ("--db", str(tmp_path / "x.db"), "--token-file", str(tmp_path / "token"))

    done = call("serve", "--host", "0.0.0.0", *files)  # noqa: S104 - it is refused

    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "BT707" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    files = ("--db", str(tmp_path / "x.db"), "--token-file", str(tmp_path / "token"))
    command = [sys.executable, "-m", "bartack", "lineage", "serve", "--port", "0", *files]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        announced = [server.stderr.readline() for _ in range(3)]
        connection = http.client.HTTPConnection("127.0.0.1", int(announced[0].rpartition(":")[2]), timeout=60)
        connection.request("GET", "/api/pattern-traceability/health")
        status = connection.getresponse().status
        connection.close()
        server.send_signal(number)
        code = server.wait(60)

    assert status == 200
    assert str(tmp_path / "token") in announced[2]
    assert code == 0
