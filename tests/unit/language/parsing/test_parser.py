"""Modules, declarations, statements and expressions: what a text means."""

from __future__ import annotations

import pytest
from tests.unit.language.sketch import codes, expression, module, said, sketch, statement

from bartack.language import parse, tree

# Expressions


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a + b * c - d", "Binary([a Binary([b c] [*]) d] [+ -])"),
        ("a || b && c == d", "Binary([a Binary([b Binary([c d] [==])] [&&])] [||])"),
        ("a == b || c", "Binary([Binary([a b] [==]) c] [||])"),
        ("xs | f || g", "Binary([xs Binary([f g] [||])] [|])"),
        ("1...n + 1", "Range(1 Binary([n 1] [+]))"),
        ("1...3 == x", "Binary([Range(1 3) x] [==])"),
        ("!a && -b", "Binary([Unary('!' a) Unary('-' b)] [&&])"),
        ("-a.b", "Unary('-' Chain(a [Member(b)]))"),
        ("a = b = c + 1", "Assign(a = Assign(b = Binary([c 1] [+])))"),
        ("a.b[0] += 2", "Assign(Chain(a [Member(b) Index(0)]) += 2)"),
        ("(a + b) * c", "Binary([Paren(Binary([a b] [+])) c] [*])"),
        ("x++", "Chain(x [Increment('++')])"),
        ("f(1)(2).g[3].await", "Chain(f [Call([1]) Call([2]) Member(g) Index(3) AwaitMember])"),
        ("o.type.in.default", "Chain(o [Member(type) Member(in) Member(default)])"),
        ("[1, ...xs,]", "Array([1 Spread(xs)])"),
        (
            "a = {type: 1, 'b c': 2, d, ...e}",
            "Assign(a = Object([ObjectField(Key('type') 1) "
            "ObjectField(Key('b c' True) 2) ObjectField(Key('d') d True) Spread(e)]))",
        ),
        ("$? == 0 && null", "Binary([Binary([LastStatus 0] [==]) Null] [&&])"),
        ("self.session.id", "Chain(SelfValue [Member(session) Member(id)])"),
        ("1.5e3 % .5e", None),
        ("json < 'f'", "ReadFile(json String([Text('f')]))"),
        ("json < 3", "Binary([json 3] [<])"),
    ],
)
def test_operators_bind_as_the_language_says(text: str, meaning: str | None) -> None:
    if meaning is None:
        assert codes(text) == ["PW107"]
    else:
        assert sketch(expression(text)) == meaning


def test_throw_takes_everything_to_its_right() -> None:
    assert sketch(expression('throw "a" + 1')) == "Throw(Binary([String([Text('a')]) 1] [+]))"
    assert sketch(expression("find(x) || throw e + x")) == (
        "Binary([Chain(find [Call([x])]) Throw(Binary([e x] [+]))] [||])"
    )
    assert sketch(expression("a && throw b || c")) == "Binary([a Throw(Binary([b c] [||]))] [&&])"


def test_numbers_and_ranges_share_the_dot() -> None:
    assert sketch(expression("1...3")) == "Range(1 3)"
    assert sketch(expression("1.5...2.5")) == "Range(1.5 2.5)"
    assert said("x = 1.\ny = .5\nz = 12ab\nw = 1e\n") == [
        ("PW107", "1."),
        ("PW107", ".5"),
        ("PW107", "12ab"),
        ("PW107", "1e"),
    ]
    assert codes("x = 1e999") == ["PW107"]


def test_a_number_that_can_be_guessed_is_named() -> None:
    found = parse("x = .5", "t.pw").diagnostics[0]

    assert found.message == "not a number: write `0.5`"


# Newlines


@pytest.mark.parametrize(
    "text",
    [
        "var s =\n 1 +\n 2\n",
        "f(\n1,\n2,\n)\n",
        "[\n1\n,\n2\n]\n",
        "var o = {\n a\n :\n 1\n ,\n b: 2,\n}\n",
        "a\n  .b()\n\n  # comment\n  .c()\n",
        "x = a\n  || b\n  # why\n  && c\n",
        "if a {\n}\n# note\n\nelse if b\n{\n}\nelse\n{\n}\n",
        "try {\n}\ncatch e\n{\n}\n",
        "export\ndefault\nworker a() { }\n",
        "@once\n@agent bob\n\nfun f()\n{\n}\n",
        "type T =\n  | 'a'\n  # b\n  | 'b'\n",
        "for x in\n xs\n{\n}\n",
        "a = !\nb\n",
        "x = (a\n+ b\n- c)\n",
        "import ./a,\n  ./b\n",
    ],
)
def test_these_newlines_do_not_end_a_statement(text: str) -> None:
    assert len(module(text).units) == 1


