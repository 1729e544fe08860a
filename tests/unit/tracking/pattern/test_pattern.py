from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bartack.tracking import next_version, normalise, pattern_id, similarity
from bartack.tracking.pattern._name import language_of, name_of
from bartack.tracking.pattern._similarity import free_version

AREA = "def area(w, h):\n    # rectangle\n    return w * h\n"
PLUS = "def area(w, h):\n    return w + h\n"


@pytest.mark.requirement("ids-are-stable")
@pytest.mark.parametrize(
    ("language", "code", "expected"),
    [
        ("python", AREA, "python-code-cebd15f4eeb61910c2b87042"),
        ("python", "def area(w,h):\n  return w*h", "python-code-cebd15f4eeb61910c2b87042"),
        ("python", PLUS, "python-code-cd40e19d4d8f42fe5871b5cb"),
        ("python", 'tag = "#1"  # keep the hash in the string\n', "python-code-9d338d634698618c9125528e"),
        ("python", 'tag = "#2"\n', "python-code-38a7d661746ba7f3e768927c"),
        ("python", "if a:\n    x = 1\n    y = 2\n", "python-code-fd7bef3d9f9a016af5fe8517"),
        ("python", "if a:\n    x = 1\ny = 2\n", "python-code-6547c92647fdd765efff8056"),
        (
            "javascript",
            "function  area(w, h) {  // rectangle\n    return w * h;\n}\n",
            "javascript-code-d31ab841552acb252dd484da",
        ),
        ("unknown", "alpha  \r\nbeta\r\n\r\n", "unknown-code-d74f950e2068fbffdad6df48"),
    ],
)
def test_ids_are_what_they_have_always_been(language: str, code: str, expected: str) -> None:
    assert pattern_id(code, language) == expected


@pytest.mark.parametrize("language", ["python", "javascript", "unknown", "yaml"])
def test_line_ends_do_not_matter(language: str) -> None:
    code = "a: 1\nb: 2\n"

    assert len({pattern_id(code.replace("\n", end), language) for end in ("\n", "\r\n", "\r")}) == 1


def test_an_f_string_is_one_part_with_its_exact_source() -> None:
    code = 'x = f"a {b!r:>{w}} {{c}}" + rf\'{d["k"]}\'\n'

    normal = normalise(code, "python")

    assert normal.text.split("\x1f") == ["x", "=", 'f"a {b!r:>{w}} {{c}}"', "+", "rf'{d[\"k\"]}'", "\n"]


def test_comment_marks_inside_strings_are_not_comments() -> None:
    one, other = ('let u = "http://a"; // x\n', 'let u = "http://b"; // x\n')

    assert pattern_id(one, "javascript") != pattern_id(other, "javascript")
    assert pattern_id(one, "javascript") == pattern_id('let  u = "http://a";\n', "javascript")


def test_python_that_does_not_tokenise_falls_back_and_says_so() -> None:
    assert normalise("def broken(:\n   'unterminated\n", "python").normaliser in {"lexer", "text"}
    assert normalise("x = 1\n" * 200_000, "python").normaliser == "text"


def test_indentation_counts_where_it_has_meaning() -> None:
    assert pattern_id("a:\n  b: 1\n", "yaml") != pattern_id("a:\nb: 1\n", "yaml")
    assert pattern_id("{\n  a;\n}\n", "c") == pattern_id("{\na;\n}\n", "c")


def test_blanks_inside_strings_are_kept() -> None:
    assert pattern_id('x = "a  b";\n', "javascript") != pattern_id('x = "a b";\n', "javascript")


@pytest.mark.parametrize(
    ("language", "kind", "start"),
    [
        ("C++", "code", "cpp-code-"),
        ("c#", "Snippet", "csharp-snippet-"),
        ("py", "", "python-code-"),
        ("", "", "unknown-code-"),
        ("Objective-C", "x y", "objective_c-x_y-"),
        ("a" * 50, "code", "a" * 32 + "-code-"),
    ],
)
def test_languages_and_kinds_are_written_one_way(language: str, kind: str, start: str) -> None:
    assert pattern_id("x", language, kind).startswith(start)


@given(st.text(), st.sampled_from(["python", "javascript", "unknown", "html", "c"]))
def test_any_text_has_an_id(text: str, language: str) -> None:
    assert pattern_id(text, language) == pattern_id(text, language)


def test_half_of_a_surrogate_pair_has_an_id() -> None:
    assert pattern_id("x = '\ud800'\n", "python") != pattern_id("x = '\ud801'\n", "python")


def test_similarity_counts_what_is_alike() -> None:
    assert similarity(AREA, PLUS, "python") == 0.9375
    assert similarity("", "", "unknown") == 1.0
    assert similarity("a b c", "x y z") == 0.0


def test_long_code_is_compared_by_what_both_have() -> None:
    long = "word other\n" * 3000

    assert similarity(long, long + "more\n") > 0.99


@pytest.mark.parametrize(
    ("alike", "expected"),
    [
        (0.9375, "1.4.3"),
        (0.9, "1.4.3"),
        (0.89, "1.5.0"),
        (0.7, "1.5.0"),
        (0.5, "2.0.0"),
        (0.1, "2.0.0"),
        (None, "1.5.0"),
    ],
)
def test_the_next_version_depends_on_how_alike_they_are(alike: float | None, expected: str) -> None:
    assert next_version("1.4.2", alike) == expected


def test_a_version_that_is_taken_is_passed_over() -> None:
    assert free_version("1.0.1", None) == "1.0.1"
    assert free_version("1.0.1", "1.0.1") == "1.0.2"
    assert free_version("1.0.2", "1.0.10") == "1.0.11"


@pytest.mark.parametrize(
    ("code", "language", "path", "expected"),
    [
        ("class A:\n    pass\n\ndef _b():\n    pass\n", "python", "", "A"),
        ("def a(): pass\n\ndef b():\n    x = 1\n    return x\n", "python", "", "b"),
        ('"""Reads things.\n\nMore."""\nx = 1\n', "python", "", "Reads things."),
        ("x = 1\n", "python", "/p/parse_things.py", "parse_things"),
        ("x = 1\n", "python", "", "Python Code pattern"),
        ("fn area(w: i32) -> i32 { w }\nfn b() {}", "rust", "", "area"),
        ("class Box { int area() { return 1; } }", "java", "", "Box"),
        ("def broken(:", "python", "", "Python Code pattern"),
    ],
)
def test_a_name_is_what_people_would_call_it(code: str, language: str, path: str, expected: str) -> None:
    assert name_of(code, language, "code", path) == expected


@given(st.text(), st.text())
def test_a_name_is_never_empty_and_never_long(code: str, path: str) -> None:
    name = name_of(code, "python", "code", path)

    assert 0 < len(name) <= 120
    assert name.isprintable() or not any(ord(c) < 32 for c in name)


@pytest.mark.parametrize(
    ("path", "language"),
    [("a.py", "python"), ("A.TSX", "typescript"), ("Makefile", "make"), ("x", "unknown")],
)
def test_the_language_of_a_file_is_reported_by_its_name(path: str, language: str) -> None:
    assert language_of(path) == language
