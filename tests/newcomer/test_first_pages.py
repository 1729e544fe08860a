"""What a newcomer does first: the README, then the tutorials, in one directory and exactly as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.test_examples import (
    FOLLOWED,
    Program,
    Saved,
    blocks_of,
    check_console,
    check_program,
    write_service,
)
from tests.newcomer.install import ROOT, Newcomer

PAGES = {
    "clone": ("README.md", "docs/tutorial/first-patchwork.md", "docs/tutorial/first-team.md"),
    "wheel": ("README.md", "docs/tutorial/first-patchwork.md"),
}
FLEET_PAGE = "docs/tutorial/two-nodes.md"
PYTHON_TEAM = """\
from bartack.runtime import Context, step, worker


@step
def double(n: int) -> int:
    return 2 * n


@worker
async def main(ctx: Context) -> int:
    return await double(21)
"""


def follow(page: Path, newcomer: Newcomer, **env: str) -> None:
    """Do what a page says: save its files, type its commands, and see what it shows."""
    for block in blocks_of(page):
        if isinstance(block, list):
            check_console(block, newcomer.place, newcomer.environment(**env))
        elif isinstance(block, Program):
            check_program(block, newcomer.place)
        elif isinstance(block, Saved):
            block.save(newcomer.place)
        else:
            newcomer.write(block.prefix_settings()["title"], block.source)


def test_every_page_that_is_left_to_newcomers_is_followed() -> None:
    assert {page for pages in PAGES.values() for page in pages} | {FLEET_PAGE} == FOLLOWED


@pytest.mark.requirement("pages-are-run")
@pytest.mark.requirement("first-program-runs-in-a-clone")
def test_the_readme_and_the_tutorials_work_one_after_the_other(newcomer: Newcomer) -> None:
    for page in PAGES[newcomer.kind]:
        follow(ROOT / page, newcomer)


@pytest.mark.requirement("fleet-takeover")
def test_a_run_survives_the_death_of_its_node_as_the_tutorial_says(
    fleet_owner: Newcomer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    services = write_service(tmp_path_factory.mktemp("service"))

    follow(ROOT / FLEET_PAGE, fleet_owner, PGSERVICEFILE=str(services))


@pytest.mark.requirement("first-program-runs-in-a-clone")
def test_a_program_in_a_clone_never_holds_the_package_itself(newcomer: Newcomer) -> None:
    newcomer.write("team.py", PYTHON_TEAM)

    done = newcomer.bartack("run", "team.py")

    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    (run,) = (newcomer.place / ".bartack/runs").glob("run-*")
    assert [path.name for path in (run / "program").rglob("*.py")] == ["team.py"]


def test_the_environments_are_what_they_claim_to_be(newcomer: Newcomer) -> None:
    asked = "import bartack, sys; print(bartack.__file__); import importlib.util as u; print(u.find_spec('pytest'))"

    done = newcomer.run(str(newcomer.python), "-P", "-c", asked)

    where = newcomer.place / "src" if newcomer.kind == "clone" else newcomer.programs.parent / "lib"
    (file, pytest_there) = done.stdout.splitlines()
    assert Path(file).is_relative_to(where)
    assert pytest_there == "None"
