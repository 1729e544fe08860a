"""What requests can ask for: the members of their query strings. A member that is not listed is refused."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta
from starlette.datastructures import QueryParams

from bartack.core import typed
from bartack.errors import WebQueryError
from bartack.messaging.letter import LetterState
from bartack.runtime.state.spans.rows import StayStatus
from bartack.runtime.state.timeline import StepStatus
from bartack.web.models._run import RunStatus

LARGEST = 2**53 - 1

Text = Annotated[str, Meta(max_length=1000)]
Short = Annotated[str, Meta(max_length=200)]
Number = Annotated[int, Meta(ge=0, le=LARGEST)]


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members of a query string."""


class Nothing(Query, frozen=True, kw_only=True):
    """A request without members."""


class AtQuery(Query, frozen=True, kw_only=True):
    """A run at an entry."""

    at: Annotated[Number | None, Meta(description="Show the run after this entry; absent: as it is now.")] = (
        None
    )


class RunsQuery(Query, frozen=True, kw_only=True):
    """Which runs are listed."""

    status: Annotated[list[RunStatus], Meta(description="Only runs with one of these statuses.")] = []
    q: Annotated[
        Text, Meta(description="Only runs with this text in program, project, error, tasks or id.")
    ] = ""
    ws: Annotated[Text, Meta(description="Only runs of this workspace.")] = ""
    after: Annotated[Text, Meta(description="Only runs after this one: `next` of the last answer.")] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class StepsQuery(AtQuery, frozen=True, kw_only=True):
    """Which steps are listed."""

    worker: Text = ""
    kind: list[Text] = []
    status: list[StepStatus] = []
    q: Annotated[Text, Meta(description="Only steps with this text in what they are about.")] = ""
    page: Annotated[Number, Meta(description="Page number from 1; 0 is the last page.")] = 0
    all: Annotated[bool, Meta(description="With the bookkeeping of the pipeline.")] = False


class StepQuery(AtQuery, frozen=True, kw_only=True):
    """Which step is shown."""

    p: Annotated[Text, Meta(description="Its path.")]
    n: Annotated[Number, Meta(description="Its number there.")]
    row: Annotated[Number | None, Meta(description="Its row, where several had this path and number.")] = None


class TimelineQuery(AtQuery, frozen=True, kw_only=True, rename={"from_us": "from", "to_us": "to"}):
    """Which part of a timeline is drawn."""

    from_us: Annotated[
        Number | None, Meta(description="Microseconds since 1970; absent: the first entry.")
    ] = None
    to_us: Annotated[Number | None, Meta(description="Microseconds since 1970; absent: the last entry.")] = (
        None
    )
    px: Annotated[int, Meta(ge=1, le=10_000, description="The width of the drawing.")] = 1200


class MessagesQuery(AtQuery, frozen=True, kw_only=True):
    """Which messages are listed."""

    mailbox: Text = ""
    worker: Annotated[Text, Meta(description="Only messages that this worker sent or received.")] = ""
    status: list[StayStatus] = []
    before: Annotated[Number, Meta(description="Only messages before this row.")] = 0


class LettersQuery(AtQuery, frozen=True, kw_only=True):
    """Which dead letters are listed."""

    state: Annotated[
        LetterState | Literal[""], Meta(description="Empty: all that were not delivered or removed since.")
    ] = ""


class BeforeQuery(AtQuery, frozen=True, kw_only=True):
    """A part of a list that ends before a place."""

    before: Annotated[Number, Meta(description="`next` of the last answer; 0: the end of the list.")] = 0


class TalkQuery(AtQuery, frozen=True, kw_only=True):
    """Which lines of a call are shown."""

    after: Annotated[Number, Meta(description="Only lines with a higher number; 0: the last ones.")] = 0
    raw: Annotated[bool, Meta(description="What went over the pipes of the agent's program.")] = False


class DiffQuery(AtQuery, frozen=True, kw_only=True):
    """Which snapshots are compared."""

    a: Annotated[str, Meta(max_length=100)]
    b: Annotated[str, Meta(max_length=100)]


class EntriesQuery(AtQuery, frozen=True, kw_only=True, rename={"first": "from"}):
    """Which entries are shown."""

    first: Annotated[Number, Meta(description="The first of them; 0: the last ones.")] = 0
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class ValueQuery(AtQuery, frozen=True, kw_only=True):
    """How a value is shown."""

    download: Annotated[bool, Meta(description="All of it, as a file.")] = False


class SearchQuery(Query, frozen=True, kw_only=True):
    """Which patterns are searched for."""

    q: Text = ""
    cursor: Short | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class PatternQuery(Query, frozen=True, kw_only=True):
    """Which part of a pattern's lineage is shown."""

    query_type: Literal["ancestry", "descendants", "both"] = "both"
    version: Short | None = None
    max_depth: Annotated[int, Meta(ge=1, le=100)] = 10
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Short | None = None


class EventsQuery(Query, frozen=True, kw_only=True):
    """Which events of a run are sent."""

    worker: Annotated[Text, Meta(description="With the view `steps`: see there.")] = ""
    kind: list[Text] = []
    status: list[StepStatus] = []
    q: Text = ""
    all: bool = False
    since: Annotated[Number | None, Meta(description="What the page shows already: its last entry.")] = None
    view: Literal["overview", "head", "steps", "talk"] = "overview"
    talk: Annotated[Text, Meta(description="With the view `talk`: the key of the call.")] = ""
    after: Annotated[Number, Meta(description="With the view `talk`: the last line that the page shows.")] = 0


class ListEventsQuery(Query, frozen=True, kw_only=True):
    """Which events of lists are sent."""

    view: Literal["runs", "questions"] = "runs"
    status: Annotated[list[RunStatus], Meta(description="With the view `runs`: see there.")] = []
    q: Text = ""
    ws: Text = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    state: Annotated[
        Short, Meta(description="What the page shows already: `state` of the last event, or of the page.")
    ] = ""


Q = TypeVar("Q", bound=Query)


def read_query(params: QueryParams, kind: type[Q]) -> Q:
    """What a query string asks for.

    Raises:
        WebQueryError: A member is missing, unknown, given twice, or has a value that is not allowed.
    """
    hints = get_type_hints(kind)
    names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    given: dict[str, object] = {}
    for name in params:
        values = params.getlist(name)
        is_list = getattr(hints.get(names.get(name, "")), "__origin__", None) is list
        if not is_list and len(values) > 1:
            raise WebQueryError(name, "it is given twice")
        given[name] = values if is_list else values[0]
    try:
        found = typed.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        name = text.rpartition("`$.")[2].partition("`")[0].partition("[")[0] if "`$." in text else "the query"
        raise WebQueryError(name, text.partition(" - at ")[0]) from None
    for name in given:
        if getattr(found, names[name]) is None:
            raise WebQueryError(name, "leave it out instead")
    return found
