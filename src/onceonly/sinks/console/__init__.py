"""The console sink: a first look at a stream, at least once."""

from onceonly.sinks.console.writer import ConsoleSink

__all__ = ["ConsoleSink"]
