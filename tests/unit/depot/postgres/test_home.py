"""The files of a user that open a database, found where the library looks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bartack.depot.postgres.home import find_own_files


def test_files_that_exist_are_found_in_the_home_directory_or_where_a_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    elsewhere = tmp_path / "services"
    for file in (".pgpass", ".postgresql/postgresql.key", "services"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()

    found = find_own_files({"PGSERVICEFILE": str(elsewhere), "PGSSLROOTCERT": str(tmp_path / "absent")})

    assert found == {
        "PGPASSFILE": str(tmp_path / ".pgpass"),
        "PGSERVICEFILE": str(elsewhere),
        "PGSSLKEY": str(tmp_path / ".postgresql/postgresql.key"),
    }
