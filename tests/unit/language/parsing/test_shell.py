"""Command lines: words, lists, redirects, where they end, and what only a shell could do."""

from __future__ import annotations

import pytest
from tests.unit.language.sketch import codes, expression, module, said, sketch, statement

from bartack.language import parse, tree


def words(line: str) -> list[str]:
    """The words of a command line, each as a row of its parts."""
    found = statement(f"$ {line}")
    command = next(tree.find(found, tree.Command))
    return [_parts(word) for word in command.words]


def _parts(word: tree.Word | tree.Splice) -> str:
    if isinstance(word, tree.Splice):
        return sketch(word)
    return " ".join(part.value if isinstance(part, tree.Bare) else sketch(part) for part in word.parts)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git  push\torigin", ["git", "push", "origin"]),
        ('echo "$base"..main', ["echo", "String([Variable('base')]) ..main"]),
        ("cc --out=$dir/x", ["cc", "--out= Variable('dir') /x"]),
        ("""echo a"b c"d'e f'""", ["echo", "a String([Text('b c')]) d String([Text('e f')])"]),
        ("echo ''", ["echo", "String"]),
        ('echo ""', ["echo", "String"]),
        ("git show v1^{commit} {} { }", ["git", "show", "v1^{commit}", "{}", "{", "}"]),
        ("echo a#b # a comment", ["echo", "a#b"]),
        (r"echo \* a\ b \\", ["echo", "Escape('*')", "a Escape(' ') b", "Escape('\\\\')"]),
        ("echo $@{xs} ${x} $x", ["echo", "Splice(xs)", "Interpolation(x)", "Variable('x')"]),
        ("echo $(date)x", ["echo", "Capture(ShellList([Pipeline([Command([Word([Bare('date')])])])])) x"]),
        ("echo 'a\\n' a2", ["echo", "String([Text('a\\\\n')])", "a2"]),
        ("echo a \\\n    b", ["echo", "a", "b"]),
        ("echo a \\\r\n    b", ["echo", "a", "b"]),
        ("echo $ $/ 5$", ["echo", "$", "$ /", "5 $"]),
        ("echo é🙂 a\rb", ["echo", "é🙂", "a \r b"]),
        ("echo 'two\nlines'", ["echo", "String([Text('two\\nlines')])"]),
        ("./run *.c [a-z]? ~/x", ["./run", "*.c", "[a-z]?", "~/x"]),
    ],
)
def test_words_have_the_parts_they_are_written_with(line: str, expected: list[str]) -> None:
    assert words(line) == expected


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("a > o 2>&1", "[Redirect('>' Word([Bare('o')])) Redirect('2>&1')]"),
        ("a 2>&1 >> o", "[Redirect('2>&1') Redirect('>>' Word([Bare('o')]))]"),
        (
            "a >o b <i 2>e",
            "[Redirect('>' Word([Bare('o')])) Redirect('<' Word([Bare('i')])) Redirect('2>' Word([Bare('e')]))]",
        ),
        ("a b2>f", "[Redirect('>' Word([Bare('f')]))]"),
        ("a 1>>f >&2 1>&2", "[Redirect('1>>' Word([Bare('f')])) Redirect('>&2') Redirect('1>&2')]"),
        ('a > "$d/f"x', "[Redirect('>' Word([String([Variable('d') Text('/f')]) Bare('x')]))]"),
    ],
)
def test_redirects_are_kept_in_order(line: str, meaning: str) -> None:
    command = next(tree.find(statement(f"$ {line}"), tree.Command))

    assert sketch(command.redirects) == meaning


def test_lists_pipelines_groups_and_assignments() -> None:
    found = statement('$ A=1 B="$x" C= a | b && (c || d) > o && e')

    assert isinstance(found, tree.ShellStatement)
    assert sketch(found.shell) == (
        "ShellList([Pipeline([Command([Assignment(A Word([Bare('1')])) Assignment(B Word([String([Variable('x')])])) "
        "Assignment(C Word)] [Word([Bare('a')])]) Command([Word([Bare('b')])])]) "
        "Pipeline([ShellGroup(ShellList([Pipeline([Command([Word([Bare('c')])])]) "
        "Pipeline([Command([Word([Bare('d')])])])] [||]) [Redirect('>' Word([Bare('o')]))])]) "
        "Pipeline([Command([Word([Bare('e')])])])] [&& &&])"
    )


def test_newlines_are_blanks_inside_of_parentheses() -> None:
    found = expression("f($(\n  printf 'b\\na'\n  | sort\n), ($\n ls\n))")

    assert [len(node.commands) for node in tree.find(found, tree.Pipeline)] == [2, 1]


def test_a_capture_in_parentheses_is_not_a_shell_expression() -> None:
    assert sketch(expression("($(a))")).startswith("Paren(Capture(")
    assert sketch(expression("($? == 1)")) == "Paren(Binary([LastStatus 1] [==]))"
    assert sketch(expression("!($ test -d out)")).startswith("Unary('!' ShellResult(")


