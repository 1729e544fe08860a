"""The colours of Patchwork: every text comes back whole, and each part as what the parser read it as."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pygments.lexers import (  # pyright: ignore[reportUnknownVariableType] - their options have no types
    get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType] - as above
    get_lexer_for_filename,  # pyright: ignore[reportUnknownVariableType] - as above
)
from tests.unit.language.corpus import PROGRAMS, TOKENS

from bartack.language._pygments import PatchworkLexer


def tokens(text: str) -> list[tuple[str, str]]:
    """The tokens of a text that are not blank, with the names of their kinds."""
    found = PatchworkLexer().get_tokens_unprocessed(text)
    return [(str(kind).removeprefix("Token."), value) for _, kind, value in found if value.strip()]


def check_whole(text: str) -> None:
    at = 0
    for start, _kind, value in PatchworkLexer().get_tokens_unprocessed(text):
        assert start == at
        assert value
        at += len(value)
        assert text.startswith(value, start)
    assert at == len(text)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is not a failure
@given(st.text(alphabet=st.characters(codec="utf-8")) | st.lists(st.sampled_from(TOKENS)).map("".join))
@example("\ufeffprint(1)")
@example("\0")
@example('think { ${"')
@example("\r\n$ a \\\r\n b\r")
def test_the_tokens_of_any_text_are_the_text(text: str) -> None:
    check_whole(text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_tokens_of_programs_and_of_their_beginnings_are_the_text(name: str) -> None:
    text = PROGRAMS[name]
    chance = random.Random(name)

    check_whole(text)
    for _ in range(10):
        check_whole(text[: chance.randrange(len(text))])


def test_the_lexer_is_found_by_name_and_by_file() -> None:
    assert isinstance(get_lexer_by_name("patchwork"), PatchworkLexer)
    assert isinstance(get_lexer_for_filename("team.pw"), PatchworkLexer)


def test_text_is_text_whatever_it_looks_like() -> None:
    assert tokens("think { if # 'x' }")[2] == ("Literal.String.Heredoc", " if # 'x' ")
    assert tokens('"if # x"')[1] == ("Literal.String.Double", "if # x")
    assert tokens("$ if-not a#b # c")[1:] == [
        ("Name.Function", "if-not"),
        ("Literal.String.Other", "a#b"),
        ("Comment.Single", "# c"),
    ]


def test_code_inside_of_text_is_code() -> None:
    assert tokens('"a ${f(1)} $b"') == [
        ("Literal.String.Double", '"'),
        ("Literal.String.Double", "a "),
        ("Literal.String.Interpol", "${"),
        ("Name.Function", "f"),
        ("Punctuation", "("),
        ("Literal.Number", "1"),
        ("Punctuation", ")"),
        ("Punctuation", "}"),
        ("Name.Variable", "$b"),
        ("Literal.String.Double", '"'),
    ]


def test_declarations_are_distinguished() -> None:
    found = tokens('@once\nworker go(n: int = 1): Kind {}\ntype Kind = "a" | null\n')

    assert [pair for pair in found if pair[0] not in {"Punctuation", "Operator"}] == [
        ("Name.Decorator", "@once"),
        ("Keyword", "worker"),
        ("Name.Function", "go"),
        ("Name.Variable", "n"),
        ("Keyword.Type", "int"),
        ("Literal.Number", "1"),
        ("Keyword.Type", "Kind"),
        ("Keyword", "type"),
        ("Name.Class", "Kind"),
        ("Literal.String.Double", '"a"'),
        ("Keyword.Constant", "null"),
    ]
