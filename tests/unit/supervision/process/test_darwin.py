from __future__ import annotations

import errno
import os
import struct

import pytest

from bartack.supervision.process import _darwin


def bsdinfo(status: int = 2) -> bytes:
    """What ``libproc`` says of a process: flags and ids, two names, files and groups, niceness, start."""
    head = struct.pack("=12I", 0, status, 0, os.getpid(), 42, *[501] * 6, 0)
    names = struct.pack("=16s32s", b"python3.11", b"python3.11")
    tail = struct.pack("=5Ii2Q", 9, 77, 0, 0, 0, 0, 1_700_000_000, 123)
    return head + names + tail


def test_the_facts_of_a_process_are_where_libproc_puts_them() -> None:
    found = _darwin.parse_bsdinfo(bsdinfo())

    assert (found.pid, found.ppid, found.group, found.session) == (os.getpid(), 42, 77, os.getsid(0))
    assert (found.name, found.started) == ("python3.11", 1_700_000_000_000_123)
    assert not found.dead


def test_a_zombie_is_seen_as_one() -> None:
    assert _darwin.parse_bsdinfo(bsdinfo(status=5)).dead


def test_the_environment_follows_path_and_arguments() -> None:
    text = (
        struct.pack("=i", 2) + b"/bin/sh\0\0\0\0sh\0A=not\0PATH=/bin\0BARTACK_STEP=ik:1=2\0\0stack stuff=1\0"
    )

    assert _darwin.parse_arguments(text) == {"PATH": "/bin", "BARTACK_STEP": "ik:1=2"}


def test_no_process_is_born_in_a_group_that_the_system_does_not_have() -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        _darwin.fork_into(3)
