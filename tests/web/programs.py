"""Programs that tests of the web server run."""

from __future__ import annotations

from typing import Final

LOST: Final = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    for word in ("first", "second", "third"):
        await ctx.send_supervised("@nobody", word, retries=0, on_error="dead_letter")
    return await ctx.ask("More?")
"""
"""Its messages become dead letters; then it waits for an answer."""

ASKING_AN_AGENT: Final = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> str:
    return await ctx.think("Summarise the changes", agent="writer")
"""

AGENT: Final = """
import json, sys

print('{"kind":"hello","protocol":[1],"name":"writer","version":"1"}', flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if command["kind"] != "command":
        continue

    def send(number, event, payload):
        print(json.dumps({
            "kind": "event", "message_id": f"{command['message_id']}-{number}",
            "correlation_id": command["correlation_id"], "task_id": command["task_id"],
            "from": {"agent_type": command["to"]["agent_type"]}, "event": event, "payload": payload,
            "usage": {"input_tokens": 100, "output_tokens": number, "turns": number, "cost_usd": number / 100},
            "occurred_at": "2026-01-01T00:00:00Z",
        }), flush=True)

    with open(sys.argv[1]) as gate:
        for number, word in enumerate(gate, 1):
            kind, _, text = word.strip().partition(" ")
            if kind == "reply":
                send(number, "prompt.completed", {"result": text})
                break
            send(number, "progress", {"message": text})
"""
"""An agent that speaks the line protocol. It says what it reads from a gate, line by line: ``say WORDS`` or ``reply WORDS``."""
