"""The page of a run in the system's Chromium, driven by Playwright, which downloads nothing."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from random import Random
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final

from bench._tables import NotHereError, Row
from bench._watched import RUN, WATCHED_S, BusyRun, fresh, recorded
from bench._web import WebServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LIMIT_MS: Final = 60_000.0
SETTLED_MS: Final = 1000.0
"""After this time the modules of a page have asked for what they draw."""
POLL_MS: Final = 50.0
QUICK_RATE: Final = 5_000
QUICK_FRAME_S: Final = 0.02
HOUR_LIMIT_S: Final = 400.0
RELOADS: Final = 5
MOVES: Final = 20
LAST: Final = "() => Number(document.getElementById('travel-range').max)"

PAINT: Final = """() => new Promise((done) => {
  const find = (list) => {
    const paint = list.getEntriesByName("first-contentful-paint")[0];
    if (paint) done(paint.startTime);
  };
  new PerformanceObserver(find).observe({ type: "paint", buffered: true });
})"""
WEIGHT: Final = """() => {
  const found = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const sum = (entries) => entries.reduce((size, entry) => size + entry.decodedBodySize, 0);
  const drawn = found.filter((entry) => entry.initiatorType === "fetch");
  return [sum(found) - sum(drawn), drawn.length ? sum(drawn) / drawn.length : 0];
}"""
"""Bytes of the page with its files, and of what the timeline draws, which it asks for by a fetch."""
WATCH: Final = """() => {
  window.shown = [];
  const look = () => {
    const seq = Number(document.querySelector("[data-seq]")?.dataset.seq ?? 0);
    if (seq > (window.shown.at(-1)?.[0] ?? 0)) window.shown.push([seq, Date.now()]);
  };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true });
}"""
"""Notes which entry the page shows, and since when. The head of the page has its number."""

SLIDE: Final = """async (places) => {
  const range = document.getElementById("travel-range");
  const frame = () => new Promise((done) => requestAnimationFrame(() => done(performance.now())));
  const shows = (seq) => new Promise((done) => {
    const look = () => Number(document.querySelector("[data-seq]")?.dataset.seq) === seq && done(performance.now());
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true });
  });
  const lines = [];
  const panels = [];
  for (const place of places) {
    await frame(); // of the move before
    await frame();
    const isShown = shows(place);
    const before = frame();
    const began = performance.now();
    range.value = String(place);
    range.dispatchEvent(new Event("input", { bubbles: true }));
    const handled = performance.now();
    const after = frame();
    lines.push(handled - began + (await after) - (await before));
    panels.push((await isShown) - began);
  }
  return [lines, panels];
}"""
"""Moves the slider. For each place: what the page does until its line is drawn, and when it shows that entry, in milliseconds.

