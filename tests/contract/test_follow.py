"""What a follower of a journal file waits for: its entries, and nothing else that changes beside them."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from bartack.journal import open_journal, open_reader


class RestlessWatch:
    """Something changes all the time."""

    kind: Literal["poll"] = "poll"

    def wait(self, timeout_s: float | None) -> bool:
        return True

    def fileno(self) -> int | None:
        return None

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def test_a_follower_ends_when_no_entry_comes_though_other_files_change(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append("only")

    with open_reader(tmp_path, watch=lambda path: RestlessWatch()) as reader:
        kinds = [entry.kind for entry in reader.follow(timeout_s=0.02)]

    assert kinds == ["journal.opened", "only"]
