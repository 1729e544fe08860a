"""Any text at all: the parser gives a tree and diagnostics that fit the text, and never raises."""

from __future__ import annotations

import os
import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.language.corpus import PROGRAMS, TOKENS

from bartack.language import CATALOGUE, Parsed, parse, render_all, tree
from bartack.language.syntax.render import to_json

FIXED = 20_260_301
SOUPS = 20_000
MUTANTS = 6_000
EXAMPLES = 300 if "SOAK" in os.environ else 100


each_seed = pytest.mark.parametrize(
    "seed",
    [
        pytest.param(FIXED, id="fixed"),
        pytest.param(random.SystemRandom().randrange(1_000_000_000), id="rotating", marks=pytest.mark.soak),
    ],
)
"""Always the same one, and in ``make soak`` another one each time; it is shown when something fails."""


def check_parsed(parsed: Parsed) -> None:
    """What holds for the tree and the diagnostics of every text."""
    size = len(parsed.source.text)
    for found in parsed.diagnostics:
        assert found.code in CATALOGUE
        assert 0 <= found.span.start <= found.span.end <= size + 1, found
        assert found.fix is None or 0 <= found.fix.start <= found.fix.end <= size, found
    check_nesting(parsed.tree)
    comments = parsed.tree.comments
    assert all(parsed.source[comment.span] == comment.text for comment in comments)
    assert all(left.end <= right.start for left, right in pairwise(comments))


def check_nesting(top: tree.Node) -> None:
    """Every node lies in its parent."""
    waiting = [top]
    while waiting:
        node = waiting.pop()
        for child in tree.children(node):
            assert node.start <= child.start <= child.end <= node.end, (node, child)
            waiting.append(child)


def try_all(texts: list[str], seed: int) -> None:
    for text in texts:
        try:
            check_parsed(parse(text, "t.pw"))
        except Exception as problem:  # any failure must come with what caused it
            raise AssertionError(f"seed {seed}: {text!r}") from problem


def soups(seed: int) -> list[str]:
    chance = random.Random(seed)
    joints = ("", "", " ")
    return [
        "".join(chance.choice(TOKENS) + chance.choice(joints) for _ in range(chance.randint(1, 18)))
        for _ in range(SOUPS)
    ]


def mutants(seed: int) -> list[str]:
    chance = random.Random(seed)
    pieces = [_piece(chance) for _ in range(MUTANTS)]
    return [_mutated(piece, chance) for piece in pieces]


def _piece(chance: random.Random) -> str:
    """A stretch of a program, mostly at the start of a line."""
    text = chance.choice(list(PROGRAMS.values()))
    lines = text.splitlines(keepends=True)
    first = chance.randrange(len(lines))
    return "".join(lines[first : first + chance.randint(1, 8)])


def _mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(text))
        length = chance.choice((0, 1, 1, 2, 8))
        piece = chance.choice(("", chance.choice(TOKENS), text[at : at + 5], text[::-1][:3]))
        text = text[:at] + piece + text[at + length :]
    return text[: chance.randint(0, len(text))] if chance.random() < 0.2 else text


@each_seed
def test_random_tokens_are_parsed(seed: int) -> None:
    try_all(soups(seed), seed)


@each_seed
def test_mutated_programs_are_parsed(seed: int) -> None:
    try_all(mutants(seed), seed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_beginning_of_a_program_is_parsed(name: str) -> None:
    text = PROGRAMS[name]

    try_all([text[:end] for end in range(0, len(text), 3)], 0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_of_the_corpus_are_programs(name: str) -> None:
    parsed = parse(PROGRAMS[name], name)

    check_parsed(parsed)
    severities = {found.severity for found in parsed.diagnostics}
    assert severities <= ({"note", "warning"} if name == "old" else set())
    assert not list(tree.find(parsed.tree, tree.Error))


@settings(max_examples=EXAMPLES)
@given(st.text(max_size=40))
@example("\ufeff")
@example("a\x00")
def test_any_text_is_parsed(text: str) -> None:
    check_parsed(parse(text, "t.pw"))


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=40))
def test_any_bytes_are_parsed(data: bytes) -> None:
    check_parsed(parse(data, "t.pw"))


@settings(max_examples=EXAMPLES)
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join))
def test_whatever_is_said_can_be_shown(text: str) -> None:
    parsed = parse(text, "t.pw")
    sources = {"t.pw": parsed.source}

    shown = render_all(parsed.diagnostics, sources, files=1)
    assert shown.count("t.pw:") == len(parsed.diagnostics)
    assert all(to_json(found, sources) for found in parsed.diagnostics)


@settings(max_examples=EXAMPLES)
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join))
def test_a_declaration_after_any_text_without_open_text_is_found(text: str) -> None:
    """Nothing that ends in an error hides a declaration further down, unless a text swallowed it."""
    swallows = any(sign in text for sign in ("'", '"', "`", "think", "ask", "$", "\\", "{"))
    parsed = parse(f"{text}\n\nfun beacon() {{ }}\n", "t.pw")
    names = [unit.name.name for unit in parsed.tree.units if isinstance(unit, tree.Declaration)]

    assert swallows or "beacon" in names
