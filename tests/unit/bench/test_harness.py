from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench import _disk
from bench._disk import (
    BENCH_DIR,
    InMemoryError,
    data_directory,
    file_system,
    find_program,
    time_sync,
    type_of_mount,
)
from bench._harness import (
    OURS,
    Bench,
    Contestant,
    Options,
    Race,
    Shares,
    main,
    parse_options,
    rotate,
    run_race,
)
from bench._runner import Failure, Runner, Sample
from bench.recovery import resume

ROOT = Path(__file__).parents[3]

MEASURES = """
import os, pathlib
from bench._runner import Sample

LOG = pathlib.Path(__file__).with_name("log")

def note(name, size):
    with LOG.open("a") as log:
        log.write(f"{name}:{size} ")

def ours(directory, size):
    note("ours", size)
    assert os.listdir(directory) == []
    pathlib.Path(directory, "left").touch()
    return Sample(value=2.0, facts={"colour": "blue"})

def theirs(directory, size):
    note("theirs", size)
    print("noise on stdout", flush=True)
    return Sample(value=4.0)

def prepare(directory, size):
    note("prepare", size)
    pathlib.Path(directory, "ready").touch()

def prepared(directory, size):
    return Sample(value=len(os.listdir(directory)))

def fails(directory, size):
    raise RuntimeError("no luck")

def dies(directory, size):
    os._exit(7)

def hangs(directory, size):
    os.read(os.pipe()[0], 1)
"""


