"""How likely a file is to hold a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.pipeline.snapshot._discovery import Candidate, discover


def find(place: Path, files: dict[str, str], prefer: tuple[str, ...] = (), most: int = 20) -> list[Candidate]:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return discover(str(place), [name.encode() for name in files], prefer=prefer, most=most)


@pytest.mark.parametrize(
    ("path", "text", "score"),
    [
        ("notes.md", "", 0.50),
        ("my-PLAN.md", "", 0.75),
        ("Spec.rst", "", 0.70),
        ("proposal.TXT", "", 0.65),
        ("plan-spec.md", "", 0.75),
        ("docs/release-plan.md", "# Plan for May\n", 0.81),
        ("docs/plans/x.md", "", 0.47),
        ("a/b/c/d/e/f/g/h/i/j/k/l/m/x.md", "", 0.0),
        ("plan.md", "# a plan\n## a spec\n# a proposal\n# one more plan\n", 0.90),
        ("notes.md", "```\n# a plan\n```\n", 0.50),
        ("notes.md", "# nothing\n# telling\n# here\n# plan\n", 0.50),
    ],
)
def test_a_file_has_the_points_of_the_rules_that_fit(
    tmp_path: Path, path: str, text: str, score: float
) -> None:
    assert [candidate.score for candidate in find(tmp_path, {path: text})] == [score]


def test_the_reason_names_the_rules_in_order(tmp_path: Path) -> None:
    (found,) = find(tmp_path, {"docs/release-plan.md": "# Plan for May\n"})

    assert found.reason == (
        "base; name contains plan; in a folder for documents; 1 deep; 1 matching heading; score=0.81"
    )
    assert found.headings == ["Plan for May"]


def test_a_preferred_file_has_more_and_nobody_more_than_all(tmp_path: Path) -> None:
    files = {"plan.md": "# plan\n# plan\n# plan\n", "notes.md": ""}

    found = find(tmp_path, files, prefer=("plan.md", "notes.md"))

    assert [(candidate.path, candidate.score) for candidate in found] == [("plan.md", 1.0), ("notes.md", 0.7)]


def test_equals_are_in_the_order_of_their_paths_and_only_the_best_are_named(tmp_path: Path) -> None:
    found = find(tmp_path, {"b.md": "", "a.md": "", "Z.md": "", "plan.md": ""}, most=3)

    assert [candidate.path for candidate in found] == ["plan.md", "Z.md", "a.md"]


def test_other_files_and_hidden_ones_are_no_candidates(tmp_path: Path) -> None:
    assert find(tmp_path, {"plan.py": "", ".plan.md": "", ".github/plan.md": "", "plan": ""}) == []


def test_a_file_that_is_gone_is_no_candidate(tmp_path: Path) -> None:
    assert discover(str(tmp_path), [b"plan.md", b"bad\xff.md"]) == []


def test_the_same_tree_gives_the_same_candidates_in_another_place(tmp_path: Path) -> None:
    files = {"docs/plan.md": "# Plan\n", "spec.md": "x"}

    assert find(tmp_path / "one", files) == find(tmp_path / "two", files)
