"""Edits of a file of which only some sections may be edited."""

from __future__ import annotations

import pytest

from bartack.pipeline.snapshot.sections import check_edit, find_headings, missing_titles, split_lines

SPEC = b"""Preamble.

# Product
Text.

## Status
Old.

### Details
More.

## Rules
Fixed.

```
## Status
not a heading
```

# Changelog
- one
"""
TITLES = ("Status", "Changelog")


def edit(old: bytes, new: bytes) -> str:
    assert SPEC.count(old) >= 1
    return check_edit(SPEC, SPEC.replace(old, new, 1), TITLES, "SPEC.md").problem


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Old.", b"New.\n\nAnd more."),
        (b"More.", b"Less."),
        (b"### Details\nMore.\n", b""),
        (b"- one\n", b"- one\n- two\n## Sub\ntext\n"),
        (b"- one\n", b"- one"),
        (b"Old.\n", b"Old.\n```\n# Rules\n```\n"),
        (b"- one\n", b""),
    ],
)
def test_an_edit_inside_an_editable_section_or_below_it_is_fine(old: bytes, new: bytes) -> None:
    assert edit(old, new) == ""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b"Preamble.", b"Other.", "outside"),
        (b"Fixed.", b"Loose.", "outside"),
        (b"## Rules", b"## Laws", "outside"),
        (b"not a heading", b"anything", "outside"),
        (b"## Status", b"## Stand", "'## Status' was changed"),
        (b"## Status", b"### Status", "'## Status' was changed"),
        (b"Old.\n", b"Old.\n## Rules 2\n", "outside"),
        (b"# Changelog\n- one\n", b"", "'# Changelog' was changed"),
        (b"Old.\n", b"Old.\n```\n", "was changed"),
    ],
)
def test_an_edit_outside_or_of_a_heading_is_named(old: bytes, new: bytes, problem: str) -> None:
    assert problem in edit(old, new)


def test_sections_that_change_places_are_a_change_outside() -> None:
    before = b"# Status\na\n# Changelog\nb\n"
    after = b"# Changelog\nb\n# Status\na\n"

    assert check_edit(before, after, TITLES, "f").problem


def test_the_diff_shows_the_forbidden_part_alone() -> None:
    after = SPEC.replace(b"Old.", b"New.").replace(b"Fixed.", b"Loose.")

    verdict = check_edit(SPEC, after, TITLES, "SPEC.md")

    assert "-Fixed.\n+Loose.\n" in verdict.diff
    assert "SPEC.md (before)" in verdict.diff
    assert "New." not in verdict.diff


def test_a_file_with_windows_line_ends_is_judged_alike() -> None:
    before = SPEC.replace(b"\n", b"\r\n")

    assert check_edit(before, before.replace(b"Old.", b"New."), TITLES, "f").problem == ""
    assert check_edit(before, before.replace(b"Fixed.", b"Loose."), TITLES, "f").problem
    assert check_edit(before, SPEC, TITLES, "f").problem


def test_a_title_that_is_there_twice_may_be_edited_twice() -> None:
    before = b"# Status\na\n# Other\nx\n# Status\nb\n"

    assert (
        check_edit(before, before.replace(b"a\n", b"c\n").replace(b"b\n", b"d\n"), TITLES, "f").problem == ""
    )


def test_headings_are_found_as_markdown_has_them() -> None:
    text = b"#no\n# a #\n   ## b\n    # code\n####### seven\n#\n~~~\n# in\n~~~~\n# c\n"

    found = find_headings(split_lines(text))

    assert [(heading.level, heading.title) for heading in found] == [(1, "a"), (2, "b"), (1, ""), (1, "c")]


def test_titles_that_are_not_in_a_file_are_told() -> None:
    assert missing_titles(SPEC, ["Status", "Decisions"]) == ["Decisions"]
    assert missing_titles(b"", ["Status"]) == ["Status"]
