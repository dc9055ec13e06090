"""Staged sinks: attempts write Arrow files that nobody reads, and the driver applies those of an epoch at once.

The default for targets with transactions. A sink derives from `StagedSink` and says how staged rows are applied and
which are known to be applied, both in transactions of its target.
"""

from onceonly.families.staged.area import StagedRows
from onceonly.families.staged.sink import StagedSink

__all__ = ["StagedRows", "StagedSink"]
"""The names for authors of sinks."""
