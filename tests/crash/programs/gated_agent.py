"""An agent that notes each prompt in the directory of its argument, and replies when the gate there opens."""

import json
import sys
from pathlib import Path

PLACE = Path(sys.argv[1])

for line in sys.stdin:
    message = json.loads(line)
    if message["kind"] != "command":
        continue
    with (PLACE / "begun").open("a", encoding="utf-8") as begun:
        begun.write("prompt\n")
    (PLACE / "gate").read_bytes()
    event = {
        "kind": "event",
        "message_id": message["message_id"][:-1] + "0",
        "correlation_id": message["correlation_id"],
        "in_reply_to": message["message_id"],
        "idempotency_key": message["idempotency_key"],
        "task_id": message["task_id"],
        "from": {"agent_type": message["to"]["agent_type"]},
        "event": "prompt.completed",
        "payload": {"text": "waited"},
        "occurred_at": "2026-01-01T00:00:00Z",
    }
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
