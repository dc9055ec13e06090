"""Writing and preparing one attempt at one slot. Executor; nothing here ever commits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from onceonly.errors import LogError, RecordRefusedError, WriteFailedError
from onceonly.model import Guarantee, Handle, Mode
from onceonly.sinks.kafka import columns, marker
from onceonly.sinks.kafka.checks import require_marker_topic
from onceonly.sinks.kafka.committer import Prepared
from onceonly.sinks.kafka.producers import import_confluent, this_worker

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.ports import WriteContext
    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.producers import Pool, Ready

_POLL_S = 0.05
# How many rows go out between two looks at the reports.
_POLL_EVERY = 1000
# KafkaError codes: RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE and rd_kafka's own _QUEUE_FULL.
_TOO_LARGE = 10
_INVALID_RECORD = 87


def begin(context: WriteContext, options: KafkaOptions) -> PlainWrite | TransactionalWrite:
    """Begin an attempt in the way that its guarantee asks for."""
    if context.guarantee is Guarantee.AT_LEAST_ONCE:
        return PlainWrite(context, options)
    return TransactionalWrite(context, options)


class PlainWrite:
    """One attempt's rows through a living producer; visible at once. At least once."""

    def __init__(self, context: WriteContext, options: KafkaOptions) -> None:
        self.context = context
        self.options = options
        self.rows = 0
        self._failure: Any = None
        self._too_large: int | None = None
        self._timeout_s = options.delivery_timeout_ms / 1000
        self.producer = self._take_producer()

    @property
    def name(self) -> str:
        """What errors call it."""
        context = self.context
        return f"query {context.query}, sink {context.sink}, epoch {context.epoch}, slot {context.slot}"

    def write(self, batch: pa.RecordBatch) -> None:
        """Hand the rows to librdkafka, which sends them in the background. Memory is bounded by its buffer."""
        produce, poll, report = self.producer.produce, self.producer.poll, self._on_report
        first = self.rows
        errors = import_confluent().KafkaException
        for row in columns.rows(batch, self.options.topic, first):
            topic, value, key, partition, headers = row
            try:
                produce(topic, value, key, partition, report, None, 0, headers)
            except BufferError:
                self._produce_patiently(row)
            except errors as error:
                self._failure = error.args[0]
                self._too_large = _size(row)
                self._raise_failure()
            self.rows += 1
            if not self.rows % _POLL_EVERY:
                poll(0)
                if self._failure is not None:
                    self._raise_failure()

    def pre_commit(self) -> Handle | None:
        """Wait until every row is acknowledged by all in-sync replicas."""
        self._flush()
        return None

    def discard(self) -> None:
        """Drop what is still buffered, so that the next attempt does not wait for it."""
        self.producer.purge()
        self.producer.poll(0)

    def _take_producer(self) -> Any:  # noqa: ANN401  confluent-kafka has no types here
        return this_worker().plain_producer(self.options)

    def _give_up(self) -> None:
        """A failure has been seen: this producer is not used again."""
        this_worker().forget_plain_producer(self.options)

    def _produce_patiently(self, row: columns.Row) -> None:
        """The buffer is full: let it drain, for the time that Java's producer would block."""
        topic, value, key, partition, headers = row
        deadline = time.monotonic() + self.options.max_block_ms / 1000
        while True:
            self.producer.poll(_POLL_S)
            if self._failure is not None:
                self._raise_failure()
            try:
                self.producer.produce(topic, value, key, partition, self._on_report, None, 0, headers)
            except BufferError:
                if time.monotonic() >= deadline:
                    raise WriteFailedError(
                        f"{self.name}: the producer's buffer stayed full for {self.options.max_block_ms} ms.",
                        next_step="see that the brokers keep up; kafka.buffer.memory and kafka.max.block.ms "
                        "bound this wait",
                    ) from None
            else:
                return

    def _on_report(self, error: Any, message: Any) -> None:  # noqa: ANN401
        # The first failure is the cause; later ones are its followers.
        if error is None or self._failure is not None:
            return
        self._failure = error
        self._too_large = len(message.value() or b"") + len(message.key() or b"")

    def _flush(self) -> None:
        left = self.producer.flush(self._timeout_s)
        if self._failure is not None:
            self._raise_failure()
        if left:
            self._give_up()
            raise WriteFailedError(
                f"{self.name}: {left} rows were not acknowledged within {self._timeout_s:g} s.",
                next_step="see that the brokers run; kafka.delivery.timeout.ms bounds this wait",
            )

    def _raise_failure(self) -> None:
        error = self._failure
        if error.fatal():
            self._give_up()
        if error.code() in {_TOO_LARGE, _INVALID_RECORD}:
            raise RecordRefusedError(
                f"{self.name}: a row of {self._too_large} bytes is refused ({error.str()}); the limits are "
                f"kafka.max.request.size, {self.options.record_bytes_max}, and max.message.bytes of the topic.",
                next_step="raise both limits, or make the row smaller",
            )
        raise WriteFailedError(
            f"{self.name}: {error.name()}: {error.str()}.",
            next_step="Spark runs the task again; if it goes on, look at the brokers and at the user's "
            "permissions to WRITE to the topic",
        )


