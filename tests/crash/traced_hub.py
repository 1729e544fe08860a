"""A hub whose process has OpenTelemetry set up: its spans go to a file, one JSON object a line.

``python traced_hub.py FILE RUN_DIR WORKSPACE``
"""

from __future__ import annotations

import sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from bartack.runtime.hub.serve import main

if __name__ == "__main__":
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        exporter = ConsoleSpanExporter(out=file, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        code = main(sys.argv[2:])
        provider.shutdown()
    sys.exit(code)
