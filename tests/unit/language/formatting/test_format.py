"""How programs look after they are formatted."""

from __future__ import annotations

from textwrap import dedent

import pytest

from bartack.language import format, parse, tree  # noqa: A004 - its door
from bartack.language.checking.modules import NotLoaded
from bartack.language.formatting.format import reformat, upgrade

ROWS = {
    "operators": ("x=1+2*-3==y||!z", "x = 1 + 2 * -3 == y || !z\n"),
    "two signs are not one": ("x = - -y", "x = - -y\n"),
    "a range is tight": ("for i in 1 ... n {print( i )}", "for i in 1...n {\n    print(i)\n}\n"),
    "lists on one line": ("f( 1,2, )[ 0 ]", "f(1, 2)[0]\n"),
    "objects have blanks inside": ("var o={a:1,b,...c}", "var o = { a: 1, b, ...c }\n"),
    "empty brackets": ("f( [ ] , { } )", "f([], {})\n"),
    "a newline after the opener stays": ("f([\n1,2])", "f([\n    1,\n    2,\n])\n"),
    "a newline elsewhere goes": ("f(1,\n2)", "f(1, 2)\n"),
    "one statement a line": ("a(); b();;c()", "a()\nb()\nc()\n"),
    "a lone group in a capture": ("x = $( (pwd) )", "x = $( (pwd) )\n"),
    "an empty body": ("worker a ( )\n{\n}", "worker a() {}\n"),
    "a block on one line": ("if x { y() } else { z() }", "if x {\n    y()\n} else {\n    z()\n}\n"),
    "else joins its brace": ("if x {\ny()\n}\nelse\n{\nz()\n}", "if x {\n    y()\n} else {\n    z()\n}\n"),
    "try and catch": ("try{ a() }\ncatch e{ b() }", "try {\n    a()\n} catch e {\n    b()\n}\n"),
    "breaks before && and || stay": ("if a\n&& b {\nc()\n}", "if a\n    && b {\n    c()\n}\n"),
    "breaks after operators go": ("x = 1 +\n2 ||\n3", "x = 1 + 2 || 3\n"),
    "breaks before dots stay": ("xs\n.map( f )\n  .sort()", "xs\n    .map(f)\n    .sort()\n"),
    "strings are left alone": ("print( \"a  \\n\" , 'b  ' )", "print(\"a  \\n\", 'b  ')\n"),
    "blank lines": ("\n\na()\n\n\n\nb()\n\n", "a()\n\nb()\n"),
    "no blank lines at the edges of blocks": ("if x {\n\n\na()\n\n}", "if x {\n    a()\n}\n"),
    "one blank line between items": (
        "import ./a\nimport ./b\nfun f() {}\nfun g() {}",
        "import ./a\nimport ./b\n\nfun f() {}\n\nfun g() {}\n",
    ),
    "imports": ('import ./{ a,b },  {x,y}from "./m",std.log', 'import ./{a, b}, { x, y } from "./m", std.log\n'),
    "annotations have their own lines": (
        "@once @timeout ( 5 ) export default fun f(a:int=1 , b):[string] {}",
        "@once\n@timeout(5)\nexport default fun f(a: int = 1, b): [string] {}\n",
    ),
    "traits": (
        "trait A:[ Agent,B ]{fun f(){};fun g(){}}",
        "trait A: [Agent, B] {\n    fun f() {}\n\n    fun g() {}\n}\n",
    ),
    "types": ('type T={a:int,b?:array< int >}|"x"|null', 'type T = { a: int, b?: array<int> } | "x" | null\n'),
    "unions break where they do": ('type T =\n| "a"\n| "b"', 'type T =\n    | "a"\n    | "b"\n'),
    "patterns": ('var {a,kind:"x"}=b\nvar [ c,_,{d} ]=e', 'var { a, kind: "x" } = b\nvar [c, _, { d }] = e\n'),
    "old spellings stay": (
        "task a() { fail }\nawait task a(1),b(2)\nvar (x,y)=await z\nspawn( a(self) )",
        "task a() {\n    fail\n}\n\nawait task a(1), b(2)\nvar (x, y) = await z\nspawn(a(self))\n",
    ),
    "files": ('cat( x )>"f"\nvar j=json <"g"', 'cat(x) > "f"\nvar j = json < "g"\n'),
    "words have one blank between them": ("$  git   log  -1|head>f  2>&1", "$ git log -1 | head > f 2>&1\n"),
    "words are left alone": ("$ a\"b  c\"$x'  '${ y+1 }", "$ a\"b  c\"$x'  '${ y+1 }\n"),
    "a backslash continues its line": ("$ a \\\n b &&\\\n c", "$ a \\\n    b && \\\n    c\n"),
    "shell values are tight": (
        "var a = $( x  y )\nvar b=($   z)||($(  w ))",
        "var a = $(x y)\nvar b = ($ z) || ($(w))\n",
    ),
    "shell groups": ("$ ( cd a&&b )>f", "$ (cd a && b) > f\n"),
    "carriage returns go": ("a()\r\nprint(\"x\r\ny\")\r\n", 'a()\nprint("x\ny")\n'),
    "a script": ("{ a(); b() }", "{\n    a()\n    b()\n}\n"),
    "nothing": (" \n\n", ""),
    "only comments": ("  # a  \n\n\n# b", "# a\n\n# b\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_the_canonical_form(name: str) -> None:
    text, expected = ROWS[name]

    assert format(text, "t.pw") == expected


PROMPTS = {
    "moves as a whole": (
        """\
        if x {
          var r = think {
                First:
                  - one

                  - two
              }
        }
        """,
        """\
        if x {
            var r = think {
                First:
                  - one

                  - two
            }
        }
        """,
    ),
    "on one line": ("ask {Really?}\n", "ask { Really? }\n"),
    "that begins after its brace": (
        """\
        think {Say
        this to $them}
        """,
        """\
        think { Say
            this to $them
        }
        """,
    ),
    "with blocks": (
        """\
        think {
            Look:
              do { x = 1; $ ls }
            and ${ a+b }.
            }
        """,
        """\
        think {
            Look:
              do {
                  x = 1
                  $ ls
              }
            and ${ a+b }.
        }
        """,
    ),
    "in arguments": (
        """\
        f(think {
        a
        }, 1)
        """,
        """\
        f(think {
            a
        }, 1)
        """,
    ),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_keep_their_text_and_change_their_place(name: str) -> None:
    text, expected = (dedent(one) for one in PROMPTS[name])

    assert format(text, "t.pw") == expected


COMMENTS = """\
#!/usr/bin/env bartack
# About the file.

# About f.
@once # once
fun f( # opens
  a, # first
  # before b
  b
) { # body
  # edge

  g() # call
  if a { b() } # if
  # before else
  else { # else
  }
  # last
} # end
var x = a + # plus
  b
var o = { k: 1, # one
}
"""

COMMENTED = """\
#!/usr/bin/env bartack
# About the file.

# About f.
@once  # once
fun f(  # opens
    a,  # first
    # before b
    b,
) {  # body
    # edge

    g()  # call
    if a {
        b()
    }  # if
    # before else
    else {  # else
    }
    # last
}  # end

var x = a +  # plus
    b
var o = {
    k: 1,  # one
}
"""


def test_comments_stay_with_what_follows_them() -> None:
    assert format(COMMENTS, "t.pw") == COMMENTED


def test_a_list_is_broken_when_its_line_is_too_long() -> None:
    words = [f'"{"x" * 19}"'] * 4
    short = f"print({', '.join(words)})\n"
    long = f"print({', '.join([*words, '12345'])})\n"

    assert format(short, "t.pw") == short
    assert (
        format(long, "t.pw") == "print(\n" + "".join(f"    {word},\n" for word in [*words, "12345"]) + ")\n"
    )


def test_a_line_of_100_columns_is_not_too_long() -> None:
    fits = f'print("{"x" * 91}")\n'
    wide = f'print("{"x" * 92}")\n'

    assert len(fits.rstrip("\n")) == 100
    assert format(fits, "t.pw") == fits
    assert format(wide, "t.pw") == f'print(\n    "{"x" * 92}",\n)\n'


def test_a_call_with_one_list_breaks_the_list() -> None:
    calls = [f'poll("{"x" * 30}")'] * 3
    text = f"self.delegate([{', '.join(calls)}])\n"

    assert format(text, "t.pw") == "self.delegate([\n" + "".join(f"    {call},\n" for call in calls) + "])\n"


@pytest.mark.parametrize("text", ["if {", "print('a)\n", "think { a", "\0", "f(1", "$ a; b"])
@pytest.mark.requirement("format-leaves-errors-alone")
def test_a_text_with_errors_is_left_alone(text: str) -> None:
    done = reformat(text, "t.pw")

    assert (done.text, done.kept) == (text, True)
    assert format(text, "t.pw") == text


@pytest.mark.parametrize(
    "text",
    [
        "try;{ a: 1 }\n",  # would become a `try` without its `catch`
        'x = json <\n "f"\n',  # would read a file
        ";{ a: 1 }\n",  # would become a script
        "; # c\nworker a() {}\n",  # the comment would become the worker's description
    ],
)
def test_text_that_would_mean_something_else_is_left_alone(text: str) -> None:
    done = reformat(text, "t.pw")

    assert [one.code for one in done.parsed.diagnostics if one.severity == "error"] == []
    assert (done.text, done.kept) == (text, True)


UPGRADES = {
    "task": ("task a() {}\n", "worker a() {}\n"),
    "agent": ("agent a() {}\n", "worker a() {}\n"),
    "fail": ('fun f() {\n    fail "x" + 1\n}\n', 'fun f() {\n    throw "x" + 1\n}\n'),
    "fail alone": ("fun f() {\n    fail\n}\n", 'fun f() {\n    throw "failed"\n}\n'),
    "await task": (
        "worker a(x) {}\n\nawait task a(1), a(2)\n",
        "worker a(x) {}\n\nself.delegate([a(1), a(2)])\n",
    ),
    "await task in parentheses": (
        "worker a(x) {}\n\nawait task(a(1), a(2))\n",
        "worker a(x) {}\n\nself.delegate([a(1), a(2)])\n",
    ),
    "spawn": ("worker a() {}\n\nspawn(a(self), a(self))\n", "worker a() {}\n\nself.delegate([a(), a()])\n"),
    "self as an argument": ("worker a(x) {}\n\na(self, 1)\n", "worker a(x) {}\n\na(1)\n"),
    "round patterns": ("var (a, _, b) = e\n", "var [a, _, b] = e\n"),
    "await": ("x = await f()\n", "x = f()\n"),
    "equality": ("if a = 1 && !(b = 2) {}\n", "if a == 1 && !(b == 2) {}\n"),
    "one in another": (
        "worker a(x) {}\n\nawait task a(await b)\n",
        "worker a(x) {}\n\nself.delegate([a(b)])\n",
    ),
}


@pytest.mark.parametrize("name", UPGRADES)
@pytest.mark.requirement("upgrades-keep-programs")
def test_an_upgrade_replaces_old_spellings(name: str) -> None:
    text, expected = UPGRADES[name]
    assert format(text, "t.pw") == text

    upgraded = upgrade(text, "t.pw")

    assert upgraded == expected
    assert [one.code for one in parse(upgraded, "t.pw").diagnostics] == []
    assert tree.same(parse(text, "t.pw").tree, parse(upgraded, "t.pw").tree)


def test_an_upgrade_knows_the_workers_of_other_modules() -> None:
    def load(path: str) -> str | NotLoaded:
        return "worker look(x) {}\n" if path == "lib.pw" else NotLoaded("missing")

    text = "import ./lib\n\nlib.look(self, 1)\n"

    assert upgrade(text, "t.pw") == text
    assert upgrade(text, "t.pw", load) == "import ./lib\n\nlib.look(1)\n"


@pytest.mark.parametrize(
    "text",
    [
        'if x = 2 { print("y") }  # pw: ignore[PW200]\n',
        "# pw: ignore[PW291]\nif x { fail }\n",
        "var a = 1; var b = 2  # pw: ignore[PW201]\n",
        'try {\n    f()\n} catch e { print("y") }  # pw: ignore[PW201]\n',
        'while x {\n    f()\n    print("y") }  # pw: ignore[PW201]\n',
        f"var a = [{'1, ' * 40}2]  # pw: ignore[PW201]\n",
        "f(a,\n    b = 1)  # pw: ignore[PW225]\n",
        "f(\n    a = 1, b = 1,  # pw: ignore[PW225]\n)\n",
        "worker main() { return a(self, 1) }  # pw: ignore[PW292]\n",
    ],
)
def test_a_line_with_a_silenced_warning_stays_together(text: str) -> None:
    plain = text.replace("pw: ignore", "ignored")

    assert format(text, "a.pw") == text
    assert format(plain, "a.pw") != plain
