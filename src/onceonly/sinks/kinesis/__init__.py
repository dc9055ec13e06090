"""The Kinesis sink: rows as records of a stream, at least once."""

from onceonly.sinks.kinesis.sink import KinesisSink

__all__ = ["KinesisSink"]
