"""The words of the project: no phrase that has a plainer word of the field, and no class name with two meanings.

Every word of a Python file is in a string, a comment or a name, so a file is searched as a whole: names are split into their words,
and a phrase is found across line breaks, comment lines and joined strings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
SRC: Final = ROOT / "src/bartack"
PACKAGES: Final = sorted(path.parent.name for path in SRC.glob("*/__init__.py"))
FOLDERS: Final = ("src", "docs", "examples", "bench")
PAGES: Final = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")
TEXT: Final = frozenset({".py", ".md", ".pw", ".toml", ".json", ".sh", ".txt", ".html", ".js", ".css"})
RESULTS: Final = ROOT / "bench/results"

WORDS: Final = (
    (r"(?:no|some|every|any)body|whoever", "the process, program or user that is meant"),
    (r"(?:he|she|his|him|himself|herself)", "it, or the name of the process"),
    (r"so many", "N, at most N or at least N"),
    (r"mend(?:s|ed|ing)?", "fix or repair"),
    (r"unfit", "invalid"),
    (r"(?:go|goes|going|gone|went) on", "resume or continue"),
    (r"let (?:it |them )?go", "release or continue"),
    (r"behind", "after, or the cause of"),
    (r"(?:tell|tells|told|telling)", "report, notify or return"),
    (r"(?:hear|hears|heard|hearing)", "receive or be notified"),
    (r"may not", "must not, cannot or might not"),
    (r"(?:is|are|was|were) no \w+", "is not a"),
)
"""What to search for, as a regular expression over lower-case words, and what to write instead."""

RIGHT: Final = (
    r"there (?:is|are|was|were) no \w+",
    r"(?:is|are|was|were) no (?:longer|more|less|later)",
    r"may or may not",
)
"""What a pattern would find and that is plain English."""

EXCEPTIONS: Final = {
    '("postgres", "nobody")': "the name of a user",
    'OTHER_USER: Final = "nobody"': "the name of a user",
    "`postgres` or `nobody`": "the name of a user",
    "missing-secret-is-told": "the id of a requirement",
    "stopped-run-goes-on": "the id of a requirement",
    'kind = "monitor.told"': "a kind of entry, which journals have",
    'kind = "link.told"': "a kind of entry, which journals have",
    "told_by": "a column of the lineage database",
    "def mend(self)": "a public method of FaultyDisk",
    "until ``mend``": "a public method of FaultyDisk",
    "Tell customers that we press": "a commit of an example: people tell people",
    '"what was mended"': "journaled: a replay of an older run compares it",
    '"behind"': "a reason of an event of the web API: the page is too slow",
    "`behind`": "a reason of an event of the web API: the page is too slow",
    "wrote more than anybody could read": "journaled: a replay of an older run compares it",
    "go on with the tasks as they are": "journaled: a replay of an older run compares it",
}
"""Phrases, as they are in the file, that a pattern finds and that are right."""

_PATTERN: Final = re.compile(
    rf"\b(?:{'|'.join([*RIGHT, *(f'({words})' for words, _ in WORDS)])})\b".replace(" ", r"\s+")
)
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMPARISON: Final = re.compile(r"\bis (?=[A-Z]+_)")
_NEXT_COMMENT: Final = re.compile(r"\n[ \t]*#+:?")
_NEXT_STRING: Final = re.compile(r"[\"']\n[ \t]*[a-z]?[\"']")
_CLASS: Final = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


class Found(NamedTuple):
    """A phrase, where it is, and what to write instead."""

    file: str
    line: int
    phrase: str
    instead: str


def search(name: str, text: str) -> Iterator[Found]:
    for phrase in EXCEPTIONS:
        text = text.replace(phrase, "")
    words = _NEXT_STRING.sub("\n", _NEXT_COMMENT.sub("\n", text))
    words = _HUMP.sub(" ", _COMPARISON.sub("is: ", words)).replace("_", " ").replace("-", " ").lower()
    for match in _PATTERN.finditer(words):
        if match.lastindex is not None:
            line = words.count("\n", 0, match.start()) + 1
            yield Found(name, line, " ".join(match[0].split()), WORDS[match.lastindex - 1][1])


def newest(changelog: str) -> str:
    """The part of the changelog up to the second version."""
    first, *rest = changelog.split("\n## ")
    return "\n## ".join([first, *rest[:1]])


@cache
def texts() -> dict[str, str]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXT]
    found = [path for path in found if RESULTS not in path.parents and ".bartack" not in path.parts]
    read = {path: path.read_text(encoding="utf-8") for path in [*found, *(ROOT / page for page in PAGES)]}
    read[ROOT / "CHANGELOG.md"] = newest(read[ROOT / "CHANGELOG.md"])
    return {path.relative_to(ROOT).as_posix(): text for path, text in sorted(read.items())}


def test_texts_use_the_words_of_the_field() -> None:
    assert [
        f"{found.file}:{found.line}: {found.phrase!r}: write {found.instead}"
        for name, text in texts().items()
        for found in search(name, text)
    ] == []


def test_an_exception_occurs() -> None:
    unused = [phrase for phrase in EXCEPTIONS if not any(phrase in text for text in texts().values())]

    assert unused == [], "remove these from EXCEPTIONS"


@pytest.mark.parametrize(
    "text",
    [
        "Nobody runs it.",
        "def _told(self): ...",
        "class GoesOn: ...",
        "    # the run goes\n    # on later",
        '("the run goes "\n    "on later")',
        "This is no\n    journal.",
        "The worker may\nnot send.",
        "MAY_NOT = 1",
        '<p class="may-not">',
        "statuses-tell-what = 1",
    ],
)
def test_a_phrase_is_found_in_every_form(text: str) -> None:
    assert list(search("file.py", text))


@pytest.mark.parametrize(
    "text",
    [
        "There is no run.",
        "There\n    is no run.",
        "It is no longer active.",
        "It may or may not be there.",
        "The shell.",
        "if telemetry is NO_TELEMETRY: ...",
    ],
)
def test_plain_english_is_left_alone(text: str) -> None:
    assert list(search("file.py", text)) == []


def test_a_finding_names_its_line() -> None:
    [found] = search("file.py", "one\ntwo_words\n# so\n# many\n")

    assert (found.line, found.phrase) == (3, "so many")


def test_only_the_newest_version_of_the_changelog_is_read() -> None:
    assert newest("# Changelog\n\n## 2\n\n- two\n\n## 1\n\n- one\n") == "# Changelog\n\n## 2\n\n- two\n"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_public_class_name_of_a_package_has_one_meaning(package: str) -> None:
    names = Counter(
        name
        for path in (SRC / package).rglob("*.py")
        for name in _CLASS.findall(path.read_text(encoding="utf-8"))
    )

    assert {name for name, count in names.items() if count > 1} == set()
