"""Parts of live pages: what a template renders of them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bartack.runtime.protocol.steps import UsageFacts
from bartack.runtime.rundir.follower import FollowState
from bartack.web.models._journal import LogLine
from bartack.web.models._model import At, ErrorText, Model, Problem, Row, Seq
from bartack.web.models._run import Hub, MoneyNow, RunRow


class Head(Model, frozen=True, kw_only=True):
    """The head of the page of a run."""

    run: RunRow
    state: FollowState = "current"
    built: float = 1.0
    problem: Problem | None = None
    seq: Seq
    last_seq: Seq
    at: At
    first_at: At = 0
    live: bool = False
    hub: Hub = Hub()
    steps: int = 0
    workers: Annotated[int, Meta(description="How many workers are alive.")] = 0
    letters: int = 0
    money: MoneyNow = MoneyNow()


class Actions(Model, frozen=True, kw_only=True):
    """What can be done to a run now."""

    run: str
    can_resume: bool = False
    can_interrupt: bool = False
    can_end: Annotated[bool, Meta(description="Whether it can be failed and cancelled.")] = False


class OpenTitle(Model, frozen=True, kw_only=True):
    """Whether the steps that are listed as open are under way now, or were when the run stopped, or at a past entry."""

    when: Literal["now", "then", "interrupted", "ended"]


class Output(Model, frozen=True, kw_only=True):
    """The last lines of the transcript."""

    lines: list[LogLine] = []


class FailureCard(Model, frozen=True, kw_only=True):
    """Why the run failed, in short."""

    worker: str = ""
    step: str = ""
    error: ErrorText


class Words(Model, frozen=True, kw_only=True):
    """What the agent of an open call said last, and what the call has used so far."""

    row: Row
    key: str
    agent: str = ""
    worker: str = ""
    name: Annotated[str, Meta(description="What people call the worker.")] = ""
    text: str = ""
    tool: str = ""
    usage: UsageFacts | None = None
    turn: int = 0


class Filter(Model, frozen=True, kw_only=True):
    """A link above a list, to the rows that it stands for."""

    name: str
    address: str
    is_current: bool = False
    count: int = 0


class Filters(Model, frozen=True, kw_only=True):
    """The links above a list."""

    filters: list[Filter] = []
