from __future__ import annotations

import string
from pathlib import Path
from random import Random

import pytest

from bartack.core.redact import SecretRule
from bartack.runtime.hub.commands import _read_end
from bartack.runtime.kernel.output_tail import ASIDE, keep_end
from bartack.runtime.protocol.steps import ShellArgs

SECRET = "".join(Random(1).choices(string.ascii_lowercase, k=10_000))
ENVIRON = {"SHOP_TOKEN": SECRET, "SHELF": "of-oak-and-iron"}


def test_a_short_output_is_kept_whole() -> None:
    assert keep_end("ok é\n".encode(), 100, ENVIRON, SecretRule()) == "ok é\n".encode()


def test_of_a_long_output_the_end_is_kept_and_no_half_character() -> None:
    assert keep_end("é".encode() * 100, 5, ENVIRON, SecretRule()) == "éé".encode()


def test_secrets_are_hidden_known_or_not() -> None:
    told = SECRET.encode() + b" and OTHER_KEY=unheard-of and of-oak-and-iron"

    assert keep_end(told, 1000, ENVIRON, SecretRule(names=("SHELF",))) == (
        b"$env:SHOP_TOKEN and OTHER_KEY=*** and $env:SHELF"
    )


@pytest.mark.parametrize("cut", [20, 5_000, 9_980])
def test_no_part_of_a_secret_is_left_wherever_the_output_is_cut(cut: int) -> None:
    size = 1000
    secret = SECRET.encode()
    behind_the_end = secret + b"+" * max(size - cut, 0)
    # What is looked at begins within a secret, and all behind it takes so little room when it is hidden that nothing is cut off.
    behind_the_look = secret * ((size + ASIDE) // len(secret) + 1) + b" " * (len(secret) - cut)

    for output in (behind_the_end, behind_the_look):
        kept = keep_end(output, size, ENVIRON, SecretRule())
        assert len(kept) <= size
        assert not [place for place in range(0, 9_990, 5) if secret[place : place + 10] in kept]


def test_of_a_file_only_the_end_is_read_that_matters(tmp_path: Path) -> None:
    args = ShellArgs(pipeline=[["make"]], kept_bytes=10)
    file = tmp_path / "output"
    file.write_bytes(b"x" * 1_000_000 + b"the end")

    with file.open("rb") as stream:
        read = _read_end(stream.fileno(), args)

    assert len(read) == 10 + ASIDE
    assert keep_end(read, args.kept_bytes, {}, SecretRule()) == b"xxxthe end"
