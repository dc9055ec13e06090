"""The Delta sink: rows to a Delta table, one version of it an epoch."""

from onceonly.sinks.delta.sink import DeltaSink

__all__ = ["DeltaSink"]
