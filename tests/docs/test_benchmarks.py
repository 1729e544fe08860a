"""The page of benchmark results is what its committed file says."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench._page import as_page
from bench._published import encode, load_published

DOCS = Path(__file__).parents[2] / "docs"
AGAIN = "make it again with: python -m bench.report"


@pytest.mark.requirement("results-come-from-their-file")
def test_the_page_is_that_of_the_kept_results() -> None:
    published = load_published(DOCS / "benchmarks.json")

    assert (DOCS / "benchmarks.json").read_text(encoding="utf-8") == encode(published), AGAIN
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == as_page(published), AGAIN


@pytest.mark.requirement("missed-bounds-are-explained")
def test_every_published_bound_that_is_missed_has_its_reason() -> None:
    published = load_published(DOCS / "benchmarks.json")

    assert published.unexplained() == [], "python -m bench.report --reason KEY=TEXT"
    assert [result.bench for result in published.results if result.quick] == []
