"""What a sink, a decision log, a reader of Spark's files and a clock must offer.

``sink`` is what people write theirs on, ``standing`` what it tells a person who asks; ``driver`` is what the
coordinator is given.
"""

from onceonly.model import AlreadyCommitted, Committed, Lost, Outcome, RetryLater, Unknown
from onceonly.options import Option
from onceonly.ports.driver import Clock, DecisionLog, InputFiles
from onceonly.ports.sink import (
    BATCH,
    LETTER_COLUMNS,
    Leftover,
    QueryContext,
    Refused,
    Sink,
    TwoPhaseCommitSink,
    WriteContext,
)
from onceonly.ports.standing import Hanging, Held, Part, Standing, Stands, Untold

__all__ = [
    "BATCH",
    "LETTER_COLUMNS",
    "AlreadyCommitted",
    "Clock",
    "Committed",
    "DecisionLog",
    "Hanging",
    "Held",
    "InputFiles",
    "Leftover",
    "Lost",
    "Option",
    "Outcome",
    "Part",
    "QueryContext",
    "Refused",
    "RetryLater",
    "Sink",
    "Standing",
    "Stands",
    "TwoPhaseCommitSink",
    "Unknown",
    "Untold",
    "WriteContext",
]
