"""Makes the pictures of README and docs: ``make pictures``, or ``python docs/pictures.py [NAME]...`` for some of them.

``terminal``: the demo in a terminal, as SVG (``terminal_picture.py``). ``page``: the page of a run in the system's Chromium, as
PNG in both themes, with its text beside them (``page_pictures.py``). ``plots``: those of the page of results, as SVG
(``bench/_page.py``).
All are made before the first one is written. ``tests/docs/test_pictures.py`` compares them with what would be made now.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
FOLDER: Final = DOCS / "pictures"

sys.path += [str(DOCS), str(ROOT)]  # neither is installed

import page_pictures as page  # noqa: E402 - found by the lines above
import terminal_picture as terminal  # noqa: E402 - likewise
from bench._page import PICTURES, as_pictures  # noqa: E402 - likewise
from bench._published import load_published  # noqa: E402 - likewise

LARGEST: Final = {".svg": 60_000, ".png": 150_000, ".txt": 10_000}
"""The largest size of a file, in bytes."""

Files = dict[Path, bytes]


def make_terminal() -> Files:
    """The demo in a terminal."""
    return {FOLDER / "demo.svg": terminal.make().encode()}


def make_page() -> Files:
    """The page of a run, and its text."""
    return {FOLDER / name: content for name, content in page.make().items()}


def make_plots() -> Files:
    """The plots of the page of results, from the kept results."""
    plots = as_pictures(load_published(DOCS / "benchmarks.json"))
    return {DOCS / PICTURES / name: text.encode() for name, text in plots.items()}


MAKERS: Final[dict[str, Callable[[], Files]]] = {
    "terminal": make_terminal,
    "page": make_page,
    "plots": make_plots,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Make the pictures with the given names, or all."""
    parser = argparse.ArgumentParser(
        prog="python docs/pictures.py", description="Make the pictures of the docs."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MAKERS)} (default: all)")
    names = parser.parse_args(argv).names or MAKERS
    unknown = ", ".join(name for name in names if name not in MAKERS)
    if unknown:
        parser.error(f"unknown picture {unknown}; choose from {', '.join(MAKERS)}")
    files: Files = {}
    for name in names:
        files |= MAKERS[name]()
    too_large = [file for file, content in files.items() if len(content) > LARGEST[file.suffix]]
    for file in too_large:
        sys.stderr.write(f"{file.name} has {len(files[file])} bytes, more than {LARGEST[file.suffix]}\n")
    if too_large:
        return 1
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
