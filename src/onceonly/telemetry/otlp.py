"""Spans on their way to a collector, by OTLP over HTTP. Needs the extra ``traces``.

Where it is, and all else, OpenTelemetry's own variables of the environment say (``OTEL_EXPORTER_OTLP_ENDPOINT``,
``OTEL_SERVICE_NAME``, …). A thread of the library's sends; what a collector that is down does not take is dropped.
"""

from __future__ import annotations

import functools
import importlib
import logging
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, Final

from onceonly import background
from onceonly.errors import ConfigurationError, SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from onceonly.telemetry.spans import Span

log = logging.getLogger("onceonly")

_NANO: Final = 1_000_000_000
_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http"
_FLUSH_S: Final = 2.0


class Tracer:
    """Hands spans to the library. Driver, any thread; never waits but in ``flush``, never fails."""

    def __init__(self, exporter: Any = None) -> None:  # noqa: ANN401  a class of a package that may be missing
        try:
            self._api = importlib.import_module("opentelemetry.trace")
            self._sdk = importlib.import_module("opentelemetry.sdk.trace")
            export = importlib.import_module("opentelemetry.sdk.trace.export")
            made = exporter or importlib.import_module(f"{_EXPORTER}.trace_exporter").OTLPSpanExporter()
            self._processor = export.BatchSpanProcessor(_Told(made, export.SpanExportResult.SUCCESS))
            self._resource = importlib.import_module("opentelemetry.sdk.resources").Resource.create()
            scope = importlib.import_module("opentelemetry.sdk.util.instrumentation")
        except ImportError as error:
            raise SetupError(
                f"traces need the packages of OpenTelemetry, which cannot be used here: {error}",
                next_step="pip install 'onceonly[traces]' on the driver, or leave the option onceonly.traces out",
            ) from error
        except ValueError as error:
            raise ConfigurationError(
                f"what the environment says of traces cannot be used: {error}",
                next_step="correct the variables OTEL_… of the driver, or leave the option onceonly.traces out",
            ) from error
        self._scope = scope.InstrumentationScope("onceonly")
        self._flushing: Future[bool] | None = None
        # It would say with each batch, and with a stack trace, that a collector is down.
        logging.getLogger(_EXPORTER).setLevel(logging.CRITICAL)

    def export(self, spans: Iterable[Span]) -> None:
        """Take spans; the oldest are dropped where too many wait."""
        for span in spans:
            self._processor.on_end(self._readable(span))

    def flush(self) -> None:
        """Wait until all is sent, for two seconds at most."""
        # In a thread, as the library waits for its retries, whatever time it is given.
        if self._flushing is None or self._flushing.done():
            self._flushing = background.begin("onceonly-traces", self._processor.force_flush)
        wait([self._flushing], timeout=_FLUSH_S)

    def _readable(self, span: Span) -> Any:  # noqa: ANN401  the library's
        def context(id_: int) -> Any:  # noqa: ANN401
            flags = self._api.TraceFlags(self._api.TraceFlags.SAMPLED)
            return self._api.SpanContext(span.trace, id_, is_remote=False, trace_flags=flags)

        status = self._api.Status(self._api.StatusCode.ERROR, span.failed) if span.failed else None
        return self._sdk.ReadableSpan(
            name=f"onceonly.{span.name}",
            context=context(span.id),
            parent=None if span.parent is None else context(span.parent),
            resource=self._resource,
            attributes=dict(span.facts),
            events=[self._sdk.Event(name, timestamp=int(at * _NANO)) for name, at in span.events],
            links=[self._api.Link(context(link)) for link in span.links],
            status=status or self._api.Status(),
            start_time=int(span.began * _NANO),
            end_time=int(span.ended * _NANO),
            instrumentation_scope=self._scope,
        )


class _Told:
    """An exporter that says once that a collector is down, until it has taken something again."""

    def __init__(self, exporter: Any, success: Any) -> None:  # noqa: ANN401  the library's
        self._exporter = exporter
        self._success = success
        self._is_told = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  the library's
        return getattr(self._exporter, name)

    def export(self, spans: Any) -> Any:  # noqa: ANN401  the library's
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  older ones raise at a collector that is slow
            log.debug("Traces: %s", error)
            result = None
        if result != self._success and not self._is_told:
            log.warning("The collector does not take traces; the queries go on without them.")
        self._is_told = result != self._success
        return result


@functools.cache
def tracer() -> Tracer:
    """Return the one of this process. Driver. Raises ``SetupError`` that names the extra, ``ConfigurationError``."""
    return Tracer()
