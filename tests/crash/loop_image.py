"""A file system in a file, and what a power cut would leave of it.

The file system is mounted through a loop device. A copy of the file, made while the mounted file system is in use, holds what
the kernel had written to the device at that moment and nothing that was only in its cache: it is the disk after a power cut.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SIZE: Final = 48 * 1024 * 1024
TOOLS: Final = ("mkfs.ext4", "mount", "umount")
PATIENCE_S: Final = 60.0
COPIES: Final = 20


class NoLoopDeviceError(Exception):
    """File systems in files cannot be mounted here; says why."""


def make_image(path: Path) -> None:
    """Make an empty ext4 file system.

    Raises:
        NoLoopDeviceError: There are no tools for it here, or this user may not mount.
    """
    if sys.platform != "linux":
        raise NoLoopDeviceError("loop devices are mounted on Linux only")
    if os.geteuid() != 0:
        raise NoLoopDeviceError("only root may mount a file system")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoLoopDeviceError(f"{', '.join(missing)} not found in PATH")
    with path.open("wb") as file:
        file.truncate(SIZE)
    _call("mkfs.ext4", "-q", "-F", str(path))


@contextmanager
def mounted(image: Path, place: Path) -> Generator[None]:
    """Have a file system mounted for the time of a block.

    Raises:
        NoLoopDeviceError: The kernel or the container refuses.
    """
    place.mkdir(exist_ok=True)
    _call("mount", "-o", "loop", str(image), str(place))
    try:
        yield
    finally:
        _call("umount", "--lazy", str(place))


def copy_image(image: Path, copy: Path) -> None:
    """Copy a file system that no process writes to at the moment.

    The kernel may be writing back what processes wrote before. A copy counts when the one after it is the same, because then it
    is the disk at one moment and not a mixture of two.
    """
    again = copy.with_suffix(".again")
    _copy(image, copy)
    for _ in range(COPIES):
        _copy(image, again)
        if filecmp.cmp(copy, again, shallow=False):
            again.unlink()
            return
        os.replace(again, copy)
    raise AssertionError("the kernel never stopped writing")


def _copy(source: Path, target: Path) -> None:
    _call("cp", "--sparse=always", str(source), str(target))


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise NoLoopDeviceError(f"{command[0]}: {done.stderr.strip() or done.returncode}")