# Where a line ends


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("{ $ echo hi }", 1),
        ("{ $ a; $ b; }", 2),
        ("{ $ a;\n$ b }", 2),
        ("{ $ awk { print } }", 1),
        ("{ $ a # c }\n}", 1),
        ("{ $ echo a} b\n}", 1),
        ("{ if x { $ a } else { $ b }\n$ c }", 2),
    ],
)
def test_a_command_line_ends_where_its_block_does(text: str, statements: int) -> None:
    script = module(text).script

    assert script is not None
    assert len(script.statements) == statements


def test_the_comment_of_a_command_line_is_kept() -> None:
    assert [comment.text for comment in module("$ ls # all\n$ pwd #\r\n").comments] == ["# all", "#"]


# What is refused


@pytest.mark.parametrize(
    ("line", "code", "place"),
    [
        ("cat <<EOF\nx ) ' \"\nEOF", "PW150", "<<"),
        ("cat <<< x", "PW150", "<<<"),
        ("diff <(a) b", "PW150", "<("),
        ("echo `date` x", "PW150", "`date`"),
        ("sleep 1 &", "PW150", "&"),
        ("a & b", "PW150", "&"),
        ("make &> log", "PW150", "&>"),
        ("[[ -d x ]]", "PW150", "[["),
        ("a && if x", "PW150", "if"),
        ("for f", "PW150", "for"),
        ("a 3> f", "PW150", "3>"),
        ("a 2>&3", "PW150", "2>&3"),
        ("echo $'a'", "PW150", "$'"),
        ("echo a$@{xs}", "PW152", "$@{xs}"),
        ("A=$@{xs} b", "PW152", "$@{xs}"),
        ("export A=1", "PW153", "export"),
        (". ./x", "PW153", "."),
        ("a | source x", "PW153", "source"),
        ("a || throw 'x'", "PW154", "throw"),
        ("return", "PW154", "return"),
        ("cd a; ls", "PW155", ";"),
        ("a |", "PW156", ""),
        ("A=1", "PW156", "A=1"),
        ("> f", "PW156", "> f"),
        ("a && && b", "PW156", "&"),
        ("a >", "PW157", ">"),
        ("a > > b", "PW157", ">"),
        ("a > $@{xs}", "PW157", ">"),
        ("echo $1", "PW158", "$1"),
        ("echo $@ x", "PW158", "$@"),
        ("echo $$", "PW158", "$$"),
        ("echo $?", "PW158", "$?"),
        ("a )", "PW104", ")"),
        ("(a", "PW104", "("),
        ("a (b)", "PW105", "("),
        ("(a) b", "PW105", "b"),
        ("echo 'a", "PW102", "'a"),
        ('echo "a', "PW102", '"a'),
    ],
)
def test_what_only_a_shell_could_do_is_one_error_with_its_place(line: str, code: str, place: str) -> None:
    found = said(f"{{\n$ {line}\nvar x = 1\n}}\n")

    assert [(kind, text.strip()) for kind, text in found] == [(code, place)]


def test_a_dollar_without_a_command_is_empty() -> None:
    assert codes("$\nvar x = 1\n") == ["PW156"]
    assert codes("x = $()") == ["PW156"]


def test_semicolons_and_number_signs_are_not_special_in_parentheses() -> None:
    assert codes("x = $(a;\n)") == ["PW155"]
    assert codes("x = $(a; $ b)") == ["PW155"]
    assert sketch(expression("$(echo #5)")).count("Bare('#5')") == 1


def test_an_unclosed_capture_is_reported_at_its_opener() -> None:
    assert said("x = $(ls") == [("PW104", "$(")]
    assert said('x = "a $(ls b') == [("PW104", "$(")]
    assert said("if ($ ls { }") == [("PW104", "($")]


def test_braces_that_a_shell_would_expand_are_warned_of() -> None:
    assert said("$ cp a.{c,h} b") == [("PW218", "{c,h}")]
    assert codes("$ echo {} {a} v^{c} '{a,b}'") == []


def test_mixed_lists_are_warned_of_once() -> None:
    assert said("$ a && b || c && d") == [("PW219", "||")]
    assert codes("$ (a && b) || c") == []


def test_a_command_without_a_dollar_gets_advice() -> None:
    found = parse("touch x\n", "t.pw").diagnostics

    assert [(one.code, one.helps) for one in found] == [("PW105", ("to run a program write `$ touch x`",))]


def test_a_command_line_in_a_word_of_another_one_does_not_take_its_end() -> None:
    text = "$ echo ${think {\n    do { $ ls\n    }\n}} b\nprint(1)\n"

    first, second = module(text).units

    assert isinstance(first, tree.ShellStatement)
    assert isinstance(second, tree.ExpressionStatement)
