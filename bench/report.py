"""Makes the page of all results, ``docs/benchmarks.md``, with its plots: ``python -m bench.report``.

It reads what the benchmarks have saved in ``bench/results/``, puts it into ``docs/benchmarks.json`` in the place of older results
of the same benchmarks, and makes page and plots of that file alone. So the page can be made again, and compared, where nothing
was measured.
``_published.py`` has the results, ``_page.py`` the page, ``_svg.py`` the plots, which ``docs/pictures.py`` makes anew with all
other pictures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench._harness import RESULTS
from bench._page import PICTURES, as_page, as_pictures
from bench._published import Published, Result, ResultError, encode, load_published, load_result, merge

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
KEPT: Final = "benchmarks.json"
PAGE: Final = "benchmarks.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Merge, and write; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.report", description="Make the page of all results."
    )
    parser.add_argument("--results", type=Path, default=Path(RESULTS), help="where the benchmarks keep them")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the page is")
    parser.add_argument(
        "--reason", action="append", default=[], metavar="KEY=TEXT", help="why a bound was missed"
    )
    given = parser.parse_args(argv)
    try:
        reasons = dict(_reason(text) for text in given.reason)
        published = merge(load_published(given.docs / KEPT), read_results(given.results), reasons)
    except ResultError as error:
        print(f"bench.report: {error}", file=sys.stderr)
        return 2
    write(published, given.docs)
    print(f"{given.docs / PAGE}: results of {len(published.results)} benchmarks")
    for key in published.unexplained():
        print(f"missed without a reason: {key}", file=sys.stderr)
    return 0


def _reason(text: str) -> tuple[str, str]:
    key, sign, reason = text.partition("=")
    if not sign or not reason.strip():
        raise ResultError(f"--reason {text}: write KEY=TEXT")
    return key.strip(), reason.strip()


def read_results(directory: Path) -> list[Result]:
    """The saved results, without those of quick runs.

    Raises:
        ResultError: A file has no result in it.
    """
    found: list[Result] = []
    for file in sorted(directory.glob("*.json")):
        result = load_result(file)
        if result.quick:
            print(f"{file.name}: left out, a quick run is not a result", file=sys.stderr)
        else:
            found.append(result)
    return found


def write(published: Published, docs: Path) -> None:
    """Write the results, the page and its plots; plots of earlier results are removed."""
    (docs / KEPT).write_text(encode(published), encoding="utf-8")
    (docs / PAGE).write_text(as_page(published), encoding="utf-8")
    pictures = docs / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.svg"):
        old.unlink()
    for name, text in as_pictures(published).items():
        (pictures / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