A page draws in the next frame. What it does in it lies between what was asked for before and after it; the time until the frame
begins is not the page's.
"""


def versions() -> dict[str, str]:
    """Which browser it is, and what drives it."""
    shown = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=True).stdout
    return {"Chromium": shown.split()[1], "Playwright": importlib.metadata.version("playwright")}


def _program() -> str:
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        raise NotHereError(NAMES[0])
    return program


@contextmanager
def open_chromium() -> Generator[Browser]:
    """A browser without windows.

    Raises:
        NotHereError: There is none, or Playwright is missing.
    """
    program = _program()
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - a machine without a browser does not need it
    except ImportError:
        raise NotHereError("playwright") from None
    flags = [*FLAGS, "--no-sandbox"] if os.getuid() == 0 else [*FLAGS]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _page(server: WebServer) -> Generator[Page]:
    """The page of the run, in a browser that has nothing in its cache."""
    with open_chromium() as browser:
        page = browser.new_context().new_page()
        page.set_default_timeout(LIMIT_MS)
        page.goto(server.link)
        page.wait_for_url(f"{server.origin}/r/{RUN}")
        yield page


def measure_paint(directory: str, entries: int) -> Row:
    """The page of a run with this many entries: how soon it is painted, and how large it is."""
    workspace = recorded(directory, entries)
    with WebServer(workspace, f"/r/{RUN}") as server, _page(server) as page:
        first = float(page.evaluate(PAINT))
        _wait_until_read(server, page)
        again = [_reload(page) for _ in range(RELOADS)]
        page.wait_for_timeout(SETTLED_MS)
        weight, drawn = page.evaluate(WEIGHT)
        draw = Random(1)
        places = draw.sample(range(1, int(page.evaluate(LAST))), MOVES)
        lines, panels = page.evaluate(SLIDE, places)
        return {
            "first contentful paint, server just started (s)": first / 1e3,
            "first contentful paint, warm (s)": median(again) / 1e3,
            "weight of the page, uncompressed (kB)": weight / 1e3,
            "data of its timeline, uncompressed (kB)": drawn / 1e3,
            "slider moved to line drawn, median (ms)": median(lines),
            "slider moved to entry shown, median (ms)": median(panels),
        }


def _reload(page: Page) -> float:
    page.reload()
    return float(page.evaluate(PAINT))


def _wait_until_read(server: WebServer, page: Page) -> None:
    for _ in range(round(LIMIT_MS / POLL_MS)):
        if server.get(f"/api/v1/runs/{RUN}").json.get("state", "current") != "building":
            return
        page.wait_for_timeout(POLL_MS)
    raise TimeoutError("the journal was not read in time")


def measure_live(directory: str, rate: int) -> Row:
    """The page of a run of 64 workers that writes this many entries a second: how soon they are shown, and what that takes."""
    workspace = fresh(directory)
    with (
        BusyRun(workspace, rate) as run,
        WebServer(workspace, f"/r/{RUN}") as server,
        _page(server) as page,
    ):
        page.wait_for_timeout(SETTLED_MS)
        page.evaluate(WATCH)
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        before = _metrics(devtools)
        page.wait_for_timeout(WATCHED_S * 1e3)
        after = _metrics(devtools)
        shown: list[list[float]] = page.evaluate("() => window.shown")
        devtools.send("HeapProfiler.collectGarbage")
        heap = _metrics(devtools)["JSHeapUsedSize"]
        delays: list[float] = []
        for (last, _), (seq, at_ms) in itertools.pairwise(shown):
            delays += run.delays(int(last), int(seq), at_ms / 1e3)
    busy = (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"])
    return {
        "entry written to shown, p50 (ms)": median(delays) * 1e3,
        "entry written to shown, p95 (ms)": quantiles(delays, n=20)[-1] * 1e3,
        "main thread of the page (%)": busy * 100,
        "heap of the page (MB)": heap / 1e6,
    }


def measure_hour(directory: str, entries: int) -> Row:
    """The page of a run of 64 workers after this many entries, which came as fast as it takes them: what it keeps of them.

    A frame of events has as many entries as at 2,000 entries a second, and comes sooner: a larger one would be left out, and the
    page would ask for what it shows instead.

    Raises:
        TimeoutError: The machine is too busy for that many entries.
    """
    workspace = fresh(directory)
    with (
        BusyRun(workspace, QUICK_RATE) as run,
        WebServer(workspace, f"/r/{RUN}", QUICK_FRAME_S) as server,
        _page(server) as page,
    ):
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        limit = time.monotonic() + HOUR_LIMIT_S
        while run.count < entries:
            if time.monotonic() > limit:
                raise TimeoutError(f"{run.count} of {entries} entries were written in time")
            page.wait_for_timeout(POLL_MS)
        devtools.send("HeapProfiler.collectGarbage")
        kept = _metrics(devtools)
        return {
            "heap of the page (MB)": kept["JSHeapUsedSize"] / 1e6,
            "elements and texts (nodes)": kept["Nodes"],
        }


def _metrics(devtools: CDPSession) -> dict[str, float]:
    answer: dict[str, Any] = devtools.send("Performance.getMetrics")
    return {metric["name"]: metric["value"] for metric in answer["metrics"]}