class Measures:
    """A module of measuring functions that other processes can import too."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "measures_for_bench.py").write_text(MEASURES)
        monkeypatch.syspath_prepend(folder)  # pyright: ignore[reportUnknownMemberType] - untyped in pytest
        monkeypatch.delitem(sys.modules, "measures_for_bench", raising=False)
        self._module = __import__("measures_for_bench")
        self._log = folder / "log"

    def contestant(self, key: str, function: str, *, needs: tuple[str, ...] = ()) -> Contestant:
        return Contestant(
            key=key, label=key, measure=getattr(self._module, function), size=50, needs=needs, quick_size=5
        )

    def runner(self, function: str, folder: Path, *, prepare: bool = False, patience_s: float = 5) -> Runner:
        return Runner(
            getattr(self._module, function),
            self._module.prepare if prepare else None,
            str(folder),
            patience_s=patience_s,
        )

    @property
    def log(self) -> list[str]:
        return self._log.read_text().split()


@pytest.fixture
def measures(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Measures:
    return Measures(tmp_path_factory.mktemp("measures"), monkeypatch)


def race_of(*contestants: Contestant) -> Race:
    return Race(key="race", title="a race", unit="s", better="lower", contestants=contestants)


def test_the_order_moves_on_by_one_from_round_to_round() -> None:
    assert [rotate("abc", number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_contestants_take_turns_and_the_first_round_does_not_count(
    measures: Measures, tmp_path: Path
) -> None:
    race = race_of(measures.contestant(OURS, "ours"), measures.contestant("floor", "theirs"))

    result = run_race(race, Options(rounds=2), str(tmp_path))

    assert measures.log == ["ours:50", "theirs:50", "theirs:50", "ours:50", "ours:50", "theirs:50"]
    assert result.values == {OURS: {1: 2.0, 2: 2.0}, "floor": {1: 4.0, 2: 4.0}}
    assert result.facts[OURS] == {"colour": "blue"}
    assert len(result.sync_s) == 2


def test_a_contestant_can_take_part_in_every_third_round_only(measures: Measures, tmp_path: Path) -> None:
    peer = dataclasses.replace(measures.contestant("peer", "theirs"), every=3)

    result = run_race(race_of(measures.contestant(OURS, "ours"), peer), Options(rounds=5), str(tmp_path))

    assert list(result.values[OURS]) == [1, 2, 3, 4, 5]
    assert list(result.values["peer"]) == [1, 4]


def test_a_quick_run_does_less_work(measures: Measures, tmp_path: Path) -> None:
    run_race(race_of(measures.contestant(OURS, "ours")), Options(rounds=1, quick=True), str(tmp_path))

    assert measures.log == ["ours:5", "ours:5"]


def test_a_peer_that_is_not_installed_is_named_and_the_others_run(measures: Measures, tmp_path: Path) -> None:
    peer = measures.contestant("peer", "theirs", needs=("surely-not-installed",))

    result = run_race(race_of(measures.contestant(OURS, "ours"), peer), Options(rounds=1), str(tmp_path))

    assert result.absent == {"peer": "not installed (surely-not-installed)"}
    assert result.values == {OURS: {1: 2.0}}


def test_a_peer_whose_server_is_missing_is_named_and_the_others_run(
    measures: Measures, tmp_path: Path
) -> None:
    peer = dataclasses.replace(measures.contestant("peer", "theirs"), programs=("sh", "surely-no-server"))

    result = run_race(race_of(measures.contestant(OURS, "ours"), peer), Options(rounds=1), str(tmp_path))

    assert result.absent == {"peer": "not on this machine (surely-no-server)"}
    assert result.values == {OURS: {1: 2.0}}


def test_the_newest_of_several_programs_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for version in ("9", "15", "14"):
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "surely-no-server").touch()
    monkeypatch.setattr(_disk, "KEPT_APART", f"{tmp_path}/*/bin")

    assert find_program("surely-no-server") == f"{tmp_path}/15/bin/surely-no-server"
    assert find_program("sh") == shutil.which("sh")


def test_a_contestant_that_fails_is_named_with_its_reason(measures: Measures, tmp_path: Path) -> None:
    race = race_of(measures.contestant(OURS, "ours"), measures.contestant("peer", "fails"))

    result = run_race(race, Options(rounds=1), str(tmp_path))

    assert result.absent == {"peer": "failed: RuntimeError: no luck"}
    assert result.values == {OURS: {1: 2.0}}


@pytest.mark.parametrize(
    ("function", "patience_s", "reason"),
    [("dies", 5.0, "its process ended with code 7"), ("hangs", 0.5, "no result within 0.5 s")],
)
def test_a_process_that_gives_no_result_is_a_failure(
    measures: Measures, tmp_path: Path, function: str, patience_s: float, reason: str
) -> None:
    runner = measures.runner(function, tmp_path, patience_s=patience_s)

    outcome = runner.run(1)
    runner.close()

    assert outcome == Failure(reason=reason)


def test_a_directory_is_prepared_once_for_all_rounds(measures: Measures, tmp_path: Path) -> None:
    runner = measures.runner("prepared", tmp_path, prepare=True)

    outcomes = [runner.run(3), runner.run(3)]
    runner.close()

    assert outcomes == [Sample(value=1), Sample(value=1)]
    assert measures.log == ["prepare:3"]


def test_what_a_contestant_prints_does_not_reach_stdout(
    measures: Measures, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runner = measures.runner("theirs", tmp_path)

    runner.run(1)
    runner.close()

    assert capfd.readouterr() == ("", "noise on stdout\n")


def test_a_race_without_us_or_with_two_of_one_name_is_refused(measures: Measures) -> None:
    with pytest.raises(ValueError, match="unique and include"):
        race_of(measures.contestant("floor", "theirs"))
    with pytest.raises(ValueError, match="unique and include"):
        race_of(measures.contestant(OURS, "ours"), measures.contestant(OURS, "theirs"))


def test_a_race_that_does_not_exist_cannot_be_asked_for(
    measures: Measures, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(name="b", title="", races=(race_of(measures.contestant(OURS, "ours")),), goals=())

    assert parse_options(bench, ["--only", "race", "--rounds", "4"]) == Options(rounds=4, only=("race",))
    for wrong in (["--only", "other"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            parse_options(bench, wrong)
    assert "other" in capsys.readouterr().err


def test_a_bench_in_which_we_fail_fails(
    measures: Measures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(BENCH_DIR, str(tmp_path))
    race = race_of(measures.contestant(OURS, "fails"))
    bench = Bench(name="b", title="", races=(race,), goals=())

    assert main(bench, ["--only", "race", "--rounds", "1"]) == 1

    assert "bench: race: bartack failed: RuntimeError: no luck" in capsys.readouterr().err


def test_recovery_can_be_measured(tmp_path: Path) -> None:
    assert resume(str(tmp_path), 1, steps=3).value > 0


def test_a_mount_is_the_nearest_above_a_path() -> None:
    mounts = ["/dev/a / ext4 rw 0 0", "tmpfs /tmp tmpfs rw 0 0", "/dev/b /tmp/my\\040disk xfs rw 0 0"]

    assert type_of_mount("/tmp/x", mounts) == "tmpfs"
    assert type_of_mount("/tmpfoo", mounts) == "ext4"
    assert type_of_mount("/tmp/my disk/x", mounts) == "xfs"
    assert type_of_mount("/tmp", mounts) == "tmpfs"
    assert type_of_mount("relative", []) == "unknown"


@pytest.mark.skipif(file_system("/dev/shm") != "tmpfs", reason="no file system in memory at hand")
def test_a_directory_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BENCH_DIR, "/dev/shm")

    with pytest.raises(InMemoryError, match="/dev/shm is on tmpfs"):
        data_directory("unused")


def test_a_sync_takes_time(tmp_path: Path) -> None:
    assert time_sync(str(tmp_path)) > 0
    assert os.listdir(tmp_path) == []


def test_json_is_one_object_on_stdout_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.journal", "--json", "--quick", "--rounds", "1", "--only", "cpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    result = json.loads(done.stdout)
    assert result["bench"] == "journal"
    assert result["ratios"]["cpu_to_floor"] > 0
    assert [goal["race"] for goal in result["goals"]] == ["cpu"]


def test_a_peer_whose_server_is_not_named_is_absent(
    measures: Measures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = dataclasses.replace(measures.contestant("peer", "theirs"), settings=("SURELY_AN_ADDRESS",))
    race = race_of(measures.contestant(OURS, "ours"), peer)

    without = run_race(race, Options(rounds=1), str(tmp_path / "without"))
    monkeypatch.setenv("SURELY_AN_ADDRESS", "127.0.0.1:7233")
    named = run_race(race, Options(rounds=1), str(tmp_path / "named"))

    assert without.absent == {"peer": "not on this machine (SURELY_AN_ADDRESS not set)"}
    assert named.values["peer"] == {1: 4.0}


def test_a_race_ends_with_the_round_in_which_its_time_is_used_up(measures: Measures, tmp_path: Path) -> None:
    asked = iter([False, True])

    result = run_race(
        race_of(measures.contestant(OURS, "ours")), Options(rounds=9), str(tmp_path), lambda: next(asked)
    )

    assert result.values == {OURS: {1: 2.0, 2: 2.0}}


def test_a_race_without_time_has_one_round(measures: Measures, tmp_path: Path) -> None:
    result = run_race(
        race_of(measures.contestant(OURS, "ours")), Options(rounds=9), str(tmp_path), lambda: True
    )

    assert result.values == {OURS: {1: 2.0}}


def test_what_one_part_leaves_of_a_time_the_next_ones_have() -> None:
    now = 100.0
    shares = Shares(30.0, 3, lambda: now)
    first, second = shares.next(), shares.next()

    assert not first()
    now = 110.0
    assert first()
    assert not second()
    now = 120.0
    assert second()
    assert not shares.next()()
