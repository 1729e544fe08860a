"""Fingerprints: the same for the same step, wherever the run is; another one for anything else."""

from __future__ import annotations

import re

import msgspec
import pytest

from bartack.runtime.protocol.step_key import step_key
from bartack.runtime.scheduler.fingerprint import Fingerprints

RUN = "/home-of-somebody/project/.bartack/runs/run-20260131-235959-0f3a91c7"
WORKSPACE = "/home-of-somebody/project"


def prints(
    run_dir: str = RUN, workspace: str = WORKSPACE, environ: dict[str, str] | None = None
) -> Fingerprints:
    return Fingerprints(run_dir, workspace, environ or {})


def encoded(*words: str) -> bytes:
    return msgspec.json.encode(list(words))


def test_a_fingerprint_is_64_hex_digits_and_always_the_same() -> None:
    one = prints().of("shell", "main", encoded("ls"))

    assert re.fullmatch("[0-9a-f]{64}", one)
    assert one == prints().of("shell", "main", encoded("ls"))


@pytest.mark.parametrize(
    "other",
    [
        ("think", "main", encoded("ls"), None),
        ("shell", "other", encoded("ls"), None),
        ("shell", "main", encoded("ls", "-l"), None),
        ("shell", "main", encoded("ls"), b'"input"'),
        ("shel", "lmain", encoded("ls"), None),
    ],
    ids=str,
)
def test_anything_else_is_another_fingerprint(other: tuple[str, str, bytes, bytes | None]) -> None:
    assert prints().of(*other) != prints().of("shell", "main", encoded("ls"))


def test_a_run_may_move_with_its_workspace() -> None:
    before = prints().of("shell", "main", encoded(f"{WORKSPACE}/a.txt", f"{RUN}/scratch/b", WORKSPACE))

    moved, run = "/elsewhere", "/elsewhere/.bartack/runs/run-20260131-235959-0f3a91c7"
    after = prints(run, moved).of("shell", "main", encoded(f"{moved}/a.txt", f"{run}/scratch/b", moved))

    assert before == after


def test_a_path_that_only_begins_like_the_workspace_is_left_alone() -> None:
    other = encoded(f"{WORKSPACE}-copy/a")

    assert prints().of("read", "main", other) == prints("/r", "/w").of("read", "main", other)


def test_a_path_with_unusual_characters_is_replaced() -> None:
    odd = '/home-of-somebody/my "own" prøject'

    before = prints("/r", odd).of("read", "main", encoded(f"{odd}/a"))
    after = prints("/r", "/plain").of("read", "main", encoded("/plain/a"))

    assert before == after


def test_a_workspace_at_the_root_replaces_nothing() -> None:
    assert prints("/r", "/").of("read", "m", encoded("/a/b")) != prints("/r", "/a").of(
        "read", "m", encoded("/a/b")
    )


def test_a_secret_may_change() -> None:
    before = prints(environ={"API_KEY": "first-secret"}).of("shell", "main", encoded("curl", "first-secret"))
    after = prints(environ={"API_KEY": "second-secret"}).of("shell", "main", encoded("curl", "second-secret"))

    assert before == after


def test_an_ordinary_variable_may_not() -> None:
    before = prints(environ={"MODE": "first-mode"}).of("shell", "main", encoded("first-mode"))
    after = prints(environ={"MODE": "second-mode"}).of("shell", "main", encoded("second-mode"))

    assert before != after


def test_a_key_is_the_same_for_every_attempt_and_another_after_a_rewind() -> None:
    key = step_key("run-1", "main", 4, 0)

    assert re.fullmatch("ik:[0-9a-f]{64}", key)
    assert key == step_key("run-1", "main", 4, 0)
    others = {
        step_key("run-2", "main", 4, 0),
        step_key("run-1", "main.1.1", 4, 0),
        step_key("run-1", "main", 5, 0),
    }
    assert key not in others | {step_key("run-1", "main", 4, 1)}
