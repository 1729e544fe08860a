"""The file that names the database of a run: it counts only if this user has written it for this directory."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from bartack.depot.elsewhere import KEPT_FILE, Elsewhere, read_elsewhere, write_elsewhere
from bartack.depot.placed import PlacedRun
from bartack.errors import UntrustedError

WHERE = Elsewhere("postgresql://database.example/team?sslmode=verify-full")
RUN = "run-20260101-000000-00000001"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / RUN
    made.mkdir(mode=0o700)
    return made


def test_what_this_user_wrote_counts_and_others_cannot_read_it(place: Path) -> None:
    assert read_elsewhere(place) is None
    write_elsewhere(place, WHERE)

    found = read_elsewhere(place)
    assert found is not None
    assert (found.on, found.insecure) == (WHERE.on, False)
    assert stat.S_IMODE((place / KEPT_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff\xfe",
        b'{"on": 1}',
        b'{"on": "postgresql://evil.example/x"}',
        b'{"on": "postgresql://evil.example/x", "mark": "' + b"0" * 40 + b'"}',
        '{"on": "postgresql://evil.example/x", "mark": "ä"}'.encode(),
        b'{"on": "\\ud800", "mark": "\\ud800"}',
        b'{"on": "' + b"x" * 100_000 + b'"}',
    ],
    ids=range(10),
)
def test_a_file_that_came_from_elsewhere_leads_nowhere(place: Path, text: bytes) -> None:
    (place / KEPT_FILE).write_bytes(text)
    run = PlacedRun(place)

    with pytest.raises(UntrustedError) as refused:
        read_elsewhere(place)
    assert refused.value.code
    assert not run.is_kept_elsewhere, "nothing is read from there"
    for own in (
        run.open_journal,
        lambda: run.own().__enter__(),
        lambda: run.mark(b"{}"),
        run.delete,
        run.beat,
    ):
        with pytest.raises(UntrustedError):
            own()


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_file_of_another_kind_leads_nowhere(place: Path, tmp_path: Path, kind: str) -> None:
    target = place / KEPT_FILE
    if kind == "folder":
        target.mkdir()
    elif kind == "pipe":
        os.mkfifo(target)
    else:
        target.symlink_to(tmp_path / "nowhere")

    with pytest.raises(UntrustedError):
        read_elsewhere(place)


def test_a_copy_of_the_directory_leads_nowhere(place: Path, tmp_path: Path) -> None:
    write_elsewhere(place, WHERE)
    shutil.copytree(place, tmp_path / "clone" / RUN)
    place.rename(tmp_path / "run-20260101-000000-00000002")

    for copied in (tmp_path / "clone" / RUN, tmp_path / "run-20260101-000000-00000002"):
        with pytest.raises(UntrustedError):
            read_elsewhere(copied)


@pytest.mark.parametrize("change", [{"on": "postgresql://evil.example/x"}, {"insecure": True}])
def test_a_changed_file_leads_nowhere(place: Path, change: dict[str, object]) -> None:
    write_elsewhere(place, WHERE)
    kept = json.loads((place / KEPT_FILE).read_bytes())
    (place / KEPT_FILE).write_text(json.dumps({**kept, **change}), encoding="utf-8")

    with pytest.raises(UntrustedError):
        read_elsewhere(place)


def test_a_file_of_another_user_leads_nowhere(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_elsewhere(place, WHERE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))

    with pytest.raises(UntrustedError):
        read_elsewhere(place)
