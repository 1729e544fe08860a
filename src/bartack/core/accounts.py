"""An account of the operating system whose processes are kept apart from ours: what they start with, and acting with its rights.

Only root can start a process as another user. ``runtime/rundir/run_as.py`` decides when that is done for the processes of one run,
and ``node/account.py`` for those of all runs of a node.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

_OWN: Final = frozenset({"HOME", "USER", "LOGNAME", "USERNAME", "SHELL", "MAIL"})
_OWN_PREFIXES: Final = ("XDG_", "SUDO_")
_SETRESUID: Final = {"x86_64": 117, "aarch64": 147, "riscv64": 147}
"""The system call that changes the user of one thread. The function of the C library changes that of all threads."""
_WIDE: Final = sys.maxsize > 1 << 32
"""Whether this Python counts system calls as the machine does."""


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


# Acting as an account for good.


def can_act_as() -> bool:
    """Whether ``own_rights`` works on this machine."""
    return sys.platform == "linux" and _WIDE and os.uname().machine in _SETRESUID


def act_as(account: Account) -> None:
    """Have the rights of an account from now on, in all threads, and none of root but in ``own_rights``. Needs root.

    The real user stays root: processes of the account can neither read this one nor send it a signal.
    """
    _set_thread_user(os.geteuid())  # changes nothing: the way back has to work
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(-1, account.uid, -1)


@contextmanager
def own_rights() -> Generator[None]:
    """Have the rights back that ``act_as`` has put aside, in this block and this thread alone. Otherwise it changes nothing."""
    own, acting = os.getuid(), os.geteuid()
    if own == acting:
        yield
        return
    _set_thread_user(own)
    try:
        yield
    finally:
        _set_thread_user(acting)


def user_of_children() -> int | None:
    """The user to start a process with: that of ``act_as``, from which there is no way back; ``None`` without one."""
    return None if os.getuid() == os.geteuid() else os.geteuid()


def _set_thread_user(uid: int) -> None:
    """Change the effective user of this thread."""
    import ctypes  # noqa: PLC0415 - only a process with two users needs it

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.argtypes = [ctypes.c_long, *[ctypes.c_uint] * 3]
    syscall.restype = ctypes.c_long
    unchanged = 0xFFFF_FFFF
    if syscall(_SETRESUID[os.uname().machine], unchanged, uid, unchanged) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


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
