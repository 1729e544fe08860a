"""The look at a program before it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from bartack.runtime.protocol.probing import ProbeRequest

PROGRAM = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> None: ...
"""


def test_nobody_is_told_when_whoever_asked_is_gone(tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(PROGRAM)
    inquiry = ProbeRequest(file=str(tmp_path / "team.py"), root=str(tmp_path))
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [sys.executable, "-m", "bartack.runtime.program.probe"],
        input=msgspec.json.encode(inquiry),
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (1, b"")
