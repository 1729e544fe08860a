"""What an agent says that it can do, and what it says about a session that was opened."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from bartack.agents.acp._messages import LOAD, RESUME, Reopening
from bartack.agents.program._json_lines import Json, member, object_of, objects_of, text_of

_LOGIN: Final = re.compile(
    r"\b(authenticat\w*|log(ged)? ?in|credentials?|api key|unauthori[sz]ed)\b", re.IGNORECASE
)
_SHOWN: Final = 200


class SessionAbilities:
    """The answer to ``initialize``."""

    def __init__(self, result: Json) -> None:
        self._said = object_of(result, "agentCapabilities")
        self._about = object_of(result, "agentInfo")
        self.logins = [
            (text_of(method, "name") or text_of(method, "id"))[:_SHOWN]
            for method in objects_of(result, "authMethods")
        ]
        """The ways to log in that it names."""

    @property
    def program(self) -> str:
        """Its name and its version."""
        words = (text_of(self._about, "name"), text_of(self._about, "version"))
        return " ".join(word for word in words if word)[:_SHOWN]

    @property
    def loads(self) -> bool:
        """Whether it can continue a session, and reports its history again."""
        return self._said.get("loadSession") is True

    @property
    def resumes(self) -> bool:
        """Whether it can continue a session without that."""
        return self._has("resume")

    @property
    def forks(self) -> bool:
        """Whether it can begin a session with the history of another one."""
        return self._has("fork")

    @property
    def takes_dirs(self) -> bool:
        """Whether a session can have further directories."""
        return self._has("additionalDirectories")

    @property
    def is_claude(self) -> bool:
        """Whether it is Claude Code under its adapter, and takes settings of Claude Code for a session."""
        return isinstance(member(self._said, "_meta", "claudeCode"), dict)

    @property
    def reopening(self) -> Reopening | None:
        """How a session is continued; ``None`` if that is not possible."""
        if self.resumes:
            return RESUME
        return LOAD if self.loads else None

    @property
    def login_text(self) -> str:
        """How to log in, for people."""
        return f"ways to log in: {', '.join(self.logins)}"

    def is_about_login(self, message: str) -> bool:
        """Whether a refusal is about a missing login, although its code does not say so."""
        return bool(self.logins) and _LOGIN.search(message) is not None

    def too_old(self, least: str) -> str:
        """What is wrong with its version; empty if nothing is, or if it does not say one."""
        version = text_of(self._about, "version")
        if not least or not version or _numbers(version) >= _numbers(least):
            return ""
        return f"it is {self.program}, and min_version is {least}"

    def _has(self, name: str) -> bool:
        return isinstance(member(self._said, "sessionCapabilities", name), dict)


class ModelChoice(NamedTuple):
    """The option of a session that chooses the model, and the model in use; both empty if there is none."""

    option: str = ""
    current: str = ""


def find_model(result: Json) -> ModelChoice:
    """The choice of models that a session offers."""
    for option in objects_of(result, "configOptions"):
        if option.get("category") == "model" and option.get("type") == "select":
            return ModelChoice(text_of(option, "id"), text_of(option, "currentValue"))
    return ModelChoice()


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version.split("-", 1)[0])[:8]]
