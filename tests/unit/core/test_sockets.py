"""Sockets whose own path is too long: where they are, and what becomes of those without a listener."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.core.sockets import SOCKET_LIMIT, clear_sockets, socket_place
from bartack.errors import PeerRefusedError

LONG = "/" + "long/" * 40 + "hub.sock"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = Path(f"/tmp/bt-sockets-{os.getpid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    yield place
    shutil.rmtree(place)


def listen(path: Path, *, days_old: int = 0) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    made.listen()
    then = path.stat().st_mtime - days_old * 86_400
    os.utime(path, (then, then))
    return made


def test_a_short_path_is_its_own_place() -> None:
    assert socket_place("/run/hub.sock") == "/run/hub.sock"


def test_a_long_path_has_a_short_place_that_is_always_the_same(runtime: Path) -> None:
    place = socket_place(LONG)

    assert len(place) <= SOCKET_LIMIT
    assert place == socket_place(LONG) != socket_place(LONG + "2")
    assert Path(place).parent == runtime / f"bartack-{os.getuid()}"
    assert Path(place).parent.stat().st_mode & 0o777 == 0o700


def test_a_runtime_directory_that_is_not_there_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")

    assert not socket_place(LONG).startswith("/nowhere")


def test_a_directory_that_others_can_enter_is_refused(runtime: Path) -> None:
    folder = Path(socket_place(LONG)).parent
    folder.chmod(0o755)
    try:
        with pytest.raises(PeerRefusedError, match="does not belong to this user alone"):
            socket_place(LONG)
    finally:
        folder.chmod(0o700)


def test_old_sockets_of_the_dead_are_removed_and_no_others(runtime: Path) -> None:
    dead, young, alive, file = (runtime / f"{name}.sock" for name in ("dead", "young", "alive", "file"))
    listen(dead, days_old=2).close()
    listen(young).close()
    file.write_text("no socket")
    os.utime(file, (0, 0))
    with listen(alive, days_old=2):
        clear_sockets(str(runtime / "mine.sock"))

    assert sorted(path.name for path in runtime.glob("*.sock")) == ["alive.sock", "file.sock", "young.sock"]
