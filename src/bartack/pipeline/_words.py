"""What the transcript says of a run of the pipeline, one line for one fact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from bartack.agents import AgentResult
from bartack.pipeline._records import Gate
from bartack.runtime.operate import Receipt

LONGEST: Final = 400
_UNITS: Final = ("KiB", "MiB", "GiB")


def say_command(action: str, task: str, inputs: Mapping[str, object], key: str, agent: str) -> str:
    """A command is sent."""
    iteration = cast("dict[str, object]", inputs.get("iteration", {}))
    findings = cast("list[object]", iteration.get("findings", []))
    count = f", {len(findings)} finding{'s' if len(findings) > 1 else ''}" if findings else ""
    count = ", findings in a file" if "findings_file" in iteration else count
    round_, cause = iteration.get("round"), iteration.get("cause")
    return cut(f"→ {agent}  {action} {task} round {round_} ({cause}{count}) {key[:11]}")


def say_answer(result: AgentResult, task: str, receipt: Receipt) -> str:
    """An answer was accepted."""
    parts = [f"{receipt.event} {task}", receipt.status]
    if receipt.tests is not None:
        parts.append(f"tests {receipt.tests.get('status', 'not reported')} (reported)")
    if receipt.artifacts:
        size = human_size(sum(artifact.size for artifact in receipt.artifacts))
        parts.append(f"{len(receipt.artifacts)} artifact{'s' if len(receipt.artifacts) > 1 else ''} {size}")
    if result.usage.cost_usd:
        parts.append(f"${result.usage.cost_usd:.2f}")
    return cut(f"{receipt.agent.agent_id}  " + ", ".join(part for part in parts if part))


def say_gate(gate: Gate) -> str:
    """The verdict on the tests."""
    parts = [f"tests {gate.task_id} {gate.verdict}"]
    if gate.unchecked:
        parts.append("unchecked")
    if gate.mode == "report":
        parts.append("reported")
    if gate.exit_code is not None:
        parts += [f"exit {gate.exit_code}", f"{gate.duration_s:.1f} s"]
    if gate.disagreement:
        parts.append(f"the builder reported {gate.reported}")
    return cut(", ".join(parts))


def cut(text: str) -> str:
    """A line as long as a line may be, without characters that a terminal would obey."""
    shown = text
    if not text.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def human_size(size: float) -> str:
    """A size for people."""
    if size < 1024:
        return f"{size:g} B"
    for unit in _UNITS[:-1]:
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} {_UNITS[-1]}"
