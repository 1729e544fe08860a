"""The page of a run in a real browser, as the benchmark measures it: the smallest sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import _browser, web
from bench._tables import NotHereError
from tests.web.browsers import find_chromium


def limits_of(table: str) -> set[str]:
    return {limit.what for limit in web.BENCH.limits if limit.table == table}


def test_every_limit_is_at_a_size_that_is_measured() -> None:
    assert [limit for limit in web.BENCH.limits if limit.size not in web.TABLES[limit.table].sizes] == []


def test_without_a_browser_the_page_is_not_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with (
        pytest.raises(NotHereError, match=r"^not on this machine \(chromium\)$"),
        _browser.open_chromium(),
    ):
        pass


@pytest.mark.browser
def test_the_paint_of_a_page_is_measured(tmp_path: Path) -> None:
    find_chromium()

    row = web.TABLES["browser"].measure(str(tmp_path), 100)

    assert limits_of("browser") <= set(row)
    assert all(value > 0 for value in row.values()), row
    assert row["weight of the page, uncompressed (kB)"] > 50
    assert set(_browser.versions()) == {"Chromium", "Playwright"}


@pytest.mark.browser
def test_a_busy_page_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_chromium()
    monkeypatch.setattr(_browser, "WATCHED_S", 1.0)

    row = web.TABLES["live"].measure(str(tmp_path), 100)

    assert limits_of("live") <= set(row)
    assert all(value > 0 for value in row.values()), row
