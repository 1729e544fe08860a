"""The archive of a program: what is packed comes back, and nothing else is written."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from bartack.depot._archive import pack_program, unpack_program
from bartack.errors import DepotError

NAMES = ("program", "program.next-*", "sets.json")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def archive_of(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    made.size = 3 if kind == tarfile.REGTYPE else 0
    return made


def test_a_program_comes_back_as_it_was_and_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    files = {"program.next-3/a.py": b"new", "program/a.py": b"a", "program/b/c.py": b"c", "sets.json": b"{}"}
    one = make(tmp_path / "one", {**files, "journal.ndjson": b"not this"})
    (one / "program/link.py").symlink_to("/etc/passwd")
    two = make(tmp_path / "two", {})
    two.mkdir()

    packed = pack_program(one, NAMES)
    unpack_program(two, packed, NAMES)

    assert tree(two) == files
    assert pack_program(two, NAMES) == packed
    assert oct((two / "program/b").stat().st_mode)[-3:] == "700"


def test_files_of_an_earlier_version_of_the_program_are_removed(tmp_path: Path) -> None:
    packed = pack_program(make(tmp_path / "one", {"program/a.py": b"2"}), NAMES)
    two = make(tmp_path / "two", {"program/a.py": b"1", "program/gone.py": b"1", "journal.ndjson": b"stays"})

    unpack_program(two, packed, NAMES)

    assert tree(two) == {"program/a.py": b"2", "journal.ndjson": b"stays"}


@pytest.mark.parametrize(
    "strange",
    [
        member("../x"),
        member("program/../../x"),
        member("/etc/x"),
        member("//etc/x"),
        member("journal.ndjson"),
        member("program.next"),
        member("programs/x"),
        member("kept.json"),
        member("."),
        member("program/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("program/link", tarfile.LNKTYPE, "program/a.py"),
        member("program/pipe", tarfile.FIFOTYPE),
        member("program/device", tarfile.CHRTYPE),
        member("program/folder", tarfile.DIRTYPE),
    ],
    ids=lambda found: f"{found.name} {found.type!r}",
)
def test_a_strange_member_is_refused_and_nothing_is_written(tmp_path: Path, strange: tarfile.TarInfo) -> None:
    place = make(tmp_path / "in" / "run", {"program/a.py": b"old"})

    with pytest.raises(DepotError, match="strange member"):
        unpack_program(place, archive_of(member("program/a.py"), strange), NAMES)
    assert tree(tmp_path) == {"in/run/program/a.py": b"old"}


@pytest.mark.parametrize(
    "archive", [b"", b"no archive", gzip.compress(archive_of(member("program/a.py")))], ids=len
)
def test_what_is_not_an_archive_is_refused(tmp_path: Path, archive: bytes) -> None:
    with pytest.raises(DepotError, match="cannot be read"):
        unpack_program(tmp_path, archive, NAMES)
    assert tree(tmp_path) == {}
