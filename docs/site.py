"""Builds the site of the docs: ``make docs``, or ``python docs/site.py``.

The pages are put together in ``build/docs`` first: those of ``docs/``, with ``examples/`` below them, so that every link between
the two works. A link to another file of the source leads to a copy of it.
Then zensical builds ``build/site``, as ``mkdocs.yml`` describes.
The build fails on a warning, on a dead link, on a page that the navigation does not have, and on a page that would load something
from elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
STAGED: Final = "build/docs"
SITE: Final = "build/site"
SOURCE: Final = "source"
"""The directory of copied files, below that of the pages."""
MOUNTED: Final = "examples"

LINK: Final = re.compile(r"(?<!!)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")
PICTURE: Final = re.compile(
    r"!\[[^\]]*\]\((?P<target>[^()\s]+)\)|<(?:img|source)\b[^>]*?(?:src|srcset)=\"(?P<named>[^\"]+)\""
)
FENCE: Final = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`+[^`\n]+`+")
HEADING: Final = re.compile(r"^#{1,6} +(?P<title>.+?) *#*$", re.MULTILINE)
ANCHOR: Final = re.compile(r"<a (?:id|name)=\"([^\"]+)\">")
NAVIGATED: Final = re.compile(r"^ *- (?:[^:\n]+: +)?(?P<page>\S+\.md)$", re.MULTILINE)
LOADED: Final = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href|srcset)=[\"']?(?:https?:)?//[^>]*>"
)
HARMLESS: Final = re.compile(r"rel=[\"']?(?:canonical|alternate)")


class Link(NamedTuple):
    """A link of a page: the page, its line, and where the link leads."""

    page: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.target}"


def pages(root: Path = ROOT) -> list[Path]:
    """Every page of the site, by its path in the source."""
    found = [*(root / "docs").rglob("*.md"), *(root / MOUNTED).rglob("README.md")]
    return sorted(path.relative_to(root) for path in found)


def page_names(root: Path = ROOT) -> list[str]:
    """Every page of the site, as the navigation names it."""
    return sorted(page.as_posix().removeprefix("docs/") for page in pages(root))


def navigated(root: Path = ROOT) -> list[str]:
    """The pages of the navigation, in its order."""
    _, _, navigation = (root / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    return [found["page"] for found in NAVIGATED.finditer(navigation)]


def links(page: Path, root: Path = ROOT) -> Iterator[Link]:
    """The links and pictures of a page; code has none."""
    text = _without_code((root / page).read_text(encoding="utf-8"))
    for pattern in (LINK, PICTURE):
        for found in pattern.finditer(text):
            groups = found.groupdict()
            target = groups["target"] or groups["named"]
            yield Link(page, text.count("\n", 0, found.start()) + 1, target)


def dead_links(root: Path = ROOT) -> list[Link]:
    """Links between pages that lead to a file or a heading that is not there."""
    return [link for page in pages(root) for link in links(page, root) if not _is_alive(link, root)]


def anchors(page: Path) -> set[str]:
    """The headings and marks of a page, as a link names them."""
    text = page.read_text(encoding="utf-8")
    found: set[str] = set(ANCHOR.findall(text))
    for heading in HEADING.finditer(FENCE.sub("", text)):
        slug = name = slug_of(heading["title"])
        number = 0
        while name in found:
            number += 1
            name = f"{slug}_{number}"
        found.add(name)
    return found


def slug_of(title: str) -> str:
    """The name of a heading in a link."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")


def _is_alive(link: Link, root: Path) -> bool:
    if re.match(r"[a-z]+:", link.target):
        return True
    path, _, anchor = link.target.partition("#")
    file = root / link.page.parent / path if path else root / link.page
    if not file.is_file():
        return False
    return not anchor or (file.suffix == ".md" and anchor in anchors(file))


def _without_code(text: str) -> str:
    """The text with all code blanked, and every line where it was."""
    text = FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    return CODE.sub(lambda found: found[0] if "](" not in found[0] else " " * len(found[0]), text)


def stage(root: Path = ROOT) -> None:
    """Put the pages together, with the files that they link to."""
    staged = root / STAGED
    shutil.rmtree(staged, ignore_errors=True)
    left_out = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(root / "docs", staged, ignore=left_out)
    shutil.copytree(
        root / MOUNTED, staged / MOUNTED, ignore=shutil.ignore_patterns(".bartack", "__pycache__")
    )
    for page in pages(root):
        _stage_page(page, root, staged)


def _stage_page(page: Path, root: Path, staged: Path) -> None:
    place = staged / page.as_posix().removeprefix("docs/")
    text = place.read_text(encoding="utf-8")

    def moved(found: re.Match[str]) -> str:
        path, mark, anchor = found["target"].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        file = (root / page.parent / path).resolve()
        there = _staged_file(file, root, staged)
        return f"[{found['text']}]({os.path.relpath(there, place.parent)}{mark}{anchor})"

    place.write_text(LINK.sub(moved, text), encoding="utf-8")


def _staged_file(file: Path, root: Path, staged: Path) -> Path:
    """Where a file of the source is among the pages; another file than a page is copied."""
    name = file.relative_to(root)
    if name.parts[0] == "docs":
        return staged / name.relative_to("docs")
    if name.parts[0] == MOUNTED:
        return staged / name
    # A page of the source outside of docs/ would be an orphan of the site: it is shown as the text that it is.
    copy = staged / SOURCE / f"{name}.txt"
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    return copy


def loads(root: Path = ROOT) -> list[str]:
    """What the built pages would load from elsewhere."""
    found: list[str] = []
    for page in sorted((root / SITE).rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        found += [
            f"{page.relative_to(root)}: {tag[0]}"
            for tag in LOADED.finditer(text)
            if not HARMLESS.search(tag[0])
        ]
    return found


def problems(root: Path = ROOT) -> list[str]:
    """What is wrong with the pages, before they are built."""
    in_navigation, there = navigated(root), set(page_names(root))
    found = [f"dead link: {link}" for link in dead_links(root)]
    found += [f"not in the navigation of mkdocs.yml: {page}" for page in sorted(there - set(in_navigation))]
    found += [f"in the navigation, but missing: {page}" for page in in_navigation if page not in there]
    found += [
        f"twice in the navigation: {page}"
        for page in sorted({p for p in in_navigation if in_navigation.count(p) > 1})
    ]
    return found


def build(root: Path = ROOT) -> int:
    """Build the site; return the exit code."""
    found = problems(root)
    if not found:
        stage(root)
        program = Path(sys.executable).with_name("zensical")
        words = [str(program), "build", "--strict", "--clean"]
        done = subprocess.run(words, cwd=root, check=False, timeout=600)  # noqa: S603 - fixed words
        if done.returncode:
            return done.returncode
        found = [f"loads something from elsewhere: {tag}" for tag in loads(root)]
    for problem in found:
        print(problem, file=sys.stderr)  # noqa: T201 - a program for the terminal
    if not found:
        print(f"built {SITE}/index.html")  # noqa: T201 - likewise
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(build())
