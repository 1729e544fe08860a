"""An account of the operating system whose processes are kept apart from ours: what they start with, and acting with its rights.

Only root can start a process as another user. ``runtime/rundir/run_as.py`` decides when that is done and what the account can
reach.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

_OWN: Final = frozenset({"HOME", "USER", "LOGNAME", "USERNAME", "SHELL", "MAIL"})
_OWN_PREFIXES: Final = ("XDG_", "SUDO_")


class Account(NamedTuple):
    """A user, as processes are started with it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    """All groups that its processes are in."""
    home: str
    shell: str

    def with_group(self, gid: int) -> Account:
        """The same account, with one more group."""
        return self._replace(groups=(*(group for group in self.groups if group != gid), gid))

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Variables for a process of this account: those of ``environ``, without the ones that describe another user."""
        kept = {
            name: value
            for name, value in environ.items()
            if name not in _OWN and not name.startswith(_OWN_PREFIXES)
        }
        return {**kept, "HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    @contextmanager
    def acting(self) -> Generator[None]:
        """Use files with the rights of this account, and no more, in all threads of this process. Needs root."""
        groups, gid, uid = os.getgroups(), os.getegid(), os.geteuid()
        try:
            os.setgroups(self.groups)
            os.setegid(self.gid)
            os.seteuid(self.uid)
            yield
        finally:
            os.seteuid(uid)
            os.setegid(gid)
            os.setgroups(groups)


def find_account(name: str) -> Account | None:
    """The account of a login name; ``None`` if the system does not know it."""
    import pwd  # noqa: PLC0415 - few need it

    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    shell = found.pw_shell or "/bin/sh"
    return Account(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir, shell)
