"""What goes into the lineage service and what comes out of it: one class per request and per answer.

The classes are the only description of the messages. What is read is checked against them, and the OpenAPI document and
the reference page are made from them (``_api.py``). What an event does to the graph is in ``_write.py``.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from bartack.core import typed
from bartack.core.canonical_json import canonical
from bartack.errors import CanonicalJsonError, EventInvalidError, EventValueError

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

EventType = Literal[
    "pattern_created",
    "pattern_modified",
    "pattern_merged",
    "pattern_applied",
    "pattern_deprecated",
    "pattern_forked",
]
EdgeType = Literal[
    "derived_from",
    "modified_from",
    "merged_from",
    "forked_from",
    "replaced_by",
    "deprecated_by",
    "inspired_by",
]
EdgeTypeGiven = EdgeType | Literal["created_from"]
QueryType = Literal["ancestry", "descendants", "both"]
Check = Literal["orphans", "cycles", "generations", "versions", "dangling"]
CHECKS: tuple[Check, ...] = ("orphans", "cycles", "generations", "versions", "dangling")

_NUMBER = "(0|[1-9][0-9]{0,5})"
PatternId = Annotated[str, Meta(min_length=1, max_length=1000, description="Names a pattern; opaque.")]
EventId = Annotated[str, Meta(min_length=1, max_length=200)]
Version = Annotated[
    str,
    Meta(pattern=rf"^{_NUMBER}\.{_NUMBER}\.{_NUMBER}$", max_length=20, description="Three numbers: 1.4.2."),
]
Name = Annotated[str, Meta(max_length=500)]
Word = Annotated[str, Meta(max_length=100)]
Limit = Annotated[int, Meta(ge=1, le=1000, description="The most items in one answer.")]
Cursor = Annotated[
    str,
    Meta(max_length=200, description="Where the last answer ended: its next_cursor. Belongs to one query."),
]
Moment = Annotated[datetime, Meta(tz=True)]
JsonObject = dict[str, Any]


class TrackRequest(Struct, kw_only=True):
    """One event in the life of a pattern. Members that are not listed here are allowed and count for its identity."""

    event_type: EventType
    pattern_id: PatternId
    event_id: Annotated[
        EventId | None, Meta(description="Without it, one is made from what the event says.")
    ] = None
    pattern_name: Name = ""
    pattern_type: Word = "code"
    language: Word | None = None
    pattern_version: Annotated[
        Version | None,
        Meta(
            description="Without it 1.0.0, or the newest that is known if the pattern was applied or deprecated."
        ),
    ] = None
    pattern_data: Annotated[JsonObject, Meta(description="What the pattern is; its code is searched.")] = (
        field(default_factory=dict)
    )
    parent_pattern_ids: Annotated[list[PatternId], Meta(max_length=64)] = field(default_factory=list)
    parent_versions: Annotated[
        list[Version | None],
        Meta(max_length=64, description="Empty, or one for each parent; null is its newest."),
    ] = field(default_factory=list)
    edge_type: Annotated[
        EdgeTypeGiven | None,
        Meta(
            description="Without it the one that belongs to the event; created_from is another name of derived_from."
        ),
    ] = None
    edge_weight: Annotated[float, Meta(ge=0.0, le=1.0, description="How alike parent and child are.")] = 1.0
    transformation_type: Word | None = None
    reason: Annotated[str, Meta(max_length=10_000)] | None = None
    triggered_by: Word = "api"
    metadata: JsonObject = field(default_factory=dict)
    occurred_at: Moment | None = None


class Tracked(Struct, frozen=True):
    """What became of an event. ``duplicate``: it was recorded before, and this is the answer it got then."""

    node_id: str
    pattern_id: str
    pattern_version: str
    generation: int
    event_recorded: bool
    event_id: str
    duplicate: bool


class BatchRequest(Struct):
    """Several events in the order in which they are to be recorded; each of them has the form of a single one."""

    events: Annotated[list[JsonObject], Meta(max_length=500)]


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why a request was refused. ``field`` names the member to correct."""

    code: str
    message: str
    field: str = ""


