"""Modules: how imports find them, in which order they come, and what goes wrong."""

from __future__ import annotations

import pytest

from bartack.language import Checked, check
from bartack.language.checking.modules import MAX_MODULES, NotLoaded
from bartack.language.checking.program import Namespace


def checked(entry: str = "main.pw", **files: str) -> Checked:
    texts = {f"{name.replace('__', '/')}.pw": text for name, text in files.items()}
    return check(lambda path: texts.get(path, NotLoaded("missing")), entry)


def ids(found: Checked) -> list[str]:
    return [module.id for module in found.program.modules]


def codes(found: Checked) -> list[str]:
    return [one.code for one in found.diagnostics]


F = "export fun f() { return 1 }"


def test_modules_come_in_the_order_of_their_imports_entry_first() -> None:
    found = checked(
        main="import ./b, ./a\nprint(a.f(), b.f())",
        a=F,
        b="import ./c\nexport fun f() { return c.f() }",
        c=F,
    )

    assert ids(found) == ["main", "b", "c", "a"]
    assert codes(found) == []


@pytest.mark.parametrize(
    ("line", "module", "use"),
    [
        ("import ./a", "lib/a", "a.f()"),
        ("import ./{a, b}", "lib/a", "[a.f(), b.f()]"),
        ("import ../top", "top", "top.f()"),
        ("import ../other/d", "other/d", "d.f()"),
        ("import deep.er", "lib/deep/er", "er.f()"),
        ("import ./deep/{er}", "lib/deep/er", "er.f()"),
        ('import {f} from "./a"', "lib/a", "f()"),
        ('import {f} from "../other/d"', "other/d", "f()"),
        ('import {f} from "a"', "lib/a", "f()"),
        ("import std.print, ./a", "lib/a", "a.f()"),
    ],
)
def test_a_path_is_taken_from_the_importing_file(line: str, module: str, use: str) -> None:
    found = checked(
        "lib/main.pw",
        lib__main=f"{line}\nprint({use})",
        lib__a=F,
        lib__b=F,
        top=F,
        other__d=F,
        lib__deep__er=F,
    )

    assert codes(found) == []
    assert module in ids(found)


def test_each_file_is_loaded_once() -> None:
    loaded: list[str] = []
    texts = {
        "main.pw": "import ./a, ./b\nprint(a.f(), b.f())",
        "a.pw": "import ./b\n" + F,
        "b.pw": "import ./a\n" + F,
    }

    def load(path: str) -> str | NotLoaded:
        loaded.append(path)
        return texts.get(path, NotLoaded("missing"))

    found = check(load, "main.pw")

    assert sorted(loaded) == ["a.pw", "b.pw", "main.pw"]
    assert set(codes(found)) == {"PW202"}


def test_a_missing_module_is_asked_for_once_and_reported_at_every_import() -> None:
    loaded: list[str] = []

    def load(path: str) -> str | NotLoaded:
        loaded.append(path)
        texts = {
            "main.pw": "import ./a, ./gone\nprint(a.f(), gone.f())",
            "a.pw": "import ./gone\nexport fun f() { return gone.f() }",
        }
        return texts.get(path, NotLoaded("missing"))

    found = check(load, "main.pw")

    assert loaded.count("gone.pw") == 1
    assert codes(found) == ["PW125", "PW125"]
    assert [one.file for one in found.diagnostics] == ["main.pw", "a.pw"]


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (NotLoaded("missing"), "PW125", "module `x` not found; looked at x.pw"),
        (NotLoaded("missing", "X.pw"), "PW125", "the file is spelled `X.pw`"),
        (NotLoaded("unreadable"), "PW125", "cannot be read"),
        (NotLoaded("outside"), "PW127", "is outside the project"),
        (b"\xff", "PW100", "this file is not UTF-8 (byte 0)"),
        ("a\0b", "PW100", "NUL"),
    ],
)
def test_what_the_loader_says_is_reported(answer: str | bytes | NotLoaded, code: str, said: str) -> None:
    found = check(lambda path: "import ./x\nprint(x.f())" if path == "main.pw" else answer, "main.pw")

    assert codes(found) == [code]
    first = found.diagnostics[0]
    assert said in "\n".join((first.message, *first.helps))


def test_an_entry_that_is_not_there_is_reported() -> None:
    found = check(lambda _path: NotLoaded("missing"), "main.pw")

    assert codes(found) == ["PW125"]
    assert ids(found) == ["main"]


@pytest.mark.parametrize("path", ["./lib.pw", "/lib", "./a b", "", "./", "../", "./x/", "$x"])
def test_a_string_that_is_not_a_path_is_refused(path: str) -> None:
    found = checked(main=f'var x = 1\nimport {{f}} from "{path}"\nprint(f(), x)')

    assert "PW114" in codes(found)
    assert "PW120" not in codes(found)


def test_a_cycle_of_modules_is_fine() -> None:
    found = checked(
        main="import ./a\nworker main() { return a.even(4) }",
        a="import ./b\nexport fun even(n) { return n == 0 || b.odd(n - 1) }",
        b="import ./a\nexport fun odd(n) { return n != 0 && a.even(n - 1) }",
    )

    assert codes(found) == []


def test_a_cycle_through_statements_is_refused() -> None:
    found = checked(
        main="import ./a\nprint(a.f())\nexport fun g() { return 1 }",
        a="import ./main\nexport fun f() { return main.g() }",
    )

    assert codes(found) == ["PW115"]
    assert found.diagnostics[0].secondary[0].file == "a.pw"


def test_a_program_has_at_most_a_thousand_modules() -> None:
    def load(path: str) -> str:
        number = int(path.removesuffix(".pw").removeprefix("m"))
        return f"import ./m{number + 1}\nexport fun f() {{ return m{number + 1}.f() }}"

    found = check(load, "m0.pw")

    assert len(found.program.modules) == MAX_MODULES
    assert codes(found) == ["PW110"]


def test_a_call_of_a_module_means_its_default_else_its_namesake() -> None:
    found = checked(
        main="import ./a, ./b\nprint(a(1), a.default(1), b(2))\nworker w() { return self.delegate([a(1), b(1)]) }",
        a="default worker other(x) { return x }\nworker a(x, y) { return [x, y] }",
        b="worker b(x) { return x }",
    )
    module = found.program.entry
    called = [(call.callee.name, call.how) for call in module.calls.values() if call.callee.name != "print"]

    assert codes(found) == []
    assert sorted(called) == [
        ("b", "spec"),
        ("b", "start"),
        ("other", "spec"),
        ("other", "start"),
        ("other", "start"),
    ]


def test_an_import_of_the_library_binds_its_last_word() -> None:
    found = checked(main='import std, std.log\nstd.print("a")\nlog("b")')

    assert codes(found) == []
    assert any(isinstance(symbol, Namespace) for symbol in found.program.entry.names.values())


def test_types_of_other_modules_are_known() -> None:
    found = checked(
        main='import ./a\nimport {Item} from "./a"\nvar x: a.Item = {n: "x"}\nvar y: Item = {n: 1}\nprint(x, y)',
        a="export type Item = { n: int }",
    )

    assert [(one.code, one.span.start) for one in found.diagnostics] == [("PW141", 56)]
