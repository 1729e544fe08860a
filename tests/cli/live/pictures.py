"""Pictures of runs, and the frames that they become: ``python -m tests.cli.live.pictures`` writes these anew."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from tests.cli.live.screens import CuttingScreen, ScreenStream

from bartack.cli.live._board import Board, Size
from bartack.cli.live._draw import ASCII, PROMPT, Asked, Box, Picture, Row, draw

FRAMES: Final = Path(__file__).parent / "frames"
WIDTHS: Final = (40, 80, 120, 200)
ROWS: Final = 24

PIPELINE: Final = Picture(
    title="shop · pipeline",
    run="run-20260101-000000-d6d185d8",
    status="running",
    elapsed_s=161,
    steps=43,
    usd=0.63,
    limit_usd=10.0,
    tokens=41_200,
    paid=True,
    names=12,
    rows=[
        Row(name="main", doing="none", kind="delegate", verb="delegate", text="3 tasks", since_s=160),
        Row(
            name="weeks",
            depth=1,
            doing="agent",
            kind="implement",
            verb="implement ann",
            text="reading src/dates.py, then the tests of the leap years and what the calendar says about them",
            turn=3,
            usd=0.21,
            since_s=41,
        ),
        Row(name="colours", depth=1, kind="tests", verb="tests", text="pytest -q", since_s=12),
        Row(name="names", depth=1, doing="done", kind="done", verb="done, 6 receipts", usd=0.42, since_s=118),
        Row(name="greet", depth=1, doing="waits", kind="waits", verb="waits for names"),
    ],
    boxes=[Box("findings", 4, 12), Box("results", 0)],
    letters=1,
    hint="d and Enter: detach",
)
QUESTION: Final = Asked(
    number="q1", asker="weeks", lines=["Publish version 1.4?"], expected="yes or no", place="1 of 3"
)
CHOICE: Final = Asked(
    number="q12",
    place="2 of 2",
    asker="agent tidy for builder b3",
    lines=[
        "May the agent delete these files, which it says nobody needs any longer?",
        "It cannot be undone.",
    ],
    options=["allow", "deny", "allow for the rest of this run, whatever it deletes"],
    use='Bash {"command":"rm -rf old"}',
    problem="'perhaps' is not a valid answer: expected allow | deny",
)


def crowd() -> Picture:
    """64 workers: two fail, five have agents, the others wait."""
    rows = [Row(name="main", doing="none", kind="delegate", verb="delegate", text="64 workers", since_s=3700)]
    for place in range(64):
        name = f"builder b{place}"
        if place in {20, 40}:
            rows.append(
                Row(
                    name=name,
                    depth=1,
                    doing="failed",
                    kind="failed",
                    verb="failed",
                    text="ValueError: it broke",
                )
            )
        elif place % 13 == 5:
            text = f"looking at part {place}"
            rows.append(
                Row(
                    name=name, depth=1, doing="agent", kind="think", verb="think ann", text=text, turn=place,
                    usd=place / 100, since_s=place,
                )
            )  # fmt: skip
        elif place % 7:
            rows.append(
                Row(
                    name=name, depth=1, doing="waits", kind="receive findings", verb="receive", text="findings",
                    since_s=100 + place,
                )
            )  # fmt: skip
        else:
            rows.append(Row(name=name, depth=1, kind="shell", verb="shell", text="make", since_s=place))
    return Picture(
        title="team.py",
        run="run-20260101-000000-d6d185d8",
        status="failing",
        elapsed_s=3725,
        steps=123_456,
        usd=12.5,
        tokens=1_234_567,
        paid=True,
        names=16,
        rows=rows,
        hidden=1200,
        boxes=[Box(f"box{place}", place, place) for place in range(9)],
        warning="all workers wait for each other",
    )


WIDE: Final = Picture(
    title="店 · 計画.py",
    run="run-20260101-000000-d6d185d8",
    status="waiting",
    elapsed_s=5,
    steps=1,
    names=12,
    rows=[
        Row(
            name="漢字漢字漢字漢字漢字",
            doing="agent",
            kind="think",
            verb="think 太郎",
            text="読んでいます " * 20,
            since_s=1,
        ),
        Row(name="e\u0301te\u0301", verb="shell", text="cafe\u0301 " * 30, since_s=2),
        Row(name="flags", verb="shell", text="🇩🇪🇫🇷 👍 " * 20, since_s=3),
    ],
    boxes=[Box("箱", 3, 1)],
)

WHILE_ASKED = ":detach and Enter: detach"
PICTURES: Final[dict[str, Picture]] = {
    "pipeline": PIPELINE,
    "question": msgspec.structs.replace(PIPELINE, asked=QUESTION, hint=WHILE_ASKED),
    "choice": msgspec.structs.replace(
        PIPELINE, asked=CHOICE, hint=WHILE_ASKED, status="waiting", boxes=(), letters=0
    ),
    "crowd": crowd(),
    "wide": WIDE,
    "ascii": msgspec.structs.replace(
        PIPELINE, signs=ASCII, title="shop . pipeline", asked=QUESTION, hint=WHILE_ASKED
    ),
}


def frame(picture: Picture, width: int, rows: int = ROWS) -> str:
    """What is on a terminal of this width when a picture is drawn."""
    screen = CuttingScreen(width, rows)
    size = Size(width, rows)
    board = Board(ScreenStream(screen), "never")
    prompt = "" if picture.asked is None else f" {PROMPT}"
    board.frame(draw(picture, width, rows), size, prompt=prompt)
    return "\n".join(screen.texts()) + "\n"


def main() -> None:
    """Write all frames."""
    FRAMES.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        for width in WIDTHS:
            (FRAMES / f"{name}-{width}.txt").write_text(frame(picture, width), encoding="utf-8")


if __name__ == "__main__":
    main()
