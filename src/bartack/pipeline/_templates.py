"""The prompt of each action, for agents that take prompts only: a template with places for the values of the command.

A template may use the values of the command and nothing else: no clock, no path of this machine. So the same step is the same
text, whenever it is done again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, cast

import msgspec

from bartack.errors import ConfigError

VALUES: Final = ("task_id", "inputs", "iteration", "expected_outputs", "retry")
"""What a template may name; members of it after a dot."""

_PLACE: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_NAME: Final = re.compile(r"[a-z_]+(?:\.[a-z_]+)*")

_TASK: Final = """\
Task {{task_id}}, round {{iteration.round}} (because of: {{iteration.cause}})
{{inputs.task_title}}

{{inputs.goal}}

Files that matter: {{inputs.task_files}}
What the person wants: {{inputs.instruction}}
The plan that was approved: {{inputs.approved_plan}}
What was asked and answered: {{inputs.clarifications}}
How contradictions are to be read: {{inputs.conflict_resolutions}}
"""
_FINDINGS: Final = """
What has to be dealt with in this round: {{iteration.findings}}
If there was too much of it for this text, it is in this file, below the directory in BARTACK_RUN_DIR: {{iteration.findings_file}}
"""
_AGAIN: Final = """
Why this is asked again, if it is: {{retry}}
"""
_BUILT: Final = """
Reply with the event builder.completed. Its payload has tests with a status (pass, fail or skipped), and a summary.
"""
_FOUND: Final = """
What an agent proposes is decided by a person. Reply with one of these events:
- orchestration.proposed_tasks: payload plan_candidates (path, confidence, reason) and derived_tasks (id, title, goal, files,
  depends_on)
- orchestration.needs_clarification: payload questions
- orchestration.plan_conflict: payload conflicts (paths, reason) and suggested_resolution
"""
_INTAKE: Final = """\
What a person wants done: {{inputs.user_instruction}}

Files that may hold the plan: {{inputs.discovery}}
What was asked and answered: {{inputs.clarifications}}
How contradictions are to be read: {{inputs.conflict_resolutions}}
"""

SHIPPED: Final[dict[str, str]] = {
    "implement": f"Implement this task in the working directory.\n\n{_TASK}{_AGAIN}{_BUILT}",
    "implement_changes": f"Change your work on this task.\n\n{_TASK}{_FINDINGS}{_AGAIN}{_BUILT}",
    "review": f"""Review the work on this task. Change no file.

{_TASK}
Files that changed: {{{{inputs.changed_files}}}}
{_FINDINGS}{_AGAIN}
Reply with the event review.completed and the status approved, or changes_requested with findings in the payload, each with a
message and where it helps a path, a line and a severity (blocker, major, minor, note).
""",
    "update_spec": f"""Keep the spec true to the work on this task.

{_TASK}
Files that changed: {{{{inputs.changed_files}}}}
The spec: {{{{inputs.spec_file}}}}
Sections that you may edit, and nothing else: {{{{inputs.editable_sections}}}}
{_AGAIN}
Reply with the event spec.updated if you changed the file, spec.no_changes_needed if it is true as it is, or spec.changes_requested
with findings in the payload if the work has to change instead.
""",
    "intake": f"Find the tasks in what a person wants.\n\n{_INTAKE}{_AGAIN}{_FOUND}",
    "task_discovery": f"Find other plans and tasks than before.\n\n{_INTAKE}{_AGAIN}{_FOUND}",
}
"""The template of each action, where the settings name none."""


def load_templates(configured: Mapping[str, str], actions: Iterable[str], workspace: Path) -> dict[str, str]:
    """The template of each of these actions.

    Raises:
        ConfigError: One cannot be read, or names something that is not allowed.
    """
    found: dict[str, str] = {}
    for action in actions:
        setting = f"pipeline.prompts.{action}"
        path = configured.get(action)
        try:
            found[action] = SHIPPED[action] if path is None else (workspace / path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ConfigError(setting, f"{path!r} cannot be read: {problem}") from None
        check_template(setting, found[action])
    return found


def check_template(setting: str, template: str) -> None:
    """Raise unless a template names only what it may.

    Raises:
        ConfigError: It names something else.
    """
    for number, line in enumerate(template.splitlines(), 1):
        for name in _PLACE.findall(line):
            if not _NAME.fullmatch(name) or name.partition(".")[0] not in VALUES:
                raise ConfigError(
                    setting,
                    f"line {number}: {{{{{name}}}}} is none of {', '.join(VALUES)}, or of their members",
                )
    if not template.strip():
        raise ConfigError(setting, "it is blank")


def fill(template: str, values: Mapping[str, object]) -> str:
    """A template with its values: texts as they are, everything else as JSON. A value that the command lacks is ``none``."""
    return _PLACE.sub(lambda place: _shown(_look_up(values, place[1])), template)


def _look_up(values: Mapping[str, object], name: str) -> object:
    first, _, rest = name.partition(".")
    value = values.get(first)
    if not rest:
        return value
    return _look_up(cast("Mapping[str, object]", value), rest) if isinstance(value, Mapping) else None


def _shown(value: object) -> str:
    if value is None or value in ("", [], {}):
        return "none"
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()
