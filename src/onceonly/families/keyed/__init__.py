"""Keyed sinks: for stores without transactions, where a row replaces what its key had.

Every row carries a version that its plan has fixed and that only grows: the same again changes nothing, and whoever
wakes up late finds a newer version and loses. Rows wait for the decision as the staged family's do (*decided*), or go
out from the executors at once (*early*).
"""

from onceonly.families.keyed.books import BookedSink
from onceonly.families.keyed.rows import KeyedRows, Newer
from onceonly.families.keyed.sink import KeyedSink
from onceonly.families.keyed.versions import Origin

__all__ = ["BookedSink", "KeyedRows", "KeyedSink", "Newer", "Origin"]
"""The names for authors of sinks."""
