"""The site of the docs: no dead link, no orphan, nothing from elsewhere. Real builds run where their programs are installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    """A program of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


site = load("site")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A source with two pages and an example."""
    (tmp_path / "docs/how-to").mkdir(parents=True)
    (tmp_path / "examples/hello").mkdir(parents=True)
    (tmp_path / "docs/index.md").write_text(
        "# Start\n\n[how](how-to/run.md#when-it-fails-twice) [ex](../examples/hello/README.md) [code](../work.py)\n"
    )
    (tmp_path / "docs/how-to/run.md").write_text(
        "# Run\n\n## When it `fails`, twice\n\n[up](../index.md#start)\n"
    )
    (tmp_path / "examples/hello/README.md").write_text("# Hello\n\n[run](../../docs/how-to/run.md)\n")
    (tmp_path / "work.py").write_text("")
    (tmp_path / "mkdocs.yml").write_text(
        "docs_dir: x\n\nnav:\n  - Start:\n      - A: index.md\n      - how-to/run.md\n      - E: examples/hello/README.md\n"
    )
    return tmp_path


@pytest.mark.requirement("site-has-no-dead-links")
def test_every_page_is_in_the_navigation_once_and_no_link_is_dead() -> None:
    assert site.problems() == []


@pytest.mark.requirement("site-has-no-dead-links")
def test_a_dead_link_an_orphan_and_a_missing_page_are_found(small: Path) -> None:
    assert site.problems(small) == []

    (small / "docs/how-to/run.md").write_text(
        "# Run\n\n[a](gone.md)\n[b](../index.md#nowhere)\n![c](gone.svg)\n`[d](x.md)`\n"
    )
    (small / "docs/orphan.md").write_text("# Orphan\n\n```\n[in code](nowhere.md)\n```\n")
    with (small / "mkdocs.yml").open("a") as file:
        file.write("      - Gone: gone.md\n      - Twice: index.md\n")

    assert site.problems(small) == [
        "dead link: docs/how-to/run.md:3: gone.md",
        "dead link: docs/how-to/run.md:4: ../index.md#nowhere",
        "dead link: docs/how-to/run.md:5: gone.svg",
        "dead link: docs/index.md:3: how-to/run.md#when-it-fails-twice",
        "not in the navigation of mkdocs.yml: orphan.md",
        "in the navigation, but missing: gone.md",
        "twice in the navigation: index.md",
    ]


def test_links_between_docs_examples_and_source_work_among_the_pages(small: Path) -> None:
    site.stage(small)

    staged = small / site.STAGED
    assert "(examples/hello/README.md)" in (staged / "index.md").read_text()
    assert "(source/work.py.txt)" in (staged / "index.md").read_text()
    assert "(../../how-to/run.md)" in (staged / "examples/hello/README.md").read_text()
    assert (staged / "source/work.py.txt").is_file()


@pytest.mark.requirement("site-loads-nothing")
def test_a_page_that_loads_something_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / site.SITE).mkdir(parents=True)
    (tmp_path / site.SITE / "a.html").write_text(
        '<link rel="canonical" href="https://a.example/"><a href="https://b.example">b</a>'
        '<script src=//c.example/x.js></script><link href="assets/x.css"><img src="https://d.example/x.png">'
    )

    assert [tag.partition(": ")[2] for tag in site.loads(tmp_path)] == [
        "<script src=//c.example/x.js>",
        '<img src="https://d.example/x.png">',
    ]


def require(module: str) -> None:
    """Skip a test that needs a program which builds the site. ``BARTACK_REQUIRE_SITE=1`` makes a missing one a failure."""
    if importlib.util.find_spec(module) is None:
        reason = f"NO {module.upper()}: the site of the docs is not built with it; install it with: make docs"
        if os.environ.get("BARTACK_REQUIRE_SITE") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of all that the site is made of."""
    for name in ("docs", "examples"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", ".bartack")
        )
    for link in (link for page in site.pages() for link in site.links(page) if ":" not in link.target):
        file = (ROOT / link.page.parent / link.target.partition("#")[0]).resolve()
        copy = tmp_path / file.relative_to(ROOT)
        if file.is_file() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    shutil.copyfile(ROOT / "mkdocs.yml", tmp_path / "mkdocs.yml")
    return tmp_path


def build(source: Path, *words: str) -> str:
    """Run a program in the source; returns what it wrote."""
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.requirement("site-loads-nothing")
def test_the_site_is_built_without_a_warning_and_colours_patchwork(source: Path) -> None:
    require("zensical")
    written = build(source, "docs/site.py")

    assert written.splitlines()[-1] == "built build/site/index.html"
    page = (source / "build/site/tutorial/first-patchwork.html").read_text(encoding="utf-8")
    assert '<span class="nf">write</span>' in page


def test_mkdocs_material_builds_the_same_pages_without_a_warning(source: Path) -> None:
    require("material")
    site.stage(source)
    build(source, "-m", "mkdocs", "build", "--strict", "--quiet")

    built = {page.relative_to(source / site.SITE) for page in (source / site.SITE).rglob("*.html")}
    index = {name.replace("README.md", "index.md") for name in site.page_names()}
    assert {Path(name).with_suffix(".html") for name in index} <= built
    page = (source / "build/site/tutorial/first-patchwork.html").read_text(encoding="utf-8")
    assert '<span class="nf">write</span>' in page
