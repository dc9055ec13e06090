"""The auditor: reads the outside world as anybody would, and names what is wrong in it.

Shares no code with any sink, nor with the decision log's own reader. ``judge`` is pure: a :class:`World` in, a
:class:`Verdict` out.
"""

from onceonly.testing.auditor.anomalies import Anomaly
from onceonly.testing.auditor.judge import Verdict, judge
from onceonly.testing.auditor.readers import LooksBehind, Reader, Watcher
from onceonly.testing.auditor.world import Decision, Input, Orphan, Seen, Slot, World

__all__ = [
    "Anomaly",
    "Decision",
    "Input",
    "LooksBehind",
    "Orphan",
    "Reader",
    "Seen",
    "Slot",
    "Verdict",
    "Watcher",
    "World",
    "judge",
]
