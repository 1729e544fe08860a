"""Python projects as people have them: packages below ``src``, data files, compiled modules, imports inside functions."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.newcomer.install import Newcomer

TEAM = """\
from pathlib import Path

from bartack import Context, step, worker
from pkg import helpers
from . import helpers as same

assert same is helpers


@step
def tone() -> str:
    from importlib.resources import files

    return (files("pkg.data") / "tone.txt").read_text().strip()


@step
def go_ahead() -> None:
    if Path("stop").exists():
        raise ValueError("stopped")


@worker
async def child(ctx: Context, name: str) -> str:
    from .late import decorate

    return decorate(name)


@worker
async def main(ctx: Context) -> str:
    said = await tone()
    read = Path(__file__).with_name("motto.txt").read_text().strip()
    (name,) = await ctx.delegate([child(helpers.NAME)])
    await go_ahead()
    from pkg.last import END

    return f"{said} {read} {name} {END}"
"""
PROJECT = {
    "src/pkg/__init__.py": "",
    "src/pkg/team.py": TEAM,
    "src/pkg/helpers.py": 'NAME = "ann"\n',
    "src/pkg/late.py": "from pkg.deeper.twice import twice\n\ndef decorate(name: str) -> str:\n    return twice(name)\n",
    "src/pkg/deeper/__init__.py": "",
    "src/pkg/deeper/twice.py": "def twice(name: str) -> str:\n    return name + name\n",
    "src/pkg/last.py": 'END = "end"\n',
    "src/pkg/unused.py": 'raise RuntimeError("nothing imports this")\n',
    "src/pkg/data/tone.txt": "calm\n",
    "src/pkg/motto.txt": "onward\n",
}
KEPT = sorted(set(PROJECT) - {"src/pkg/unused.py"})
START = """\
from bartack import Run
from pkg.team import main

run = Run.start(main())
run.wait(60)
print(run.result(str))
"""


def lay_out(newcomer: Newcomer, files: dict[str, str]) -> None:
    for name, text in files.items():
        newcomer.write(name, text)


def kept_files(newcomer: Newcomer) -> list[str]:
    (run,) = (newcomer.place / ".bartack/runs").glob("run-*")
    program = run / "program"
    files = (path for path in program.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(str(path.relative_to(program)) for path in files)


def end(newcomer: Newcomer, *words: str, path: str = "") -> str:
    done = newcomer.bartack(*words, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.requirement("packages-run-where-they-are")
def test_a_package_below_src_runs_with_its_data_and_its_late_imports(newcomer: Newcomer) -> None:
    lay_out(newcomer, PROJECT)

    assert end(newcomer, "run", "src/pkg/team.py") == "calm onward annann end\n"
    assert kept_files(newcomer) == KEPT


@pytest.mark.requirement("kept-files-decide")
def test_a_resume_takes_what_was_kept_whatever_became_of_the_project(wheel: Newcomer) -> None:
    lay_out(wheel, {**PROJECT, "stop": ""})
    assert wheel.bartack("run", "src/pkg/team.py", PYTHONPATH="src").returncode == 1
    for name in PROJECT:
        wheel.write(name, "raise RuntimeError('edited')\n")
    shutil.rmtree(wheel.place / "src/pkg/deeper")
    (wheel.place / "stop").unlink()

    done = wheel.bartack("resume")

    assert (done.returncode, done.stdout) == (0, "calm onward annann end\n"), done.stderr
    assert "src/pkg/motto.txt" in done.stderr  # it has changed, and the run says so


@pytest.mark.parametrize("how", ["PYTHONPATH", "pth", "finder", "from the package"])
@pytest.mark.requirement("packages-run-where-they-are")
def test_however_python_finds_the_package_the_run_does(clone: Newcomer, how: str) -> None:
    files = {name.replace("src/", "lib/"): text for name, text in PROJECT.items()}
    lay_out(clone, {**files, "start.py": START, "flat.py": "from pkg.team import main as main\n"})
    (packages,) = (clone.programs.parent / "lib").glob("python*/site-packages")
    sources = clone.place / "lib"
    path = ""
    if how == "pth":
        (packages / "pkg.pth").write_text(str(sources))
    elif how == "finder":
        lines = FINDER.replace("SOURCES", repr(str(sources)))
        (packages / "pkg_finder.py").write_text(lines)
        (packages / "pkg.pth").write_text("import pkg_finder")
    else:
        path = "lib"
    is_embedded = how == "from the package"
    argv = ["python", "start.py"] if is_embedded else ["bartack", "run", "flat.py"]
    done = clone.run(str(clone.programs / argv[0]), *argv[1:], PYTHONPATH=path)

    assert (done.returncode, done.stdout) == (0, "calm onward annann end\n"), done.stderr
    flat = [] if is_embedded else ["flat.py"]
    assert kept_files(clone) == flat + [name.replace("src/", "lib/") for name in KEPT]


def compiled_module() -> Path:
    """A small module that this Python has in compiled form."""
    specs = [find_spec(name) for name in ("_heapq", "_bisect", "_csv", "_json", "_queue", "_struct")]
    files = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    return Path(next(file for file in files if file.endswith(".so")))


FINDER = """\
import importlib.util, os, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pkg":
            folder = os.path.join(SOURCES, "pkg")
            file = os.path.join(folder, "__init__.py")
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[folder])

