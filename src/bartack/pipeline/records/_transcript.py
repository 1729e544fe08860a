"""The lines of the transcript about a run of the pipeline, one for each fact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from bartack.agents import AgentResult
from bartack.agents.protocol.messages import Finding
from bartack.agents.replies import findings_of
from bartack.core import typed
from bartack.pipeline.records.records import Gate
from bartack.runtime.rundir.pipeline_transcript import cut_line
from bartack.runtime.rundir.receipts import Receipt

_UNITS: Final = ("KiB", "MiB", "GiB")


def describe_command(action: str, task: str, inputs: Mapping[str, object], key: str, agent: str) -> str:
    """A command is sent."""
    iteration = cast("dict[str, object]", inputs.get("iteration", {}))
    findings = cast("list[object]", iteration.get("findings", []))
    count = f", {len(findings)} finding{'s' if len(findings) > 1 else ''}" if findings else ""
    count = ", findings in a file" if "findings_file" in iteration else count
    round_, cause = iteration.get("round"), iteration.get("cause")
    # What a reviewer wants is in the line of the review.
    why = _texts(typed.convert(findings, type=list[Finding])) if cause == "tests" else ""
    return cut_line(f"→ {agent}  {action} {task} round {round_} ({cause}{count}) {key[:11]}{why}")


def describe_answer(result: AgentResult, task: str, receipt: Receipt) -> str:
    """An answer was accepted."""
    parts = [f"{receipt.event} {task}", receipt.status]
    if receipt.tests is not None:
        parts.append(f"tests {receipt.tests.get('status', 'not reported')} (reported)")
    if receipt.artifacts:
        size = human_size(sum(artifact.size for artifact in receipt.artifacts))
        parts.append(f"{len(receipt.artifacts)} artifact{'s' if len(receipt.artifacts) > 1 else ''} {size}")
    if result.usage.cost_usd:
        parts.append(f"${result.usage.cost_usd:.2f}")
    text = ", ".join(part for part in parts if part)
    wanted = _texts(findings_of(result.event)) if "findings" in result.payload else ""
    return cut_line(f"{receipt.agent.agent_id}  {text}{wanted}")


def _texts(findings: list[Finding]) -> str:
    """The messages of findings, each as one line."""
    if not findings:
        return ""
    return ": " + "; ".join(map(finding_line, findings))


def finding_line(finding: Finding) -> str:
    """A finding in one line, after its place in the files if it has one."""
    place = f"{finding.path}:{finding.line}: " if finding.line else f"{finding.path}: "
    return f"{place if finding.path else ''}{' '.join(finding.message.split())}"


def describe_gate(gate: Gate) -> str:
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
    return cut_line(", ".join(parts))


def human_size(size: float) -> str:
    """A size for people."""
    if size < 1024:
        return f"{size:g} B"
    for unit in _UNITS[:-1]:
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} {_UNITS[-1]}"
