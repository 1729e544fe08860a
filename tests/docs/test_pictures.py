"""The pictures of README and docs: each shows what would be shown now, and is small; how the terminal is drawn."""

from __future__ import annotations

import re
import struct
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.test_demo import TEAM_CHECKS
from tests.docs.test_site import ROOT, load
from tests.web.browsers import open_browser

from bartack.cli.demo._project import PRICE_USD
from bartack.cli.demo._team import ANSWERS

pictures = load("pictures")
terminal, page = pictures.terminal, pictures.page

PICTURE = pictures.FOLDER / "demo.svg"
AGAIN = "make the pictures anew: make pictures"


@pytest.mark.requirement("demo-proves-it")
@pytest.mark.requirement("picture-shows-the-demo")
def test_the_picture_shows_a_demo_across_two_kills_with_the_live_view_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    shots = list(terminal.record([sys.executable, "-m", "bartack", "demo"]))

    states = [terminal.text(shot.frame) for shot in shots]
    end = states[-1]
    assert [line[6:20].strip() for line in end.splitlines() if line.startswith("  ok  ")] == TEAM_CHECKS, end
    assert f"6 answers for {ANSWERS * PRICE_USD:.2f} USD; the agents count 8 calls, 2 again" in end
    assert list(tmp_path.glob("bartack-demo-*")) == []
    before = [
        state
        for state, after in pairwise(states)
        if after.count(terminal.KILLED) > state.count(terminal.KILLED)
    ]
    at_work = [terminal.AT_WORK.findall(state)[-1] for state in before]
    assert all("● running" in state for state in before)
    assert [" ".join(line.split()[2:10]) for line in at_work] == [
        "implement changes builder the tests want whole cents:",
        "review reviewer the limits are checked, and tested;",
    ]
    seen = {terminal.comparable(state) for state in states}
    kept = ["\n".join(lines) for lines in terminal.shown_frames(PICTURE.read_text(encoding="utf-8"))]
    assert [frame for frame in kept if terminal.comparable(frame) not in seen] == [], AGAIN


@pytest.mark.browser
@pytest.mark.requirement("pictures-show-the-page")
def test_the_pictures_show_what_the_page_of_that_run_says_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "release"
    place.mkdir()

    with open_browser() as browser:
        shown = page.show(browser, place)

    assert shown == (pictures.FOLDER / page.TEXT).read_text(encoding="utf-8"), AGAIN


@pytest.mark.requirement("results-come-from-their-file")
def test_the_plots_are_those_of_the_kept_results() -> None:
    made = pictures.make_plots()

    assert {path: path.read_bytes() for path in (ROOT / "docs/pictures/benchmarks").iterdir()} == made, AGAIN


def test_every_picture_is_made_by_the_one_program_and_small() -> None:
    made = {"demo.svg", page.TEXT, *(f"web-{theme}.png" for theme in page.THEMES), "benchmarks"}

    assert {path.name for path in pictures.FOLDER.iterdir()} == made
    for picture in pictures.FOLDER.rglob("*.*"):
        assert picture.stat().st_size <= pictures.LARGEST[picture.suffix], picture.name


@pytest.mark.parametrize("theme", page.THEMES)
@pytest.mark.requirement("pictures-show-the-page")
def test_the_pictures_of_the_page_are_in_use(theme: str) -> None:
    picture = (pictures.FOLDER / f"web-{theme}.png").read_bytes()

    assert struct.unpack(">II", picture[16:24]) == page.SIZE
    assert f"docs/pictures/web-{theme}.png" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_all_pictures_are_made_or_those_named_and_none_is_written_that_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / f"{name}.svg" for name in ("terminal", "page", "plots")}

    def maker(name: str, size: int) -> None:
        monkeypatch.setitem(pictures.MAKERS, name, lambda: {files[name]: b"x" * size})

    for name in files:
        maker(name, 60_000)
    maker("plots", 60_001)

    assert pictures.main([]) == 1
    assert capsys.readouterr().err == "plots.svg has 60001 bytes, more than 60000\n"
    assert list(tmp_path.iterdir()) == []
    assert pictures.main(["page"]) == 0
    assert list(tmp_path.iterdir()) == [files["page"]]
    maker("plots", 1)
    assert pictures.main([]) == 0
    assert sorted(tmp_path.iterdir()) == sorted(files.values())
    with pytest.raises(SystemExit):
        pictures.main(["plot"])


@pytest.mark.requirement("picture-shows-the-demo")
def test_the_picture_is_small_stands_alone_and_has_a_still_frame() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    frames = ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}g")  # noqa: S314 - our own file

    assert not re.search(
        r"<script|<image|<foreignObject|@import|url\(|href=|https?://(?!www\.w3\.org/2000/svg)", text
    )
    assert "prefers-color-scheme:dark" in text
    assert "prefers-reduced-motion:reduce" in text
    assert [frame.get("class") for frame in frames].count("f l") == 1
    assert frames[-1].get("class") == "f l"


@pytest.mark.requirement("picture-shows-the-demo")
def test_the_picture_shows_the_live_view_when_everything_is_killed() -> None:
    frames = terminal.shown_frames(PICTURE.read_text(encoding="utf-8"))

    killed = [frame for frame in frames if any("kill -9 of all" in line for line in frame)]
    assert len(killed) >= 2
    assert all(any("● running" in line for line in frame) for frame in killed[:2])
    assert not any(
        "/home/" in line or "/root/" in line or ".venv" in line for frame in frames for line in frame
    )


def test_a_half_update_is_not_a_state_of_the_screen() -> None:
    script = (
        "import sys, time\n"
        "for part in ('a\\x1b[?2026hb', 'c\\x1b[?2026l', 'd'):\n"
        "    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.1)"
    )

    shots = list(terminal.record([sys.executable, "-c", script]))

    assert [terminal.text(shot.frame).strip() for shot in shots] == ["abc", "abcd"]


def test_ids_times_and_paths_are_replaced() -> None:
    line = b"run-20261116-193708-662effc8 ik:da7cec8b 19:37:19 5eeb5fdde3ab"

    assert terminal.fix(line) == b"run-20260101-090000-5f3a9c21 ik:5f0c2a9e 09:00:00 5f0c2a9e1b7d"


def test_a_screen_is_drawn_with_its_colours_and_only_the_end_is_still() -> None:
    *_, last = terminal.record(["printf", "\\033[31mred\\033[0m <plain>\\n  \\033[1mbold\\033[0m"])

    svg = terminal.draw([last.frame, last.frame])

    assert terminal.text(last.frame).rstrip() == "red <plain>\n  bold"
    assert terminal.shown_frames(svg) == [["red <plain>", "bold"]] * 2
    assert svg.count('class="r"') == 2
    assert svg.count('class="f l"') == 1
