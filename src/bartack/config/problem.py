"""What is wrong with a setting, and who is to blame: a place in the file, a variable, or the command line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from bartack.config.toml_places import Places
from bartack.core.flaws import Flaw, dotted
from bartack.errors import AgentConfigError, BartackError, ConfigError

CONFIG_FILE = "bartack.toml"


class SettingProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong with a setting.

    Attributes:
        place: Where, for people: file, line, column and setting; or the variable or ``--set`` that it came from.
        problem: What is wrong.
        code: The code of the error that it is.
        setting: The setting, ``tasks[0].goal``; empty if it is none.
        file: The file with the settings; empty if the cause is elsewhere.
        line: The line, from 1; 0 if it is in no line.
        column: The column, from 1; 0 likewise.
        suggestion: The nearest name or value that there is; empty if none is near.
        agent: The agent that it concerns, where the error is one of agents.
    """

    place: str
    problem: str
    code: str = ConfigError.code
    setting: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    suggestion: str = ""
    agent: str = ""

    @property
    def error(self) -> BartackError:
        """The error that it is."""
        if self.code == AgentConfigError.code:
            return AgentConfigError(self.agent, self.problem)
        return ConfigError(self.place, self.problem)


class SettingSources:
    """Knows where each setting comes from.

    Args:
        source: The text of the file.
        given: Who gave a setting that is not from the file, by its name.
        shown: What the file is called.
    """

    def __init__(
        self, source: str = "", given: Mapping[str, str] | None = None, shown: str = CONFIG_FILE
    ) -> None:
        self._source = source
        self._given = dict(given or {})
        self._shown = shown

    @cached_property
    def _places(self) -> Places:
        """Looked up only if there is something to blame."""
        return Places(self._source)

    def flaw(self, flaw: Flaw, agent: str = "") -> SettingProblem:
        """The problem that a flaw is; one of an agent, if one is named."""
        found = self.setting(dotted(flaw.path), flaw.problem, flaw.near)
        return msgspec.structs.replace(found, agent=agent, code=AgentConfigError.code) if agent else found

    def setting(
        self, setting: str, problem: str, near: str = "", code: str = ConfigError.code
    ) -> SettingProblem:
        """A problem of a setting, as ``dotted`` writes it."""
        giver = self._giver(setting)
        if giver:
            return SettingProblem(place=giver, problem=problem, code=code, setting=setting, suggestion=near)
        at = self._places.nearest(setting)
        where = f"{self._shown}:{at.line}:{at.column}" if at else self._shown
        return SettingProblem(
            place=f"{where}: {setting}",
            problem=problem,
            code=code,
            setting=setting,
            file=self._shown,
            line=at.line if at else 0,
            column=at.column if at else 0,
            suggestion=near,
        )

    def _giver(self, setting: str) -> str:
        """Who gave a setting, or something it belongs to; or else something in it that the file does not have."""
        plain = setting.partition("[")[0]
        for name, giver in reversed(self._given.items()):
            if f"{plain}.".startswith(f"{name}."):
                return giver
        if self._places.get(setting):
            return ""
        return next((giver for name, giver in self._given.items() if name.startswith(f"{plain}.")), "")
