"""The trace of a real run: its spans, and what workers, commands and messages carry of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.crash.runs import Begin

TRACED_HUB = Path(__file__).with_name("traced_hub.py")
OUTER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Place(msgspec.Struct):
    trace_id: str
    span_id: str


class Linked(msgspec.Struct):
    context: Place


class Traced(msgspec.Struct):
    """A span, as far as it matters here."""

    name: str
    context: Place
    parent_id: str | None = None
    attributes: dict[str, object] = {}
    links: list[Linked] = []


@pytest.mark.requirement("otel-traces-a-run")
def test_workers_commands_and_messages_carry_the_trace_of_their_run(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "bartack.toml").write_text("[telemetry]\notel = true\n")
    file = tmp_path / "spans.json"
    run = begin("traced")

    run.start(module=[str(TRACED_HUB), str(file)], env={"TRACEPARENT": OUTER})

    assert run.wait_hub() == 0, run.story()
    spans = [msgspec.json.decode(line, type=Traced) for line in file.read_text().splitlines()]
    by_place = {span.context.span_id.removeprefix("0x"): span for span in spans}
    own, of_command, carried = msgspec.convert(run.api.result(), type=list[str])
    assert {span.context.trace_id for span in spans} == {f"0x{OUTER.split('-')[1]}"}
    assert by_place[own.split("-")[2]].name == "bartack.worker"
    command = by_place[of_command.split("-")[2]]
    assert (command.name, command.attributes["bartack.kind"]) == ("bartack.step", "shell")
    assert by_place[carried.split("-")[2]].name == "bartack.mailbox.sent"
    delivered = next(span for span in spans if span.name == "bartack.mailbox.delivered")
    assert [link.context.span_id.removeprefix("0x") for link in delivered.links] == [carried.split("-")[2]]
    top = next(span for span in spans if span.name == "bartack.run")
    assert top.parent_id == f"0x{OUTER.split('-')[2]}"


def test_a_run_that_is_not_traced_carries_nothing(begin: Begin) -> None:
    run = begin("traced")

    assert run.finish() == 0, run.story()
    assert run.api.result() == ["", "", ""]


@pytest.mark.requirement("otel-traces-a-run")
def test_a_run_that_is_to_be_traced_says_so_when_open_telemetry_is_missing(
    begin: Begin, tmp_path: Path
) -> None:
    (tmp_path / "bartack.toml").write_text("[telemetry]\notel = true\n")
    hidden = tmp_path / "hidden"
    (hidden / "opentelemetry").mkdir(parents=True)
    (hidden / "opentelemetry/__init__.py").write_text("raise ModuleNotFoundError(name='opentelemetry')\n")
    run = begin("traced")

    run.start(module=["-m", "bartack.runtime.hub.serve"], env={"PYTHONPATH": str(hidden)})

    assert run.wait_hub() == 1
    assert "install bartack[otel]" in run.run.log.read_text()
    assert run.count("hub.started") == 0, "nothing was executed"
