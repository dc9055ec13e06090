"""The SQL sinks: each epoch in one transaction of the driver's."""

from onceonly.sinks.sql.sink import DuckdbSink, MySqlSink, PostgresSink, SqliteSink, SqlSink

__all__ = ["DuckdbSink", "MySqlSink", "PostgresSink", "SqlSink", "SqliteSink"]
