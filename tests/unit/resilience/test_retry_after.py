from __future__ import annotations

import pytest

from bartack.resilience._retry_after import parse_retry_after


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("86400", 3600.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("soon", None),
        ("", None),
        (None, None),
        ("-5", None),
    ],
)
def test_retry_after_is_read_in_both_forms(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text, wall_s=60.0) == seconds
