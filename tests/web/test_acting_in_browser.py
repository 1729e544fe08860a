"""What people do to runs in a real browser: they stop, resume and answer them, and move through their entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.waiting import PATIENCE_S
from tests.web.journals import RUN, finished, started, written_run
from tests.web.programs import LOST
from tests.web.servers import WebServer
from tests.web.showcase import fail, fill_run
from tests.web.test_pages_in_browser import no_faults, open_page

from bartack import Run
from bartack.runtime.state import entries as e

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

pytestmark = pytest.mark.browser


@pytest.fixture
def server(workspace: Path) -> Iterator[WebServer]:
    with WebServer(workspace) as serving:
        yield serving


@pytest.fixture
def page(context: BrowserContext, server: WebServer) -> Page:
    """The list of runs, entered by a link."""
    return open_page(context, server.link)


@pytest.mark.requirement("web-actions-show-their-effect")
def test_a_run_is_interrupted_and_resumed_without_loading_its_page_again(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{asking.id}")
        page.locator("[data-state=live]").wait_for()
        page.evaluate("window.sameDocument = true")
        page.get_by_role("button", name="Interrupt").click()
        page.get_by_role("button", name="Resume").first.wait_for()
        assert page.evaluate("window.sameDocument")
        assert page.get_by_role("button", name="Interrupt").count() == 0

        page.get_by_role("button", name="Resume").first.click()
        page.get_by_role("button", name="Interrupt").wait_for()
        page.get_by_role("button", name="Yes").click()
        page.locator("#head").get_by_text("completed").wait_for()
    assert asking.result() == "deployed: True"


@pytest.mark.requirement("web-actions-show-their-effect")
def test_an_answer_to_a_run_that_is_interrupted_is_kept_and_taken_by_resuming_it(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    asking.interrupt()
    asking.wait(PATIENCE_S)
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{asking.id}")
        page.get_by_role("button", name="Yes").click()
        page.locator("article").get_by_text("kept until the run is resumed").wait_for()
        page.reload()
        page.locator("article").get_by_text("kept until the run is resumed").wait_for()
        assert page.get_by_role("button", name="Yes").count() == 0

        page.get_by_role("button", name="Resume").first.click()
        page.locator("#head").get_by_text("completed").wait_for()
        assert page.locator("article.question").count() == 0
    assert asking.result() == "deployed: True"


@pytest.mark.requirement("web-pages-are-live")
def test_the_first_run_takes_the_place_of_the_words_that_there_are_none(
    context: BrowserContext, page: Page, server: WebServer, workspace: Path
) -> None:
    with no_faults(context, server):
        page.locator("[data-state=live]").wait_for()
        page.get_by_text("There are no runs yet.").wait_for()
        with written_run(workspace) as run:
            fill_run(run)
            run.mirror()
        page.locator("#runs > li").wait_for()

        assert page.get_by_text("There are no runs yet.").is_hidden()
        assert page.locator(f'#runs a[href="/r/{RUN}"]').is_visible()


def press_until(page: Page, key: str, wanted: str, most: int = 40) -> None:
    """Press a key until an element that a selector finds has the focus, as a person does who sees where it is."""
    for _ in range(most):
        page.keyboard.press(key)
        if page.evaluate("(wanted) => document.activeElement?.matches(wanted) ?? false", wanted):
            return
    pytest.fail(f"{most} times {key} do not lead to {wanted}")


# The list.


@pytest.mark.requirement("web-lists-what-runs-do")
def test_from_the_list_a_run_is_resumed_and_answered_without_leaving_it(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    row = page.locator("#runs > li")
    with no_faults(context, server):
        page.locator("[data-state=live]").wait_for()
        row.get_by_text("Deploy?").wait_for()
        asking.interrupt()
        row.get_by_role("button", name="Resume").click()
        row.get_by_text("waiting").wait_for()
        assert row.get_by_role("button", name="Resume").count() == 0
        page.evaluate("window.sameDocument = true")
        row.get_by_role("group", name="Answer q1").get_by_role("button", name="Yes").click()
        row.get_by_text("completed").wait_for()
        assert row.get_by_role("button").count() == 0
        assert page.evaluate("window.sameDocument")
    assert asking.result() == "deployed: True"


@pytest.mark.requirement("web-lists-what-runs-do")
@pytest.mark.requirement("web-works-without-script")
def test_without_script_a_run_is_answered_in_the_list_and_its_failure_is_one_link_away(
    browser: Browser, server: WebServer, asking: Run, workspace: Path
) -> None:
    with written_run(workspace) as run:
        fill_run(run)
        fail(run)
        run.mirror()
    context = browser.new_context(java_script_enabled=False, viewport={"width": 360, "height": 800})
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    page.goto(f"{server.origin}/enter")
    page.get_by_label("Or paste the link here").fill(server.link)
    page.get_by_role("button", name="Enter").click()
    page.get_by_role("button", name="No", exact=True).click()

    assert asking.wait(PATIENCE_S).status == "completed"
    assert asking.result() == "deployed: False"
    page.get_by_role("link", name="Failure").click()
    page.get_by_role("heading", name="ValueError").first.wait_for()
    context.close()


# Failing and cancelling.


@pytest.mark.requirement("web-failing-is-confirmed")
@pytest.mark.parametrize(("name", "status"), [("fail", "failed"), ("cancel", "cancelled")])
def test_a_run_is_failed_or_cancelled_only_with_the_end_of_its_id(
    context: BrowserContext, page: Page, server: WebServer, asking: Run, name: str, status: str
) -> None:
    sent: list[str] = []
    page.on("request", lambda asked: sent.append(asked.url) if asked.method == "POST" else None)
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{asking.id}")
        page.locator("[data-state=live]").wait_for()
        page.get_by_text("More", exact=True).click()
        form = page.locator(f"form[action$='/{name}']")
        button = form.get_by_role("button")
        button.click()  # without a word
        form.get_by_label("Reason").fill("enough of it")
        form.get_by_label("to confirm").fill("xxxx")
        button.click()
        assert form.locator("input[name=confirm]").evaluate("(field) => !field.validity.valid")
        assert sent == []
        assert asking.state().status == "waiting"

        form.get_by_label("to confirm").fill(asking.id[-4:])
        button.click()
        page.locator("#head").get_by_text(status).wait_for()
        assert page.get_by_role("button", name="Interrupt").count() == 0
        assert page.get_by_role("button", name="Resume").first.is_visible() == (status == "failed")
    assert sent == [f"{server.origin}/r/{asking.id}/{name}"]
    assert asking.state().status == status


@pytest.mark.requirement("web-failing-is-confirmed")
def test_a_menu_that_is_left_does_nothing_and_gives_the_focus_back(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{asking.id}")
        page.locator("[data-state=live]").wait_for()
        page.locator("#main").focus()
        press_until(page, "Tab", "#actions summary")
        page.keyboard.press("Enter")
        press_until(page, "Tab", "form[action$='/cancel'] input[name=confirm]")
        page.keyboard.type(asking.id[-4:])
        page.keyboard.press("Escape")

        assert page.locator("form[action$='/cancel']").is_hidden()
        assert page.evaluate("document.activeElement.matches('#actions summary')")
        assert page.locator("form[action$='/cancel'] input[name=confirm]").input_value() == ""
        page.get_by_role("button", name="Yes").click()
        page.locator("#head").get_by_text("completed").wait_for()
        page.locator("#actions summary").wait_for(state="detached")
    assert asking.result() == "deployed: True"


# Forking.


@pytest.mark.requirement("web-forks-at-an-entry")
@pytest.mark.requirement("web-works-by-keyboard")
def test_by_keyboard_a_run_is_forked_at_the_entry_that_is_shown(
    context: BrowserContext, page: Page, server: WebServer, asking: Run, workspace: Path
) -> None:
    asking.answer("q1", value=True)
    asking.wait(PATIENCE_S)
    first, _ = (int(str(entry["seq"])) for entry in asking.events() if entry["kind"] == "step.finished")
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{asking.id}")
        page.locator("#head").get_by_text("completed").wait_for()
        page.locator("#main").focus()
        while int(page.locator("#travel-at").input_value()) > first:
            page.keyboard.press("[")
        page.wait_for_url(f"**/r/{asking.id}?at={first}")
        page.get_by_text(f"This is the run after entry {first}").wait_for()
        press_until(page, "Tab", ".fork summary")
        page.keyboard.press("Enter")
        assert "now main:1" in page.locator(".fork .panel").inner_text()
        page.keyboard.press("Escape")
        assert page.locator(".fork .panel").is_hidden()
        page.keyboard.press("Enter")
        press_until(page, "Tab", ".fork button")
        page.keyboard.press("Enter")
        page.wait_for_url(lambda url: "/r/run-" in url and asking.id not in url)

        page.locator("#head").get_by_text("interrupted").wait_for()
        page.locator("#main").focus()
        press_until(page, "Tab", "#actions button")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="No", exact=True).wait_for()
        page.keyboard.press("a")
        page.keyboard.press("n")
        page.locator("#head").get_by_text("completed").wait_for()
    fork = Run.open(page.url.rpartition("/")[2], workspace)
    assert fork.result() == "deployed: False"
    assert asking.result() == "deployed: True"


# Dead letters.


@pytest.mark.requirement("web-acts-as-the-command-line")
def test_dead_letters_are_chosen_retried_and_purged(
    context: BrowserContext, page: Page, server: WebServer, workspace: Path
) -> None:
    (workspace / "lost.py").write_text(LOST, encoding="utf-8")
    run = Run.start(workspace / "lost.py", workspace=workspace)
    run.wait(PATIENCE_S, until="waiting")
    queue = run.dead_letters
    letters = {str(queue.value(one.id)): one for one in queue.list_messages().letters}
    first, second, third = (letters[word] for word in ("first", "second", "third"))
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{run.id}/mailboxes")
        rows = page.locator("#letters tbody tr")
        assert rows.count() == 3
        page.get_by_role("button", name="Purge the chosen ones").click()
        page.locator("#letters").get_by_text("Choose at least one letter first.").wait_for()
        page.get_by_label(f"Choose {first.message_id}").check()
        page.get_by_role("button", name="Purge the chosen ones").click()
        page.get_by_label(f"Choose {first.message_id}").wait_for(state="detached")
        assert rows.count() == 2

        page.get_by_label(f"Choose {second.message_id}").check()
        with page.expect_navigation():
            page.get_by_role("button", name="Retry the chosen ones").click()
        assert len(queue.show(second.id).history) > len(second.history)

        page.get_by_role("link", name=third.message_id).click()
        page.get_by_role("heading", name="Dead letter").wait_for()
        page.get_by_role("button", name="Purge").click()
        page.locator(".tag").get_by_text("purged").wait_for()
        assert page.get_by_role("button", name="Purge").count() == 0
    assert [one.id for one in queue.list_messages().letters] == [second.id]


# Time travel.

HELD: Final = "window.sameDocument = true"
COLOUR: Final = (
    "[...document.querySelector('canvas.bars').getContext('2d')"
    ".getImageData(document.querySelector('canvas.bars').width * 0.9, 13, 1, 1).data]"
)
"""The colour of the first lane near the right end of the timeline."""
COLOURS: Final = (
    "(() => { const canvas = document.querySelector('canvas.bars');"
    "const data = canvas.getContext('2d').getImageData(canvas.width * 0.5, 6, canvas.width * 0.2, 15).data;"
    "return [...Array(data.length / 4).keys()].map((place) => data.slice(4 * place, 4 * place + 4).join()); })()"
)
"""The colours of a part of the first lane."""


def draw_one_bar(page: Page, state: str = "finished") -> None:
    """Let the timeline have one bar from its beginning to its end, which entry 5 opened."""
    first, last = 10**15, 10**15 + 10**6
    bars = [[first, last, 0, state, 1, 5, 0, True]]
    lanes = [{"id": 0, "path": "main", "worker": "main", "bars": bars}]
    drawn = {"first_us": first, "last_us": last, "seq": 5, "kinds": ["shell"], "lanes": lanes, "marks": []}
    page.unroute("**/timeline?*")
    page.route("**/timeline?*", lambda route: route.fulfill(json=drawn))


def shown_at(page: Page, seq: int) -> None:
    """Check that the page shows the run after an entry: the workers, open steps and questions that the API has."""
    page.locator(f"#head[data-seq='{seq}']").wait_for(state="attached")
    moment = page.evaluate(
        "([run, seq]) => fetch(`/api/v1/runs/${run}?at=${seq}`).then((answer) => answer.json())", [RUN, seq]
    )
    workers = moment.get("workers", [])
    opened = [step for worker in workers for step in worker.get("open", [])]

    def texts(selector: str, what: str) -> list[str]:
        return [
            str(one) for one in page.locator(selector).evaluate_all(f"(all) => all.map((one) => one.{what})")
        ]

    assert texts(".lane .name", "title") == [worker["path"] for worker in workers]
    assert texts("[data-parts=o] > li", "id") == [f"o{row}" for row in sorted(step["row"] for step in opened)]
    assert texts("#questions > article", "dataset.question") == [
        question["id"] for question in moment.get("questions", [])
    ]
    assert page.locator("#travel-range").input_value() == page.locator("#travel-at").input_value() == str(seq)


@pytest.mark.requirement("web-travels-in-time")
@pytest.mark.requirement("web-works-by-keyboard")
def test_by_keyboard_a_run_is_shown_at_each_entry_without_leaving_its_page(
    context: BrowserContext, page: Page, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run, no_faults(context, server):
        fill_run(run)
        last = run.seq
        asked = last - 1  # the only mark
        page.goto(f"{server.origin}/r/{RUN}")
        page.locator("[data-state=live]").wait_for()
        page.evaluate(HELD)
        for seq in range(last - 1, 0, -1):
            page.keyboard.press("[")
            shown_at(page, seq)
            page.wait_for_url(f"**/r/{RUN}?at={seq}")
            assert page.get_by_role("button", name="Interrupt").count() == 0
        page.keyboard.press("[")
        page.keyboard.press("]")
        shown_at(page, 2)
        page.keyboard.press("}")
        shown_at(page, asked)
        assert page.locator("#moment").get_by_text(f"This is the run after entry {asked}").is_visible()
        page.locator("#travel-range").focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        shown_at(page, asked - 2)
        assert page.evaluate("document.activeElement.id") == "travel-range"
        assert page.locator("#tabs a").nth(1).get_attribute("href") == f"/r/{RUN}/steps?at={asked - 2}"

        page.locator("#main").focus()
        page.keyboard.press("l")
        shown_at(page, last)
        page.wait_for_url(f"**/r/{RUN}")
        page.locator("[data-state=live]").wait_for()
        run.write(started(9, about="make docs"))
        page.locator("[data-parts=o]").get_by_text("make docs").wait_for()
        assert page.evaluate("window.sameDocument")


@pytest.mark.requirement("web-travels-in-time")
def test_the_slider_moves_a_line_at_once_and_what_lies_after_it_is_pale(
    context: BrowserContext, page: Page, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run, no_faults(context, server):
        fill_run(run)
        last = run.seq
        draw_one_bar(page)
        page.goto(f"{server.origin}/r/{RUN}")
        page.locator("[data-state=live]").wait_for()
        page.wait_for_function(f"() => {COLOUR}.some(Boolean)")
        page.evaluate(HELD)
        held: list[Route] = []
        bright = page.evaluate(COLOUR)
        page.route(f"**/r/{RUN}*", lambda route: held.append(route))  # noqa: PLW0108 - a built-in cannot be given
        box = page.locator("#travel-range").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] - 4, middle)
        page.mouse.down()
        with page.expect_request(f"**/r/{RUN}*"):
            page.mouse.move(box["x"] + box["width"] * 0.5, middle)
            page.wait_for_function(
                f"(bright) => {COLOUR}.some((one, place) => one !== bright[place])", arg=bright
            )
            assert page.locator("#head").get_attribute("data-seq") == str(last)
        # It moves on while the answer is not there yet: that is the next request.
        for part in (0.45, 0.4):
            page.mouse.move(box["x"] + box["width"] * part, middle)
        before_middle = f"() => document.getElementById('travel-range').value < {(1 + last) / 2}"
        page.wait_for_function(before_middle)
        assert len(held) == 1
        held[0].continue_()
        page.unroute(f"**/r/{RUN}*")
        page.mouse.up()
        seq = int(page.locator("#travel-range").input_value())
        assert 1 < seq < last - 2
        shown_at(page, seq)
        page.wait_for_url(f"**/r/{RUN}?at={seq}")
        page.locator("#travel").get_by_role("link", name="Live").click()
        shown_at(page, last)
        page.wait_for_function(
            f"(bright) => {COLOUR}.every((one, place) => one === bright[place])", arg=bright
        )
        assert page.evaluate("window.sameDocument")


@pytest.mark.requirement("web-travels-in-time")
def test_the_slider_and_its_marks_follow_a_run_as_it_goes_on(
    page: Page, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        run.begin()
        page.goto(f"{server.origin}/r/{RUN}")
        page.locator("[data-state=live]").wait_for()
        assert page.get_by_text("Fork here").count() == 0
        page.locator("#travel-range").focus()
        run.write(started(1))
        run.write(finished(1), value={"status": 0})
        run.write(started(2, step="ask", question="q1"), value={"question": "Which?"})
        asked = run.seq
        run.write(started(3, about="make docs"))
        page.locator("#travel .of").get_by_text(f"of {run.seq},").wait_for()
        slider = page.locator("#travel-range")
        assert (slider.get_attribute("max"), slider.input_value()) == (str(run.seq), str(run.seq))
        assert page.get_by_text("Fork here").is_visible()
        page.locator("[data-travel=mark-before]").click()
        shown_at(page, asked)


# The timeline.


@pytest.mark.requirement("web-shows-all-workers")
def test_workers_that_have_ended_are_folded_and_shown_by_a_button(
    page: Page, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        run.begin()
        for n in range(23):
            path = f"main/1.{n}:child"
            run.write(
                e.WorkerSpawned(path=path, worker="team:child", p="main", n=1), value={"args": [f"b{n}"]}
            )
            run.write(e.WorkerEnded(path=path), value=None)
        page.goto(f"{server.origin}/r/{RUN}")
        button = page.get_by_role("button", name="3 more that have ended")
        button.wait_for()
        lanes = page.locator(".lane")
        assert lanes.count() == 24
        assert [lanes.nth(place).is_visible() for place in range(5)] == [True, False, False, False, True]
        button.click()
        assert lanes.nth(1).is_visible()
        page.get_by_role("button", name="Hide 3 that have ended").click()
        assert lanes.nth(1).is_hidden()


@pytest.mark.requirement("web-shows-all-workers")
def test_bars_of_steps_that_failed_or_were_undone_differ_in_their_pattern(
    page: Page, server: WebServer, workspace: Path
) -> None:
    with written_run(workspace) as run:
        fill_run(run)
        run.mirror()
    pictures: dict[str, set[str]] = {}
    for state in ("finished", "failed", "undone"):
        draw_one_bar(page, state)
        page.goto(f"{server.origin}/r/{RUN}")
        page.wait_for_function(f"() => {COLOUR}.some(Boolean)")
        pictures[state] = set(page.evaluate(COLOURS))
    assert len(pictures["undone"]) > len(pictures["finished"])
    assert len({frozenset(one) for one in pictures.values()}) == 3


RECORD: Final = """(() => {
    const made = CanvasRenderingContext2D.prototype.fillText;
    window.written = [];
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        window.written.push({ text, left: x, right: x + this.measureText(text).width, room: this.canvas.clientWidth });
        return made.call(this, text, x, y);
    };
})()"""
"""Keeps what is written on a canvas, and where."""


@pytest.mark.requirement("web-marks-have-words")
@pytest.mark.parametrize("width", [1280, 360])
def test_marks_of_the_timeline_differ_stay_inside_and_are_words_for_screen_readers(
    page: Page, server: WebServer, workspace: Path, width: int
) -> None:
    with written_run(workspace) as run:
        fill_run(run)
        fail(run)
        run.mirror()
    first, last = 10**15, 10**15 + 20 * 10**6
    kinds = ["question", "crash", "resume", "answer", "failure", "end"]
    places = [0, 5, 10, 15, 19.9, 20]
    marks = [
        [first + int(at * 1e6), kind, seq, {"crash": "killed by SIGKILL", "question": "q1: "}.get(kind, "")]
        for seq, (at, kind) in enumerate(zip(places, kinds, strict=True), 1)
    ]
    bars = [[first, last, 0, "finished", 1, 5, 0, True], [last - 10**6, last, 0, "finished", 1, 6, 1, True]]
    lanes = [{"id": 0, "path": "main", "worker": "main", "bars": bars}]
    drawn = {"first_us": first, "last_us": last, "seq": 9, "kinds": ["shell"], "lanes": lanes, "marks": marks}
    page.route("**/timeline?*", lambda route: route.fulfill(json=drawn))
    page.set_viewport_size({"width": width, "height": 800})
    page.add_init_script(RECORD)
    page.goto(f"{server.origin}/r/{RUN}")
    page.wait_for_function("() => window.written.some((one) => one.text.includes('✗'))")
    written = page.evaluate("window.written")
    signs = [one for one in written if one["text"].strip("abcdefghijklmnopqrstuvwxyz ") in set("!?✗▸✓■")]

    assert {one["text"].strip("abcdefghijklmnopqrstuvwxyz ") for one in signs} >= {"!", "?", "✗", "▸"}
    if width > 1000:
        assert {"! crash", "? question", "▸ resumed"} <= {one["text"] for one in signs}
    assert [one for one in written if one["left"] < 0 or one["right"] > one["room"]] == []
    items = page.get_by_role("list", name="Marks of the timeline").get_by_role("listitem")
    assert items.all_inner_texts() == [
        "question at 0:00, entry 1: q1",
        "crash at 0:05, entry 2: killed by SIGKILL",
        "resumed at 0:10, entry 3",
        "answer at 0:15, entry 4",
        "failure at 0:19, entry 5",
        "end at 0:20, entry 6",
    ]


@pytest.mark.requirement("web-pages-are-live")
def test_screen_readers_get_the_status_in_words(page: Page, server: WebServer, workspace: Path) -> None:
    with written_run(workspace) as run:
        run.begin()
        page.goto(f"{server.origin}/r/{RUN}")
        page.locator("[data-state=live]").wait_for()
        run.write(started(1, about="make docs"))
        page.wait_for_function("() => document.getElementById('status').textContent")

        assert page.locator("#status").inner_text() == "interrupted, 1 step open"


@pytest.mark.requirement("web-questions-of-ended-runs-are-closed")
def test_a_question_of_a_run_that_fails_is_not_answered_any_more_on_its_page(
    context: BrowserContext, page: Page, server: WebServer, asking: Run
) -> None:
    with no_faults(context, server):
        page.goto(f"{server.origin}/r/{asking.id}")
        page.locator("[data-state=live]").wait_for()
        page.get_by_role("heading", name="Open now").wait_for()
        page.get_by_role("button", name="Yes").wait_for()
        asking.fail("enough of it")
        page.get_by_role("heading", name="Open when the run ended").wait_for()
        page.locator("article").get_by_text("does not wait for an answer").wait_for()
        assert page.get_by_role("button", name="Yes").count() == 0
        assert page.title().startswith("✗ ")

        page.get_by_role("button", name="Resume").first.click()
        page.get_by_role("heading", name="Open now").wait_for()
        page.get_by_role("button", name="Yes").click()
        page.locator("#head").get_by_text("completed").wait_for()
    assert asking.result() == "deployed: True"


@pytest.mark.requirement("web-pages-are-accessible")
@pytest.mark.parametrize("width", [360, 480, 700])
def test_the_frame_fits_into_two_rows_of_a_narrow_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})

    rows = page.locator("header.top").evaluate(
        "(top) => [...top.children].filter((one) => one.offsetWidth && one.textContent.trim())"
        ".map((one) => Math.round(one.getBoundingClientRect().top + one.offsetHeight / 2))"
    )
    assert len({place // 12 for place in rows}) <= 2, rows
    last = page.get_by_role("button", name="Sign out").bounding_box()
    theme = page.get_by_role("button", name="Theme").bounding_box()
    assert last is not None
    assert theme is not None
    assert last["y"] == theme["y"]


@pytest.mark.requirement("web-pages-are-live")
def test_the_title_is_the_same_from_the_server_and_from_the_page(
    page: Page, server: WebServer, asking: Run
) -> None:
    written = str(
        page.evaluate("(address) => fetch(address).then((answer) => answer.text())", f"/r/{asking.id}")
    )
    title = written.partition("<title>")[2].partition("</title>")[0]
    page.goto(f"{server.origin}/r/{asking.id}")
    page.locator("[data-state=live]").wait_for()
    page.keyboard.press("[")
    page.locator("#past").wait_for()
    page.keyboard.press("l")
    page.locator("#questions article").wait_for()
    page.locator("#past").wait_for(state="detached")

    assert title.startswith("(?1) asking.py")
    assert page.title() == title
    page.locator("[data-parts=o] a").click()
    page.wait_for_url("**/step?p=main&n=2")
