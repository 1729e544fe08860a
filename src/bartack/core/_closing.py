"""The base of everything that is closed at the end of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """A context manager whose end is ``close``."""

    def close(self) -> object:
        """Release what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
