"""The check of ``bartack doctor`` for installed plugins of Claude Code. Without an enabled plugin nothing is started."""

from __future__ import annotations

from bartack.cli.app._terminal import printable
from bartack.cli.project.doctor._finding import Finding
from bartack.errors import BartackError
from bartack.plugin import verify_all


def check_plugins(path: str) -> list[Finding]:
    """Whether the enabled plugins of a project that Bartack has built work: one finding for each."""
    try:
        found = verify_all(path)
    except BartackError as error:
        return [Finding("plugins", "warn", printable(error.message), error.remedy)]
    return [
        Finding(
            f"plugin {printable(one.id.partition('@')[0])}",
            "ok" if one.ok else "fail",
            printable(f"version {one.version} works" if one.ok else "; ".join(one.problems)),
            "" if one.ok else "Fix the problem, or install the plugin again: bartack plugin install DIR.",
        )
        for one in found
    ]
