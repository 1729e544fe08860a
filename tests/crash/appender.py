"""The process that ``test_kill.py`` kills: appends to a journal for ever and says what was acknowledged.

Started with a socket. For each request on it (directory, round and seed, with a pipe) a process is forked that appends;
the socket answers with its id, and with its exit status when it is gone.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from random import Random

from bartack.journal import Draft, open_journal
from bartack.journal.contract import INLINE_LIMIT

LARGE = b'"' + b"x" * INLINE_LIMIT + b'"'


def serve(requests: socket.socket) -> None:
    while True:
        text, pipes, _, _ = socket.recv_fds(requests, 4096, 1)
        if not text:
            return
        child = os.fork()
        if child == 0:
            requests.close()
            append_for_ever(pipes[0], **json.loads(text))
        os.close(pipes[0])
        requests.sendall(b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        requests.sendall(b"%d\n" % status)


def append_for_ever(pipe: int, directory: str, turn: int, seed: int) -> None:
    random = Random(seed)
    number = 0
    os.write(pipe, b"ready\n")
    with open_journal(directory) as journal:
        while True:
            for _ in range(random.choice((1, 1, 1, 3))):
                count = random.choice((1, 1, 2, 5))
                value = LARGE if random.random() < 0.05 else b'"%b"' % (b"y" * random.randrange(2000))
                journal.stage(
                    *(Draft("item", {"turn": turn, "number": number + i}, value) for i in range(count))
                )
                number += count
            journal.commit()
            os.write(pipe, b"%d\n" % number)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
