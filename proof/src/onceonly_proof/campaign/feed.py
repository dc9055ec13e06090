"""Writes rows of the campaign's kind into a topic, as many as are asked for, evenly over its partitions."""

from __future__ import annotations

from dataclasses import dataclass

from onceonly_proof.campaign.workload import row
from onceonly_proof.embedded.feeding import feed

_KEYS = 5_000


@dataclass(slots=True)
class Feed:
    """What one topic was fed. Campaign's process; one thread."""

    servers: str
    topic: str
    partitions: int
    fed: int = 0

    def grow(self, count: int) -> None:
        """Write until the topic holds so many rows; returns when the broker has them. Idempotent.

        Raises:
            UnavailableError: the broker did not take all of them in time.
        """
        self.fed += feed(self.servers, self.topic, map(self._row, range(self.fed, count)))

    def _row(self, number: int) -> tuple[int, str, bytes]:
        position, partition = divmod(number, self.partitions)
        return partition, str(number % _KEYS), row(number, partition, position, "")
