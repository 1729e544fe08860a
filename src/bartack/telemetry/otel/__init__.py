"""Makes spans and metrics of Bartack's events, for whatever OpenTelemetry is set up to do with them.

Needs the package ``opentelemetry-api`` (``pip install 'bartack[otel]'``), and is the only place that imports it.
"""

from bartack.telemetry.otel._bridge import OtelBridge, attach_otel

__all__ = ["OtelBridge", "attach_otel"]
