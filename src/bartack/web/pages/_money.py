"""What agents have cost and used: over time, by agent, task and worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bartack.web.models._model import At, Model
from bartack.web.models._money import Money
from bartack.web.pages._frame import RunPage, RunTab
from bartack.web.reading._money import read_money

WIDTH: Final = 900
HEIGHT: Final = 180
LEFT: Final = 64
BOTTOM: Final = 24
TOP: Final = 14
RIGHT: Final = 16


class Chart(Model, frozen=True, kw_only=True):
    """A quantity over time, as steps: it grows when a call is over."""

    path: str
    top: float
    """The quantity at the upper edge."""
    limit_y: int = 0
    """Where the limit is; 0: there is none, or it is far above."""
    first_at: At
    last_at: At


async def _read(page: RunPage) -> Mapping[str, object]:
    view = page.view
    money = await read_money(view)
    now_us = view.now_us if view.is_active else view.spans.time_of(view.seq)
    return {
        "money": money,
        "charts": _charts(money, (view.spans.time_of(1), now_us)),
        "size": {
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "bottom": HEIGHT - BOTTOM,
            "top": TOP,
            "right": WIDTH - RIGHT,
        },
        "shares": [("agent", money.by_agent), ("task", money.by_task), ("worker", money.by_worker)],
    }


def _charts(money: Money, times: tuple[int, int]) -> Mapping[str, Chart]:
    found: dict[str, Chart] = {}
    if money.spent_usd:
        found["usd"] = _chart(money.points, lambda point: point[2], times, money.limit_usd or 0.0)
    if money.tokens:
        found["tokens"] = _chart(money.points, lambda point: point[3], times)
    return found


Point = tuple[int, int, float, int]


def _chart(
    points: Sequence[Point], value: Callable[[Point], float], times: tuple[int, int], limit: float = 0.0
) -> Chart:
    first, last = min(points[0][0], times[0]), max(points[-1][0], times[1])
    most = max(value(point) for point in points)
    top = limit if most <= limit <= 4 * most else most * 1.1
    inner, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(us: int) -> float:
        return LEFT + inner * (us - first) / max(last - first, 1)

    def y(amount: float) -> float:
        return TOP + down * (1 - amount / top)

    path = f"M{LEFT} {y(0):.1f}"
    for point in points:
        path += f" H{x(point[0]):.1f} V{y(value(point)):.1f}"
    limit_y = round(y(limit)) if 0 < limit <= top else 0
    return Chart(path=f"{path} H{WIDTH - RIGHT}", top=top, limit_y=limit_y, first_at=first, last_at=last)


PAGE: Final = RunTab("money", "Money", "money.html", _read)
