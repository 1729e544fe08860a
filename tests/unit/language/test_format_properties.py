"""What holds for everything that is formatted: the same program, the same comments, and nothing left to do."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.language.corpus import PROGRAMS

from bartack.language import Formatted, has_errors, parse, tree
from bartack.language.formatting.format import reformat

ROOT = Path(__file__).parents[3]
FILES = sorted(path for folder in ("tests", "examples") for path in (ROOT / folder).rglob("*.pw"))
MUTANTS = 800
TRIVIA = (
    *(" ", "  ", "\t", "\n", "\n\n\n", "\r\n", "\r"),
    *(" # note\n", "\n# alone\n", "\n\n# one\n# two\n\n", "  #\r\n"),
    *(";", ",", "\\\n", "(", ")", "x", "-", "é", "$'{'", "}", " || ", "do { x }"),
)


def check_formatted(text: str) -> Formatted:
    """Format a text and check the promises; gives what came out."""
    done = reformat(text, "t.pw")
    if done.kept:
        assert done.text == done.parsed.source.text
        return done
    again = reformat(done.text, "t.pw")
    assert again.text == done.text, "formatting twice is formatting once"
    assert tree.same(again.parsed.tree, done.parsed.tree), "the tree stays"
    before, after = (one.parsed.tree.comments for one in (done, again))
    assert [one.text.rstrip() for one in before] == [one.text.rstrip() for one in after], "comments stay"
    assert not done.text or (done.text.endswith("\n") and not done.text.endswith("\n\n"))
    return done


def texts_of(top: tree.Node) -> list[object]:
    """The texts of prompts and the words of commands, in order."""
    kinds = (tree.Prompt, tree.Command)
    return [tree.shape(node) for node in tree.walk(top) if isinstance(node, kinds)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_of_this_project_stay_what_they_are(path: Path) -> None:
    done = check_formatted(path.read_bytes().decode("utf-8", "replace").replace("\0", ""))

    again = parse(done.text, "t.pw")
    assert done.kept == has_errors(done.parsed.diagnostics)
    assert texts_of(again.tree) == texts_of(done.parsed.tree)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.requirement("format-keeps-programs")
def test_programs_that_use_the_whole_language_stay_what_they_are(name: str) -> None:
    done = check_formatted(PROGRAMS[name])

    assert not done.kept
    assert texts_of(parse(done.text, "t.pw").tree) == texts_of(done.parsed.tree)


@pytest.mark.parametrize("name", PROGRAMS)
def test_line_ends_make_no_difference(name: str) -> None:
    plain = PROGRAMS[name].replace("\r\n", "\n")

    assert reformat(plain.replace("\n", "\r\n"), "t.pw").text == reformat(plain, "t.pw").text


@pytest.mark.requirement("format-keeps-programs")
def test_mutants_of_programs_stay_what_they_are() -> None:
    seed = random.SystemRandom().randrange(1_000_000_000) if "SOAK" in os.environ else 20_260_301
    chance = random.Random(seed)
    texts = [*PROGRAMS.values(), *(path.read_text(encoding="utf-8", errors="replace") for path in FILES)]
    texts = [text for text in texts if len(text) < 3_000]
    formatted = 0
    for _ in range(MUTANTS):
        text = mutated(chance.choice(texts), chance)
        try:
            formatted += not check_formatted(text).kept
        except Exception as problem:  # any failure must come with what caused it
            raise AssertionError(f"seed {seed}: {text!r}") from problem

    assert formatted > MUTANTS / 10


def mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(TRIVIA) + text[at:]
    return text


NESTED = {
    "parentheses": ("x = " + "(" * 190 + "1" + ")" * 190),
    "objects": ("x = " + "{ a: " * 190 + "1" + " }" * 190),
    "arrays with comments": ("x = " + "[ # c\n" * 190 + "1" + "]" * 190),
    "blocks": ("if x { " * 190 + "y()" + " }" * 190),
    "prompts": ("x = " + "think {\n do {\n x = " * 60 + "1" + "\n}\n}" * 60),
    "signs": ("x = " + "- " * 190 + "1"),
    "branches": ("if a { b() }" + " else if c { d() }" * 2_000),
    "a sum": ("x = " + " + ".join(["1"] * 5_000)),
    "a chain": ("x = a" + ".b(1)" * 3_000),
}


@pytest.mark.parametrize("name", NESTED)
def test_what_is_nested_deeply_or_very_long_stays_what_it_is(name: str) -> None:
    assert not check_formatted(NESTED[name]).kept


# Programs from a grammar, with blanks, newlines and comments wherever some may stand.

blanks = st.sampled_from(["", " ", "   ", "\t"])
gaps = st.sampled_from(["", " ", "\n", " # note\n", "\n\n# alone\n", "\r\n"])
names = st.sampled_from(["a", "b", "total", "task", "try", "x_1"])


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map("".join)


def listed(opener: str, element: st.SearchStrategy[str], closer: str) -> st.SearchStrategy[str]:
    one = joined(gaps, element, gaps)
    return st.tuples(st.lists(one, max_size=4), gaps).map(
        lambda drawn: opener + (",".join(drawn[0]) + "," if drawn[0] else "") + drawn[1] + closer
    )


def binary(operand: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "==", "<", "&&", "||", "|"])
    return joined(operand, st.just(" "), operators, st.just(" "), gaps, operand)


def larger(operand: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = joined(names, blanks, st.just(":"), gaps, operand)
    return st.one_of(
        binary(operand),
        joined(st.just("("), gaps, operand, gaps, st.just(")")),
        joined(st.sampled_from(["-", "!", "- ", "await "]), operand),
        joined(names, listed("(", operand, ")")),
        joined(names, st.just("["), operand, st.just("]"), gaps, st.just(".length")),
        listed("[", operand, "]"),
        listed("{", fields, "}").map(lambda text: f"({text})"),
    )


leaves = st.one_of(
    names,
    st.sampled_from(["1", "2.5", "null", "true", "self.path", "$?", '"t $a ${b}"', "'raw'", "$(ls  -a)"]),
    st.sampled_from(["($ a |b >f)", "think { say  $a }", "ask {\n  one\n    two\n\n}", '"two\nlines"']),
    st.sampled_from(["think {\n a\n  do { b() }\n c}", 'json <"f"', "1 ... 3"]),
)
expressions = st.recursive(leaves, larger, max_leaves=6)


def blocks(statement: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    ends = st.sampled_from(["\n", "\n\n\n", ";", " # end\n"])
    return st.lists(joined(gaps, statement, ends), max_size=3).map(lambda all_: "{" + "".join(all_) + "}")


def nested(statement: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block = blocks(statement)
    return st.one_of(
        joined(st.just("if "), expressions, st.just(" "), block, gaps, st.just("else"), gaps, block),
        joined(st.just("for i in "), expressions, gaps, block),
        joined(st.just("while "), expressions, gaps, block),
        joined(st.just("try "), block, gaps, st.just("catch e "), block),
    )


statements = st.recursive(
    st.one_of(
        expressions,
        joined(st.just("var "), names, blanks, st.just("="), gaps, expressions),
        joined(st.just("return "), expressions),
        joined(st.sampled_from(["$ ls   -a", "$ a  $b|c>d", "$ a \\\n b", "$ (cd x&&y) 2>&1"]), blanks),
        st.sampled_from(["var [a,_ ]=b", 'type T = "a"|"b"', "fail", "break", "var (a,b)=c"]),
    ),
    nested,
    max_leaves=5,
)
items = st.one_of(
    statements,
    joined(st.just("fun f"), listed("(", names, ")"), gaps, blocks(statements)),
    joined(st.just("@once "), gaps, st.just("worker w(a:int=1)"), gaps, blocks(statements)),
    st.sampled_from(["import ./{a,b}", "# note", 'type T={a:int,\nb?:"x"|null}', "trait A:Agent{fun f(){}}"]),
)
programs = st.lists(items, max_size=4).map("\n".join)


@settings(
    max_examples=150 if "SOAK" in os.environ else 50, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine is not a failure
@given(programs)
@pytest.mark.requirement("format-keeps-programs")
def test_random_programs_stay_what_they_are(text: str) -> None:
    check_formatted(text)
