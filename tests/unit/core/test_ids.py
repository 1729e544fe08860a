"""Run ids and the directories they are claimed by."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.core.ids import RunId, claim_run_dir, new_run_id, new_token, parse_run_id
from bartack.errors import RunIdError
from bartack.testing import VirtualClock

FIRST = "run-20260101-000000-00000abc"


def _same() -> bytes:
    return b"\xab\xcd"


def test_a_run_id_shows_its_moment_in_utc_to_the_microsecond() -> None:
    clock = VirtualClock()

    assert new_run_id(clock, random=_same) == FIRST

    clock.advance(86_399.999999)
    assert new_run_id(clock, random=_same) == "run-20260101-235959-f423fabc"


def test_run_ids_sort_by_time_inside_a_second() -> None:
    clock = VirtualClock()
    made: list[RunId] = []
    for _ in range(200):
        made.append(new_run_id(clock))
        clock.advance(0.009999)

    assert made == sorted(made)


def test_a_run_id_of_now_has_the_form_of_one() -> None:
    made = new_run_id()

    assert parse_run_id(made) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run",
        FIRST.upper(),
        FIRST[:-1],
        FIRST + "0",
        FIRST + "\n",
        " " + FIRST,
        FIRST.replace("abc", "abg"),
        FIRST.replace("0101-", "1301-"),
        FIRST.replace("0101-", "0132-"),
        FIRST.replace("-000000-", "-240000-"),
        FIRST.replace("-000000-", "-006000-"),
        FIRST.replace("2026", "\u0662\u0660\u0662\u0666"),
        "../" + FIRST,
    ],
)
def test_refuses_what_is_not_a_run_id(text: str) -> None:
    with pytest.raises(RunIdError) as caught:
        parse_run_id(text)

    assert caught.value.text == text
    assert repr(text) in str(caught.value)


def test_claims_a_directory_that_only_its_owner_may_read(tmp_path: Path) -> None:
    run_id, path = claim_run_dir(tmp_path, VirtualClock(), random=_same)

    assert run_id == FIRST
    assert path == tmp_path / FIRST
    assert path.stat().st_mode & 0o777 == 0o700


def test_claims_another_directory_when_clock_and_chance_stand_still(tmp_path: Path) -> None:
    clock = VirtualClock()

    claimed = [claim_run_dir(str(tmp_path), clock, random=_same)[0] for _ in range(50)]

    assert len(set(claimed)) == 50
    assert sorted(claimed) == claimed
    assert sorted(path.name for path in tmp_path.iterdir()) == claimed


def test_draws_again_when_an_id_is_taken(tmp_path: Path) -> None:
    clock = VirtualClock()
    claim_run_dir(tmp_path, clock, random=_same)
    draws: Iterator[bytes] = iter([b"\xab\xcd", b"\x12\x30"])

    run_id, _ = claim_run_dir(tmp_path, clock, random=lambda: next(draws))

    assert run_id == "run-20260101-000000-00001123"


def test_needs_the_parent_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        claim_run_dir(tmp_path / "none")


CLAIMER = """
import sys
from bartack.core.ids import claim_run_dir
from bartack.testing import VirtualClock

clock = VirtualClock()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(25):
    print(claim_run_dir(sys.argv[1], clock, random=lambda: b"xx")[0])
"""


def test_many_processes_in_one_microsecond_never_share_a_directory(tmp_path: Path) -> None:
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for claimer in claimers:
        assert claimer.stdout is not None
        assert claimer.stdout.readline() == "ready\n"
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.write("go\n")
        claimer.stdin.flush()
    claimed = [line for claimer in claimers for line in claimer.communicate(timeout=120)[0].split()]

    assert [claimer.returncode for claimer in claimers] == [0] * 6
    assert len(claimed) == 150
    assert sorted(claimed) == sorted(path.name for path in tmp_path.iterdir())


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}

    assert len(tokens) == 100
    assert {len(bytes.fromhex(token)) for token in tokens} == {32}
