"""The batches that are being filled, one a partition: rows are dealt out to them, and become records. Executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.sinks.kafka.producers.delivery import Batch, Queue
from onceonly.sinks.kafka.records import partitioner
from onceonly.sinks.kafka.records.fields import RECORD_BYTES_MAX
from onceonly.sinks.kafka.records.record_batches import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from onceonly.sinks.kafka.producers.delivery import Delivery
    from onceonly.sinks.kafka.records.record_batches import Records

    Numbers = npt.NDArray[np.int64]
    Place = tuple[str, int]
    """A topic and the number of a partition."""

# Of records that are kept as parts of one memory, there are at most so many; with more, it would be kept for the last.
_PIECES_MAX = 16


@dataclass(frozen=True, slots=True)
class Dealt:
    """Rows in the order of their partitions, each one's place in its batch, and which batch has which.

    A share is a batch, the first of its rows and the one behind its last.
    """

    rows: Numbers
    deltas: Numbers
    shares: Sequence[tuple[Batch, int, int]]


class OpenBatches:
    """Those of one attempt; a batch that is full goes to ``delivery``. ``batch_bytes`` is the most that one has.

    ``sequences`` are the numbers of the next rows of partitions that the producer has written to before.
    """

    def __init__(self, delivery: Delivery, batch_bytes: int, sequences: Mapping[Place, int]) -> None:
        self._delivery = delivery
        self._batch_bytes = batch_bytes
        self._sequences = sequences
        self._open: dict[Queue, Batch] = {}
        self.queues: dict[Place, Queue] = {}
        """Of all topics and partitions that have had rows."""
        self.bytes = 0

    def deal(self, topic: str, rows: Numbers, sizes: Numbers, partitions: Numbers) -> Dealt:
        """Deal rows out, at least one: their sizes and partitions stand beside them. ``make`` makes their records."""
        import numpy as np

        count = len(rows)
        if (partitions != partitions[0]).any():
            order = partitioner.order(partitions)
            rows, sizes, partitions = rows[order], sizes[order], partitions[order]
        ends = [*(np.flatnonzero(np.diff(partitions)) + 1).tolist(), count]
        deltas = np.empty(count, np.int64)
        bounds = np.cumsum(sizes + RECORD_BYTES_MAX)
        shares: list[tuple[Batch, int, int]] = []
        begin = 0
        for end in ends:
            place = (topic, int(partitions[begin]))
            queue = self.queues.get(place)
            if queue is None:
                queue = self.queues[place] = Queue(*place, sequence=self._sequences.get(place, 0))
            for batch, start, stop in self._fill(queue, bounds, begin, end):
                deltas[start:stop] = np.arange(batch.count - (stop - start), batch.count)
                shares.append((batch, start, stop))
            begin = end
        return Dealt(rows, deltas, shares)

    def make(self, records: Records, dealt: Dealt) -> None:
        """Make the records of rows that were dealt out, before any of their batches moves on."""
        found, places = records.make(dealt.rows, dealt.deltas)
        for batch, start, stop in dealt.shares:
            piece = found.slice(int(places[start]), int(places[stop] - places[start]))
            # A piece keeps all of what it is a part of; a small one of its own is less to keep.
            batch.records.append(piece if piece.size * _PIECES_MAX >= found.size else piece.to_pybytes())

    def close_all(self) -> None:
        """Send every batch as it is."""
        for queue in list(self._open):
            self._close(queue)

    def close_down_to(self, size: int) -> None:
        """Send the largest ones, until the others have no more bytes than that."""
        while self.bytes > size:
            self._close(max(self._open, key=lambda queue: self._open[queue].size))

    def clear(self) -> None:
        """Drop them."""
        self._open.clear()
        self.bytes = 0

    def _fill(self, queue: Queue, bounds: Numbers, begin: int, end: int) -> Iterator[tuple[Batch, int, int]]:
        """Yield the batches that take the rows of a queue from ``begin`` to ``end``, and which rows each takes."""
        import numpy as np

        while begin < end:
            batch = self._open.get(queue)
            if batch is None:
                batch = self._open[queue] = Batch(size=BATCH_BYTES)
                self.bytes += BATCH_BYTES
            before = int(bounds[begin - 1]) if begin else 0
            room = (
                min(self._batch_bytes, self._delivery.limits.get(queue.topic, self._batch_bytes)) - batch.size
            )
            stop = min(int(np.searchsorted(bounds, before + room, "right")), end)
            if stop <= begin:
                if batch.count:
                    self._close(queue)
                    continue
                stop = begin + 1  # larger than a batch is meant to be, and alone in one
            size = int(bounds[stop - 1]) - before
            batch.count += stop - begin
            batch.size += size
            self.bytes += size
            yield batch, begin, stop
            begin = stop

    def _close(self, queue: Queue) -> None:
        batch = self._open.pop(queue)
        self.bytes -= batch.size
        self._delivery.put(queue, batch)