sys.meta_path.append(Finder)
"""


@pytest.mark.requirement("packages-run-where-they-are")
def test_namespace_packages_compiled_modules_and_packages_from_elsewhere(
    wheel: Newcomer, tmp_path: Path
) -> None:
    compiled = compiled_module()
    name = compiled.name.partition(".")[0]
    lay_out(
        wheel,
        {
            "src/space/one/__init__.py": "",
            "src/space/one/team.py": (
                "from bartack import Context, worker\nfrom space.two import TWO\nfrom other.part import OTHER\n\n"
                "@worker\nasync def main(ctx: Context) -> str:\n    from . import " + name + " as fast\n"
                "    return f'{TWO} {OTHER} {fast.__name__}'\n"
            ),
            "src/space/two.py": "TWO = 2\n",
        },
    )
    shutil.copy(compiled, wheel.place / "src/space/one")
    elsewhere = tmp_path / "elsewhere/other"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").touch()
    (elsewhere / "part.py").write_text("OTHER = 'other'\n")

    told = end(wheel, "run", "src/space/one/team.py", path=str(elsewhere.parent))

    assert told == f"2 other space.one.{name}\n"
    names = ["__init__.py", compiled.name, "team.py"]
    assert kept_files(wheel) == sorted([*(f"src/space/one/{name}" for name in names), "src/space/two.py"])


@pytest.mark.requirement("missing-imports-are-found-first")
def test_an_import_that_cannot_be_satisfied_is_found_before_a_run_is_made(wheel: Newcomer) -> None:
    lay_out(wheel, PROJECT)
    wheel.write(
        "src/pkg/deeper/twice.py", "def twice(name: str) -> str:\n    import nowhere.to_be\n    return name\n"
    )

    done = wheel.bartack("run", "src/pkg/team.py")

    assert done.returncode == 2
    assert "BT310" in done.stderr
    assert "src/pkg/deeper/twice.py:2" in done.stderr
    assert "nowhere" in done.stderr
    assert not list((wheel.place / ".bartack").glob("runs/run-*"))


@pytest.mark.requirement("check-shows-the-program")
def test_check_shows_what_is_kept_and_what_comes_from_the_environment(wheel: Newcomer) -> None:
    lay_out(wheel, PROJECT)
    wheel.write("src/pkg/last.py", "import msgspec\n\nEND = msgspec.__name__\n")

    shown = end(wheel, "check", "--program", "src/pkg/team.py")
    found = json.loads(end(wheel, "check", "--program", "src/pkg/team.py", "--json"))

    assert (found["worker"], found["paths"]) == ("pkg.team:main", ["src", "."])
    assert [file["path"] for file in found["files"]] == KEPT
    assert {file["path"]: file["kind"] for file in found["files"]}["src/pkg/motto.txt"] == "data"
    (own,) = [one for one in found["environment"] if one["module"] == "msgspec"]
    assert own["version"]
    assert all(name in shown for name in [*KEPT, "msgspec", "pkg.team:main"])
    assert not (wheel.place / ".bartack").exists()