@pytest.mark.parametrize("second", ["(a)", "[a]", "{a: 1}", "-a", "b"])
def test_a_line_that_could_continue_starts_a_statement_of_its_own(second: str) -> None:
    assert len(module(f"var a = 1\n{second}\n").units) == 2


def test_semicolons_separate_like_newlines() -> None:
    assert len(module("a; b ;; c\nd;").units) == 4


@pytest.mark.parametrize("word", ["return", "break", "succeed", "continue"])
def test_leaving_takes_nothing_from_the_next_line(word: str) -> None:
    found = module(f"while a {{\n{word}\nb\n}}").units[0]

    assert isinstance(found, tree.While)
    assert isinstance(found.body, tree.Block)
    assert len(found.body.statements) == 2


def test_a_block_inside_of_parentheses_has_newlines_again() -> None:
    found = expression("f(think {\ndo {\na\nb\n}\n})")

    assert len(next(tree.find(found, tree.Block)).statements) == 2


def test_crlf_and_lf_give_the_same_tree() -> None:
    text = 'worker a() {\n    var s = "x\ny"\n    $ ls \\\n        -l\n    think {\n        a\n\n        b\n    }\n}\n'

    assert tree.same(module(text), module(text.replace("\n", "\r\n")))


# Statements


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (
            "var {kind: 'offer', type, n: int | null} = m",
            "Var(ObjectPattern([PatternField(Key('kind') LiteralType('offer')) "
            "PatternField(Key('type')) PatternField(Key('n') UnionType([NamedType([int]) LiteralType]))]) m)",
        ),
        (
            "var [a, _, {b}, c: int,] = e",
            "Var(ArrayPattern([Binding(a) Discard ObjectPattern([PatternField(Key('b'))]) Binding(c NamedType([int]))]) e)",
        ),
        ("var x", "Var(Binding(x))"),
        ("for var i in 1...3 { }", "For(True Binding(i) Range(1 3) Block)"),
        (
            "while (n < 3) { n++ }",
            "While(Paren(Binary([n 3] [<])) Block([ExpressionStatement(Chain(n [Increment('++')]))]))",
        ),
        (
            "if a { } else if b { c } else { }",
            "If([Branch(a Block) Branch(b Block([ExpressionStatement(c)]))] Block)",
        ),
        ("try { a } catch { b }", "Try(Block([ExpressionStatement(a)]) Block([ExpressionStatement(b)]))"),
        ("try { } catch e { }", "Try(Block e Block)"),
        ("return", "Return"),
        ("return {a: 1}", "Return(Object([ObjectField(Key('a') 1)]))"),
        (
            "cat({a: 1}) > 'o.json'",
            "Write(Chain(cat [Call([Object([ObjectField(Key('a') 1)])])]) > String([Text('o.json')]))",
        ),
        ('a...b >> "f"', "Write(Range(a b) >> String([Text('f')]))"),
        ("a > 'x' && b", "ExpressionStatement(Binary([Binary([a String([Text('x')])] [>]) b] [&&]))"),
        (
            "type P = {a: string, b?: [int], 'c d': (A | \"x\")}",
            "TypeDeclaration(P ObjectType([TypeField(Key('a') NamedType([string])) "
            "TypeField(Key('b') True ArrayType(NamedType([int]))) "
            "TypeField(Key('c d' True) ParenType(UnionType([NamedType([A]) LiteralType('x')])))]))",
        ),
        (
            "type F = fun(int, a.B) -> array<array<int>>",
            "TypeDeclaration(F FunctionType([NamedType([int]) NamedType([a B])] "
            "NamedType([array] NamedType([array] NamedType([int])))))",
        ),
    ],
)
def test_statements_mean_what_they_say(text: str, meaning: str) -> None:
    assert sketch(statement(text)) == meaning


