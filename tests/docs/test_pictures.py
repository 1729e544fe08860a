"""The picture of the terminal: what it must not have in it, and how it is drawn."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.docs.test_site import load

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs/pictures/demo.svg"

pictures = load("pictures")


@pytest.mark.requirement("picture-shows-the-demo")
def test_the_picture_is_small_stands_alone_and_has_a_still_frame() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    frames = ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}g")  # noqa: S314 - our own file

    assert len(text.encode()) <= pictures.LARGEST
    assert not re.search(
        r"<script|<image|<foreignObject|@import|url\(|href=|https?://(?!www\.w3\.org/2000/svg)", text
    )
    assert "prefers-color-scheme:dark" in text
    assert "prefers-reduced-motion:reduce" in text
    assert [frame.get("class") for frame in frames].count("f l") == 1
    assert frames[-1].get("class") == "f l"


@pytest.mark.requirement("picture-shows-the-demo")
def test_the_picture_shows_the_live_view_when_everything_is_killed() -> None:
    frames = pictures.shown_frames(PICTURE.read_text(encoding="utf-8"))

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

    shots = list(pictures.record([sys.executable, "-c", script]))

    assert [pictures.text(shot.frame).strip() for shot in shots] == ["abc", "abcd"]


def test_ids_times_and_paths_are_replaced() -> None:
    line = b"run-20261116-193708-662effc8 ik:da7cec8b 19:37:19 5eeb5fdde3ab"

    assert pictures.fix(line) == b"run-20260101-090000-5f3a9c21 ik:5f0c2a9e 09:00:00 5f0c2a9e1b7d"


def test_a_screen_is_drawn_with_its_colours_and_only_the_end_is_still() -> None:
    *_, last = pictures.record(["printf", "\\033[31mred\\033[0m <plain>\\n  \\033[1mbold\\033[0m"])

    svg = pictures.draw([last.frame, last.frame])

    assert pictures.text(last.frame).rstrip() == "red <plain>\n  bold"
    assert pictures.shown_frames(svg) == [["red <plain>", "bold"]] * 2
    assert svg.count('class="r"') == 2
    assert svg.count('class="f l"') == 1
