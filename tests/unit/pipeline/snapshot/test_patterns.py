"""Patterns of paths mean what they mean in a ``.gitignore`` file: git itself is asked."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

from bartack.pipeline.snapshot._patterns import Patterns, fits

PATTERNS = (
    *(
        "*.pyc",
        "build/",
        "/dist",
        "docs/**",
        "a/**/b",
        "**/c",
        "foo/*",
        "x?z",
        "[ab].txt",
        "a/b/",
        "*.d/",
        "\\#h",
    ),
    *("sp ace", "**/q/r", "e**f", "[!a]1", "/**/z9", "# nothing", "", "trailing  ", "a/*/c", "[a-c]/x", "*"),
)
PATHS = (
    *("a.pyc", "d/a.pyc", "build/x", "build", "dist", "d/dist", "dist/x", "docs/a/b", "docs", "a/b", "a/x/b"),
    *(
        "a/x/y/b",
        "c",
        "p/c",
        "p/c/d",
        "foo/x",
        "foo/x/y",
        "z/foo/x",
        "xyz",
        "x/z",
        "a.txt",
        "c.txt",
        "a/b/c",
        "k.d/z",
    ),
    *(
        "k.d",
        "#h",
        "sp ace",
        "q/r",
        "m/q/r",
        "exxf",
        "e/f",
        "b1",
        "a1",
        "p/z9",
        "z9",
        "docs2/x",
        "trailing",
        "b/x",
    ),
)


def test_the_same_paths_fit_as_in_git(tmp_path: Path) -> None:
    random = Random(7)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for _ in range(60):
        lines = random.sample(PATTERNS, random.randint(1, 3))
        (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n")
        told = subprocess.run(
            ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z"],
            cwd=tmp_path,
            input="\0".join(PATHS).encode(),
            capture_output=True,
            check=False,
        ).stdout.split(b"\0")

        ours = Patterns(lines)

        wrong = [path for path in PATHS if ours.match(path.encode()) != (path.encode() in told)]
        assert wrong == [], lines


def test_the_last_pattern_that_fits_decides() -> None:
    patterns = Patterns(["*.log", "!keep.log", "keep.log/x"])

    assert patterns.match(b"a.log")
    assert not patterns.match(b"keep.log")


def test_no_patterns_fit_nothing() -> None:
    assert not Patterns([])
    assert not fits("anything", [])
    assert not fits("anything", ["", "# a comment", "/"])


def test_a_bracket_that_is_never_closed_is_a_bracket() -> None:
    assert fits("[ab", ["[ab"])
    assert fits("z", ["[z-a]"]) is False
