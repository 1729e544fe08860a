"""What the pages say in tables and links, compared with the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from bartack.depot.taken import NODE_CHANGES, OWNER_CHANGES, Change
from bartack.journal import FORMAT
from bartack.journal._file import RESERVE_SIZE
from bartack.journal._stage import GROUP_LIMIT
from bartack.journal.contract import DATA_LIMIT, INLINE_LIMIT
from bartack.node._fleet_core import LOCAL_CHANGES
from bartack.supervision import ChildSpec, CrashReport
from bartack.supervision.supervisor._child import TRANSITIONS
from bartack.telemetry import CATALOGUE
from bartack.telemetry.catalogue import shape_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of every table row of a page, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    bodies = [
        line for line, after in zip(lines, [*lines[1:], ""], strict=True) if not after.startswith("|--")
    ]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in bodies if not line.startswith("|--")
    ]


def names_in(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in link]


@pytest.mark.requirement("events-are-documented")
def test_every_event_is_on_its_page_with_its_fields_and_its_meaning() -> None:
    shown = [
        (names_in(row[0]), names_in(row[1]), names_in(row[2]), row[3])
        for row in rows(page("docs/reference/events.md"))
    ]

    real = [
        ((name,), *shape_of(event_type), " ".join((event_type.__doc__ or "").replace("``", "`").split()))
        for name, event_type in CATALOGUE.items()
    ]
    assert shown == real


@pytest.mark.requirement("limits-are-documented")
def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    text = page("docs/reference/journal-format.md")
    limits = {row[0]: int(re.findall(r"\d+", row[1])[0]) for row in rows(text.split("## Limits")[1])}

    assert limits == {
        "`kind`": 64,
        "`data` of one entry, encoded": DATA_LIMIT,
        "`value` kept in the line, encoded": INLINE_LIMIT,
        "one group, without its blobs": GROUP_LIMIT,
    }
    assert f"Format {FORMAT}." in text
    assert f"{RESERVE_SIZE // 1024} KiB that are freed" in text


def test_the_packages_are_listed_in_the_order_of_their_layers() -> None:
    config = tomllib.loads(page("pyproject.toml"))
    layers: list[str] = config["tool"]["importlinter"]["contracts"][0]["layers"]
    packages = page("ARCHITECTURE.md").split("## Packages")[1].split("##")[0]

    assert [names_in(row[0])[0] for row in rows(packages)] == [
        name.strip() for layer in layers for name in layer.split("|")
    ]


def test_every_link_leads_somewhere() -> None:
    broken = [
        (name.name, link)
        for name in PAGES
        for link in links(name.read_text(encoding="utf-8"))
        if not (name.parent / link).exists()
    ]

    assert broken == []


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_anchor_is_a_heading() -> None:
    missing = [
        (name.name, f"{link}#{anchor}")
        for name in PAGES
        for link, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", name.read_text(encoding="utf-8"))
        if anchor not in anchors((name.parent / link if link else name).read_text(encoding="utf-8"))
    ]

    assert missing == []


def test_every_page_is_reached_from_the_index() -> None:
    reached = {(DOCS / link).resolve() for link in links(page("docs/index.md"))}

    assert reached == {*DOCS.rglob("*.md"), ROOT / "examples/README.md"} - {DOCS / "index.md"}


def test_the_files_named_for_reading_exist() -> None:
    section = page("ARCHITECTURE.md").split("## Where to start reading")[1].split("##")[0]
    named = [name for name in names_in(section) if name.endswith(".py")]

    assert len(named) >= 5
    assert [name for name in named if not (ROOT / "src/bartack" / name).is_file()] == []


def test_the_readme_fits_on_two_screens() -> None:
    assert len(page("README.md").splitlines()) <= 80


def test_the_states_of_a_child_on_the_page_are_those_of_the_code() -> None:
    section = page("docs/how-to/supervise.md").split("A child goes through these states:")[1].split("##")[0]
    shown = {names_in(row[0])[0]: set(names_in(row[1])) for row in rows(section)}

    assert shown == {state: set(following) for state, following in TRANSITIONS.items()}


def test_the_states_of_nodes_and_their_runs_on_the_page_are_those_of_the_code() -> None:
    section = page("docs/explanation/leases.md").split("## The states")[1].split("##")[0]
    shown = [Change(start.strip("`"), event, end.strip("`")) for start, event, end in rows(section)]

    assert shown == [*NODE_CHANGES, *LOCAL_CHANGES, *OWNER_CHANGES]


def test_the_fields_of_a_crash_report_on_the_page_are_those_of_the_code() -> None:
    section = page("docs/how-to/supervise.md").split("The fields are always the same:")[1].split("##")[0]

    assert set(CrashReport.__struct_fields__) <= set(names_in(section))


def test_the_fields_of_a_child_on_the_page_are_those_of_the_code() -> None:
    section = page("docs/how-to/supervise.md").split("## Children")[1].split("##")[0]
    shown = {name for row in rows(section) for name in names_in(row[0])}

    assert shown == set(ChildSpec.__dataclass_fields__) - {"_", "kind"}


def test_the_comparison_names_the_versions_that_are_measured() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", page("constraints.txt"), re.MULTILINE))

    named = re.findall(r"`(dbos|langgraph)` (\d[\d.]*\d)", page("docs/explanation/comparison.md"))
    assert named == [("dbos", pinned["dbos"]), ("langgraph", pinned["langgraph"])]


def test_every_benchmark_is_on_its_page() -> None:
    there = {path.stem for path in (ROOT / "bench").glob("*.py") if not path.stem.startswith("_")}

    assert set(re.findall(r"`bench\.(\w+)`", page("docs/explanation/benchmarks.md"))) == there
