"""The SQL sinks: each epoch in one transaction of the driver's."""

from onceonly.sinks.sql.sink import DuckdbSink, PostgresSink, SqliteSink, SqlSink

__all__ = ["DuckdbSink", "PostgresSink", "SqlSink", "SqliteSink"]
