"""Spans and metrics of events, as the SDK of OpenTelemetry sees them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    Gauge,
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
    Sum,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from bartack.telemetry import Event, StepStart, StepStop, Telemetry
from bartack.telemetry.catalogue import (
    JournalCommitted,
    MailboxDelivered,
    MailboxSent,
    RunStart,
    RunStop,
    SendException,
    SendStart,
    SendStop,
    StepException,
    SupervisorChildRestarted,
    WorkerStart,
    WorkerStop,
)
from bartack.telemetry.otel import _bridge, attach_otel

RUN = "run-1"


class Lab:
    """Telemetry with a bridge, and everything that comes out at the other side."""

    def __init__(self, traceparent: str = "") -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])
        self.telemetry = Telemetry()
        self.bridge = attach_otel(self.telemetry, provider, self.meters, traceparent=traceparent)

    def emit(self, *events: Event) -> None:
        for event in events:
            self.telemetry.emit(event)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def metric(self, name: str) -> tuple[str, str | None, list[NumberDataPoint | HistogramDataPoint]]:
        """Kind, unit and points of a metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        points: list[NumberDataPoint | HistogramDataPoint] = list(metric.data.data_points)  # type: ignore[arg-type]  # - only plain points are made here
                        return type(metric.data).__name__, metric.unit, points
        raise AssertionError(f"no metric {name}")


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.bridge.close()
    made.meters.shutdown()


def started(worker: str = "main", parent: str = "") -> WorkerStart:
    return WorkerStart(run=RUN, worker=worker, parent=parent)


def step_start(step: str, worker: str = "main", kind: str = "shell") -> StepStart:
    return StepStart(attempt=1, run=RUN, worker=worker, step=step, kind=kind)


def step_stop(step: str, worker: str = "main", took_ns: int = 0) -> StepStop:
    return StepStop(duration_ns=took_ns, run=RUN, worker=worker, step=step, kind="shell")


def sent(message: str = "m-1", send: str = "", sender: str = "main") -> MailboxSent:
    return MailboxSent(
        size_bytes=8, queued=3, run=RUN, mailbox="box", sender=sender, message=message, send=send
    )


def send_start(send: str = "s-1") -> SendStart:
    return SendStart(
        size_bytes=8, run=RUN, send=send, sender="main", recipient="box", message_type="order", ack="accepted"
    )


def delivered(traceparent: str, receiver: str = "main") -> MailboxDelivered:
    return MailboxDelivered(
        wait_ns=2_000_000_000,
        run=RUN,
        mailbox="box",
        receiver=receiver,
        message="m-1",
        traceparent=traceparent,
    )


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


def test_a_run_its_workers_and_their_steps_are_spans_in_each_other(lab: Lab) -> None:
    lab.emit(RunStart(run=RUN, hub=1), started(), step_start("main:1", kind="delegate"))
    lab.emit(started("main/1.1:sewer", "main:1"), step_start("main/1.1:sewer:1", "main/1.1:sewer"))
    lab.emit(step_stop("main/1.1:sewer:1", "main/1.1:sewer"))
    inner_step = lab.exporter.get_finished_spans()[0]
    lab.emit(WorkerStop(duration_ns=1, run=RUN, worker="main/1.1:sewer"))
    inner = lab.exporter.get_finished_spans()[1]
    lab.emit(step_stop("main:1"))
    delegate = lab.exporter.get_finished_spans()[2]
    lab.emit(
        WorkerStop(duration_ns=1, run=RUN, worker="main"),
        RunStop(duration_ns=1, run=RUN, status="completed"),
    )
    worker, run = lab.exporter.get_finished_spans()[3:]

    assert [span.name for span in (run, worker, delegate, inner, inner_step)] == [
        "bartack.run",
        "bartack.worker",
        "bartack.step",
        "bartack.worker",
        "bartack.step",
    ]
    assert run.parent is None
    assert parent_of(worker) == id_of(run)
    assert parent_of(delegate) == id_of(worker)
    assert parent_of(inner) == id_of(delegate)
    assert parent_of(inner_step) == id_of(inner)
    assert worker.attributes is not None
    assert worker.attributes["bartack.run"] == RUN
    assert worker.attributes["bartack.worker"] == "main"