@pytest.mark.parametrize(
    "name", ["continue", "try", "catch", "task", "agent", "fail", "spawn", "do", "null_", "from_"]
)
def test_words_with_a_meaning_of_their_own_are_names_elsewhere(name: str) -> None:
    text = f"var {name} = 1\nprint({name} + 1, [{name}])\n{name} = 2\n{name}.x = 3\n"

    assert codes(text) == []


def test_an_equals_sign_in_a_condition_compares() -> None:
    found = statement("if a = 1 && !(b = 2) || f(c = 3) { d = 4 }")

    assert isinstance(found, tree.If)
    condition = found.branches[0].condition
    assert sketch(condition) == (
        "Binary([Binary([Binary([a 1] [==]) Unary('!' Paren(Binary([b 2] [==])))] [&&]) "
        "Chain(f [Call([Assign(c = 3)])])] [||])"
    )
    assert codes("if a = 1 && b = 2 { }") == ["PW200", "PW200"]
    assert codes("while [a = 1] { b = 2 }") == []


def test_the_fix_of_an_equals_sign_is_the_right_operator() -> None:
    fix = parse("if a = 1 { }", "t.pw").diagnostics[0].fix

    assert fix is not None
    assert (fix.start, fix.end, fix.text) == (5, 6, "==")


def test_a_chained_comparison_is_warned_of() -> None:
    assert said("x = a < b < c") == [("PW214", "a < b < c")]
    assert codes("x = a < b && b < c") == []


# Modules and declarations


def test_a_file_that_starts_with_a_brace_is_a_script() -> None:
    found = module("# a script\n{ 2 + 3 }\n# the end\n")

    assert found.script is not None
    assert found.units == ()
    assert len(found.script.statements) == 1


def test_nothing_may_follow_a_script() -> None:
    assert said("{ a }\nfun f() { }\nvar x = (\n") == [("PW115", "fun")]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (
            "import ./a, ../../lib/b, ./{c, d,}",
            "Import([FilePath(0 [a]) FilePath(2 [lib] [b]) FilePath(0 [c d] True)])",
        ),
        ("import a.b, std", "Import([DottedPath([a b]) DottedPath([std])])"),
        ('import {x, y} from "./m"', "Import([NamesFrom([x y] String([Text('./m')]))])"),
    ],
)
def test_imports_are_read_in_all_forms(text: str, meaning: str) -> None:
    assert sketch(statement(text)) == meaning


@pytest.mark.parametrize(
    "path", ["./a.pw", "a/b", '"./m"', "/a", ". /a", "./", "3", "{x} from y", "", "./a b"]
)
def test_what_is_not_an_import_path_is_an_error(path: str) -> None:
    found = codes(f"import {path}\nfun f() {{ }}\n")

    assert len(found) == 1
    assert found[0] in {"PW114", "PW105"}


def test_a_declaration_has_all_its_parts() -> None:
    found = statement(
        '# Adds.\n# @arg a the first\n@timeout 500\n@skill("add-up")\n@x(a: 1, b: 2)\n'
        "export default skill add(a: int, b = 2,): int { return a + b }"
    )

    assert isinstance(found, tree.Declaration)
    assert (found.word, found.name.name, found.export, found.default, found.start) == (
        "skill",
        "add",
        True,
        True,
        27,
    )
    assert [comment.text for comment in found.doc] == ["# Adds.", "# @arg a the first"]
    assert sketch(found.annotations) == (
        "[Annotation(timeout 500) Annotation(skill String([Text('add-up')]) True) "
        "Annotation(x [NamedArgument(a 1) NamedArgument(b 2)] True)]"
    )
    assert sketch(found.parameters) == "Parameters([Parameter(a NamedType([int])) Parameter(b 2)])"
    assert sketch(found.result) == "NamedType([int])"


def test_a_blank_line_or_code_breaks_a_doc_comment() -> None:
    found = module("# far\n\n# near\nfun a() { }\nf() # behind\nfun b() { }\n#!x\nfun c() { }").units
    docs = [[comment.text for comment in unit.doc] for unit in found if isinstance(unit, tree.Declaration)]

    assert docs == [["# near"], [], ["#!x"]]
    first = module("#!/usr/bin/env bartack\nfun a() { }").units[0]
    assert isinstance(first, tree.Declaration)
    assert first.doc == ()


