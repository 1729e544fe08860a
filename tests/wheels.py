"""Packages that need no index: installed into a directory, or as wheels that uv locks and installs offline."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

import bartack
from bartack import __version__

GREETING = "greeting"
_PROJECT = """\
[project]
name = "shop"
version = "0"
requires-python = ">=3.11"
dependencies = [{needs}]

[[tool.uv.index]]
name = "local"
url = "{index}"
format = "flat"
default = true
"""


def install_package(site: Path, version: str, name: str = GREETING) -> None:
    """Install a module of one line into a directory, instead of any other version of it."""
    for old in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(_metadata(name, version), "utf-8")
    (site / f"{name}.py").write_text(f"VERSION = {version!r}\n", "utf-8")


def write_wheel(folder: Path, version: str, name: str = GREETING) -> None:
    """Write the wheel of a module with its version and of the program ``greet``, which prints that."""
    module = f"VERSION = {version!r}\n\n\ndef main():\n    print(VERSION)\n"
    scripts = f"[console_scripts]\ngreet = {name}:main\n"
    files = {f"{name}.py": module, f"{name}-{version}.dist-info/entry_points.txt": scripts}
    _write_wheel(folder, name, version, files)


def write_own_wheel(folder: Path) -> None:
    """Write a wheel that makes the Bartack under test importable, with all that it needs."""
    own = (
        Path(bartack.__file__).parents[1],
        sysconfig.get_paths()["purelib"],
        sysconfig.get_paths()["platlib"],
    )
    _write_wheel(folder, "bartack", __version__, {"bartack_under_test.pth": "".join(f"{at}\n" for at in own)})


def uv_program() -> str:
    """The uv of the test environment."""
    found = shutil.which("uv", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))
    assert found is not None, "the extra 'test' has uv"
    return found


def uv_variables(folder: Path) -> dict[str, str]:
    """What lets uv work without a network, and leave the cache of the user alone."""
    return {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(folder / "uv-cache"), "UV_PYTHON_DOWNLOADS": "never"}


def lock_project(project: Path, index: Path, *needs: str) -> None:
    """Write the ``pyproject.toml`` of a project that needs packages of a directory with wheels, and its ``uv.lock``."""
    quoted = ", ".join(f'"{need}"' for need in needs)
    (project / "pyproject.toml").write_text(_PROJECT.format(needs=quoted, index=index.as_uri()), "utf-8")
    done = subprocess.run(
        [uv_program(), "lock", "--python", sys.executable],
        cwd=project,
        env={**os.environ, **uv_variables(index)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stderr


def _metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def _write_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> None:
    info = f"{name}-{version}.dist-info"
    tag = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content = {**files, f"{info}/METADATA": _metadata(name, version), f"{info}/WHEEL": tag}
    record = [f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in content.items()]
    content[f"{info}/RECORD"] = f"{''.join(record)}{info}/RECORD,,\n"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in content.items():
            wheel.writestr(path, text)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