class BatchItem(Struct, frozen=True, omit_defaults=True):
    """What became of one event of a batch: ``data`` if it was recorded, else ``error``."""

    success: bool
    data: Tracked | UnsetType = UNSET
    error: Problem | UnsetType = UNSET


class BatchAnswer(Struct, frozen=True):
    """One item for each event, in their order."""

    results: list[BatchItem]


class LineageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a pattern's lineage is asked for."""

    query_type: QueryType = "ancestry"
    version: Version | UnsetType = UNSET
    max_depth: Annotated[int, Meta(ge=1, le=100, description="How many edges away to look.")] = 10
    limit: Limit = 100
    cursor: Cursor | UnsetType = UNSET


class PageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a long answer is asked for."""

    limit: Limit = 100
    cursor: Cursor | UnsetType = UNSET


class LineageNode(Struct, frozen=True):
    """One version of a pattern. ``stub``: others named it, but no event of its own has come yet."""

    node_id: str
    pattern_id: str
    pattern_name: str
    pattern_type: str
    language: str
    version: str
    generation: int
    stub: bool
    deprecated: bool
    created_at: str


class Relative(Struct, frozen=True):
    """A node that was found from another one; ``distance`` counts the edges of the shortest way."""

    pattern_id: str
    pattern_name: str
    version: str
    generation: int
    edge_type: str
    distance: int


class LineageAnswer(Struct, frozen=True):
    """A node and where it came from or what came from it, nearest first. ``truncated``: ``max_depth`` cut something off."""

    node: LineageNode
    ancestors: list[Relative]
    descendants: list[Relative]
    truncated: bool
    next_cursor: str | None


class Edge(Struct, frozen=True):
    """A child and the parent it came from."""

    parent_node_id: str
    child_node_id: str
    edge_type: str
    edge_weight: float
    transformation_type: str | None


class EvolutionAnswer(Struct, frozen=True):
    """The versions that are connected by modification and replacement, in the order in which they became known."""

    total_versions: int
    evolution_nodes: list[LineageNode]
    evolution_edges: list[Edge]
    next_cursor: str | None


class OrphansAnswer(Struct, frozen=True):
    """Nodes that nothing is known of but their name, and nodes all of whose parents are such."""

    orphans: list[LineageNode]
    next_cursor: str | None


class CyclesAnswer(Struct, frozen=True):
    """Cycles as lists of node ids, each beginning with its least. ``truncated``: the search for more was given up."""

    cycles: list[list[str]]
    truncated: bool
    next_cursor: str | None


class SearchRequest(Struct, frozen=True):
    """Words that have to occur in name, language, type or code; without words everything is found."""

    query: Annotated[str, Meta(max_length=1000)] = ""
    language: Word | None = None
    pattern_type: Word | None = None
    since: Moment | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 20
    cursor: Cursor | None = None


class Found(Struct, frozen=True):
    """A node that a search found. ``snippet`` shows the words in their place, between ``[`` and ``]``."""

    node_id: str
    pattern_id: str
    pattern_name: str
    pattern_type: str
    language: str
    version: str
    generation: int
    created_at: str
    snippet: str


class SearchAnswer(Struct, frozen=True):
    """The best matches first: names before other text, later ones before earlier ones."""

    results: list[Found]
    total: int
    next_cursor: str | None


class ValidateRequest(Struct, frozen=True):
    """Which checks to make; all of them if none is named."""

    checks: list[Check] = field(default_factory=list)


class Issue(Struct, frozen=True):
    """Something that is wrong, or not yet known, at one node."""

    check: Check
    node_id: str
    message: str


class ValidateAnswer(Struct, frozen=True):
    """What the checks found. At most 1000 issues are listed; ``truncated`` says that there are more."""

    lineage_valid: bool
    orphans_found: int
    cycles_found: int
    issues: list[Issue]
    truncated: bool


Level = Literal["healthy", "degraded", "unhealthy"]


class HealthAnswer(Struct, frozen=True):
    """Whether the service works, and which parts of it do."""

    status: Level
    components: dict[str, Level]
    timestamp: str
    response_time_ms: float


class Stats(Struct, frozen=True):
    """What a lineage database holds."""

    patterns: int
    nodes: int
    stubs: int
    deprecated: int
    edges: dict[str, int]
    events: dict[str, int]
    languages: dict[str, int]
    deepest_generation: int
    last_event_at: str | None
    size_bytes: int


class Event(NamedTuple):
    """An event that was checked, with its id and the checksum of all that it says."""

    request: TrackRequest
    event_id: str
    body_sha256: str
    occurred_at: str | None


def parse_event(body: object) -> Event:
    """Check an event and give it an id, if it has none, made from what it says.

    Raises:
        EventInvalidError: A member is missing, has the wrong type or a value that is not allowed.
    """
    request = convert(body, TrackRequest)
    parents, versions = len(request.parent_pattern_ids), len(request.parent_versions)
    if versions not in {0, parents}:
        raise EventValueError(f"has {versions} versions for {parents} parents", "parent_versions")
    for version in [request.pattern_version, *request.parent_versions]:
        if version and version.endswith("\n"):  # which a regular expression lets pass
            raise EventValueError("a version ends with its third number", "pattern_version")
    digest = _digest(body)
    event_id = request.event_id or f"ev_{digest[:32]}"
    return Event(request, event_id, digest, utc_text(request.occurred_at, "occurred_at"))


def try_event(body: object) -> Event | EventInvalidError:
    """As ``parse_event``, but what is wrong is a value."""
    try:
        return parse_event(body)
    except EventInvalidError as error:
        return error


def _digest(body: object) -> str:
    try:
        encoded = canonical(body)
    except CanonicalJsonError:
        # An integer beyond 2^53 has no canonical form; to lose the event for that would be worse than another form.
        encoded = msgspec.json.encode(body, order="sorted")
    return hashlib.sha256(encoded).hexdigest()


def utc_text(moment: datetime | None, field_name: str) -> str | None:
    """A moment as text whose order is that of time."""
    if moment is None:
        return None
    try:
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except OverflowError:
        raise EventValueError("is outside the years that UTC can express", field_name) from None


def decode_json(raw: bytes) -> object:
    """The value that some JSON text stands for.

    Raises:
        EventInvalidError: It is not JSON, or nested too deeply.
    """
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        raise EventValueError("a number is out of range") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EventInvalidError(f"the body is not JSON: {error}") from error
    except RecursionError:
        raise EventInvalidError("the body is nested too deeply") from None


def convert(value: object, kind: type[S], *, from_text: bool = False) -> S:
    """``value`` as an object of ``kind``.

    Args:
        value: Decoded JSON, or the members of a query string.
        kind: What it has to be.
        from_text: Numbers may be written as text, as they are in a query string.

    Raises:
        EventInvalidError: Something is missing or of the wrong type; as ``EventValueError``, out of its range.
    """
    if isinstance(value, dict) and not from_text:
        value = {name: _whole(member) for name, member in cast("dict[str, object]", value).items()}
    try:
        return typed.convert(value, kind, strict=not from_text)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error


def _whole(number: object) -> object:
    """In JSON 1.0 is an integer."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


_PLACE = re.compile(r" - at `\$\.?(?P<place>.*)`$")
_MISSING = re.compile(r"missing required field `(?P<name>.*)`")
_UNKNOWN = re.compile(r"contains unknown field `(?P<name>.*)`")


def _explained(text: str) -> EventInvalidError:
    found = _PLACE.search(text)
    place = found["place"] if found else ""
    problem = (text[: found.start()] if found else text).replace("`", "'")
    missing = _MISSING.search(text)
    if missing:
        return EventInvalidError("is missing", f"{place}.{missing['name']}".lstrip("."))
    unknown = _UNKNOWN.search(text)
    if unknown:
        return EventInvalidError("is not known here", unknown["name"])
    wrong_type = ", got " in problem or not place
    kind = EventInvalidError if wrong_type else EventValueError
    return kind(problem[:1].lower() + problem[1:], place)
