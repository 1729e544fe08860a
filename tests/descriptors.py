"""A process with more descriptors than ``select`` takes."""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

import pytest

MOST = 1024
"""``select`` takes descriptors below this."""
ROOM = 512


@contextmanager
def high_descriptors() -> Generator[None]:
    """Have every descriptor that is opened in this block be above those that ``select`` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + ROOM
    if hard not in {resource.RLIM_INFINITY} and hard < wanted:
        pytest.skip(f"NOT CHECKED: descriptors above {MOST}, because no process may open {wanted} files here")
    with ExitStack() as stack:
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        opened = 0
        while opened < MOST:
            opened = os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, opened)
        yield
