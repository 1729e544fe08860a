"""The pictures of the page in README and docs: they show what the page says now."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.docs.test_site import ROOT, load

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pictures = load("web_pictures")


@pytest.mark.browser
@pytest.mark.requirement("pictures-show-the-page")
def test_the_pictures_show_what_the_page_of_that_run_says_now(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "release"
    place.mkdir()
    run = pictures.start_team(place, pace=1.0)
    try:
        with pictures.serve(run, place) as link:
            page = pictures.visit(browser, link)
            pictures.reload(page)
            shown = pictures.read_text(page)
            page.close()
    finally:
        run.cancel()

    kept = pictures.KEPT.read_text(encoding="utf-8")
    assert shown == kept, "make the pictures anew: python docs/web_pictures.py"


@pytest.mark.parametrize("theme", pictures.THEMES)
@pytest.mark.requirement("pictures-show-the-page")
def test_the_pictures_are_small_and_in_use(theme: str) -> None:
    picture = (pictures.FOLDER / f"web-{theme}.png").read_bytes()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert len(picture) <= pictures.LARGEST
    assert struct.unpack(">II", picture[16:24]) == pictures.SIZE
    assert f"docs/pictures/web-{theme}.png" in readme
