"""Programs that track events until they are killed. Run as a program, never imported.

Each line on stdin starts one more of them, with so many events to track; its pid is the answer. An id is written to the file of
acknowledgements after, and only after, the event was reported as kept.
"""

from __future__ import annotations

import os
import sys

from bartack.resilience import PatternCache


def produce(directory: str, url: str, acknowledged: str, count: int) -> None:
    cache = PatternCache(directory)
    fd = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for n in range(count):
        event = {
            "event_type": "pattern_created",
            "pattern_id": f"p-{os.getpid()}-{n}",
            "pattern_name": "made",
        }
        event_id = cache.keep(event, recipient=url).event_id
        if event_id:
            os.write(fd, f"{event_id}\n".encode())


def main() -> None:
    directory, url, acknowledged = sys.argv[1:]
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            produce(directory, url, acknowledged, int(line))
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
