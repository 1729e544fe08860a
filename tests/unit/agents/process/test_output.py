"""What a process writes is read once and whole, from a pipe as well as from a file that is followed."""

from __future__ import annotations

import os
import select
from pathlib import Path

from bartack.agents.process._output import CHUNK, FileOutput


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def read_ready(output: FileOutput) -> bytes:
    """Read as a loop does: only when it is reported that there is something to read."""
    data = b""
    fd = output.ready_fd
    assert fd is not None
    while select.select([fd], [], [], 0)[0]:
        data += output.read() or b""
    return data


def test_only_what_is_written_after_the_file_was_opened_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out"
    append(path, b"before\n")
    output = FileOutput(path)

    append(path, b"after\n")

    assert read_ready(output) == b"after\n"
    assert output.read() is None
    output.close()


def test_a_report_stands_until_everything_was_read(tmp_path: Path) -> None:
    path = tmp_path / "out"
    output = FileOutput(path)
    data = os.urandom(3 * CHUNK + 5)

    append(path, data)

    assert read_ready(output) == data
    append(path, b"more")
    assert read_ready(output) == b"more"
    output.close()


def test_what_is_left_after_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out"
    output = FileOutput(path)
    append(path, b"last words")

    assert output.drain() == b"last words"
    assert output.drain() == b""
    output.close()
