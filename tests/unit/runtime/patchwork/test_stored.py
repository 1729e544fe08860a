"""Compiled programs beside their sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.errors import ProgramFaultError
from bartack.runtime.patchwork import load_program
from bartack.runtime.patchwork._stored import read_units


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A program of two modules."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "main.pw").write_text("import ./lib/a\nworker main() { return a.f(1) }\n")
    (tmp_path / "lib/a.pw").write_text("export fun f(n) { return n }\n")
    return str(tmp_path)


def test_a_program_is_compiled_once(folder: str) -> None:
    assert read_units(folder, "main.pw") is None

    load_program(folder, "main.pw")

    stored = read_units(folder, "main.pw")
    assert stored is not None
    assert [unit.path for unit in stored] == ["main.pw", "lib/a.pw"]
    assert load_program(folder, "main.pw").find_worker("main.pw:main").name == "main"


@pytest.mark.parametrize("module", ["main.pw", "lib/a.pw"])
def test_what_was_compiled_from_other_sources_is_not_used(folder: str, module: str) -> None:
    load_program(folder, "main.pw")

    Path(folder, module).write_text("worker main( {")

    assert read_units(folder, "main.pw") is None
    with pytest.raises(ProgramFaultError):
        load_program(folder, "main.pw")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x92\xa1x\x90"])
def test_what_cannot_be_read_is_as_if_it_were_not_there(folder: str, content: bytes) -> None:
    load_program(folder, "main.pw")

    Path(folder, "__pycache__/main.pwc").write_bytes(content)

    assert read_units(folder, "main.pw") is None
    assert load_program(folder, "main.pw").find_worker("main.pw:main").name == "main"


def test_a_program_runs_from_a_directory_that_cannot_be_written(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr("os.makedirs", refuse)

    assert load_program(folder, "main.pw").find_worker("main.pw:main").name == "main"
