"""The Iceberg sink: rows to an Iceberg table, one snapshot of it an epoch."""

from onceonly.sinks.iceberg.sink import IcebergSink

__all__ = ["IcebergSink"]
