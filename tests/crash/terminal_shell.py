"""A small shell with job control: ``python terminal_shell.py WORD…`` runs a command in the foreground of its terminal.

It leads a session whose terminal is its stdin. It says ``stopped`` when the command is stopped, and continues it in the foreground
when a line comes on descriptor 3; when the command has ended it ends like that.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios


def start(words: list[str]) -> int:
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(words[0], words)  # noqa: S606 - the words of a test
    return pid


def main(words: list[str]) -> int:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    pid = start(words)
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        os.tcsetpgrp(0, os.getpgrp())
        os.write(1, b"stopped\n")
        os.read(3, 1)
        os.tcsetpgrp(0, pid)
        os.killpg(pid, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
