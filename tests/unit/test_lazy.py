from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bartack._lazy import lazy

PACKAGE = """
from bartack._lazy import lazy

__getattr__, __dir__ = lazy(__name__, {"_one": "first second"}, modules={"whole": "_two"})
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "lazypack"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "_one.py").write_text("first = 1\nsecond = [2]\n")
    (folder / "_two.py").write_text("third = 3\n")
    return folder


def test_a_name_is_loaded_by_its_first_use_and_kept(package: Path) -> None:
    program = (
        f"import sys, {package.name} as p\n"
        "assert f'{p.__name__}._one' not in sys.modules\n"
        "assert p.first == 1 and p.second is p.second and 'second' in vars(p)\n"
        "assert p.whole.third == 3\n"
        "assert {'first', 'second', 'whole'} <= set(dir(p))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join([str(package.parent), *sys.path])},
        check=False,
    )

    assert done.returncode == 0


def test_an_unknown_name_is_an_attribute_error_that_names_the_package() -> None:
    get, _ = lazy("bartack.core", {"_json": "canonical"})

    with pytest.raises(AttributeError, match=r"'bartack\.core' has no attribute 'nothing'"):
        get("nothing")


def test_importing_it_loads_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import bartack._lazy; print(sorted(set(sys.modules) - before))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['__future__', 'bartack', 'bartack._lazy', 'bartack._version']"
