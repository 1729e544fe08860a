"""An agent whose replies are written down beforehand: for tests, demos and trying things out without a model.

A script is a list of rules. The first rule that matches a prompt and is not used up answers it. Uses are counted by the key of the
call, so a call that is made again after a crash gets the same reply and uses nothing up. Before it replies, a rule may ask people
and call tools of the prompt; the caller does so (``ScriptedReply.asks``, ``ScriptedReply.calls``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from bartack.agents._permissions import Denial, Permissions
from bartack.agents.scripted._script import Defaults, Reply, Write, apply_write, load_script
from bartack.core import typed
from bartack.core.files import replace_file
from bartack.errors import AgentError, ScriptError, UnsafePathError

if TYPE_CHECKING:
    from bartack.agents.contract import AgentRequest, AgentResult
    from bartack.agents.protocol.messages import Command, Role


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent can do. Anything else is refused before it is sent."""

    tools: bool = True
    """It can call tools of a prompt."""


class Engine(Protocol):
    """What obeys commands for an agent without a process: see ``call.py``."""

    @property
    def commands(self) -> list[Command]:
        """The commands that it obeyed."""
        ...

    def obey(self, request: AgentRequest) -> AgentResult:
        """Do what a command asks."""
        ...


class ScriptedCall(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A tool that the agent calls before it replies. ``expect`` is what the tool must return."""

    tool: str
    arguments: dict[str, object] = {}
    id: str = ""
    expect: object = msgspec.UNSET


class ScriptedAsk(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the agent asks a person before it replies. ``expect`` is what the answer must be."""

    question: str
    kind: Literal["ask", "permission"] = "ask"
    options: list[str] = []
    tool: str = ""
    input: dict[str, object] = {}
    default: str = ""
    expect: str | msgspec.UnsetType = msgspec.UNSET


class ScriptedFailure(msgspec.Struct, forbid_unknown_fields=True):
    """The agent fails instead of replying; before or after it called tools."""

    outcome: str = "transient"
    message: str = ""
    after_calls: bool = True
    until_s: float = 0.0
    """With ``rate_limited``: after this many seconds it can be asked again, and is."""


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """Which prompts it answers, and how."""

    name: str = ""
    pattern: str = ""
    order: int = 0
    times: int = 1
    text: str = ""
    value: object = None
    raw: bool = False
    """The value is treated as a text: if it does not fit, the agent is asked to fix it."""
    ask: ScriptedAsk | list[ScriptedAsk] = []
    """What it asks people first, one after the other."""
    call: list[ScriptedCall] = []
    delay_s: float = 0.0
    usd: float = 0.0
    tokens: dict[str, int] = {}
    write: list[Write] = []
    fail: ScriptedFailure | None = None


class Script(msgspec.Struct, forbid_unknown_fields=True):
    """A whole script."""

    version: int = 1
    comment: str = ""
    """For people."""
    strict: bool = True
    strict_unused: bool = False
    dedupe: bool = True
    materialize: bool = False
    defaults: Defaults = Defaults()
    prompts: list[Rule] = []
    responses: dict[str, Reply | list[Reply]] = {}


class Prompt(msgspec.Struct, frozen=True):
    """One call of an agent."""

    key: str
    name: str
    text: str
    cwd: str
    role: Role = "general"
    """The role in which it is asked."""


class ScriptedReply(msgspec.Struct, frozen=True):
    """What the script says to a prompt."""

    text: str
    delay_s: float = 0.0
    usd: float = 0.0
    tokens: int = 0
    by_kind: Mapping[str, int] = {}
    """The tokens by what the script calls them: input, output, cache_read, cache_write."""
    failure: str = ""
    exact: bool = False
    """The script gives a value: if it does not fit, the script is wrong."""
    asks: Sequence[ScriptedAsk] = ()
    calls: Sequence[ScriptedCall] = ()
    outcome: str = ""
    """What kind of failure it is."""
    until_s: float = 0.0
    """After how long it may be asked again, if that is all that is wrong."""
    denials: Sequence[Denial] = ()
    """Files that it wanted to write, and was not allowed to."""


class ScriptedAgent:
    """Answers prompts from a script.

    Args:
        prompts: The rules, as in a script file.
        responses: The replies to commands by action, as in a script file.
        strict: A prompt that no rule matches is an error; else its reply is empty.
        name: The agent's name, for messages.
        memory: A file that keeps which rule answered which call, so that a resumed run continues with the same script.
        capabilities: What it says that it can do.
        permissions: What it may do to files.
    """

    def __init__(
        self,
        prompts: Sequence[Mapping[str, object]] = (),
        *,
        responses: Mapping[str, object] | None = None,
        strict: bool = True,
        name: str = "scripted",
        memory: str | os.PathLike[str] | None = None,
        capabilities: Capabilities | None = None,
        permissions: Permissions | None = None,
    ) -> None:
        self.name = name
        self.permissions = permissions or Permissions()
        self.capabilities = capabilities or Capabilities()
        try:
            rules = typed.convert(list(prompts), type=list[Rule])
            replies = typed.convert(dict(responses or {}), type=dict[str, Reply | list[Reply]])
        except msgspec.ValidationError as error:
            raise ScriptError(name, str(error)) from None
        self._script = Script(strict=strict, prompts=rules, responses=replies)
        self._memory = memory
        self._used: dict[str, int] = _recall(memory)
        self.prompts: list[Prompt] = []
        self.acting: Callable[[], AbstractContextManager[object]] = nullcontext
        """Files are written inside of this: perhaps with the rights of another user."""
        self.engine: Engine | None = None
        """Made when the first command is obeyed."""

    @property
    def commands(self) -> list[Command]:
        """The commands that it obeyed in this process, each time it did."""
        return [] if self.engine is None else self.engine.commands

    @property
    def script(self) -> Script:
        """What it does and says."""
        return self._script

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        name: str = "scripted",
        memory: str | os.PathLike[str] | None = None,
        permissions: Permissions | None = None,
    ) -> ScriptedAgent:
        """Read a script from a JSON or TOML file.

        Raises:
            ScriptError: It cannot be read.
        """
        script = read_script(load_script(path, name), name, path)
        return cls.of(script, name=name, memory=memory, permissions=permissions)

    @classmethod
    def of(
        cls,
        script: Script,
        *,
        name: str = "scripted",
        memory: str | os.PathLike[str] | None = None,
        permissions: Permissions | None = None,
    ) -> ScriptedAgent:
        """An agent with a script that was read already."""
        agent = cls(name=name, memory=memory, strict=script.strict, permissions=permissions)
        agent._script = script
        return agent

    def reply(self, prompt: Prompt) -> ScriptedReply:
        """The reply to a prompt; files the rule names are written, as far as the agent may.

        Raises:
            ScriptError: No rule matches.
        """
        self.prompts.append(prompt)
        index = self._used.get(prompt.key)
        if index is None:
            index = self._choose(prompt)
            self._used[prompt.key] = index
            if self._memory is not None:
                replace_file(os.fspath(self._memory), msgspec.json.encode(self._used), synced=False)
        if index < 0:
            return ScriptedReply("")
        rule = self._script.prompts[index]
        allowed = self.permissions.for_role(prompt.role)
        denials: list[Denial] = []
        for write in rule.write:
            denied = allowed.refuse("Write", write.path)
            if denied is None:
                self._write(prompt, write)
            else:
                denials.append(denied)
        return msgspec.structs.replace(_reply(rule), denials=denials)

    @property
    def unused(self) -> list[int]:
        """The numbers of the rules that have answered nothing, from 1."""
        used = set(self._used.values())
        return [index + 1 for index in range(len(self._script.prompts)) if index not in used]

    @property
    def is_used(self) -> bool:
        """Whether any rule has answered anything."""
        return bool(self._used)

    def recall(self, key: str) -> ScriptedReply | None:
        """What was replied under a key, if anything was; nothing is written."""
        index = self._used.get(key, -1)
        return None if index < 0 else _reply(self._script.prompts[index])

    def matches(self, prompt: Prompt) -> bool:
        """Whether a rule is for a prompt."""
        if prompt.key in self._used:
            return True
        order = len(self._used) + 1
        return any(not self._misfit(rule, i, prompt, order) for i, rule in enumerate(self._script.prompts))

    def _choose(self, prompt: Prompt) -> int:
        order = len(self._used) + 1
        reasons: list[str] = []
        for index, rule in enumerate(self._script.prompts):
            reason = self._misfit(rule, index, prompt, order)
            if not reason:
                return index
            reasons.append(f"rule {index + 1}: {reason}")
        if not self._script.strict:
            return -1
        tried = "; ".join(reasons[:3]) or "the script is empty"
        raise ScriptError(self.name, f"no rule matches prompt {prompt.name} ({prompt.text[:200]!r}): {tried}")

    def _misfit(self, rule: Rule, index: int, prompt: Prompt, order: int) -> str:
        if rule.name and not fnmatchcase(prompt.name, rule.name):
            return f"its name is {rule.name!r}"
        if rule.pattern and not re.search(rule.pattern, prompt.text):
            return f"its pattern {rule.pattern!r} is not in the prompt"
        if rule.order and rule.order != order:
            return f"it is for prompt {rule.order}, this is {order}"
        if rule.times and sum(used == index for used in self._used.values()) >= rule.times:
            return f"it is used up ({rule.times})"
        return ""

    def _write(self, prompt: Prompt, write: Write) -> None:
        try:
            with self.acting():
                apply_write(prompt.cwd, write)
        except (OSError, UnsafePathError) as error:
            raise AgentError(self.name, f"could not write {write.path}: {error}") from None


