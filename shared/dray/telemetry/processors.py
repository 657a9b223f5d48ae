"""Exporters of spans, from the environment."""

import os
from pathlib import Path
from typing import Final

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter

from dray.telemetry.file_exporter import FileExporter

FILE_VARIABLE: Final = "DRAY_TRACE_FILE"
ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def from_environment() -> list[SpanProcessor]:
    """Exporters for this process; none if none is configured.

    OTLP over http if OTEL_EXPORTER_OTLP_ENDPOINT names a collector (the other
    OTEL_EXPORTER_OTLP_ variables apply), and JSON lines in the file that DRAY_TRACE_FILE
    names. OTEL_SDK_DISABLED=true disables both, OTEL_TRACES_EXPORTER=none only the collector.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    processors: list[SpanProcessor] = []
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "otlp") != "none"
    if wanted and any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        processors.append(BatchSpanProcessor(_otlp_exporter()))
    if path := os.environ.get(FILE_VARIABLE):
        processors.append(SimpleSpanProcessor(FileExporter(Path(path))))
    return processors


def _otlp_exporter() -> SpanExporter:
    # Imported only if used, because it imports requests and protobuf.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
