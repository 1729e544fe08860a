"""Starts an ACP agent and copies its lines, without its ability to resume sessions: it has to load them, with all that was said.

python acp_without_resume.py PROGRAM ARGUMENTS...
"""

import json
import subprocess
import sys
import threading
from typing import IO, Any


def copy_out(source: IO[bytes]) -> None:
    for line in source:
        message: dict[str, Any] = json.loads(line)
        result: dict[str, Any] = message.get("result") or {}
        can: dict[str, Any] = result.get("agentCapabilities", {}).get("sessionCapabilities", {})
        can.pop("resume", None)
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def main() -> None:
    agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None
    out = threading.Thread(target=copy_out, args=(agent.stdout,))
    out.start()
    for line in sys.stdin.buffer:
        agent.stdin.write(line)
        agent.stdin.flush()
    agent.stdin.close()
    out.join()


if __name__ == "__main__":
    main()
