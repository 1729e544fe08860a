"""The reader against the real bash: the same words, and no text that bash accepts is misread."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from tests.unit.agents.guard.test_verdicts import rows

from bartack.agents.guard._reader import read
from bartack.agents.guard._syntax import SimpleCommand
from bartack.agents.guard._text import MARKS, NotParsedError

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="bash is not installed")
PIECES = [
    'a', 'b c', "'", '"', '\\', '\\\\', "\\'", '\\"', ' ', '\t', "$'\\n'", "$'\\x41'", "$'\\101'", "$'a\\'b'", "''",
    '""', '{a,b}', '{a,{b,c}}', 'x{1,2}y', '{', '}', 'a,b', '#', 'a#b', '=', '~x', '$', '$ ', '"$"', 'é', '!', '\\\n',
    "'a b'", '"a b"', '-', '%', '@', '+', ':', '^', ']', '$"x y"', '\\a', '"\\a"', '"\\$x"',
]  # fmt: skip
PRINT = r"""while IFS= read -r -d '' text; do
  if out=$(eval "printf '%s\\1' x $text" 2>/dev/null && printf '\2'); then printf '%s\0' "$out"; else printf 'error\0'; fi
done"""


def texts() -> Iterator[str]:
    choose = random.Random(7)
    for _ in range(600):
        yield "".join(choose.choice(PIECES) for _ in range(choose.randint(1, 7)))


def words_of(text: str) -> list[str] | None:
    try:
        script = read(f"x {text}")
    except NotParsedError:
        return None
    node = script[0].node
    return node.words if len(script) == 1 and isinstance(node, SimpleCommand) else None


def test_words_are_those_of_bash() -> None:
    given = list(texts())
    done = subprocess.run(
        [BASH, "--norc", "-c", PRINT],
        input="".join(f"{text}\0" for text in given),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    printed = done.stdout.split("\0")[:-1]
    assert len(printed) == len(given)

    compared = 0
    for text, out in zip(given, printed, strict=True):
        found = words_of(text)
        if found is None or any(MARKS.search(word) for word in found):
            continue
        assert out.endswith("\2"), f"bash does not accept {text!r}, which was read as {found}"
        assert out[:-2].split("\1") == found, text
        compared += 1
    assert compared > 200


@pytest.mark.parametrize(
    "command", [command for wanted, command in rows() if "ask" not in wanted and "\0" not in command]
)
def test_what_has_a_verdict_is_what_bash_accepts(command: str) -> None:
    done = subprocess.run(
        [BASH, "--norc", "-n"], input=command, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
