"""What a command of a run tries, with the token of its step and without: prints what it was told."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from bartack.errors import BartackError, PeerRefusedError
from bartack.runtime.client.connection import HubClient
from bartack.runtime.protocol.requests import Request
from bartack.runtime.rundir.layout import RunDir


def attempt(do: str) -> str:
    with HubClient(RunDir(os.environ["BARTACK_RUN_DIR"])) as hub:
        try:
            hub.ask(do, Request(mailbox="box", question="q1", message="from inside"), b"true")
        except BartackError as error:
            return type(error).__name__
    return "done"


def run_cli(*words: str) -> str:
    command = [sys.executable, "-m", "bartack", words[0], os.environ["BARTACK_RUN_DIR"], *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "PeerRefusedError" if done.returncode and PeerRefusedError.code in done.stderr else done.stderr


def main() -> None:
    told = {f"token {do}": attempt(do) for do in ("send", "receive", "answer", "cancel", "interrupt")}
    told["cli cancel"] = run_cli("cancel")
    told["cli answer"] = run_cli("answer", "q1", "true")
    del os.environ["BARTACK_STEP_TOKEN"]
    told |= {f"plain {do}": attempt(do) for do in ("send", "receive", "answer", "cancel", "fail")}
    told["cli fail"] = run_cli("fail", "from inside")
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
