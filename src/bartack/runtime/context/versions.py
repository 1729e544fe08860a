"""The member of ``ctx`` for programs that change while runs of them are under way."""

from __future__ import annotations

from bartack.runtime.context.part import Members
from bartack.runtime.scheduler.versions import VersionOp, check_version


class VersionMembers(Members):
    """Versions of parts of a program."""

    def version(self, name: str, latest: int = 1, *, oldest: int = 0) -> VersionOp:
        """The version of a part of the program that this worker runs with: 0 is the code before the first version.

        A history that was past this place before the call was added gets 0, every other one ``latest``, which is recorded. All
        calls of a name in one history of a worker get the same number. A call can be added and removed at any time.

        Args:
            name: A name for what was changed, written as a literal.
            latest: The latest version that the program has.
            oldest: The oldest version that the program still has.

        Raises:
            ValueError: The name is empty or too long, or the numbers make no sense.
        """
        self._scheduler.check_here("ctx.version")
        check_version(name, latest, oldest)
        return VersionOp(name, latest, oldest)
