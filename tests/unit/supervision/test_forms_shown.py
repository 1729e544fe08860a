from __future__ import annotations

import msgspec
import pytest
from tests.unit.supervision.form_keeper import captured, form, into, run, words

from bartack.supervision.forms import (
    Bare,
    Capture,
    Duplicate,
    Form,
    Group,
    Part,
    Pipeline,
    Redirect,
    SimpleCommand,
    form_words,
    iter_texts,
    show_form,
)

EVERYTHING = Form(
    Pipeline([run("cd", ["a b"])]),
    [
        ("&&", Pipeline([run("ls", [Bare("*."), "c*"]), into("o*", "head", "-1")])),
        (
            "||",
            Pipeline(
                [
                    Group(form(SimpleCommand(words("make"), env=[("A", ["1 2"])])), [Duplicate(2, 1)]),
                    SimpleCommand(
                        words("tee", captured(run("date", "+%F"))),
                        redirects=[Redirect(0, "<", ["in"]), Redirect(2, ">>", ["log"])],
                    ),
                ]
            ),
        ),
    ],
)


def test_a_form_is_one_readable_line() -> None:
    assert show_form(EVERYTHING) == (
        "cd 'a b' && ls *.'c*' | head -1 > 'o*' || (A='1 2' make) 2>&1 | tee $(date +%F) < in 2>> log"
    )


def test_the_words_of_a_form() -> None:
    assert form_words(EVERYTHING) == [
        *("cd", "a b", "&&", "ls", "*.c*", "|", "head", "-1", ">", "o*", "||"),
        *("(", "A=1 2", "make", ")", "2>&1", "|", "tee", "$(date +%F)", "<", "in", "2>>", "log"),
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "''"),
        ("plain-1.0/x", "plain-1.0/x"),
        ("v1^{commit}", "v1^{commit}"),
        ("a b", "'a b'"),
        ("it's", "'it'\\''s'"),
        ("$x", "'$x'"),
        ("*", "'*'"),
        ("a\nb\tc\x1b[31m", "'a\\nb\\tc\\x1b[31m'"),
        ("é", "é"),
    ],
)
def test_an_exact_word_is_quoted_where_it_would_be_misread(text: str, shown: str) -> None:
    assert show_form(form(run("echo", text))) == f"echo {shown}"


def test_a_secret_is_taken_out_though_it_would_be_quoted() -> None:
    def clean(text: str) -> str:
        return text.replace("it's", "$env:S")

    assert show_form(form(run("echo", "it's", ["x", Bare("it's")])), clean) == "echo '$env:S' x$env:S"


def test_every_text_of_a_form_is_found() -> None:
    found = list(iter_texts(EVERYTHING))

    for text in ("a b", "*.", "c*", "o*", "A", "1 2", "make", "+%F", "in", "log"):
        assert text in found


def test_a_form_is_the_same_after_it_was_json() -> None:
    encoded = msgspec.json.encode(EVERYTHING)

    assert msgspec.json.decode(encoded, type=Form) == EVERYTHING


def test_parts_that_mean_something_else_are_encoded_otherwise() -> None:
    kinds: list[Part] = ["x*", Bare("x*"), Capture(form(run("x*")))]

    assert len({msgspec.json.encode(form(run("echo", [part]))) for part in kinds}) == 3
