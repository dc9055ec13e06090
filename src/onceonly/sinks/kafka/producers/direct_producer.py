"""A producer that makes the record batches itself, out of Arrow's memory, and sends them as they are. Executor.

librdkafka keeps an entry for each row and copies it twice; here a row is a few bytes in numpy's arrays (ADR 11).
Whatever goes wrong for good costs one attempt, which Spark repeats. In a transaction, nobody sees what it has sent; at
least once, its rows may be there, and its producer id is not used again.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly.sinks.kafka.options import BATCH_BYTES
from onceonly.sinks.kafka.producers.confluent import import_confluent
from onceonly.sinks.kafka.producers.delivery import Delivery
from onceonly.sinks.kafka.producers.failures import Failure, Failures
from onceonly.sinks.kafka.producers.transaction import Transaction, take_id
from onceonly.sinks.kafka.records import columns, compression, partitioner, record_batches
from onceonly.sinks.kafka.records.open_batches import OpenBatches
from onceonly.sinks.kafka.wire import names
from onceonly.sinks.kafka.wire.answers import TOO_LARGE, NotAnsweredError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from onceonly.sinks.kafka.producers.reach import Reach
    from onceonly.sinks.kafka.producers.transaction import Sent
    from onceonly.sinks.kafka.records.fields import Fields
    from onceonly.sinks.kafka.records.open_batches import Dealt, Place
    from onceonly.sinks.kafka.records.record_batches import Identity

    Numbers = npt.NDArray[np.int64]

_REQUEST_MS_MAX = 30_000
# The first that casts binaries to views.
_ARROW_MIN = 18
_ROWS_AT_ONCE = 20_000
_BYTES_AT_ONCE = 1 << 22
# With columns beyond these, batches are taken one by one.
_SIMPLE = frozenset({"key", "value"})


def lacks() -> str:
    """Name what keeps batches from being made here; empty where nothing does.

    That is a google-crc32c with its part in C, an Arrow that casts to views, and a kafka-python that can be told to
    send batches as they are.
    """
    import pyarrow as pa

    if missing := names.missing():
        return f"a kafka-python that has {missing[0]}"
    if int(pa.__version__.split(".")[0]) < _ARROW_MIN:
        return f"pyarrow {_ARROW_MIN}, and not {pa.__version__}"
    try:
        import google_crc32c
    except ImportError:
        return "google-crc32c"
    return "" if google_crc32c.implementation == "c" else "google-crc32c with its part in C"


@dataclass(slots=True)
class _Offset:
    """An offset on its way into the transaction."""

    place: tuple[str, int, str]
    deadline: float
    sent: Sent | None = None
    done: Future[None] = field(default_factory=Future)


class DirectProducer:
    """The producer of one transaction, or, without an id, of one attempt after the other. In one thread."""

    def __init__(self, reach: Reach, transactional_id: str | None, timeout_ms: int) -> None:
        options = reach.options
        self._admin = reach.admin
        self._rows = reach.rows
        self._topics = reach.topics
        # The most bytes of a batch for a topic that rows name, where that is known.
        self._limit_of = reach.told.limit if options.topic is None else None
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._request_ms = min(int(options.client.get("socket.timeout.ms", _REQUEST_MS_MAX)), timeout_ms)
        self._record_bytes = options.record_bytes_max
        self._request_bytes = options.request_bytes_max
        self._batch_bytes = min(int(options.client.get("batch.size", BATCH_BYTES)), self._record_bytes)
        self._buffer_bytes = int(options.client["queue.buffering.max.kbytes"]) * 1024
        self._codec = compression.codec_of(options.client)
        self._topic = options.topic
        self._transaction: Transaction | None = None
        self._offset: _Offset | None = None
        # Batches that no records were made of so far, and the number of their first row in the slot.
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = self._gathered_bytes = self._first = 0
        # Rows without keys go to one partition of their topic after the other, a batch of Arrow's each.
        self._turns: dict[str, int] = {}
        self._first_turn = random.randrange(1 << 16)  # noqa: S311  to spread load
        # Of the next row of each partition that a former attempt has written to.
        self._sequences: dict[Place, int] = {}
        self.failures = Failures()

    def connect(self) -> None:
        """Ask for the topic's metadata where it is not known, best effort."""
        with contextlib.suppress(NotAnsweredError, import_confluent().KafkaException):
            if self._topic is not None:
                self._topics.leaders(self._topic)

    def take_id(self, timeout_s: float, ending_s: float = math.inf) -> Identity:
        """Take the transactional id, or draw a producer id. Raises as ``transaction.take_id`` does."""
        self._by = take_id(self._admin, self._transactional_id, self._timeout_ms, timeout_s, ending_s)
        self._open()
        return self._by

    def begin_transaction(self, group: str) -> None:
        """Begin, for rows that are there; ``group`` is whose offset will be in it.

        The request goes out that opens it: from then on a sweep finds it, and fences an attempt that sleeps. The answer
        is not waited for here.
        """
        assert self._transactional_id is not None  # noqa: S101  the pool gives it one
        self._transaction = Transaction(self._admin, self._transactional_id, self._by, group)
        self._transaction.add_group()

    def again(self) -> None:
        """Go on with another attempt, when all rows of the one before are acknowledged; not in a transaction."""
        self._sequences |= {place: queue.sequence for place, queue in self._batches.queues.items()}
        self._open()

    def _open(self) -> None:
        self._delivery = Delivery(
            self._rows,
            self._topics,
            transactional_id=self._transactional_id,
            by=self._by,
            codec=self._codec,
            request_bytes=self._request_bytes,
            request_ms=self._request_ms,
        )
        self._batches = OpenBatches(self._delivery, self._batch_bytes, self._sequences)

    def write(self, batch: pa.RecordBatch, topic: str | None, first: int, *, wait_s: float) -> None:
        """Take the rows of a batch, in its order, and send batches that are full; ends early with a ``failure``.

        Raises ``BufferError`` if more than the buffer holds stays unacknowledged for ``wait_s``,
        ``RecordRefusedError`` for a malformed row, ``UnavailableError`` for a topic that does not show itself so long.
        """
        self._topic = topic
        if not self._gathered:
            self._first = first
        # What the rows before it have opened is most often answered by now.
        with self._noted():
            self._settle(time.monotonic() + wait_s)
        if self.failures.first is not None:
            return
        batch = batch.select([name for name in batch.schema.names if name in columns.NAMES])
        is_simple = set(batch.schema.names) <= _SIMPLE
        for piece, size in _pieces(batch):
            self._gathered.append(piece)
            self._gathered_rows += piece.num_rows
            self._gathered_bytes += size
            # Not each batch by itself: numpy's and Arrow's calls cost as much for a few rows as for a thousand.
            is_much = self._gathered_rows >= _ROWS_AT_ONCE or self._gathered_bytes >= _BYTES_AT_ONCE
            # With the first rows, their partitions are added. The answer is waited for before rows are sent, and with
            # the next rows.
            if is_much or not self._batches.queues or not is_simple:
                with self._noted():
                    self._encode(wait_s)
                    self._bound(wait_s)
                if self.failures.first is not None:
                    return

    def flush(self, timeout_s: float) -> int:
        """Wait until every row is acknowledged or failed; return how many are neither. The offset goes beside them."""
        try:
            left = self._flush(timeout_s)
            if not left and self.failures.first is None:
                self._end_offset()
        finally:
            if self._offset is not None and not self._offset.done.done():
                self._offset.done.set_exception(NotAnsweredError("the rows beside it were not taken"))
        return left

    def begin_offset(self, topic: str, offset: int, metadata: str, timeout_s: float) -> Future[None]:
        """Have ``flush`` put an offset of partition 0 into the transaction; return what becomes of it, known by then.

        That is ``KafkaException`` where it is refused, ``UnavailableError`` where it is not answered for so long.
        """
        self._offset = _Offset((topic, offset, metadata), time.monotonic() + timeout_s)
        return self._offset.done

    def _flush(self, timeout_s: float) -> int:
        end = time.monotonic() + timeout_s
        delivery = self._delivery
        with self._noted():
            self._encode(timeout_s)
            if self.failures.first is not None:
                return 0
            self._batches.close_all()
            # The marker's group was added before the partitions, so the offset goes out before the rows.
            if (asked := self._send_offset()) and self._transaction is not None:
                self._transaction.wait_with(asked, end)
                self._send_offset()
            self._settle(end)
            delivery.move()
            while delivery.failure is None and (left := delivery.rows):
                left_s = end - time.monotonic()
                if left_s <= 0:
                    if why := delivery.trouble():
                        self.failures.hear(why)
                    delivery.give_up()
                    return left
                delivery.wait(left_s, *self._send_offset())
                delivery.move()
        return 0

    def _send_offset(self) -> list[Future[Any]]:
        """Send the offset if its group is in the transaction by now; else give what to wait for, beside rows."""
        offset, transaction = self._offset, self._transaction
        if offset is None or offset.sent is not None or transaction is None:
            return []
        group = transaction.add_group()
        if group.is_taken():
            offset.sent = transaction.begin_offset(*offset.place, offset.deadline)
        return [] if group.answer.done() else [group.answer]

    def _end_offset(self) -> None:
        """Wait until the offset is in the transaction, which may take more than one try."""
        offset, transaction = self._offset, self._transaction
        if offset is not None and transaction is not None:
            try:
                sent = offset.sent or transaction.begin_offset(*offset.place, offset.deadline)
                transaction.end_offset(sent, offset.deadline)
            except Exception as error:  # noqa: BLE001  it is raised where it is waited for
                offset.done.set_exception(error)
            else:
                offset.done.set_result(None)

    def written(self) -> dict[tuple[str, int], int]:
        """Name the partitions that rows were sent to, and the offset of the first one in each, -1 where not known."""
        return {place: queue.start for place, queue in self._batches.queues.items()}

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that rows were sent to."""
        return {topic: self._topics.id_of(topic) for topic, _ in self._batches.queues}

    def close(self) -> None:
        """Send nothing more; the transaction stays open, and the connection belongs to the process. Idempotent."""
        self._gathered.clear()
        self._batches.clear()
        self._delivery.drop()

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Tell the attempt what has failed."""
        try:
            yield
        except import_confluent().KafkaException as error:
            self.failures.note(Failure(error.args[0]))
        finally:
            if self._delivery.failure is not None:
                self.failures.note(self._delivery.failure)

    def _encode(self, wait_s: float) -> None:
        """Make records of what was gathered, and begin to add partitions that are new to the transaction."""
        import numpy as np

        batches, first = self._gathered, self._first
        if not batches:
            return
        self._first += self._gathered_rows
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
        batch = batches[0]  # the only one, if there is more than keys and values
        fields, named = columns.fields(batches, first), columns.partitions(batch)
        hashes = None
        if fields.keys is not None:
            hashes = np.concatenate([partitioner.hashes(each) for each in fields.keys.pieces])
        dealt = [
            self._deal(
                name,
                fields,
                rows,
                None if hashes is None else hashes[rows],
                None if named is None else named[rows],
                wait_s,
            )
            for name, rows in columns.by_topic(batch, self._topic, first, len(fields))
        ]
        if self._transaction is not None:  # under way while the records are made
            self._transaction.add(self._batches.queues)
        records = record_batches.records(fields)
        for each in dealt:
            if each is not None:
                self._batches.make(records, each)

    def _deal(
        self,
        topic: str,
        fields: Fields,
        rows: Numbers,
        hashes: Numbers | None,
        named: Numbers | None,
        wait_s: float,
    ) -> Dealt | None:
        """Deal rows out to their partitions; None where there are none, or where one cannot be sent, which is noted."""
        count, sizes = len(rows), fields.sizes[rows]
        if not count:
            return None
        if int(sizes.max()) > self._record_bytes:
            size = int(sizes[sizes > self._record_bytes][0])
            self.failures.note(Failure(import_confluent().KafkaError(TOO_LARGE), size))
            return None
        if self._limit_of is not None and topic not in self._delivery.limits:
            self._delivery.limits[topic] = self._limit_of(topic) or self._batch_bytes
        return self._batches.deal(topic, rows, sizes, self._partitions(topic, count, hashes, named, wait_s))

    def _partitions(
        self, topic: str, rows: int, hashes: Numbers | None, named: Numbers | None, wait_s: float
    ) -> Numbers:
        """Return each row's partition. Those that rows name are there (``named_partitions``)."""
        import numpy as np

        count = len(self._rows.patiently(wait_s, f"topic {topic}", lambda: self._topics.leaders(topic)))
        # Topics begin at different places: what comes first is not all for the same number of partition.
        turn = self._turns.get(topic, self._first_turn + len(self._turns)) + 1
        self._turns[topic] = turn
        without_key = turn % count
        if hashes is None:
            partitions = np.full(rows, without_key, np.int64)
        else:
            partitions = hashes % count
            partitions[hashes == partitioner.NO_KEY] = without_key
        return partitions if named is None else np.where(named == columns.BY_KEY, partitions, named)

    def _settle(self, deadline: float) -> None:
        """Wait until the partitions are in the transaction. Raises as ``Transaction.until_added`` does."""
        if self._transaction is None:
            return
        try:
            self._transaction.until_added(deadline)
        except Exception:
            # One may be there no longer: the topic was made anew with fewer. The next attempt shall not go by that.
            for topic, _ in self._batches.queues:
                self._topics.forget(topic)
            raise

    def _bound(self, wait_s: float) -> None:
        """Send what is full, and wait while the buffer does not hold what is open and what is not acknowledged."""
        delivery = self._delivery
        # Half the buffer is left to open batches where the brokers are slow: they would only get smaller.
        self._batches.close_down_to(max(self._buffer_bytes - delivery.bytes, self._buffer_bytes // 2))
        if not delivery.bytes:
            return
        end = time.monotonic() + wait_s
        self._settle(end)
        delivery.move()
        before = delivery.bytes
        # It ends at the latest when all is acknowledged: what is open is never more than the buffer.
        while delivery.failure is None and delivery.bytes + self._batches.bytes > self._buffer_bytes:
            left_s = end - time.monotonic()
            if left_s <= 0:
                raise BufferError(delivery.trouble())
            delivery.wait(left_s)
            delivery.move()
            if delivery.bytes < before:
                before, end = delivery.bytes, time.monotonic() + wait_s


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Cut a batch to what a cache holds, and return how many bytes each piece has, about."""
    size, count = batch.nbytes, batch.num_rows
    step = max(min(_ROWS_AT_ONCE, count * _BYTES_AT_ONCE // max(size, 1)), 1)
    for begin in range(0, count, step):
        piece = batch.slice(begin, step)
        yield piece, size * piece.num_rows // count
