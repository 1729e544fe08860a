"""What a newcomer is told to do next works: the demo by ``make``, the example, and its run in the browser."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.newcomer.install import ROOT, Newcomer
from tests.web.visits import enter_by


@contextmanager
def web(newcomer: Newcomer) -> Generator[str]:
    """The link that ``bartack web`` prints, while it serves."""
    process = subprocess.Popen(
        [newcomer.programs / "bartack", "web", "--no-open", "--json", "--port", "0"],
        cwd=newcomer.place,
        env=newcomer.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield json.loads(line)["url"]
        finally:
            process.terminate()


@pytest.mark.requirement("first-program-runs-in-a-clone")
@pytest.mark.requirement("newcomers-know-what-is-next")
def test_the_example_runs_and_the_browser_gets_its_page_with_all_files(newcomer: Newcomer) -> None:
    place = newcomer.place / "first"
    said = newcomer.bartack("init", "--example", "-C", str(place)).stdout
    there = Newcomer(newcomer.kind, place, newcomer.programs, newcomer.home)
    assert there.bartack("run").returncode == 0
    (run,) = (place / ".bartack/runs").glob("run-*")

    with web(there) as link, enter_by(link) as (browser, to):
        pages = [browser.get(path, follow_redirects=True) for path in (to, f"/r/{run.name}")]
        linked = {file for page in pages for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)}
        files = {file: browser.get(file).status_code for file in linked}

    assert "bartack web" in said
    assert [page.status_code for page in pages] == [200, 200]
    assert run.name in pages[0].text
    assert {Path(file).suffix for file in files} == {".css", ".js", ".svg"}
    assert set(files.values()) == {200}


@pytest.mark.requirement("first-program-runs-in-a-clone")
def test_the_wheel_has_all_templates_and_static_files(wheel: Newcomer) -> None:
    sources = ROOT / "src/bartack/web"
    (installed,) = (wheel.programs.parent / "lib").glob("python*/site-packages/bartack/web")

    def files(place: Path) -> list[str]:
        found = [*(place / "templates").rglob("*"), *(place / "static").rglob("*")]
        return sorted(str(path.relative_to(place)) for path in found if path.is_file())

    assert len(files(sources)) > 40
    assert files(installed) == files(sources)


@pytest.mark.requirement("demo-proves-it")
def test_make_demo_in_a_clone_performs_the_demo_and_names_what_is_next(clone: Newcomer) -> None:
    (clone.place / ".venv/.package").touch()  # the environment is there, made without the network

    done = clone.run("make", "demo", PATH="/usr/local/bin:/usr/bin:/bin")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n  ok  ") == 6
    assert "\n  . .venv/bin/activate " in done.stdout
    assert "\n  bartack demo --web " in done.stdout
