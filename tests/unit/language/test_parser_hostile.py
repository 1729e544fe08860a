"""Texts made to be slow or deep: the work grows with the length of the text, and nothing overflows.

Work is counted in calls, of Python and of C, so that the result does not depend on the machine. A scan of the whole text
in one call would not be counted; the large texts at the end would take minutes then.
"""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from bartack.language import parse

FEW = 100
TIMES = 20

REPEATED = [
    *(
        "(",
        "{",
        '"',
        "$(",
        "${",
        "[",
        '"${',
        '"$(',
        "think {",
        "think { do {",
        "($ ",
        "!",
        "- ",
        "x = ",
        "throw ",
        "$ (",
    ),
    *(
        "a.",
        "f(",
        "[1,",
        "{a:",
        "if x {",
        "await ",
        "fail a ",
        "fun f() {\n",
        "else ",
        "try {",
        "`",
        "'",
        "$ a;",
        "$ a &",
    ),
    *(
        "} ",
        ") ",
        "] ",
        "do ",
        "@a ",
        "a ? ",
        "\\",
        "é",
        "é ",
        "var (",
        "var [",
        "type T = [",
        "array<",
        "import ./{",
    ),
    *(
        '"${+',
        "${x:-",
        "#\n",
        "a\n",
        "# a\nfun f(){}\n",
        "f(\n",
        "$ <<E\n",
        "$ '",
        "var x = '\n",
        '"\n',
        "think {\n",
    ),
    *(
        "\nfun f() { think {\n",
        "$ {a,b} ",
        "x <",
        "$(a;",
        '"\\u{',
        "\r",
        "1.",
        ".5 ",
        "1e ",
        "spawn(",
        "task a(){",
        "|a",
    ),
    *(
        '"${ # ',
        "$ a | ",
        "$ a > ",
        '$ "${',
        "1|1||1&&1==1+1*(",
        "$ `",
        "var = 1\n",
        "foo bar\n",
        "\n  do { } ",
    ),
    *(
        "think { do { } }\n",
        "else if a { } ",
        "try ",
        "catch ",
        "(\nfun f() { }\n",
        "[}",
        "{)",
        "x y {\n",
        '"a" ',
        "a, ",
    ),
]


class Calls:
    """Counts the calls made while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event in {"call", "c_call"}


def calls(text: str) -> int:
    with Calls() as counted:
        parse(text, "t.pw")
    return counted.count


@pytest.mark.parametrize("piece", REPEATED)
def test_work_grows_no_faster_than_the_text(piece: str) -> None:
    few = calls(piece * FEW)
    many = calls(piece * FEW * TIMES)

    assert many <= 25 * max(few, 600)


@pytest.mark.parametrize(
    "ends",
    [
        ("{", ")"),
        ("x y {", ")"),
        ("x y (", "]"),
        ("f(", "]"),
        ("[", "}"),
        ("think {", "}"),
        ("$ (", ")"),
        ("a {", "}"),
    ],
)
def test_work_on_brackets_that_do_not_match_grows_no_faster_than_the_text(ends: tuple[str, str]) -> None:
    opener, closer = ends
    few = calls(opener * FEW + closer * FEW)
    many = calls(opener * FEW * TIMES + closer * FEW * TIMES)

    assert many <= 25 * max(few, 600)


@pytest.mark.parametrize(
    "opener", ["(", "{", '"', "$(", "${", "[", '"${', "think {", "think { do {", "!", "if x {", "x = "]
)
def test_a_hundred_thousand_openers_are_parsed(opener: str) -> None:
    found = parse(opener * 100_000, "t.pw").diagnostics

    assert found
    assert found[0].severity == "error"


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("fun f() {\n" + "    var x = foo(1, y) + 2\n" * 20_000 + "}\n", 0),
        (f'x = "{"a$" * 500_000}"', 0),
        (f"$ {'ab ' * 300_000}", 0),
        (f"f({'a, ' * 300_000})", 0),
        ("a" * 1_000_000, 1),
        (f"x = {'1' * 1_000_000}", 1),
        (f"think {{ {'do { } ' * 20_000}}}", 0),
        ("var = 1\n" * 10_000, 10_000),
        ("f(1 2)\n" * 10_000, 10_000),
        (f"x = {'1 + ' * 100_000}1", 0),
    ],
    ids=["block", "string", "command", "call", "name", "number", "prompt", "errors", "more errors", "sum"],
)
def test_large_texts_are_parsed(text: str, errors: int) -> None:
    found = parse(text, "t.pw").diagnostics

    assert sum(one.severity == "error" for one in found) == errors
