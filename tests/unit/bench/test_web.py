"""The page of a run in a real browser, as the benchmark measures it: the smallest sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
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


@pytest.mark.browser
def test_what_a_page_keeps_is_measured(tmp_path: Path) -> None:
    find_chromium()

    row = web.TABLES["hour"].measure(str(tmp_path), 500)

    assert limits_of("hour") <= set(row)
    assert all(value > 0 for value in row.values()), row


class RecordedRun:
    """A run of which is noted which entries count as received, and when."""

    def __init__(self) -> None:
        self.received: list[tuple[int, int, float]] = []

    def delays(self, after: int, seq: int, at: float) -> list[float]:
        self.received.append((after, seq, at))
        return [at, at]


class RecordedStream:
    """A server whose stream has two frames: their last events have the new entries, those before the entry of the last frame."""

    def cpu_s(self) -> float:
        return 1.0

    def events(self, path: str) -> Iterator[tuple[str, int, float]]:
        assert path.endswith("/events")
        yield from [
            ("hello", 3, 0.1),
            ("parts", 3, 0.2),
            ("bars", 7, 0.2),
            ("parts", 7, 0.3),
            ("bars", 9, 0.3),
        ]


def test_the_entries_of_a_frame_count_as_received_when_the_frame_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RecordedRun()

    def serve(_: str) -> nullcontext[RecordedStream]:
        return nullcontext(RecordedStream())

    def write(_: str, __: int) -> nullcontext[RecordedRun]:
        return nullcontext(run)

    monkeypatch.setattr(web, "WebServer", serve)
    monkeypatch.setattr(web, "BusyRun", write)

    row = web.measure_watched(str(tmp_path), 200)

    assert run.received == [(0, 7, 0.2), (7, 9, 0.3)]
    assert row["entry written to event received, p50 (ms)"] == pytest.approx(250)