def test_a_trait_has_bases_and_methods() -> None:
    found = statement("trait T: [Agent, B] {\n# Doc.\n@skill\nfun a() { }\nfun b(x) { } ; }")

    assert isinstance(found, tree.Trait)
    assert (found.bracketed, sketch(found.bases)) == (True, "[NamedType([Agent]) NamedType([B])]")
    methods = [method for method in found.methods if isinstance(method, tree.Declaration)]
    assert [method.name.name for method in methods] == ["a", "b"]
    assert [comment.text for comment in methods[0].doc] == ["# Doc."]


def test_keys_may_be_keywords_wherever_they_stand() -> None:
    keys = ["type", "if", "for", "fun", "import", "default", "return", "var"]
    lines = "\n".join(f"{key}: int," for key in keys)

    assert codes(f"type T = {{\n{lines}\n}}\nvar {{\n{lines}\n}} = {{\n{lines}\n}}\n") == []
    assert codes("var {\n    type,\n    if\n} = x\n") == []
    assert codes("x = {\n    a 1,\n    type: 2,\n    if: 3,\n}\nvar y = ?\n") == ["PW105", "PW111"]


def test_a_trailing_comma_is_allowed_in_every_list() -> None:
    text = (
        "import {a, b,} from './m'\nfun f(a, b,) { }\nf(1, 2,)\nvar x = [1, 2,]\nvar o = {a: 1, b,}\n"
        "type T = {a: int, b: int,}\nvar {a, b,} = o\nvar [c, d,] = x\n"
    )
    assert codes(text) == []


def test_lists_know_whether_a_newline_follows_their_opener() -> None:
    found = module("f( # why\n1)\nf(1,\n2)\nvar x = [\n1]\nvar {\na} = {a: 1,\nb: 2}\n")
    lists = [node for node in tree.walk(found) if hasattr(node, "broken")]

    assert [(type(node).__name__, getattr(node, "broken", None)) for node in lists] == [
        ("Call", True),
        ("Call", False),
        ("Array", True),
        ("ObjectPattern", True),
        ("Object", False),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "var type = 1",
        "fun in() { }",
        "worker think(a) { }",
        "fun f(self) { }",
        "var null = 1",
        "for default in x { }",
        "var {a} = {type}",
        "import ./for",
    ],
)
def test_a_keyword_is_not_a_name(text: str) -> None:
    assert codes(text) == ["PW112"]


def test_a_name_has_at_most_255_characters() -> None:
    assert codes(f"{'a' * 255} = 1") == []
    assert codes(f"{'a' * 256} = 1") == ["PW112"]


# Old spellings


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("task a(x) { }", "worker a(x) { }", "PW290"),
        ("export agent a() { }", "export worker a() { }", "PW290"),
        ("@once task a() { }", "@once worker a() { }", "PW290"),
        ("fail", 'throw "failed"', "PW291"),
        ("fail 'no ' + x", "throw 'no ' + x", "PW291"),
        ("a || fail e", "a || throw e", "PW291"),
        ("var r = await task a(x), b(y)", "var r = self.delegate([a(x), b(y)])", "PW292"),
        ("var r = await task(a(x), b(y))", "var r = self.delegate([a(x), b(y)])", "PW292"),
        ("spawn(a(self), b(self, 1))", "self.delegate([a(), b(1)])", "PW292"),
        ("var (a, _, b) = e", "var [a, _, b] = e", "PW293"),
        ("x = await e.f()", "x = e.f()", "PW294"),
    ],
)
def test_an_old_spelling_is_noted_and_its_fix_is_the_modern_one(old: str, new: str, code: str) -> None:
    parsed = parse(old, "t.pw")

    assert [(found.code, found.severity) for found in parsed.diagnostics] == [(code, "note")]
    fix = parsed.diagnostics[0].fix
    assert fix is not None
    assert old[: fix.start] + fix.text + old[fix.end :] == new
    assert codes(new) == []
    assert tree.same(parsed.tree, module(new))


def test_a_first_argument_self_is_kept_apart() -> None:
    found = expression("w(self, x)")

    assert isinstance(found, tree.Chain)
    call = found.links[0]
    assert isinstance(call, tree.Call)
    assert isinstance(call.old_self, tree.SelfValue)
    assert sketch(call.arguments) == "[x]"


def test_a_program_may_have_a_spawn_of_its_own() -> None:
    assert codes("fun spawn(x) { }\nspawn(1)\n") == []
