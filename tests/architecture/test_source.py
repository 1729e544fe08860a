"""What every file keeps to, whatever is in it."""

from __future__ import annotations

import ast
import errno
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.modules import statements

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench/results"
LONGEST = 60
LONGEST_CLASS = 400
MOST_METHODS = 30
REASON = re.compile(r"# Long because \S")

TEXT = (".py", ".md", ".toml", ".txt", ".json", "")

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
ORGANISATION = re.compile(
    r"\bphase[ -]?\d(?!HealthChecker)|\bsprint\b|\bmilestone\b|\bissue #?\d", re.IGNORECASE
)
HOME_PATHS = re.compile(r"(?<![\w.])/(home|Users|root|work)/\w")
TELLING_NAMES = re.compile(
    r"phase|sprint|milestone|issue|progress|summary|notes|_(new|old|v\d+)\b", re.IGNORECASE
)

SUPPRESSION = re.compile(r"# (noqa|type: ignore|pyright: ignore)[^\n]*")
TYPED = "src/bartack/core/typed.py"
READS = re.compile(
    r"msgspec\.(convert\(|json\.Decoder\(\w|json\.decode\([^\n]*type=)|from msgspec(\.json)? import [^\n]*(convert|[dD]ecode)"
)
EXPLAINED = re.compile(r"(noqa: [A-Z]+\d+|ignore\[[a-zA-Z-]+\]).* - \S")


def files() -> Iterator[Path]:
    """Every file of the project but this one, which has to name what it looks for."""
    for root in ("src", "tests", "bench", "docs", ".ci"):
        found = (path for path in (ROOT / root).rglob("*") if RESULTS not in path.parents)
        yield from (path for path in found if path.is_file() and path != Path(__file__))
    for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "Makefile", "pyproject.toml", ".gitignore"):
        yield ROOT / name


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def texts(*suffixes: str) -> dict[str, str]:
    """The files with one of these suffixes, by name."""
    found = {named(path): path for path in files() if path.suffix in suffixes}
    return {name: path.read_text(encoding="utf-8") for name, path in sorted(found.items())}


def long_functions(text: str) -> list[tuple[str, bool]]:
    """Functions over the limit, each with whether the comment above it says why."""
    lines = text.splitlines()
    found: list[tuple[str, bool]] = []
    for node in statements(ast.parse(text)) if len(lines) > LONGEST else ():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if (node.end_lineno or first) - first + 1 > LONGEST:
            found.append((node.name, bool(REASON.search(_comment_above(lines, first)))))
    return found


def _comment_above(lines: list[str], line: int) -> str:
    comment: list[str] = []
    while line >= 2 and lines[line - 2].lstrip().startswith("#"):
        line -= 1
        comment.insert(0, lines[line - 1].strip())
    return "\n".join(comment)


def test_a_long_function_says_why_it_is_long() -> None:
    found = {name: long_functions(text) for name, text in texts(".py").items()}

    assert [
        (name, function) for name, long in found.items() for function, excused in long if not excused
    ] == []


def long_classes(text: str) -> list[tuple[str, bool]]:
    """Classes with too many lines or methods, each with whether the comment above it says why."""
    lines = text.splitlines()
    found: list[tuple[str, bool]] = []
    # Most files are too short for such a class, and are not parsed.
    may_have = len(lines) > LONGEST_CLASS or text.count("def ") > MOST_METHODS
    for node in statements(ast.parse(text)) if may_have else ():
        if not isinstance(node, ast.ClassDef):
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        methods = sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
        if (node.end_lineno or first) - node.lineno + 1 > LONGEST_CLASS or methods > MOST_METHODS:
            found.append((node.name, bool(REASON.search(_comment_above(lines, first)))))
    return found


def test_a_long_class_says_why_it_is_long() -> None:
    found = {name: long_classes(text) for name, text in texts(".py").items() if name.startswith("src/")}

    assert [(name, one) for name, long in found.items() for one, excused in long if not excused] == []


def test_a_reason_above_a_long_class_is_seen() -> None:
    body = "    def f(self): ...\n" * (MOST_METHODS + 1)
    lines = "    x = 1\n" * LONGEST_CLASS

    assert long_classes(f"class A:\n{body}") == [("A", False)]
    assert long_classes(f"class A:\n{lines}") == [("A", False)]
    assert long_classes(f"# Long because it is one table.\n@decorated\nclass A:\n{body}") == [("A", True)]


def test_a_reason_above_a_long_function_is_seen() -> None:
    body = "    pass\n" * LONGEST

    assert long_functions(f"def f():\n{body}") == [("f", False)]
    assert long_functions(f"# Some words.\n@decorated\ndef f():\n{body}") == [("f", False)]
    assert long_functions(f"# Long because it is\n# one table.\n@decorated\ndef f():\n{body}") == [
        ("f", True)
    ]
    assert long_functions(f"def f():\n{body[:-9]}") == []


def test_no_file_holds_unfinished_work() -> None:
    assert matches(UNFINISHED, texts(*TEXT)) == []


def test_no_file_tells_how_the_work_was_organised() -> None:
    assert matches(ORGANISATION, texts(*TEXT)) == []
    assert [named(path) for path in files() if TELLING_NAMES.search(named(path))] == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    assert matches(HOME_PATHS, texts(*TEXT)) == []


def test_a_suppression_names_its_rule_and_its_reason() -> None:
    suppressed = matches(SUPPRESSION, texts(".py"))

    assert suppressed
    assert [found for found in suppressed if not EXPLAINED.search(found)] == []


def test_data_is_read_into_types_in_one_way() -> None:
    found = {name: text for name, text in texts(".py").items() if name.startswith("src/") and name != TYPED}

    assert matches(READS, found) == [], "bartack.core.typed does that, in any number of threads"


def matches(pattern: re.Pattern[str], found: dict[str, str]) -> list[str]:
    return [f"{name}: {match[0]}" for name, text in found.items() for match in pattern.finditer(text)]


SAID_BY_THE_SYSTEM = (
    "EACCES ECONNREFUSED ECONNRESET EEXIST EINVAL EIO EISDIR ELOOP EMFILE ENAMETOOLONG ENOENT ENOEXEC ENOSPC ENOTDIR ENOTEMPTY"
    " EPERM EPIPE EROFS"
)


def test_no_test_expects_a_text_of_the_system() -> None:
    said = [os.strerror(getattr(errno, name)) for name in SAID_BY_THE_SYSTEM.split()]
    found = {
        (name, text)
        for name, content in texts(".py").items()
        for text in said
        if name.startswith("tests/") and text in content
    }

    assert found == set(), "use os.strerror: the texts differ between systems"
