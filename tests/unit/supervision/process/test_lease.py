"""The lease page: one writes, others read, and nobody else can write."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bartack.supervision.process.lease import LeasePage

SECOND_NS = 1_000_000_000


class Pages:
    """A page with its writer and a reader."""

    def __init__(self) -> None:
        self.writer, self.fd = LeasePage.create(LeasePage.now_ns() + 60 * SECOND_NS)
        self.reader = LeasePage.open(self.fd)

    def close(self) -> None:
        self.writer.close()
        self.reader.close()
        os.close(self.fd)


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    made.close()


def test_a_reader_sees_until_when_the_right_lasts(pages: Pages) -> None:
    assert 59 < pages.reader.left_s() <= 60
    pages.writer.renew(LeasePage.now_ns() - SECOND_NS)
    assert -2 < pages.reader.left_s() < -1
    pages.writer.renew(LeasePage.now_ns() + 5 * SECOND_NS)
    assert 4 < pages.reader.left_s() <= 5
    pages.writer.set_offset(-1234)
    assert pages.reader.offset_us == -1234
    assert not pages.reader.is_over


def test_a_right_that_is_gone_for_good_is_not_valid_whatever_was_renewed(pages: Pages) -> None:
    pages.writer.end()
    pages.writer.renew(LeasePage.now_ns() + 60 * SECOND_NS)

    assert pages.reader.is_over
    assert pages.reader.left_s() <= 0


def test_a_page_that_was_never_renewed_gives_no_right() -> None:
    writer, fd = LeasePage.create()

    assert writer.left_s() <= 0
    writer.close()
    os.close(fd)


def test_another_process_reads_what_is_written(pages: Pages) -> None:
    script = (
        "import sys; from bartack.supervision.process.lease import LeasePage\n"
        "page = LeasePage.open(int(sys.argv[1])); print(page.until_ns, page.is_over)\n"
    )
    words = [sys.executable, "-P", "-c", script, str(pages.fd)]
    found = subprocess.run(words, pass_fds=[pages.fd], capture_output=True, text=True, check=True)

    assert found.stdout.split() == [str(pages.writer.until_ns), "False"]


@pytest.mark.skipif(sys.platform != "linux", reason="seals are of Linux")
def test_nobody_but_the_writer_can_write_or_cut_the_page(pages: Pages) -> None:
    again = os.open(f"/proc/self/fd/{pages.fd}", os.O_RDWR)
    for fd in (pages.fd, again):
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x" * 8, 8)
        with pytest.raises(PermissionError):
            mmap.mmap(fd, 32)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    os.close(again)

    pages.writer.renew(7)
    assert pages.reader.until_ns == 7


def test_another_file_is_not_taken_for_a_page() -> None:
    fd = os.memfd_create("other") if hasattr(os, "memfd_create") else -1
    if fd < 0:
        pytest.skip("NOT TESTED, there are no memory files here")
    os.ftruncate(fd, 4096)

    with pytest.raises(ValueError, match="not a lease page"):
        LeasePage.open(fd)
    os.close(fd)