class TransactionalWrite(PlainWrite):
    """One attempt's rows in a transaction of its own, prepared and never ended here."""

    def __init__(self, context: WriteContext, options: KafkaOptions) -> None:
        facts = context.facts
        self._cluster_id = str(facts["cluster_id"])
        self._end_txn_version = int(facts["end_txn_version"])
        self._timeout_ms = int(facts["transaction_timeout_ms"])
        self._pool: Pool = this_worker().pool(context, options, self._timeout_ms)
        self._marker_topic = require_marker_topic(options)
        self._group = marker.group_name(options.prefix, context.query, context.sink, context.slot)
        # Before anything is begun: the token that ours will replace is half of a proof of loss.
        self._predecessor = marker.read_or_seed(this_worker().admin(options), self._group, self._marker_topic)
        # An epoch that runs as new has nothing committed; one that is repaired has a part.
        newest = context.epoch if context.mode is Mode.TENTATIVE else context.epoch - 1
        if marker.epoch_of(self._predecessor) > newest:
            raise LogError(
                f"Sink {context.sink} of query {context.query} has committed epoch "
                f"{marker.epoch_of(self._predecessor)}, and this checkpoint is at epoch {context.epoch}: an older "
                f"checkpoint was restored. Nothing was written.",
                next_step="restore the newest checkpoint, or start a new one and accept that rows are repeated",
            )
        self._ready: Ready | None = self._pool.take(context.epoch)
        super().__init__(context, options)
        self._timeout_s = min(options.delivery_timeout_ms, self._timeout_ms) / 1000
        self._call(self.producer.begin_transaction)

    @property
    def name(self) -> str:
        transaction = "" if self._ready is None else f", transaction {self._ready.transactional_id}"
        return super().name + transaction

    def pre_commit(self) -> Handle:
        """Flush, then put the marker into the transaction. Afterwards any process can commit it."""
        kafka = import_confluent()
        self._flush()
        context, ready = self.context, self._ready
        if ready is None:
            raise WriteFailedError(f"{self.name}: prepared twice.", next_step="report a defect in onceonly")
        token = marker.new_token(context.epoch)
        offset = kafka.TopicPartition(self._marker_topic, 0, max(context.epoch, 0), token)
        self._call(
            self.producer.send_offsets_to_transaction,
            [offset],
            this_worker().group(self._group),
            self._timeout_s,
        )
        self._release()
        self._pool.prepare_spare(context.epoch)
        return Prepared(
            cluster_id=self._cluster_id,
            transactional_id=ready.transactional_id,
            producer_id=ready.producer_id,
            producer_epoch=ready.producer_epoch,
            end_txn_version=self._end_txn_version,
            group=self._group,
            marker_topic=self._marker_topic,
            token=token,
            predecessor=self._predecessor,
        ).handle()

    def discard(self) -> None:
        """Let go of the producer. Its transaction stays open until the driver sweeps it."""
        self._release()

    def _take_producer(self) -> Any:  # noqa: ANN401
        return None if self._ready is None else self._ready.producer

    def _give_up(self) -> None:
        pass  # it carries no second transaction anyway

    def _release(self) -> None:
        # Destroyed, neither committed nor aborted: a living producer could do both behind the driver's back.
        self._ready = None
        self.producer = None

    def _call(self, method: Any, *arguments: Any) -> None:  # noqa: ANN401
        try:
            method(*arguments)
        except import_confluent().KafkaException as error:
            self._failure = error.args[0]
            self._raise_failure()


def _size(row: columns.Row) -> int:
    _, value, key, _, headers = row
    size = len(value or b"") + len(key or b"")
    return size + sum(len(name.encode()) + len(content or b"") for name, content in headers or ())
