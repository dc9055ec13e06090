"""Loaded sinks: attempts write data files of the target, and the driver adds those of an epoch to its log at once.

For tables whose log is the only word on which files are theirs. A sink derives from `LoadedSink` and says how rows lie
in files, how files are entered into the log, and what the log says of those that were.
"""

from onceonly.families.loaded.attempt import Layout, Notes
from onceonly.families.loaded.load import DataFile, Load
from onceonly.families.loaded.options import DECLARED, INSTEAD
from onceonly.families.loaded.sink import NEVER, Books, ConflictError, LoadedSink

__all__ = [
    "DECLARED",
    "INSTEAD",
    "NEVER",
    "Books",
    "ConflictError",
    "DataFile",
    "Layout",
    "Load",
    "LoadedSink",
    "Notes",
]
"""The names for authors of sinks."""
