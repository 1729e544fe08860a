"""Two ways to have Bartack: a clone with the editable install, and the wheel in an environment without the sources.

Both environments hold Bartack, what it declares to need, and nothing else. The clone and the wheel are made once for all processes
of the tests; a test gets a copy of the clone, or an empty directory, and may do there what it likes.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".git", ".venv", ".bartack", ".hypothesis", "bench", "build", "tests", "*_cache", "dist")
"""What a clone has and a newcomer never meets: copying it would only cost time."""
NOT_THEIRS = {"..", "__pycache__"}
NEED = re.compile(r"([A-Za-z0-9._-]+)(?:\[([a-z]+)\])?")

Kind = Literal["clone", "wheel"]
KINDS: tuple[Kind, ...] = ("clone", "wheel")


@dataclass(frozen=True)
class Newcomer:
    """A person at a shell who has installed Bartack one way or the other.

    Attributes:
        kind: How it is installed.
        place: The directory where the person is: the root of the clone, or an empty one far from any sources.
        programs: The directory of the commands of the environment, which is the first of ``PATH``.
        home: The person's own directory, empty at first.
    """

    kind: Kind
    place: Path
    programs: Path
    home: Path

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.programs / "python"

    def environment(self, **more: str) -> dict[str, str]:
        """The variables of the shell: nothing of them leads back to the sources of these tests."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL_ENV"))
        }
        own = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_STATE_HOME": str(self.home / ".local/state"),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.programs.parent),
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
        }
        return {**kept, **own, **more}

    def bartack(self, *words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Bartack."""
        return self.run(str(self.programs / "bartack"), *words, cwd=cwd, **env)

    def run(self, *argv: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run any command, with input from nowhere."""
        return subprocess.run(
            argv,
            cwd=cwd or self.place,
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def write(self, name: str, text: str) -> Path:
        """Save a file where the person is, or below."""
        file = self.place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A directory that the first process to need it makes, and all others wait for. It stays where it was made."""
    made = Path(f"{folder}.made")
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            made.touch()
    return folder


def make_wheel_environment(folder: Path, extra: str = "") -> None:
    """An environment with the wheel, which is built from the sources as they are now."""
    make_environment(folder, "--no-index", *_built(ROOT, folder / "dist", "wheel"), extra=extra)


def _built(sources: Path, folder: Path, kind: Literal["wheel", "editable"]) -> list[str]:
    """What to install: a wheel that was built without an index, or the sources where only an index has the tools for that."""
    if importlib.util.find_spec("hatchling") is None:
        return ["--editable", str(sources)] if kind == "editable" else _built_with_an_index(sources, folder)
    folder.mkdir(parents=True)
    code = f"import sys; from hatchling.build import build_{kind} as build; build(sys.argv[1])"
    _do(sys.executable, "-c", code, str(folder), cwd=sources)
    return [str(file) for file in folder.glob("*.whl")]


def _built_with_an_index(sources: Path, folder: Path) -> list[str]:
    _do(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(sources))
    return [str(file) for file in folder.glob("*.whl")]


def make_clone(folder: Path) -> None:
    """A checkout as ``git clone`` and ``make`` leave it, with a repository and an environment of its own."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    _do(sys.executable, "-m", "compileall", "-q", str(folder / "src"))
    git = ("git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.example")
    _do(*git, "init", "--quiet")
    _do(*git, "add", "--all")
    _do(*git, "commit", "--quiet", "--message", "all")
    make_environment(folder / ".venv", *_built(folder, folder.with_name(f"{folder.name}.dist"), "editable"))


def copy_clone(clone: Path, place: Path) -> None:
    """A clone of a test's own. Sources are linked; what names its place is written anew."""
    shutil.copytree(clone / "src", place / "src", copy_function=os.link)
    shutil.copytree(
        clone,
        place,
        ignore=lambda folder, _: ["src"] if folder == str(clone) else [],
        symlinks=True,
        dirs_exist_ok=True,
    )
    for file in _files_with_a_place(place / ".venv"):
        before = file.read_text(encoding="utf-8")
        file.write_text(before.replace(str(clone), str(place)), encoding="utf-8")


def _files_with_a_place(environment: Path) -> Iterator[Path]:
    (packages,) = environment.glob("lib/python*/site-packages")
    yield environment / "pyvenv.cfg"
    yield environment / "bin/bartack"
    yield from environment.glob("bin/activate*")
    yield from packages.glob("*bartack*.pth")
    yield from packages.glob("bartack-*.dist-info/direct_url.json")


def make_environment(folder: Path, *what: str, extra: str = "") -> None:
    """A virtual environment with Bartack and everything that it says it needs, also for an extra."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for needed in _needs("bartack", extra):
        for name in {
            Path(str(file)).parts[0] for file in importlib.metadata.files(needed) or ()
        } - NOT_THEIRS:
            (packages / name).symlink_to(Path(str(importlib.metadata.distribution(needed).locate_file(name))))
    _do(*_installer(folder / "bin/python"), "--quiet", "--no-deps", *what)


def _installer(python: Path) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--python",
            str(python),
            "install",
        ]
    return ["uv", "pip", "install", "--python", str(python)]


def _needs(name: str, extra: str) -> set[str]:
    """All that a distribution needs, also for an extra, and what that needs in turn; without what is optional."""
    found: set[str] = set()
    waiting = [(name, extra)]
    while waiting:
        asking, its_extra = waiting.pop()
        for line in importlib.metadata.requires(asking) or ():
            match = NEED.match(line)
            assert match is not None, line
            needed = match[1].replace("_", "-").lower()
            is_asked_for = "extra ==" not in line or (
                its_extra and f"extra == '{its_extra}'" in line.replace('"', "'")
            )
            if needed not in found and is_asked_for and _is_installed(needed):
                found.add(needed)
                waiting.append((needed, match[2] or ""))
    return found


def _is_installed(name: str) -> bool:
    """What a marker excludes on this system is not there; what is missing otherwise, the tests find out."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _do(*argv: str, cwd: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}:\n{done.stdout}{done.stderr}"
