from __future__ import annotations

import os
from pathlib import Path

import pytest

from bartack.errors import PeerRefusedError
from bartack.runtime.rundir.layout import RunDir


def test_a_socket_of_somebody_else_is_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(tmp_path / "run-1")
    run.make()
    with run.socket.listen():
        if os.getuid() == 0:
            os.chown(run.socket.path, 65534, -1)  # what root owns may be joined by every user
        monkeypatch.setattr("os.getuid", lambda: os.stat(run.socket.path).st_uid + 1)

        with pytest.raises(PeerRefusedError, match="not a socket of this user"):
            run.socket.connect(1.0)


@pytest.mark.parametrize("variable", ["TMPDIR", "XDG_RUNTIME_DIR"])
def test_a_run_is_joined_however_long_its_path_and_that_of_the_temporary_directory_are(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("long" * 20) / ("longer" * 20)
    deep.mkdir(parents=True)
    monkeypatch.setenv(variable, str(deep))
    monkeypatch.setattr("tempfile.tempdir", None)
    run = RunDir(deep / "run-1")
    run.make()

    with run.socket.listen() as listener, run.socket.connect(1.0):
        accepted, _ = listener.accept()

    accepted.close()
    run.socket.remove()
    assert not run.socket.path.is_symlink()
