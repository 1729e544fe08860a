"""Waiting for descriptors of any number."""

from __future__ import annotations

import os
import time

from tests.descriptors import MOST, high_descriptors

from bartack.core.readable import wait_readable


def test_those_are_returned_that_can_be_read_from_whatever_their_number() -> None:
    with high_descriptors():
        silent, _silent_end = os.pipe()
        loud, loud_end = os.pipe()
        assert min(silent, loud) > MOST

        assert wait_readable([silent, loud], 0) == []
        os.write(loud_end, b"x")
        assert wait_readable([silent, loud], None) == [loud]
        os.close(_silent_end)
        assert sorted(wait_readable([silent, loud], 5)) == sorted([silent, loud])

        for descriptor in (silent, loud, loud_end):
            os.close(descriptor)


def test_nothing_is_waited_for_no_longer_than_was_asked() -> None:
    began = time.monotonic()

    assert wait_readable([], 0.05) == []

    assert time.monotonic() - began >= 0.05
    assert wait_readable([], -1) == []
