"""A replayable source over a Python sequence, for tests and first steps."""

from onceonly.sources.collection.source import Collection

__all__ = ["Collection"]
