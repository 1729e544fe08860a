from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from bartack.telemetry import CATALOGUE, Event
from bartack.telemetry.catalogue import JournalCommitted, JournalOpened, shape_of

SRC = Path(__file__).parents[3] / "src/bartack"
EVENTS = pytest.mark.parametrize("event_type", CATALOGUE.values(), ids=list(CATALOGUE))


def test_the_catalogue_has_every_event_under_its_own_name() -> None:
    assert set(CATALOGUE.values()) == set(Event.__subclasses__())
    assert all(name == event_type.name for name, event_type in CATALOGUE.items())
    assert len(CATALOGUE) >= 6


@EVENTS
def test_an_event_is_named_area_dot_what_happened_like_its_class(event_type: type[Event]) -> None:
    assert re.fullmatch(r"[a-z_]+\.[a-z_]+", event_type.name)
    assert event_type.__name__.lower() == event_type.name.replace(".", "").replace("_", "")


@EVENTS
def test_every_field_is_either_a_measurement_or_metadata(event_type: type[Event]) -> None:
    shape = shape_of(event_type)

    assert sorted(shape.measurements + shape.metadata) == sorted(event_type.__struct_fields__)


@EVENTS
def test_an_event_says_what_it_means(event_type: type[Event]) -> None:
    assert event_type.__doc__


@EVENTS
@pytest.mark.requirement("events-carry-no-payload")
def test_no_event_has_a_place_for_a_payload(event_type: type[Event]) -> None:
    annotations = {str(annotation) for annotation in event_type.__annotations__.values()}

    assert annotations <= {
        f"{role}[{kind}]" for role in ("Measurement", "Metadata") for kind in ("int", "float", "str", "bool")
    }
    assert not {"value", "data", "payload", "content", "body"} & set(event_type.__struct_fields__)


def test_the_shape_keeps_the_order_of_declaration() -> None:
    assert shape_of(JournalOpened) == (("entries", "size_bytes", "duration_ns"), ("path", "fence"))


def test_an_event_cannot_be_changed() -> None:
    event = JournalCommitted(entries=1, size_bytes=1, duration_ns=1)

    with pytest.raises(AttributeError):
        event.entries = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue] - the point of the test


@cache
def words_of_emitters() -> frozenset[str]:
    """Every word in the code of other packages, and in that of the bus."""
    files = [path for path in SRC.rglob("*.py") if path.parent.name != "telemetry" or path.name == "_bus.py"]
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text("utf-8")))


@EVENTS
def test_every_event_is_emitted(event_type: type[Event]) -> None:
    assert event_type.__name__ in words_of_emitters()
