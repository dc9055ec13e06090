"""The SQL sinks: each epoch in one transaction of the driver's."""

from onceonly.sinks.sql.sink import SqliteSink, SqlSink

__all__ = ["SqlSink", "SqliteSink"]