def test_a_run_continues_in_the_trace_that_started_it() -> None:
    outer = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    lab = Lab(outer)
    lab.emit(RunStart(run=RUN, hub=1), RunStop(duration_ns=1, run=RUN, status="completed"))

    run = lab.spans()["bartack.run"]
    assert f"{context_of(run).trace_id:032x}" == outer.split("-")[1]
    assert f"{parent_of(run):016x}" == outer.split("-")[2]


@pytest.mark.parametrize("text", ["", "nonsense", "00-xyz-1-1", "ff-1-1-1", "00-0-0-00", "00-1"])
def test_an_unusable_trace_in_the_environment_is_ignored(text: str) -> None:
    lab = Lab(text)
    lab.emit(RunStart(run=RUN, hub=1), RunStop(duration_ns=1, run=RUN, status="completed"))

    assert lab.spans()["bartack.run"].parent is None


def test_a_failed_step_is_a_span_with_an_error_and_its_real_length(lab: Lab) -> None:
    lab.emit(
        StepException(
            duration_ns=3_000_000_000, run=RUN, worker="main", step="main:4", kind="shell", error="ShellError"
        )
    )

    span = lab.spans()["bartack.step"]
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ShellError")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ShellError"
    assert span.start_time is not None
    assert span.end_time is not None
    assert 3.0 <= (span.end_time - span.start_time) / 1e9 < 4.0


def test_a_message_is_a_producer_and_its_delivery_a_consumer_that_is_linked_to_it(lab: Lab) -> None:
    lab.emit(started(), started("main/2:other"))
    traceparent = lab.telemetry.traceparent(sent())
    lab.emit(sent(), delivered(traceparent, "main/2:other.1.1"))

    spans = lab.spans()
    producer, consumer = spans["bartack.mailbox.sent"], spans["bartack.mailbox.delivered"]
    assert (producer.kind, consumer.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert traceparent.split("-")[2] == f"{id_of(producer):016x}"
    assert [link.context.span_id for link in consumer.links] == [id_of(producer)]
    for span in (producer, consumer):
        assert span.attributes is not None
        assert span.attributes["messaging.system"] == "bartack"
        assert span.attributes["messaging.destination.name"] == "box"
        assert span.attributes["messaging.message.id"] == "m-1"
    lab.bridge.close()
    workers = {
        str(span.attributes["bartack.worker"]): id_of(span)
        for span in lab.exporter.get_finished_spans()
        if span.name == "bartack.worker" and span.attributes is not None
    }
    assert parent_of(producer) == workers["main"]
    assert parent_of(consumer) == workers["main/2:other"], "a branch belongs to its worker"


def test_a_supervised_send_is_one_span_from_its_begin_to_its_outcome(lab: Lab) -> None:
    early = lab.telemetry.traceparent(send_start())
    lab.emit(send_start())
    assert lab.telemetry.traceparent(sent(send="s-1")) == early, "its message belongs to it"
    lab.emit(sent(send="s-1"))
    lab.emit(
        SendStop(
            duration_ns=5,
            attempts=2,
            run=RUN,
            send="s-1",
            recipient="box",
            ack="delivered",
            outcome="delivered",
        )
    )

    (span,) = lab.exporter.get_finished_spans()
    assert (span.name, span.kind) == ("bartack.send", SpanKind.PRODUCER)
    assert f"{id_of(span):016x}" == early.split("-")[2]
    assert span.attributes is not None
    assert span.attributes["bartack.message_type"] == "order"
    assert span.attributes["bartack.attempts"] == 2
    assert span.attributes["messaging.message.id"] == "m-1"


def test_a_send_that_was_given_up_is_an_error(lab: Lab) -> None:
    facts = {"run": RUN, "send": "s-1", "recipient": "box", "ack": "delivered", "outcome": "timed_out"}
    lab.emit(send_start(), SendException(duration_ns=5, attempts=2, **facts))

    assert lab.spans()["bartack.send"].status.status_code is StatusCode.ERROR


def test_a_step_that_something_was_started_for_begins_only_once(lab: Lab) -> None:
    traceparent = lab.telemetry.traceparent(step_start("main:1"))
    lab.emit(step_start("main:1"), step_stop("main:1"))

    (span,) = lab.exporter.get_finished_spans()
    assert f"{id_of(span):016x}" == traceparent.split("-")[2]


def test_other_events_are_noted_in_the_span_of_their_worker(lab: Lab) -> None:
    lab.emit(
        started(),
        SupervisorChildRestarted(
            restarts=1,
            delay_ns=0,
            supervisor="run",
            child="main",
            incarnation=2,
            reason="signal:SIGKILL",
            strategy="one_for_one",
            run=RUN,
        ),
        WorkerStop(duration_ns=1, run=RUN, worker="main"),
    )

    (note,) = lab.spans()["bartack.worker"].events
    assert note.name == "bartack.supervisor.child_restarted"
    assert note.attributes is not None
    assert note.attributes["bartack.reason"] == "signal:SIGKILL"


def test_what_is_open_when_a_run_ends_ends_with_it(lab: Lab) -> None:
    lab.emit(RunStart(run=RUN, hub=1), started(), step_start("main:1"))
    lab.emit(RunStop(duration_ns=1, run=RUN, status="interrupted"))

    assert sorted(lab.spans()) == ["bartack.run", "bartack.step", "bartack.worker"]


def test_spans_that_never_end_do_not_pile_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bridge, "MAX_OPEN", 3)
    lab.emit(*(step_start(f"main:{n}") for n in range(1, 6)))

    ended = [span.attributes["bartack.step"] for span in lab.exporter.get_finished_spans() if span.attributes]
    assert ended == ["main:1", "main:2"]


