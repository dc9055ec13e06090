"""Appended sinks: executors append rows where nothing can be taken back or looked up. At least once.

A row is seen as soon as it is written, and the rows of a try that is given up stay: the next try writes them again. An
envelope tells whoever reads which rows are the same.
"""

from onceonly.families.appended.sink import AppendedSink, Appender

__all__ = ["AppendedSink", "Appender"]
"""The names for authors of sinks."""
