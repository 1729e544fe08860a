"""The rule of what belongs to a Python program, and what its modules are called."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.config.project import Project, main_module, project_of, with_absolute_path
from bartack.runtime.program import imports as _imports
from bartack.runtime.program.imports import Closure, find_data


def lay_out(root: Path, *names: str, **texts: str) -> None:
    for name in [*names, *texts]:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts.get(name, ""))


@pytest.mark.parametrize(
    ("file", "paths", "text", "name", "base"),
    [
        ("team.py", [], "", "team", "."),
        ("scripts/team.py", [], "", "team", "scripts"),
        ("scripts/team.py", ["."], "", "team", "scripts"),
        ("scripts/team.py", ["."], "from . import other", "scripts.team", "."),
        ("scripts/team.py", [], "from . import other", "scripts.team", "."),
        ("pkg/team.py", [], "", "pkg.team", "."),
        ("pkg/part/team.py", [], "", "pkg.part.team", "."),
        ("src/pkg/team.py", [], "", "pkg.team", "src"),
        ("src/team.py", [], "", "team", "src"),
        ("src/space/team.py", [], "", "space.team", "src"),
        ("src/space/pkg/team.py", [], "", "space.pkg.team", "src"),
        ("lib/space/pkg/team.py", [], "", "pkg.team", "lib/space"),
        ("lib/space/pkg/team.py", ["lib"], "", "space.pkg.team", "lib"),
        ("not-a-name/team.py", ["."], "from . import other", "team", "not-a-name"),
        ("pkg/__init__.py", [], "", "pkg", "."),
    ],
)
@pytest.mark.requirement("packages-run-where-they-are")
def test_a_file_is_imported_under_the_name_that_python_would_use(
    tmp_path: Path, file: str, paths: list[str], text: str, name: str, base: str
) -> None:
    for folder in (Path(file).parent, *Path(file).parent.parents):
        if folder.name in {"pkg", "part"}:
            lay_out(tmp_path, str(folder / "__init__.py"))
    lay_out(tmp_path, **{file: text})

    found = main_module(tmp_path / file, str(tmp_path), [str(tmp_path / path) for path in paths])

    assert (found.name, os.path.relpath(found.base, tmp_path)) == (name, base)


def test_a_run_of_before_keeps_the_name_it_has(tmp_path: Path) -> None:
    lay_out(tmp_path, "src/pkg/__init__.py", "src/pkg/team.py")

    found = main_module(tmp_path / "src/pkg/team.py", str(tmp_path), [], "team")

    assert found == ("team", str(tmp_path / "src/pkg"))


@pytest.mark.parametrize(
    ("place", "belongs"),
    [
        ("pkg/a.py", True),
        (".agents/a.py", True),
        ("env/a.py", True),
        (".venv/lib/python3/site-packages/a.py", False),
        ("conda/lib/python3/dist-packages/a.py", False),
        ("venv/a.py", False),
        (".bartack/runs/run-1/program/a.py", False),
        ("node_modules/a.py", False),
        ("../a.py", False),
    ],
)
def test_environments_inside_a_project_do_not_belong_to_it(
    tmp_path: Path, place: str, *, belongs: bool
) -> None:
    root = tmp_path / "site-packages-of-mine/project"

    assert Project(str(root)).holds(str(root / place)) is belongs


def test_of_installed_packages_only_that_of_the_program_belongs_to_it(tmp_path: Path) -> None:
    lay_out(
        tmp_path,
        "lib/site-packages/pkg/__init__.py",
        "lib/site-packages/pkg/team.py",
        "lib/site-packages/click.py",
    )
    packages = tmp_path / "lib/site-packages"

    root = project_of(packages / "pkg/team.py", tmp_path)

    assert root == packages
    assert Project(str(root), "pkg").holds(str(packages / "pkg/team.py"))
    assert not Project(str(root), "pkg").holds(str(packages / "click.py"))
    assert not Project(str(root)).holds(str(packages / "click.py"))


def test_a_relative_path_means_the_same_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert with_absolute_path({"PYTHONPATH": "src:/lib", "A": "b"}) == {
        "PYTHONPATH": f"{tmp_path}/src:/lib",
        "A": "b",
    }
    assert with_absolute_path({}) == {}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project that modules are found in."""
    before = set(sys.path_importer_cache)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for place in set(sys.path_importer_cache) - before:
        del sys.path_importer_cache[place]


def follow(root: Path, text: str) -> Closure:
    """What a module needs that has not been imported."""
    lay_out(root, **{"qteam.py": text})
    closure = Closure(Project(str(root)))
    closure.follow(["qteam"])
    return closure


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import qpkg.a",
        "def f():\n    from qpkg import a",
        "def f():\n    from qpkg.a import A",
        "class C:\n    def f(self):\n        def g():\n            import qpkg.a",
        "if False:\n    import qpkg.a",
        "try:\n    import nowhere\nexcept ImportError:\n    import qpkg.a",
        "import qpkg\nload('qpkg.a')",
    ],
)
@pytest.mark.requirement("packages-run-where-they-are")
def test_modules_that_are_imported_later_are_found_with_their_packages(root: Path, text: str) -> None:
    lay_out(
        root, "qpkg/__init__.py", **{"qpkg/a.py": "A = 1\nfrom .b import c", "qpkg/b/__init__.py": "c = 2"}
    )

    closure = follow(root, text)

    assert sorted(closure.modules.values()) == [
        "qpkg/__init__.py",
        "qpkg/a.py",
        "qpkg/b/__init__.py",
        "qteam.py",
    ]
    assert closure.missing == []
    assert set(closure.bases()) == {"."}


