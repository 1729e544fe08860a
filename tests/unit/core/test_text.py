"""Texts that are cut to a length."""

from __future__ import annotations

import pytest

from bartack.core.text import cut


@pytest.mark.parametrize(
    ("text", "shown"), [("", ""), ("abcd", "abcd"), ("abcde", "abc…"), ("abcdefgh", "abc…")]
)
def test_a_text_is_never_longer_than_asked_for(text: str, shown: str) -> None:
    assert cut(text, 4) == shown
