"""The events of a stream, read as a page reads them.

``python -m bench._events PORT HEADERS PATH`` is a page without a browser, in a process of its own. It writes a line when the first
event is there, and reads until it is ended.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Final

LIMIT_S: Final = 120.0


def read_events(port: int, headers: Mapping[str, str], path: str) -> Iterator[tuple[str, int, float]]:
    """The events of a stream as they come: name, entry, and when it came (seconds since 1970).

    The entry is that after which a page asks for more if the stream ends there. Only the last event of a frame has the newest.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    connection.request("GET", path, headers=dict(headers))
    answer = connection.getresponse()
    name, seq = "", 0
    try:
        while line := answer.readline():
            if line.startswith(b"id: "):
                seq = int(line[4:])
            elif line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                yield name, seq, time.time()
    finally:
        connection.close()


def main(port: str, headers: str, path: str) -> None:
    """Read events until this process is ended."""
    for number, _ in enumerate(read_events(int(port), json.loads(headers), path)):
        if number == 0:
            print(flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