def test_counts_are_counters_durations_histograms_in_seconds_and_levels_gauges(lab: Lab) -> None:
    lab.emit(JournalCommitted(entries=3, size_bytes=100, duration_ns=1_500_000_000))
    lab.emit(JournalCommitted(entries=2, size_bytes=50, duration_ns=500_000_000))
    lab.emit(sent("m-1"), sent("m-2"))

    kind, unit, (events,) = lab.metric("bartack.journal.committed")
    assert isinstance(events, NumberDataPoint)
    assert (kind, unit, events.value) == (Sum.__name__, "{event}", 2)
    _, unit, (size,) = lab.metric("bartack.journal.committed.size")
    assert isinstance(size, NumberDataPoint)
    assert (unit, size.value) == ("By", 150)
    kind, unit, (took,) = lab.metric("bartack.journal.committed.duration")
    assert isinstance(took, HistogramDataPoint)
    assert (kind, unit, took.count, took.sum) == ("Histogram", "s", 2, 2.0)
    kind, _, (queued,) = lab.metric("bartack.mailbox.sent.queued")
    assert isinstance(queued, NumberDataPoint)
    assert (kind, queued.value) == (Gauge.__name__, 3)
    assert dict(queued.attributes or {}) == {"bartack.mailbox": "box"}, "no ids: there is no end to them"


def test_the_inboxes_of_workers_count_as_one_mailbox(lab: Lab) -> None:
    for worker in ("main", "main/1:other"):
        lab.emit(
            MailboxSent(
                size_bytes=8, queued=1, run=RUN, mailbox=f"@{worker}", sender="", message="m", send=""
            )
        )

    _, _, points = lab.metric("bartack.mailbox.sent")
    assert [dict(point.attributes or {}) for point in points] == [{"bartack.mailbox": "@"}]


def test_a_bridge_is_attached_once_and_leaves_nothing(lab: Lab) -> None:
    with pytest.raises(ValueError, match="attached already"):
        attach_otel(lab.telemetry)
    lab.emit(started())
    lab.bridge.close()

    assert lab.telemetry.handlers() == ()
    assert not lab.telemetry.traces
    assert lab.telemetry.traceparent(started()) == ""
    assert "bartack.worker" in lab.spans()


def test_without_a_provider_nothing_is_traced_and_nothing_breaks() -> None:
    telemetry = Telemetry()
    bridge = attach_otel(telemetry, traceparent="")
    telemetry.emit(started())

    assert telemetry.traceparent(step_start("main:1")) == ""
    bridge.close()
