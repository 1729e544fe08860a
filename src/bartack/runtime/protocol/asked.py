"""What the agent of a prompt asks a person: as it is kept in the journal, and as one of the questions that people answer.

Questions of programs are ``AskArgs`` (``steps.py``). ``answers.py`` reads the answers to both.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from bartack.agents import AgentQuestion
from bartack.core import typed
from bartack.core.text import cut
from bartack.errors import TypeMismatchError
from bartack.runtime.protocol.answers import check_answer
from bartack.runtime.protocol.steps import AskArgs

ALLOW: Final = "allow"
DENY: Final = "deny"

LONGEST_ANSWER: Final = 65_536
"""Characters of an answer to an agent."""
INPUT_SHOWN: Final = 200
"""Characters of the input of a tool that are shown to people in one line."""


def one_line(text: str, limit: int) -> str:
    """A text in one line, cut if it is longer."""
    line = " ".join(text.split())
    return cut(line, limit)


class AgentAsk(msgspec.Struct, omit_defaults=True, frozen=True):
    """What an agent asks. See ``AgentQuestion``."""

    text: str
    options: list[str] = []
    default: str = ""
    tool: str = ""
    input: dict[str, object] = {}

    @property
    def args(self) -> AskArgs:
        """The same as a question of a program: a text, or one of the options."""
        default = None if not self.default else msgspec.Raw(msgspec.json.encode(self.default))
        return AskArgs(question=self.text, options=self.options or None, default=default)

    @property
    def shown_input(self) -> str:
        """The input of the tool in one line, cut; empty if there is none."""
        if not self.input:
            return ""
        return one_line(msgspec.json.encode(self.input, order="sorted").decode(), INPUT_SHOWN)


class ReadQuestion(NamedTuple):
    """What an open question of a program or an agent asks."""

    args: AskArgs
    input: str = ""
    """What a tool is to be used with that an agent asks about: JSON in one line, cut."""


def read_question(raw: bytes, *, by_agent: bool) -> ReadQuestion:
    """What the value of an entry asks: of an agent's question, or of a program's."""
    if not by_agent:
        return ReadQuestion(typed.decode(raw, type=AskArgs))
    asked = typed.decode(raw, type=AgentAsk)
    return ReadQuestion(asked.args, asked.shown_input)


def check_agent_answer(asked: AgentAsk, value: msgspec.Raw) -> str:
    """The answer to an agent's question: a text, or one of the options.

    Raises:
        TypeMismatchError: It is something else, or longer than an entry of the journal may be.
    """
    text = typed.decode(check_answer(asked.args, value), type=str)
    if len(text) > LONGEST_ANSWER:
        raise TypeMismatchError("answer", f"at most {LONGEST_ANSWER} characters", str(len(text)))
    return text


def ask_of(question: AgentQuestion) -> AgentAsk:
    """What is kept of a question. A permission is always a choice between the same two, and has no default."""
    if question.kind == "permission":
        return AgentAsk(question.text, [ALLOW, DENY], "", question.tool, question.input)
    return AgentAsk(question.text, question.options, question.default, question.tool, question.input)


def fingerprint_of(question: AgentQuestion) -> str:
    """Two questions of a prompt are the same if they have the same fingerprint: 64 hex digits.

    Raises:
        ValueError: It is not JSON, and cannot be kept.
    """
    same = [question.kind, question.text, question.tool, question.input]
    try:
        msgspec.json.encode([question.options, question.default])
        return sha256(msgspec.json.encode(same, order="sorted")).hexdigest()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
