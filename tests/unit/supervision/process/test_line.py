"""The line of parents of a process, while parents die."""

from __future__ import annotations

import os

from bartack.supervision.process.facts import ProcessFacts
from bartack.supervision.process.line import read_line

Table = dict[int, ProcessFacts]


def process(pid: int, ppid: int, started: int) -> ProcessFacts:
    return ProcessFacts(pid, ppid, pid, pid, "S", 1, started, f"p{pid}")


def pids(line: list[ProcessFacts] | None) -> list[int] | None:
    return None if line is None else [facts.pid for facts in line]


def family(*members: tuple[int, int]) -> Table:
    """A table of processes, each older than the next."""
    return {pid: process(pid, ppid, started) for started, (pid, ppid) in enumerate(members)}


def test_the_line_of_this_process_begins_with_it_and_continues_with_its_parent() -> None:
    line = pids(read_line(os.getpid()))

    assert line is not None
    assert line[:2] == [os.getpid(), os.getppid()]


def test_a_line_ends_below_the_first_process() -> None:
    table = family((1, 0), (10, 1), (20, 10))

    assert pids(read_line(20, table.get)) == [20, 10]


def test_a_process_that_is_gone_has_no_line() -> None:
    assert read_line(20, family((1, 0)).get) is None


def test_a_parent_that_dies_is_followed_by_the_process_that_adopts_its_children() -> None:
    table = family((10, 1), (15, 10), (20, 15))

    def read(pid: int) -> ProcessFacts | None:
        if pid == 15:
            table[20] = process(20, 10, 2)
            return None
        return table.get(pid)

    assert pids(read_line(20, read)) == [20, 10]


def test_a_number_that_was_given_again_is_not_a_parent() -> None:
    table = family((10, 1), (15, 10), (20, 15))

    def read(pid: int) -> ProcessFacts | None:
        if pid == 15:
            table[20] = process(20, 10, 2)
            return process(15, 1, 99)
        return table.get(pid)

    assert pids(read_line(20, read)) == [20, 10]


def test_a_parent_that_the_system_hides_ends_the_line() -> None:
    table = family((15, 10), (20, 15))

    assert pids(read_line(20, table.get)) == [20, 15]


def test_a_process_that_ends_while_its_line_is_read_has_none() -> None:
    table = family((15, 10), (20, 15))

    def read(pid: int) -> ProcessFacts | None:
        if pid == 15:
            table.pop(20, None)
            return None
        return table.get(pid)

    assert read_line(20, read) is None
