"""Watches, with a plain ``read_committed`` consumer, how many records are visible at which moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly import events
from onceonly_proof.auditor import KafkaWatcher

if TYPE_CHECKING:
    from onceonly_proof.auditor import Seen


class Watch(KafkaWatcher):
    """Counts a topic's visible records, keeps none, and notes each step in the event log (kind ``visible``).

    Only for the picture and the progress display: the audit reads everything again, from the beginning.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self.count = 0
        super().__init__(topic, servers, topic)

    def _keep(self, rows: list[Seen]) -> None:
        if rows:
            self.count += len(rows)
            events.record("visible", actor="watch", sink=rows[0].sink, count=self.count)
