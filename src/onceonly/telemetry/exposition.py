"""Metrics as Prometheus takes them: served by this process, as a file, as text. Needs the extra ``metrics``.

The registry is our own: what else a program tells about itself stays where it tells it.
"""

from __future__ import annotations

import importlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, required
from onceonly.settings.telemetry import METRICS_PORT
from onceonly.stores.folder import UnsyncedStore
from onceonly.telemetry.figures import buckets, families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from onceonly.telemetry.figures import Observed

log = logging.getLogger("onceonly")


class Registry:
    """What is told of some queries, whenever it is asked for. Driver or command line, any thread."""

    def __init__(self, observe: Callable[[], Iterable[Observed]]) -> None:
        leave_out = "on the driver, or leave the options onceonly.metrics.* out"
        with required("metrics need the package prometheus-client", extra="metrics", where=leave_out):
            self._client = importlib.import_module("prometheus_client")
        self._observe = observe
        self._registry = self._client.CollectorRegistry()
        self._registry.register(self)

    def describe(self) -> Iterable[Any]:
        """Say nothing when it is registered: it would be a look at every log."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield each metric, by a look at every query."""
        core = importlib.import_module("prometheus_client.core")
        kinds = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
        for family in families(self._observe()):
            if family.kind == "histogram":
                histogram = core.HistogramMetricFamily(family.name, family.help, labels=["query", "phase"])
                for labels, times in family.times:
                    histogram.add_metric([value for _, value in labels], buckets(times), times.sum_s)
                yield histogram
                continue
            names = [name for name, _ in family.samples[0][0]] if family.samples else ["query"]
            found = kinds[family.kind](family.name, family.help, labels=names)
            for labels, value in family.samples:
                found.add_metric([value for _, value in labels], value)
            yield found

    def text(self) -> str:
        """Return all of it in Prometheus' text format."""
        data: bytes = self._client.generate_latest(self._registry)
        return data.decode()

    def write(self, path: Path) -> None:
        """Write all of it to a file that is seen whole, before or after. Raises ``UnavailableError``."""
        UnsyncedStore(path.parent).replace(path.name, self.text().encode())

    def serve(self, host: str, port: int) -> int:
        """Answer at a port for the life of this process, in threads; return the port. Raises ``ConfigurationError``."""
        try:
            server, _thread = self._client.start_http_server(port, addr=host, registry=self._registry)
        except OSError as error:
            raise ConfigurationError(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}",
                next_step=f"give {METRICS_PORT} a port that is free, or 0; or see who has it",
            ) from error
        served: int = server.server_port
        return served


class Endpoint:
    """The one address of this process. Driver, any thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self.host = ""
        self.port: int | None = None

    def open(self, host: str, port: int) -> None:
        """Serve, unless it is served already. Raises ``ConfigurationError`` where another query has another port."""
        with self._lock:
            if self.port is None:
                self.host, self.port = host, self._registry.serve(host, port)
                told = logging.WARNING if port == 0 else logging.INFO  # nobody could know it else
                log.log(told, "Metrics are served at http://%s:%d/metrics.", host, self.port)
            elif port not in {0, self.port} or host != self.host:
                raise ConfigurationError(
                    f"metrics are asked for at {host}:{port}, and this process serves them at {self.host}:{self.port}",
                    next_step=f"give all queries of a process the same {METRICS_PORT}: each is told by its name",
                )
