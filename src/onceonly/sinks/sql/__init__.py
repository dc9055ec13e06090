"""The SQL sinks: each epoch in one transaction of the driver's."""

from onceonly.sinks.sql.sink import PostgresSink, SqliteSink, SqlSink

__all__ = ["PostgresSink", "SqlSink", "SqliteSink"]