def read_script(content: Mapping[str, object], name: str, path: str | os.PathLike[str] = "") -> Script:
    """A script from the content of its file.

    Raises:
        ScriptError: It has another form.
    """
    try:
        script = typed.convert(dict(content), type=Script)
    except msgspec.ValidationError as error:
        raise ScriptError(name, f"{os.fspath(path)}: {error}") from None
    if script.version != 1:
        raise ScriptError(name, f"{os.fspath(path)}: version is {script.version}, only 1 is known")
    return script


def _recall(memory: str | os.PathLike[str] | None) -> dict[str, int]:
    if memory is None or not os.path.exists(memory):
        return {}
    with open(memory, "rb") as file:
        return typed.decode(file.read() or b"{}", type=dict[str, int])


def _reply(rule: Rule) -> ScriptedReply:
    text = rule.text if rule.value is None else msgspec.json.encode(rule.value).decode()
    fail = rule.fail
    return ScriptedReply(
        text=text,
        delay_s=rule.delay_s,
        usd=rule.usd,
        tokens=sum(rule.tokens.values()),
        by_kind=rule.tokens,
        failure="" if fail is None else fail.message or fail.outcome,
        outcome="" if fail is None else fail.outcome,
        until_s=fail.until_s if fail is not None and fail.outcome == "rate_limited" else 0.0,
        exact=rule.value is not None and not rule.raw,
        asks=[rule.ask] if isinstance(rule.ask, ScriptedAsk) else rule.ask,
        calls=() if fail is not None and not fail.after_calls else tuple(rule.call),
    )
