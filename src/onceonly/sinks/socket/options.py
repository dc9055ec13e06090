"""The options of the socket sink."""

from __future__ import annotations

from onceonly.families.appended import AppendedSink
from onceonly.options import Option, port, some_time

CLOSE, ANSWER = "close", "answer"

DECLARED = (
    Option(name="host", doc="the name or address of the machine that listens", required=True),
    Option(
        name="port",
        doc="the port that it listens on",
        required=True,
        read=port,
    ),
    Option(
        name="timeout",
        doc="how long it is waited for: to accept, to take more lines, to close when it has read the last one",
        default="30 seconds",
        read=some_time,
    ),
    Option(
        name="acknowledge",
        doc=f"what says that a reader has read all lines of a connection: {CLOSE}, it closes behind the last one; "
        f"{ANSWER}, it also sends something back before that",
        default=CLOSE,
        choices=(CLOSE, ANSWER),
    ),
    *AppendedSink.declared,
)
