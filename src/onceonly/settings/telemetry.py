"""What the user asked to be told of a query while it runs: where its metrics are served or written, and its traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

METRICS_PORT: Final = "onceonly.metrics.port"
METRICS_HOST: Final = "onceonly.metrics.host"
METRICS_FILE: Final = "onceonly.metrics.file"
TRACES: Final = "onceonly.traces"
NAMES: Final = (METRICS_PORT, METRICS_HOST, METRICS_FILE, TRACES)
OTLP: Final = "otlp"
LOCAL: Final = "127.0.0.1"
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """``port`` is that of the driver's endpoint on ``host``, 0 for any that is free, None for no endpoint.

    ``file`` is the full path of a text file of metrics, and ``traces`` the word ``otlp``; both are empty for none.
    """

    port: int | None = None
    host: str = LOCAL
    file: str = ""
    traces: str = ""

    def __post_init__(self) -> None:
        if self.port is not None and not 0 <= self.port <= _PORT_MAX:
            raise _wrong(
                METRICS_PORT, str(self.port), "use a port from 1 to 65535, or 0 for one that is free"
            )
        if self.port is None and self.host != LOCAL:
            raise _wrong(METRICS_HOST, self.host, f"set {METRICS_PORT}, too: it is the host of that port")
        # Node exporter passes every other file by without a word.
        if self.file and not self.file.endswith(".prom"):
            raise _wrong(METRICS_FILE, self.file, "name a file that ends in .prom, as node exporter wants it")
        if self.traces not in {"", OTLP}:
            raise _wrong(TRACES, self.traces, f"use {OTLP}, or leave it out")

    @property
    def measures(self) -> bool:
        """Whether metrics are served or written."""
        return self.port is not None or bool(self.file)

    @property
    def is_asked(self) -> bool:
        """Whether anything at all is to be told."""
        return self.measures or bool(self.traces)


NOTHING: Final = TelemetrySettings()


def telemetry_of(given: Mapping[str, str]) -> TelemetrySettings:
    """Read these options of a query, by their lower-case names. Anywhere; pure. Raises ``ConfigurationError``."""
    port = given.get(METRICS_PORT)
    if port is not None and not port.strip().isdecimal():
        raise _wrong(METRICS_PORT, port, "use a port from 1 to 65535, or 0 for one that is free")
    return TelemetrySettings(
        port=None if port is None else int(port),
        host=given.get(METRICS_HOST, LOCAL).strip(),
        file=given.get(METRICS_FILE, "").strip(),
        traces=given.get(TRACES, "").strip().lower(),
    )


def _wrong(name: str, text: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(f"the option {name!r} cannot be {text!r}", next_step=next_step)