@pytest.mark.requirement("packages-run-where-they-are")
def test_linked_modules_are_kept_under_the_names_they_are_imported_by(root: Path) -> None:
    lay_out(
        root, "qpkg/__init__.py", "qpkg/a.py", "common/b.py", "elsewhere/qc/__init__.py", "elsewhere/qc/d.py"
    )
    project = root / "project"
    project.mkdir()
    (project / "qc").symlink_to(root / "elsewhere/qc")
    (project / "qb.py").symlink_to(root / "common/b.py")
    sys.path.insert(0, str(project))
    lay_out(project, **{"qteam.py": "import qc.d, qb, qpkg.a"})
    closure = Closure(Project(str(project)))

    closure.follow(["qteam"])

    assert sorted(closure.modules.values()) == ["qb.py", "qc/__init__.py", "qc/d.py", "qteam.py"]
    assert set(closure.elsewhere) == {"qpkg"}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("def f():\n    import nowhere", "nowhere"),
        ("async def f():\n    from nowhere.to import be", "nowhere.to"),
        ("def f():\n    import qpkg.gone", "qpkg.gone"),
        ("def f():\n    from qpkg import gone", "qpkg.gone"),
        (
            "f = lambda: 1\nclass C:\n    def f(self):\n        if self.odd:\n            import nowhere",
            "nowhere",
        ),
        ("def f():\n    if ready.name:\n        import nowhere", "nowhere"),
        ("def f():\n    try:\n        import nowhere\n    finally:\n        pass", "nowhere"),
        ("def f():\n    try:\n        import nowhere\n    except KeyError:\n        pass", "nowhere"),
    ],
)
@pytest.mark.requirement("missing-imports-are-found-first")
def test_an_import_in_a_function_that_finds_nothing_is_reported(root: Path, text: str, missing: str) -> None:
    lay_out(root, **{"qpkg/__init__.py": "A = 1\ndef made(): ..."})

    assert [(one.file, one.module) for one in follow(root, text).missing] == [("qteam.py", missing)]


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    try:\n        import nowhere\n    except ImportError:\n        pass",
        "def f():\n    try:\n        import nowhere\n    except (OSError, ModuleNotFoundError):\n        import neither",
        "import contextlib\ndef f():\n    with contextlib.suppress(ImportError):\n        import nowhere",
        "import sys\ndef f():\n    if sys.platform == 'win32':\n        import nowhere",
        "import os\ndef f():\n    if os.name == 'nt':\n        import nowhere",
        "from typing import TYPE_CHECKING\ndef f():\n    if TYPE_CHECKING:\n        import nowhere",
        "if __name__ == '__main__':\n    import nowhere",
        "if False:\n    import nowhere",
        "def f():\n    import email.whatever.they.make",
        "def f():\n    from qpkg import A, made, sub",
        "def f():\n    from qdynamic import whatever",
        "def f():\n    import json, sys, xml.dom.minidom",
        "def f():\n    import broken syntax",
        "def f():\n    if WINDOWS:\n        import winreg, msvcrt",
    ],
)
@pytest.mark.requirement("missing-imports-are-found-first")
def test_imports_that_may_fail_or_never_happen_are_not_errors(root: Path, text: str) -> None:
    lay_out(
        root,
        "qpkg/sub.py",
        **{"qpkg/__init__.py": "A = 1\ndef made(): ...", "qdynamic.py": "def __getattr__(name): ..."},
    )

    assert follow(root, text).missing == []


def data_of(root: Path, closure: Closure) -> list[str]:
    found = find_data(closure, Project(str(root)))
    assert found.left_out == []
    return found.files


@pytest.mark.parametrize(
    ("module", "kept"),
    [
        ("X = 1", False),
        ("X = __file__", True),
        ("from importlib.resources import files", True),
        ("import importlib.resources as r", True),
        ("def f():\n    import pkgutil\n    return pkgutil.get_data('qpkg', 'a.txt')", True),
        ("from jinja2 import PackageLoader", True),
    ],
)
@pytest.mark.requirement("kept-files-decide")
def test_data_files_belong_to_packages_that_can_look_for_them(root: Path, module: str, *, kept: bool) -> None:
    lay_out(
        root,
        "qpkg/__init__.py",
        "qpkg/deep/a.txt",
        "qpkg/.env",
        "qpkg/.hidden/b.txt",
        "qpkg/__pycache__/c.pyc",
        "beside.txt",
        **{"qpkg/part.py": module},
    )
    (root / "qpkg/out.txt").symlink_to("/etc/hostname")

    assert data_of(root, follow(root, "import qpkg.part")) == (["qpkg/deep/a.txt"] if kept else [])


@pytest.mark.requirement("kept-files-decide")
def test_beside_a_script_only_the_files_that_it_names_are_kept(root: Path) -> None:
    lay_out(root, "prompt.txt", "prompts/a.txt", "prompts/b/c.txt", "big.bin", ".env", "../out.txt")
    names = [
        "prompt.txt",
        "prompts",
        "absent.txt",
        ".env",
        ".",
        "..",
        "../out.txt",
        "/etc/hostname",
        "",
        "\\0",
    ]

    assert data_of(root, follow(root, f"HERE = __file__\nNAMES = {names}")) == [
        "prompt.txt",
        "prompts/a.txt",
        "prompts/b/c.txt",
    ]
    assert data_of(root, follow(root, f"NAMES = {names}")) == []


@pytest.mark.requirement("kept-files-decide")
def test_too_much_data_is_left_out_and_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(root, **{"qpkg/__init__.py": "HERE = __file__", "qpkg/data.bin": "x" * 100})
    monkeypatch.setattr(_imports, "DATA_LIMIT", 99)

    found = find_data(follow(root, "import qpkg"), Project(str(root)))

    assert found.files == []
    assert [one.path for one in found.left_out] == ["qpkg"]
