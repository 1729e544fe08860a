"""The process in which uv makes an environment: ``python -m bartack.node._environment_maker``, below guardians of the node.

It reads a ``MakeOrder`` and writes a ``Made``. What it starts ends with the node: packages may be built, which executes their code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import typed

MAKE_S: Final = 1800.0
"""How long an environment may take: packages may be built, or come over a slow connection."""
MOST_LINES: Final = 8
"""The last lines of the errors of uv, which name the problem."""
NOT_FOR_UV: Final = frozenset(
    {
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "PYTHONHOME",
        "UV_PROJECT",
        "UV_DIRECTORY",
        "UV_WORKING_DIRECTORY",
        "UV_PYTHON",
        "UV_PROJECT_ENVIRONMENT",
    }
)
"""Variables of the node that would lead uv elsewhere. All others of uv are the node's: caches, indexes, credentials."""
_FIND_BARTACK: Final = "from bartack._version import __version__; from bartack.depot.taken import READS; print(__version__, READS)"


class MakeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made.

    Attributes:
        uv: The program.
        python: The interpreter: a path, or a version that uv finds or installs.
        project: A directory with ``pyproject.toml`` and ``uv.lock``.
        place: Where the environment is made. It can be moved afterwards.
    """

    uv: str
    python: str
    project: str
    place: str


class Made(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was made, or why not.

    Attributes:
        bartack: The version of Bartack in the environment.
        reads: The level of journals that it reads.
        problem: Why there is no environment.
    """

    bartack: str = ""
    reads: int = -1
    problem: str = ""


def main() -> int:
    """Carry out an order."""
    order = typed.decode(sys.stdin.buffer.read(), type=MakeOrder)
    sys.stdout.buffer.write(msgspec.json.encode(make(order, os.environ)))
    return 0


def make(order: MakeOrder, environ: Mapping[str, str]) -> Made:
    """Make an environment from a lock file, without the project itself: its modules are kept with the run.

    Args:
        order: What is to be made.
        environ: The environment of the node.
    """
    variables = {name: value for name, value in environ.items() if name not in NOT_FOR_UV}
    variables |= {
        "UV_PROJECT_ENVIRONMENT": order.place,
        "UV_PYTHON": order.python,
        "NO_COLOR": "1",
        "UV_NO_PROGRESS": "1",
    }
    venv = [order.uv, "venv", "--quiet", "--relocatable", order.place]
    sync = [order.uv, "sync", "--quiet", "--frozen", "--no-install-project", "--no-install-workspace"]
    look = [str(Path(order.place, "bin", "python")), "-P", "-s", "-c", _FIND_BARTACK]
    for words in (venv, sync):
        done = _run(words, order.project, variables)
        if done.returncode:
            return Made(problem=f"'uv {words[1]}' failed: {_last_lines(done.stderr)}")
    found = _run(look, order.project, variables)
    if found.returncode:
        reason = _last_lines(found.stderr).rpartition("; ")[2]
        return Made(
            problem=f"Bartack cannot be used in it; add it to the project with 'uv add bartack' ({reason})"
        )
    version, _, reads = found.stdout.decode().strip().rpartition(" ")
    os.sync()  # what has its name is whole, also after a power cut
    return Made(bartack=version, reads=int(reads))


def _run(words: Sequence[str], cwd: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    # The node ends this process before the time is over.
    return subprocess.run(  # bartack: allow[unsupervised_process] guardians of this process end it  # noqa: S603 - no shell
        words,
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=2 * MAKE_S,
    )


def _last_lines(errors: bytes) -> str:
    lines = [line.strip(" \t×│├╰─▶") for line in errors.decode(errors="replace").splitlines()]  # noqa: RUF001 - as uv draws them
    return "; ".join([line for line in lines if line][-MOST_LINES:])


if __name__ == "__main__":
    sys.exit(main())
