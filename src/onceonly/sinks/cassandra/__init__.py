"""The Cassandra sink: rows of a table by their primary key, whose versions are the timestamps of writes."""

from onceonly.sinks.cassandra.sink import CassandraSink

__all__ = ["CassandraSink"]
