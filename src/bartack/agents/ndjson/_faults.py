"""Lines of one command that could not be used: counted, reported, and answered with a notice.

Which lines those are is decided in ``_dialect.py`` and ``protocol/lines.py``; what too many of them lead to, here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from bartack.agents.config import ProtocolConfig
from bartack.agents.contract import CallNotice
from bartack.agents.conversation._actions import Warn
from bartack.agents.conversation._conversation import Conversation
from bartack.agents.protocol.lines import EXCERPT, BadLine, Read

REPORTED: Final = 5
"""At most this many bad lines of each case are reported in full."""


class LineFaults:
    """The bad lines of one attempt.

    Args:
        talk: The conversation.
        config: How many bad lines are accepted.
        send_notice: Sends the agent the case of a bad line, and what is wrong with it.
    """

    def __init__(
        self, talk: Conversation[Read], config: ProtocolConfig, send_notice: Callable[[str, str], object]
    ) -> None:
        self.case = ""
        """The case of the last bad line; empty if the last line was none."""
        self._talk = talk
        self._config = config
        self._send_notice = send_notice
        self._seen: Counter[str] = Counter()
        self._violations = 0

    def begin_attempt(self) -> None:
        """Bad lines of earlier attempts do not count."""
        self._seen.clear()
        self._violations = 0

    def add(self, fault: BadLine) -> None:
        """A line could not be used."""
        case = self.case = fault.case
        self._seen[case] += 1
        if self._seen[case] <= REPORTED:
            excerpt = fault.excerpt[:EXCERPT].decode("utf-8", "replace")
            self._report(
                "info" if fault.is_text or not fault.counted else "warn", f"{fault.detail}: {excerpt}", case
            )
        if not fault.counted:
            return
        talk = self._talk
        self._violations += 1
        text = f"agent {talk.agent}: {case}: {fault.detail}"
        shown = talk.record.fault_for_console(case, talk.watchdog.watch.real_s(), text)
        if shown:
            talk.actions.add(Warn(shown))
        if talk.state == "running":
            self._answer(fault)

    def _answer(self, fault: BadLine) -> None:
        case, talk = fault.case, self._talk
        if self._seen[case] == 1:
            self._send_notice(case, fault.detail)
        if fault.suspect:
            talk.watchdog.suspect(self._config.suspect_grace_s, case, fault.detail)
        if self._violations > self._config.max_violations:
            problem = f"{self._violations} lines cannot be used, the last: {case}"
            talk.end_attempt("protocol_violation", problem)

    def notes(self) -> list[str]:
        """How many lines of each case could not be used."""
        return [f"{count} lines: {case}" for case, count in sorted(self._seen.items())]

    def report_rest(self) -> None:
        """Report how many lines were not reported in full."""
        for case, count in sorted(self._seen.items()):
            if count > REPORTED:
                self._report("info", f"{count - REPORTED} more lines: {case}", case)

    def _report(self, level: Literal["info", "warn"], text: str, case: str) -> None:
        actions = self._talk.actions
        actions.report(CallNotice(**actions.stamp(), level=level, text=text, case=case))
