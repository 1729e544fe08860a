"""Times that a person types."""

from __future__ import annotations

from datetime import datetime

import pytest

from bartack.cli.app._moment import parse_moment
from bartack.errors import UsageError

NOW = datetime.fromisoformat("2026-01-31T22:00:00+01:00")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("22:30+01:00", "2026-01-31T22:30:00+01:00"),
        ("22:00+01:00", "2026-02-01T22:00:00+01:00"),
        ("03:00+05:00", "2026-02-01T03:00:00+05:00"),
        ("2026-02-01T00:00+01:00", "2026-02-01T00:00:00+01:00"),
        ("2026-01-31T21:30Z", "2026-01-31T21:30:00+00:00"),
    ],
)
def test_a_time_is_the_next_one_of_its_kind(text: str, meant: str) -> None:
    assert parse_moment(text, NOW) == datetime.fromisoformat(meant)


def test_a_time_without_a_zone_is_one_of_this_machine() -> None:
    found = parse_moment("2026-02-01T10:00", NOW)

    assert found == datetime.fromisoformat("2026-02-01T10:00").astimezone()


@pytest.mark.parametrize("text", ["", "soon", "24:30", "2026-01-31T21:59+01:00", "2026-01-31T22:00+01:00"])
def test_what_is_no_time_or_has_passed_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text, NOW)
